"""Posteriors of many test tasks as one thing: points with weights. Equal-weight draws are the special case.

Of each task and parameter we need the rank of the truth, the moments and the quantiles of the marginal.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.special import logsumexp
from scipy.stats import beta

from kdbirl.errors import InputError

Array = np.ndarray[Any, np.dtype[Any]]
LARGEST_Z = 999.0  # beyond this a z-score only says that the posterior has no width, and it would break tables


@dataclass(frozen=True, eq=False)
class WeightedDraws:
    """`points (T, P, q)`, or `(1, P, q)` where all tasks share them, and `weights (T, P)` that sum to one per task.

    sampled: whether the points are draws, so that the truth is one more of them where all is well.
    of_truths `(T,)`: of points that are none, the weight of the truth as one more, as a share of all; None: not known.
    """

    points: Float[np.ndarray, "shared P q"]
    weights: Float[np.ndarray, "T P"]
    sampled: bool = False
    of_truths: Float[np.ndarray, " T"] | None = None

    def __post_init__(self) -> None:
        if 0 in self.points.shape or 0 in self.weights.shape:
            raise InputError(f"draws: there are none (shape {self.points.shape}); expected (tasks, draws, parameters).")
        if not np.isfinite(self.points).all():
            task = int(np.argwhere(~np.isfinite(self.points))[0, 0])
            raise InputError(f"draws: those of test task {task + 1} are not all finite.")

    @classmethod
    def equal(cls, draws: Any) -> "WeightedDraws":
        """From draws `(T, draws, q)` that all count the same."""
        points = np.asarray(draws, dtype=np.float64)
        if points.ndim != 3:
            raise InputError(f"draws: expected an array (tasks, draws, parameters), got shape {points.shape}.")
        return cls(points, np.full(points.shape[:2], 1.0 / max(points.shape[1], 1)), sampled=True)

    @classmethod
    def shared(cls, points: Any, log_weights: Any, log_weights_of_truths: Any = None) -> "WeightedDraws":
        """From points `(P, q)` that every task shares, and log weights `(T, P)` up to a constant per task.

        log_weights_of_truths `(T,)`: those of the truths, with the same constants; without them a truth has no weight.
        """
        table, logs = np.asarray(points, dtype=np.float64), np.asarray(log_weights, dtype=np.float64)
        if table.ndim != 2 or logs.ndim != 2 or logs.shape[1] != len(table):
            raise InputError(
                f"points {table.shape} and log_weights {logs.shape} do not fit: expected (P, q) and (tasks, P)."
            )
        totals = logsumexp(logs, axis=1) if logs.size else np.zeros(len(logs))
        if not np.isfinite(totals).all():
            task = int(np.flatnonzero(~np.isfinite(totals))[0])
            raise InputError(f"log_weights: those of test task {task + 1} have no finite sum: no point has any weight.")
        weights = np.exp(logs - totals[:, None])
        if log_weights_of_truths is None:
            return cls(table[None], weights)
        own = np.asarray(log_weights_of_truths, dtype=np.float64)
        return cls(table[None], weights, of_truths=np.exp(own - np.logaddexp(own, totals)))

    @property
    def n_tasks(self) -> int:
        """T."""
        return len(self.weights)

    @property
    def effective(self) -> Float[np.ndarray, " T"]:
        """1 / sum(w^2): how many equal-weight draws the points of each task are worth."""
        return 1.0 / np.sum(self.weights**2, axis=1)

    def ranks(self, truths: Float[np.ndarray, "T q"], rng: np.random.Generator) -> Float[np.ndarray, "T q"]:
        """Where each truth stands among the points, in (0, 1): uniform if the posterior is calibrated.

        The truth is one more point, with its own weight v among all: (1 - v) W(< truth) + U (v + (1 - v) W(= truth)),
        U uniform. Where truth and points are draws from one prior, and the weights are the likelihood, each of them is
        the truth with the probability of its weight, so that the rank is exactly uniform *however few points carry the
        posterior*: too few cannot make a calibrated posterior look over-confident. A truth that the posterior excludes
        has no weight, and its rank is 0 or 1: too few points do not hide it. With S draws v = 1 / (S + 1), the
        classical rank. Without weights of the truths v = 0.
        """
        below, equal = (np.empty(truths.shape) for _ in range(2))
        for j in range(truths.shape[1]):
            values, truth = self.points[:, :, j], truths[:, j, None]
            below[:, j] = np.sum(self.weights * (values < truth), axis=1)
            equal[:, j] = np.sum(self.weights * (values == truth), axis=1)
        own = np.full((self.n_tasks, 1), 1 / (self.weights.shape[1] + 1)) if self.sampled else self._own
        return (1 - own) * below + rng.uniform(size=truths.shape) * (own + (1 - own) * equal)

    def moments(self) -> tuple[Float[np.ndarray, "T q"], Float[np.ndarray, "T q"]]:
        """Means and standard deviations."""
        weights = self.weights[:, :, None]
        means = np.stack([np.sum(self.weights * self.points[:, :, j], axis=1) for j in self._parameters], axis=1)
        spread = [(self.points[:, :, j] - means[:, j, None]) ** 2 for j in self._parameters]
        return means, np.sqrt(np.stack([np.sum(weights[:, :, 0] * s, axis=1) for s in spread], axis=1))

    def z_scores(self, truths: Float[np.ndarray, "T q"]) -> Float[np.ndarray, "T q"]:
        """(mean - truth) / sd, with the truth among the points where its weight is known, as in `ranks`.

        The mean square is then 1 for calibrated posteriors, however few points there are.

        A posterior of a single point has no sd; its z-score ends at `LARGEST_Z`.
        """
        means, sds = self.moments()
        own, gap = self._own, means - truths
        scale = np.sqrt((1 - own) * (sds**2 + own * gap**2))  # of the mixture of the points and the truth
        far = np.abs((1 - own) * gap) > LARGEST_Z * scale
        scores = (1 - own) * gap / np.where(scale > 0, scale, 1.0)
        return np.where(far, np.sign(gap) * LARGEST_Z, scores)

    def widths(self, levels: Float[np.ndarray, " L"]) -> Float[np.ndarray, "L T q"]:
        """How wide the central interval of each level is."""
        ends = np.concatenate([(1 - levels) / 2, (1 + levels) / 2])
        found = np.empty((len(ends), self.n_tasks, self.points.shape[2]))
        for t, j in np.ndindex(found.shape[1:]):
            values = self.points[t % len(self.points), :, j]
            found[:, t, j] = weighted_quantiles(values, self.weights[t], ends)
        return found[len(levels) :] - found[: len(levels)]

    @property
    def _own(self) -> Float[np.ndarray, "T 1"]:
        """The weight of each truth, 0 where it is not known."""
        return np.zeros((self.n_tasks, 1)) if self.of_truths is None else self.of_truths[:, None]

    @property
    def _parameters(self) -> range:
        return range(self.points.shape[2])


def weighted_quantiles(
    values: Float[np.ndarray, " P"], weights: Float[np.ndarray, " P"], at: Float[np.ndarray, " A"]
) -> Float[np.ndarray, " A"]:
    """Quantiles of weighted points, linear between the middles of their weights."""
    order = np.argsort(values, kind="stable")
    middles = np.cumsum(weights[order]) - 0.5 * weights[order]
    return np.interp(at, middles, values[order])


def binomial_interval(
    share: Float[np.ndarray, "..."], trials: int, confidence: float = 0.95
) -> tuple[Float[np.ndarray, "..."], Float[np.ndarray, "..."]]:
    """Clopper and Pearson's interval for a probability of which `share` was seen in so many trials.

    A share that is no whole number of trials (an average over dependent things) is taken as it is.
    """
    hits, tail = np.asarray(share, dtype=float) * trials, (1 - confidence) / 2
    low = np.where(hits > 0, beta.ppf(tail, np.maximum(hits, 1e-12), trials - hits + 1), 0.0)
    high = np.where(hits < trials, beta.isf(tail, hits + 1, np.maximum(trials - hits, 1e-12)), 1.0)
    return low, high
