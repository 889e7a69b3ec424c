"""World, training bank and expert of a grid setting, for one seed.

The rule for what the text does not name: per seed, a discount from `DISCOUNTS`, a horizon of 2, 3 or 4 sides of the
grid (episodes start anywhere), and training rewards as `training` says. Bank, expert and world have streams of their
own, so that variants of a setting share the world, and those with the same kind of experts share the expert too.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Float, Int

from kdbirl.data.demonstrations import Demonstrations, TaskBank, concatenate
from kdbirl.errors import InputError
from kdbirl.posterior.priors import parse_prior
from kdbirl.worlds.gridworld import Gridworld
from kdbirl.worlds.planning import plan, policies_for
from kdbirl.worlds.rollouts import rollout
from paper.grid_settings import DISCOUNTS, HORIZONS, TASKS, GridSetting

# The experts of the released grid scripts: walkers that look one step ahead; unfinished rollouts are dropped.
#
# In cell s a walker takes the action that leads to the neighbouring cell with the highest reward, any of them where
# several are as good: where no reward is in sight, that is a random walk. A rollout is finished when the walker stands
# in a cell of the highest reward of all; that last row is recorded with NO ACTION. The horizon cuts rollouts, and those
# that it cuts are dropped: what is left are the lucky ones.

ROLLOUTS = 1000  # of each task, as in the scripts
TIES = 1e-9  # of the largest reward


def walk(
    world: Gridworld, reward: Float[np.ndarray, " q"], horizon: int, rng: np.random.Generator, noise: float = 0.0
) -> Demonstrations:
    """The finished ones of 1,000 rollouts from random cells; a share `noise` of the moves is random."""
    cells = np.asarray(world.reward_table(reward[None]))[0, :, 0]
    after = np.argmax(world.transitions, axis=2)
    best = _best(cells[after], np.abs(cells).max())
    goal = cells >= cells.max() - TIES * np.abs(cells).max()
    state = rng.choice(world.n_states, ROLLOUTS, p=world.start)
    done, rows = np.zeros(ROLLOUTS, dtype=bool), []
    for step in range(horizon):
        arrived = goal[state] & ~done
        action = np.where(arrived, 0, _chosen(best[state], noise, rng))
        rows.append(np.stack([np.arange(ROLLOUTS), np.full(ROLLOUTS, step), state, action, arrived])[:, ~done])
        done, state = done | arrived, after[state, action]
    return _finished(np.concatenate(rows, axis=1), done, world)


def _best(ahead: Float[np.ndarray, "S A"], scale: float) -> Bool[np.ndarray, "S A"]:
    return np.asarray(ahead >= ahead.max(axis=1, keepdims=True) - TIES * scale)


def _chosen(allowed: Bool[np.ndarray, "k A"], noise: float, rng: np.random.Generator) -> Int[np.ndarray, " k"]:
    """One of the allowed actions of each row, or with probability `noise` any action."""
    free = np.where(rng.random((len(allowed), 1)) < noise, True, allowed)
    return np.asarray(np.argmax(np.where(free, rng.random(allowed.shape), -1.0), axis=1))


def _finished(rows: Int[np.ndarray, "5 r"], done: Bool[np.ndarray, " k"], world: Gridworld) -> Demonstrations:
    if not done.any():
        raise InputError("No walker reached its goal: a longer horizon, or less noise, is needed.")
    kept = rows[:, done[rows[0]]]
    episode, _, states, actions, last = kept[:, np.lexsort((kept[1], kept[0]))]
    return Demonstrations(
        states=states,
        actions=actions,
        episodes=episode,
        terminated=last.astype(bool),
        truncated=np.zeros(len(last), dtype=bool),
        action_labels=world.action_names,
        n_states=world.recorded_states,
        n_actions=world.n_actions,
    )


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
