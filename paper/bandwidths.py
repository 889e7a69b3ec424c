"""Which bandwidth rule can be trusted? Coverage, log density at the truth and EVD of every rule, on test tasks of which
the reward is known.

For each world, number of training tasks K and bank: rewards from the prior U[-1, 1]^q, optimal experts, K training
tasks and `TESTS` test tasks. For each number n of the test expert's rows and each rule, the posterior is computed on a
grid of equally weighted points of the prior; so every rule is judged on the same bank, test rows and points. Feature
expectations of the optimal policy at every point are computed once per world: EVD = w*.(mu* - mu_R), averaged over the
posterior; `evd_of_mean` is that of the one policy that is optimal for the posterior mean.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from kdbirl.evaluation.cells import CellStore
from kdbirl.features.maps import Standardize
from kdbirl.features.python_code import Function
from kdbirl.likelihood.bandwidths import Bandwidths, by_rule
from kdbirl.methods.kdbirl import KDBIRL
from kdbirl.posterior.priors import Uniform, prior_points
from kdbirl.progress import Progress, Silent
from kdbirl.trust.held_out import HeldOutTasks, Plays, log_mean_and_effective
from kdbirl.trust.loto import bounded
from kdbirl.worlds.planning import optimal_feature_expectations
from kdbirl.worlds.policy import Policy
from kdbirl.worlds.policy_value import feature_expectations
from kdbirl.worlds.rollouts import make_bank
from kdbirl.worlds.tabular import TabularMDP
from paper.claims import Interval
from paper.ledger import Claim, Verdict, withheld

WORLDS = ("grid", "icu-sepsis")
RULES = ("loto", "paper", "silverman", "median", "cv")
TASKS = (8, 16, 40)
ROWS = (20, 50, 200)
BANKS = 10
TESTS = 12  # test tasks of each bank
EPISODES, HORIZON = 40, 20
POINTS = {2: 48**2, 3: 18**3}  # of the prior's grid, by the number of parameters
LEVEL = 0.9


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
    from kdbirl.worlds.gridworld import Gridworld
    from kdbirl.worlds.icu_sepsis import ICUSepsis

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


# What the study of bandwidth rules found: one row for each world, K, n and rule, and the claims that it decides.

NAME = "bandwidths"
WHERE = "Section 5 (bandwidths by the variance of distances); no claim of coverage is printed"
PROMISED, LOWEST, HIGHEST = 0.9, 0.85, 0.97
SUMMARISED = ("coverage", "bounded", "log_density", "squared_error", "evd", "evd_of_mean")
Row = dict[str, Any]


def summary(rows: Sequence[Row]) -> list[Row]:
    """Means over banks, each with its standard error over banks, and the mean choices of each cell and rule."""
    cells = dict.fromkeys((row["world"], row["K"], row["n"], row["rule"]) for row in rows)
    return [_summed(cell, [row for row in rows if _cell(row) == cell]) for cell in cells]


def _cell(row: Row) -> tuple[Any, ...]:
    return row["world"], row["K"], row["n"], row["rule"]


def _summed(cell: tuple[Any, ...], own: Sequence[Row]) -> Row:
    found: Row = dict(zip(("world", "K", "n", "rule"), cell, strict=True))
    found |= {"banks": len(own), "test_tasks": sum(len(row["coverage"]) for row in own)}
    for name in SUMMARISED:
        means = np.array([np.mean(row[name]) for row in own])
        error = float(means.std(ddof=1) / np.sqrt(len(means))) if len(means) > 1 else None
        found |= {name: float(means.mean()), f"{name}_error": error}
    for name in ("h", "h_reward", "power"):
        found[name] = float(np.mean([row[name] for row in own]))
    return found


def claims(rows: Sequence[Row], quick: bool) -> list[Claim]:
    """Whether intervals hold the truth as often as promised, in the worst cell of each rule."""
    table, rules = summary(rows), dict.fromkeys(row["rule"] for row in rows)
    return [withheld(_claim(rule, [row for row in table if row["rule"] == rule], rows), quick) for rule in rules]


def _claim(rule: str, cells: Sequence[Row], rows: Sequence[Row]) -> Claim:
    worst = max(cells, key=lambda row: abs(row["coverage"] - PROMISED))
    own = [np.mean(row["coverage"]) for row in rows if _cell(row) == _cell(worst)]
    interval, inside = Interval.of(np.asarray(own)), all(LOWEST <= row["coverage"] <= HIGHEST for row in cells)
    verdict: Verdict = "holds" if inside else "does not hold"
    lowest, highest = (find(row["coverage"] for row in cells) for find in (min, max))
    return Claim(
        experiment=NAME,
        name=f"coverage-{rule}",
        variant="printed" if rule == "paper" else "ours",
        claim=f"With the rule {rule!r}, 90 % intervals hold the truth in 85 to 97 % of new tasks, in every cell.",
        where=WHERE,
        statistic=f"coverage in the worst cell ({worst['world']}, {worst['K']} tasks, {worst['n']} rows)",
        number=interval.number,
        low=interval.low,
        high=interval.high,
        seeds=len(own),
        verdict=verdict,
        why=f"coverage is {lowest:.2f} to {highest:.2f} over {len(cells)} cells",
    )


# Bandwidth rules side by side: coverage and log density at the truth against the expert's rows.

COLOURS = {"loto": "#1b6ca8", "paper": "#b3261e", "silverman": "#b26a00", "median": "#5f6b6d", "cv": "#7b3fa0"}
MARKERS = {"loto": "o", "paper": "s", "silverman": "^", "median": "D", "cv": "v"}
MEASURES = {"coverage": "90 % intervals that hold the truth", "bounded": "log density at the truth (prior = 0)"}
TITLES = {"grid": "10x10 grid", "icu-sepsis": "ICUSepsis"}


def plot_bandwidth_rules(table: Sequence[dict[str, Any]], measure: str = "coverage") -> Figure:
    """One panel for each world (rows) and number of tasks (columns); means over banks, with standard errors."""
    worlds, tasks = (list(dict.fromkeys(row[name] for row in table)) for name in ("world", "K"))
    figure = Figure(figsize=(2.9 * len(tasks) + 0.6, 2.6 * len(worlds) + 0.7), layout="constrained")
    axes = figure.subplots(len(worlds), len(tasks), squeeze=False, sharex=True, sharey=True)
    for i, world in enumerate(worlds):
        for j, count in enumerate(tasks):
            own = [row for row in table if row["world"] == world and row["K"] == count]
            _panel(axes[i, j], own, measure)
            axes[i, j].set_title(f"{TITLES.get(world, world)}, {count} tasks", fontsize=10)
    figure.supxlabel("rows of the expert", fontsize=10)
    figure.supylabel(MEASURES[measure], fontsize=10)
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(labels), frameon=False, fontsize=9)
    return figure


def _panel(axis: Axes, rows: Sequence[dict[str, Any]], measure: str) -> None:
    if measure == "coverage":
        axis.axhspan(0.85, 0.97, color="#1b6ca8", alpha=0.1, lw=0)
        axis.axhline(0.9, color="#444", lw=0.8, ls="--")
        axis.set_ylim(0, 1.02)
    else:
        axis.axhline(0, color="#444", lw=0.8, ls="--")
    sizes = sorted({row["n"] for row in rows})
    for rule in dict.fromkeys(row["rule"] for row in rows):
        own = sorted((row for row in rows if row["rule"] == rule), key=lambda row: row["n"])
        errors = [row[f"{measure}_error"] or 0.0 for row in own]
        place = np.array([row["n"] for row in own], dtype=float)
        width = 2.2 if rule == "loto" else 1.2
        style: dict[str, Any] = {"color": COLOURS[rule], "marker": MARKERS[rule], "ms": 5, "lw": width}
        axis.errorbar(place, [row[measure] for row in own], errors, label=rule, capsize=2, **style)
    axis.set_xscale("log")
    axis.set_xticks(sizes, [str(size) for size in sizes])
    axis.minorticks_off()
    axis.grid(alpha=0.25)
