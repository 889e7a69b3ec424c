"""Where the expert goes that the training tasks did not: there the likelihood rests on a few rows, or on none.

The effective number of training rows behind expert row i, over all tasks (repeated rows count as often as they occur):

    n_eff_i = (sum_j K_ij)^2 / sum_j K_ij^2          m where all rows weigh alike, 1 where one row decides

A far row can still have many equally far rows behind it, so its density, sum_j K_ij / m, is also held against that of
training rows, each of them left out with its own task, as the test task is a task of its own. Both are free of units.
An expert row is *outside* if its density is below the `LOWEST_SHARE` quantile of the training rows', if fewer than
`FEWEST_ROWS` effective rows are behind it *and* its density is among the lowest `RARE_SHARE`, or if it has a label that
no training task shows. A row with few rows behind it that is otherwise as dense as training rows is *thin*: seen, but
seldom, which a narrow h makes of many rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from kdbirl.likelihood.ckde import CKDE
from kdbirl.likelihood.kernels import PairKernel
from kdbirl.likelihood.sums import distinct_rows, task_log_sums
from kdbirl.progress import Progress
from kdbirl.random_streams import stream
from kdbirl.trust.directions import listed

FEWEST_ROWS = 5.0  # effective training rows behind an expert row
LOWEST_SHARE = 0.001  # quantile of the training rows' own densities
RARE_SHARE = 0.05  # the same, for rows that also have few rows behind them
MOST_SAMPLED, FEWEST_SAMPLED = 2000, 200  # training rows whose density is asked for
MOST_PAIRS = 400_000_000  # kernel evaluations spent on them, unless that leaves too few rows
FEWEST_IN_TASK = 10  # rows
LARGEST_IMBALANCE = 10.0  # rows of the largest task per row of the smallest


@dataclass(frozen=True, eq=False)
class Support:
    """How well training rows support each of n expert rows.

    effective_rows `(n,)`: n_eff. relative_density `(n,)`: log of the density at each row over that of the median
    training row. few `(n,)`, unusual `(n,)`, unseen `(n,)`: why a row is outside; outside `(n,)`: any of them; thin
    `(n,)`: inside, with few effective rows.
    small_tasks: names of tasks with fewer than `fewest_in_task` rows. imbalance: largest task / smallest, in rows.
    """

    effective_rows: Float[np.ndarray, " n"]
    relative_density: Float[np.ndarray, " n"]
    few: Bool[np.ndarray, " n"]
    unusual: Bool[np.ndarray, " n"]
    unseen: Bool[np.ndarray, " n"]
    task_names: tuple[str, ...]
    task_rows: Float[np.ndarray, " K"]
    fewest_in_task: int
    equal_weights: bool = False

    @property
    def outside(self) -> Bool[np.ndarray, " n"]:
        return self.few | self.unusual | self.unseen

    @property
    def thin(self) -> Bool[np.ndarray, " n"]:
        return (self.effective_rows < FEWEST_ROWS) & ~self.outside

    @property
    def share_outside(self) -> float:
        return float(self.outside.mean())

    @property
    def small_tasks(self) -> tuple[str, ...]:
        return tuple(
            name for name, rows in zip(self.task_names, self.task_rows, strict=True) if rows < self.fewest_in_task
        )

    @property
    def imbalance(self) -> float:
        return float(self.task_rows.max() / self.task_rows.min())

    @property
    def sentence(self) -> str:
        """The finding; rows are counted from 1."""
        n, count = len(self.outside), int(self.outside.sum())
        middle = float(np.median(self.effective_rows))
        if not count:
            found = f"All {n} expert rows lie within what the training tasks show"
        else:
            rows = listed([str(i + 1) for i in np.flatnonzero(self.outside)], 6)
            shown = f"row{'s' * (count > 1)} {rows}"
            found = f"{count} of {n} expert rows ({count / n:.0%}) lie outside what the training tasks show: {shown}"
        behind = f"{middle:,.0f}" if middle >= 100 else f"{middle:.3g}"
        return f"{found}; half of the rows have at least {behind} effective training rows behind them."

    def describe(self) -> list[str]:
        """Lines for a terminal: the finding, why rows are outside, and what is wrong with tasks."""
        reasons = {
            f"a low density and fewer than {FEWEST_ROWS:g} effective training rows behind them": self.few,
            "a lower density than nearly every training row": self.unusual,
            "a label that no training task shows": self.unseen,
            f"fewer than {FEWEST_ROWS:g} effective training rows (seen in training, but seldom)": self.thin,
        }
        lines = [f"Expert rows with {why}: {int(rows.sum())}." for why, rows in reasons.items() if rows.any()]
        if self.small_tasks:
            few = f"Tasks with fewer than {self.fewest_in_task} rows, too few to tell a task by"
            lines.append(f"{few}: {listed(self.small_tasks)}.")
        if self.imbalance > LARGEST_IMBALANCE:
            advice = "" if self.equal_weights else '; task_weights="equal" stops it from dominating'
            lines.append(f"The largest task has {self.imbalance:.3g} times the rows of the smallest{advice}.")
        return [self.sentence, *lines]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON; minus infinity, where no training row is within reach, is null."""
        densities = [value if np.isfinite(value) else None for value in self.relative_density.tolist()]
        return {
            "rows": len(self.outside),
            "share_outside": self.share_outside,
            "outside": (np.flatnonzero(self.outside) + 1).tolist(),
            "too_few_rows_behind": int(self.few.sum()),
            "thin": int(self.thin.sum()),
            "unusual": int(self.unusual.sum()),
            "unseen_labels": int(self.unseen.sum()),
            "effective_rows": self.effective_rows.tolist(),
            "relative_density": densities,
            "small_tasks": list(self.small_tasks),
            "fewest_in_task": self.fewest_in_task,
            "imbalance": self.imbalance,
            "sentence": self.sentence,
        }


def assess_support(
    ckde: CKDE,
    expert: Float[np.ndarray, "n d"],
    h: Float[np.ndarray, " parts"],
    feature_names: Sequence[str],
    task_names: Sequence[str],
    seed: int = 0,
    progress: Progress | None = None,
) -> Support:
    """Support of expert feature rows. Costs twice the likelihood's kernel sums, and a bounded sample of training rows.

    A task is small with fewer than 10 rows, or than features + 1.
    """
    values, index, _ = distinct_rows(expert)
    logs = _log_total(ckde, values, ckde.kernel, h, progress)
    squares = _log_total(ckde, values, *squared(ckde.kernel, h), progress)
    reached = np.isfinite(logs)
    effective = np.exp(np.where(reached, 2 * logs - np.where(reached, squares, 0.0), -np.inf))
    typical = training_densities(ckde, h, seed)
    density = logs - np.log(ckde.weights.sum())
    shares = (LOWEST_SHARE, RARE_SHARE)
    lowest, rare = np.quantile(typical, shares, method="lower") if len(typical) else (-np.inf, np.inf)
    middle = float(np.median(typical)) if len(typical) else 0.0
    unusual = density < lowest - 1e-9
    return Support(
        effective_rows=effective[index],
        relative_density=(density - (middle if np.isfinite(middle) else 0.0))[index],
        few=((effective < FEWEST_ROWS) & (density < rare - 1e-9))[index],
        unusual=unusual[index],
        unseen=unseen_labels(expert, feature_names),
        task_names=tuple(task_names),
        task_rows=ckde.rows_per_task,
        fewest_in_task=max(FEWEST_IN_TASK, expert.shape[1] + 1),
        equal_weights=ckde.task_weights == "equal",
    )


def squared(kernel: PairKernel, h: Float[np.ndarray, " parts"]) -> tuple[PairKernel, np.ndarray]:
    """K^2 as a kernel: every factor twice, or for a Gaussian, which has a fast path, the width h / sqrt(2)."""
    if kernel.squared_exponential:
        return kernel, h / np.sqrt(2)
    return PairKernel(kernel.parts * 2), np.concatenate([h, h])


def _log_total(
    ckde: CKDE, rows: np.ndarray, kernel: PairKernel, h: np.ndarray, progress: Progress | None
) -> Float[np.ndarray, " n"]:
    """log sum_j weight_j K(x_i, x_j) over all training rows."""
    table = ckde.task_log_sums(rows, kernel, h, tuple(range(rows.shape[1])), progress)
    return np.logaddexp.reduce(table, axis=1)


def training_densities(ckde: CKDE, h: Float[np.ndarray, " parts"], seed: int) -> Float[np.ndarray, " sampled"]:
    """Log densities at a seeded sample of training rows, each from the other tasks' rows alone."""
    if ckde.n_tasks < 2:
        return np.zeros(0)
    size = int(np.clip(MOST_PAIRS // len(ckde.rows), FEWEST_SAMPLED, MOST_SAMPLED))
    rng = np.random.default_rng(stream(seed, "training densities"))
    chosen = rng.choice(len(ckde.rows), size, p=ckde.weights / ckde.weights.sum())
    distinct, index = np.unique(chosen, return_inverse=True)
    table = task_log_sums(ckde.rows[distinct], ckde.rows, ckde.weights, ckde.tasks, ckde.n_tasks, ckde.kernel, h)
    own = ckde.tasks[distinct]
    table[np.arange(len(distinct)), own] = -np.inf
    others = ckde.weights.sum() - ckde.rows_per_task[own]
    return (np.logaddexp.reduce(table, axis=1) - np.log(others))[index]


def unseen_labels(expert: Float[np.ndarray, "n d"], feature_names: Sequence[str]) -> Bool[np.ndarray, " n"]:
    """Rows with a label that no training task shows: one-hot features keep a column `name=<other>` for those."""
    others = [j for j, name in enumerate(feature_names) if name.endswith("=<other>")]
    return np.asarray((expert[:, others] > 0).any(axis=1))
