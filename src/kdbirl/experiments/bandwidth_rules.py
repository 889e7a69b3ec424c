"""Which bandwidth rule can be trusted? Coverage, log density at the truth and EVD of every rule, on test tasks of which
the reward is known.

For each world, number of training tasks K and bank: rewards from the prior U[-1, 1]^q, optimal experts, K training
tasks and `TESTS` test tasks. For each number n of the test expert's rows and each rule, the posterior is computed on a
grid of equally weighted points of the prior; so every rule is judged on the same bank, test rows and points. Feature
expectations of the optimal policy at every point are computed once per world: EVD = w*.(mu* - mu_R), averaged over the
posterior; `evd_of_mean` is that of the one policy that is optimal for the posterior mean.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from jaxtyping import Float

from kdbirl.demos.rollouts import make_bank
from kdbirl.diagnosis.held_out import HeldOutTasks, log_mean_and_effective
from kdbirl.diagnosis.loto import bounded
from kdbirl.diagnosis.plays import Plays
from kdbirl.envs.base import TabularMDP
from kdbirl.experiments.cell_store import CellStore
from kdbirl.features.python_code import Function
from kdbirl.features.standardize import Standardize
from kdbirl.likelihood.bandwidths import Bandwidths, by_rule
from kdbirl.methods.kdbirl import KDBIRL
from kdbirl.planners.evaluation import feature_expectations
from kdbirl.planners.plan import optimal_feature_expectations
from kdbirl.planners.policy import Policy
from kdbirl.posterior.prior_points import prior_points
from kdbirl.posterior.priors import Uniform
from kdbirl.progress import Progress, Silent

WORLDS = ("grid", "icu-sepsis")
RULES = ("loto", "paper", "silverman", "median", "cv")
TASKS = (8, 16, 40)
ROWS = (20, 50, 200)
BANKS = 10
TESTS = 12  # test tasks of each bank
EPISODES, HORIZON = 40, 20
POINTS = {2: 48**2, 3: 18**3}  # of the prior's grid, by the number of parameters
LEVEL = 0.9
MODULES = ("bandwidth_rules",)  # that compute cells


@dataclass(frozen=True)
class RuleStudy:
    """What is run. The first banks of a longer study are those of a shorter one."""

    worlds: tuple[str, ...] = WORLDS
    tasks: tuple[int, ...] = TASKS
    rows: tuple[int, ...] = ROWS
    banks: int = BANKS
    rules: tuple[str, ...] = RULES

    def run(self, store: CellStore, progress: Progress | None = None) -> list[dict[str, Any]]:
        """One row for each world, K, bank, n and rule; cells already in the store are not computed again."""
        progress = progress or Silent()
        cells = [(w, k, b) for w in self.worlds for k in self.tasks for b in range(self.banks)]
        rows: list[dict[str, Any]] = []
        for done, (world, tasks, bank) in enumerate(cells):
            progress.update("bandwidth rules", done, len(cells), f"{world}, {tasks} tasks")
            key = {"study": "bandwidth rules", "world": world, "K": tasks, "bank": bank, "n": list(self.rows)}
            key |= {"rules": list(self.rules)}
            rows += store.get(key, partial(self._bank, world, tasks, bank))["rows"]
        progress.update("bandwidth rules", len(cells), len(cells))
        return rows

    def _bank(self, name: str, tasks: int, seed: int) -> dict[str, Any]:
        trial = _Trial.of(name, tasks, seed)
        return {"rows": [row for n in self.rows for row in trial.judged(n, self.rules)]}


FULL = RuleStudy()
QUICK = RuleStudy(worlds=("grid",), tasks=(8,), rows=(20, 50), banks=2)


@dataclass(frozen=True)
class World:
    """A world with the points of the prior and the feature expectations of the policies that they lead to."""

    name: str
    mdp: TabularMDP
    points: Float[np.ndarray, "P q"]
    expectations: Float[np.ndarray, "P q"]
    random: Float[np.ndarray, " q"]


_WORLDS: dict[str, World] = {}


def world_of(name: str) -> World:
    """One of `WORLDS`, planned once in a process."""
    from kdbirl.envs.gridworld import Gridworld
    from kdbirl.envs.icu_sepsis import ICUSepsis

    if name not in _WORLDS:
        mdp = Gridworld(10, features="xy", scaled=True) if name == "grid" else ICUSepsis()
        q = _phi(mdp).shape[-1]
        points = prior_points(Uniform(-1, 1).for_parameters(q), POINTS[q])
        random = feature_expectations(mdp, Policy.uniform(mdp.n_states, mdp.n_actions))
        _WORLDS[name] = World(name, mdp, points, optimal_feature_expectations(mdp, points), random)
    return _WORLDS[name]


def reward_features(mdp: TabularMDP) -> Standardize:
    """phi(s, a) itself, standardised, as the features of the density: what a user of w.phi would take."""
    table = _phi(mdp)

    def phi(states: np.ndarray, actions: np.ndarray) -> np.ndarray:
        return np.asarray(table[np.asarray(states).reshape(-1).astype(int), np.asarray(actions).astype(int)])

    return Standardize(Function(phi, names=mdp.feature_names))


def _phi(mdp: TabularMDP) -> Float[np.ndarray, "S A q"]:
    assert mdp.features is not None
    by_action = mdp.features if mdp.features.ndim == 3 else mdp.features[:, None]
    return np.broadcast_to(by_action, (mdp.n_states, mdp.n_actions, mdp.features.shape[-1]))


@dataclass(frozen=True)
class _Trial:
    """A fitted model of K tasks, and test tasks with known rewards that it has never seen."""

    world: World
    tasks: int
    seed: int
    model: KDBIRL
    tests: Plays
    truths: Float[np.ndarray, "T q"]

    @classmethod
    def of(cls, name: str, tasks: int, seed: int) -> "_Trial":
        world = world_of(name)
        q = world.points.shape[1]
        rewards = np.random.default_rng([seed, tasks]).uniform(-1, 1, (tasks + TESTS, q))
        bank = make_bank(world.mdp, rewards, episodes=EPISODES, horizon=HORIZON, seed=seed)
        training, tests = bank.select(range(tasks)), bank.select(range(tasks, tasks + TESTS))
        model = KDBIRL(prior=Uniform(-1, 1), features=reward_features(world.mdp), bandwidth="loto").fit(training)
        assert model.fitted is not None
        plays = Plays.from_bank(tests, model.fitted.features, seed)
        return cls(world, tasks, seed, model, plays, tests.rewards)

    def judged(self, n: int, rules: Iterable[str]) -> list[dict[str, Any]]:
        """Mean coverage, log density and EVD over the test tasks, for each rule."""
        fitted = self.model.fitted
        assert fitted is not None
        shown = HeldOutTasks.shown(
            fitted.ckde,
            np.arange(TESTS),
            self.truths,
            self.tests.rows,
            [self.tests.of_task(task, n, 1) for task in range(TESTS)],
            np.ones((TESTS, fitted.ckde.n_tasks)),
            self.world.points,
        )
        return [self._row(rule, n, shown) for rule in rules]

    def _row(self, rule: str, n: int, shown: HeldOutTasks) -> dict[str, Any]:
        widths, power = self._chosen(rule, n)
        kernels = shown.reward_kernels(np.array([widths.h_reward]))
        at_points, at_truths = (part[0, :, 0] for part in shown.log_likelihoods(widths.h, kernels))
        evidence, _ = log_mean_and_effective(at_points, np.array([power]))
        scores = power * at_truths - evidence[0]
        weights = np.exp(power * (at_points - at_points.max(axis=1, keepdims=True)))
        weights /= weights.sum(axis=1, keepdims=True)
        ranks = marginal_ranks(self.world.points, weights, self.truths)
        covered = (ranks > (1 - LEVEL) / 2) & (ranks < (1 + LEVEL) / 2)
        error = weights @ self.world.points - self.truths
        return {
            "world": self.world.name,
            "K": self.tasks,
            "n": n,
            "bank": self.seed,
            "rule": rule,
            "coverage": covered.mean(axis=1).tolist(),
            "log_density": scores.tolist(),
            "bounded": bounded(scores).tolist(),
            "squared_error": np.mean(error**2, axis=1).tolist(),
            "evd": self._lost(weights @ self.world.expectations).tolist(),
            "evd_of_mean": self._lost(
                optimal_feature_expectations(self.world.mdp, weights @ self.world.points)
            ).tolist(),
            "h": widths.h.tolist(),
            "h_reward": widths.h_reward,
            "power": power,
        }

    def _chosen(self, rule: str, n: int) -> tuple[Bandwidths, float]:
        fitted = self.model.fitted
        assert fitted is not None
        if rule == "loto":
            choice = fitted.choices.for_rows(n)
            return choice.bandwidths, choice.power
        return by_rule(rule, fitted.ckde, self.seed), 1.0

    def _lost(self, collected: Float[np.ndarray, "T q"]) -> Float[np.ndarray, " T"]:
        """The value lost by policies that collect these features, in units of optimal minus random."""
        best = optimal_feature_expectations(self.world.mdp, self.truths)
        lost = np.sum(self.truths * (best - collected), axis=1)
        return np.asarray(lost / np.sum(self.truths * (best - self.world.random), axis=1))


def marginal_ranks(
    points: Float[np.ndarray, "P q"], weights: Float[np.ndarray, "T P"], truths: Float[np.ndarray, "T q"]
) -> Float[np.ndarray, "T q"]:
    """P(R_i < truth_i) for points that are midpoints of a grid's cells: a cell that holds the truth counts in part."""
    ranks = np.empty(truths.shape)
    for i in range(points.shape[1]):
        values, cell = np.unique(points[:, i], return_inverse=True)
        width = values[1] - values[0]
        share = np.clip((truths[:, i, None] - (values[None] - width / 2)) / width, 0.0, 1.0)
        masses = np.stack([np.bincount(cell, weights=row, minlength=len(values)) for row in weights])
        ranks[:, i] = np.sum(masses * share, axis=1)
    return ranks
