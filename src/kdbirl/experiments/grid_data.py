"""World, training bank and expert of a grid setting, for one seed.

The rule for what the text does not name: per seed, a discount from `DISCOUNTS`, a horizon of 2, 3 or 4 sides of the
grid (episodes start anywhere), and training rewards as `training` says. Bank, expert and world have streams of their
own, so that variants of a setting share the world, and those with the same kind of experts share the expert too.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float, Int

from kdbirl.demos.data import Demonstrations, TaskBank, concatenate
from kdbirl.demos.rollouts import rollout
from kdbirl.envs.gridworld import Gridworld
from kdbirl.experiments.greedy_walkers import walk
from kdbirl.experiments.grid_settings import DISCOUNTS, HORIZONS, TASKS, GridSetting
from kdbirl.planners.plan import plan, policies_for
from kdbirl.posterior.priors import parse_prior

WORLD, REWARDS, BANK, EXPERT, SAMPLE = 1, 2, 3, 4, 5  # streams of random numbers of one seed


@dataclass(frozen=True)
class GridData:
    """Everything that one seed of a setting is made of."""

    setting: GridSetting
    seed: int
    discounts: tuple[float, ...] = DISCOUNTS

    def stream(self, use: int, *more: int) -> np.random.Generator:
        """Random numbers of their own for each use."""
        return np.random.default_rng([self.seed, self.setting.size, use, *more])

    @cached_property
    def world(self) -> Gridworld:
        """The grid with this seed's discount."""
        discount = float(self.stream(WORLD).choice(self.discounts))
        return Gridworld(self.setting.size, discount=discount, features=self.setting.parameters)

    @cached_property
    def horizon(self) -> int:
        """Steps of an episode."""
        return int(self.stream(WORLD, 1).choice(HORIZONS)) * self.setting.size

    @cached_property
    def rewards(self) -> Float[np.ndarray, "K q"]:
        """The training rewards, by the setting's rule."""
        return training_rewards(self.setting, self.stream(REWARDS))

    @cached_property
    def bank(self) -> TaskBank:
        """m training rows in all."""
        tasks = self._walked() if self.setting.experts == "walkers" else self._optimal()
        index = np.repeat(np.arange(len(tasks)), [rows.n_rows for rows in tasks.values()])
        kept = list(tasks)
        return TaskBank(
            concatenate(list(tasks.values())), index, self.rewards[kept], map(str, kept), self.world.feature_names
        )

    @cached_property
    def expert(self) -> Demonstrations:
        """n rows of the test task: the first of whole episodes, or sampled one by one from finished rollouts."""
        if self.setting.experts == "optimal":
            return self.episodes
        return _sampled(self._expert_walks, self.setting.expert_rows, self.stream(SAMPLE, 1))

    @cached_property
    def episodes(self) -> Demonstrations:
        """n rows of the test task in whole episodes (AVRIL needs to know what followed)."""
        n = self.setting.expert_rows
        if self.setting.experts == "walkers":
            return self._expert_walks.take(np.arange(min(n, self._expert_walks.n_rows)))
        policy = plan(self.world, np.asarray(self.setting.truth))
        seed = int(self.stream(EXPERT).integers(2**31))
        return rollout(self.world, policy, -(-n // self.horizon), self.horizon, seed).take(np.arange(n))

    @cached_property
    def _expert_walks(self) -> Demonstrations:
        return walk(self.world, np.asarray(self.setting.truth), self.horizon, self.stream(EXPERT, 1))

    def _optimal(self) -> dict[int, Demonstrations]:
        """The same number of rows of each task, in whole episodes."""
        each = self.setting.rows // len(self.rewards)
        policies = policies_for(self.world, self.rewards, None, self.setting.noise)
        seeds = self.stream(BANK).integers(2**31, size=len(self.rewards))
        played = (
            rollout(self.world, policy, -(-each // self.horizon), self.horizon, int(seed))
            for policy, seed in zip(policies, seeds, strict=True)
        )
        return {k: rows.take(np.arange(each)) for k, rows in enumerate(played)}

    def _walked(self) -> dict[int, Demonstrations]:
        """One row of each task, so that every seed has the same tasks; the rest sampled from all finished rollouts."""
        walks = [
            walk(self.world, reward, self.horizon, self.stream(BANK, k), self.setting.noise)
            for k, reward in enumerate(self.rewards)
        ]
        owner = np.repeat(np.arange(len(walks)), [rows.n_rows for rows in walks])
        rest = self.stream(SAMPLE).choice(owner, max(self.setting.rows - len(walks), 0))
        counts = 1 + np.bincount(rest, minlength=len(walks))
        return {k: _sampled(walks[k], int(c), self.stream(SAMPLE, 2, k)) for k, c in enumerate(counts)}


def training_rewards(setting: GridSetting, rng: np.random.Generator) -> Float[np.ndarray, "K q"]:
    """The rewards of the training tasks.

    text: [1, 0, 0, 0] and [0, 1, 0, 0]. every cell: 1 in each cell in turn. three other cells: 1 in one of three cells
    that are not the goal's. two weights: from U[-1, 1]^2. weights 11x11: a grid from -1.1 to 0.9. prior draws: K.
    """
    cells = np.eye(setting.size**2)
    if setting.training == "text":
        return cells[: TASKS["text"]]
    if setting.training == "every cell":
        return cells
    if setting.training == "three other cells":
        others = np.flatnonzero(np.asarray(setting.truth) == 0)
        return cells[rng.choice(others, TASKS["three other cells"], replace=False)]
    if setting.training == "two weights":
        return rng.uniform(-1, 1, (TASKS["two weights"], 2))
    if setting.training == "weights 11x11":
        axis = np.linspace(-1.1, 0.9, 11)
        return np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    prior = parse_prior(setting.prior).for_parameters(len(setting.truth))
    return np.asarray(prior.sample(rng, setting.tasks))


def _sampled(rows: Demonstrations, count: int, rng: np.random.Generator) -> Demonstrations:
    """Rows one by one, with replacement; each is an episode of its own, since nothing that followed was kept."""
    index: Int[np.ndarray, " c"] = rng.integers(rows.n_rows, size=count)
    return Demonstrations(
        states=rows.states[index],
        actions=None if rows.actions is None else rows.actions[index],
        episodes=np.arange(count),
        action_labels=rows.action_labels,
        n_states=rows.n_states,
        n_actions=rows.n_actions,
    )
