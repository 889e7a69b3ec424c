"""Calibration: does the truth lie where the posterior says it does, as often as it says?

For test tasks t whose reward R_t is known, and a posterior for each: a central interval of level L should hold the
truth in a share L of tasks; the rank of the truth among the draws should be uniform (simulation-based calibration:
Talts et al. 2018, arXiv:1804.06788); its z-score (mean - truth) / sd should have mean 0 and spread 1. Contraction,
1 - var_posterior / var_prior, and sharpness, the width relative to the prior's, say what the intervals are worth: the
prior itself is calibrated and worthless. All of it speaks for test tasks like those that were used, and no others.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.stats import chi2

from kdbirl.errors import InputError
from kdbirl.posterior.storage import names_of
from kdbirl.random_streams import stream
from kdbirl.trust.weighted_draws import WeightedDraws, binomial_interval

LEVELS = (0.5, 0.8, 0.9, 0.95)
HEADLINE = 0.9  # the level that sentences and the report card speak of
FAR_BELOW = 0.08  # of coverage: less than this is not called as promised, whatever the interval says
FEWEST_POINTS = 20.0  # behind a posterior; with fewer, an error smaller than the gaps between them may not show
LARGEST_SHOWN = 100.0  # z-scores beyond this come from a posterior without width, and say no more than that
PER_BIN = 5  # expected truths in each bin of a rank histogram: fewer, and chi-square is no approximation
MOST_BINS = 20

Table = Float[np.ndarray, "..."]


@dataclass(frozen=True, eq=False)
class Calibration:
    """What T test tasks with known rewards say about the posteriors of them.

    coverage, low, high `(L, q)`: the share of tasks whose truth is inside the interval of each level, with a 95 %
    binomial interval. pooled, pooled_low, pooled_high `(L,)`: over all parameters; parameters of one task are
    dependent, so the interval counts T tasks, not T q truths (which is right if they all hit or miss together, and
    wider than needed otherwise).
    ranks, z_scores `(T, q)`; uniformity `(q,)`: the p-value of uniform ranks (chi-square).
    contraction `(q,)` and sharpness `(L, q)`: means over tasks; NaN without draws of the prior.
    effective_draws: behind the posterior of at least nine tasks of ten.
    """

    names: tuple[str, ...]
    levels: Float[np.ndarray, " L"]
    coverage: Float[np.ndarray, "L q"]
    low: Float[np.ndarray, "L q"]
    high: Float[np.ndarray, "L q"]
    pooled: Float[np.ndarray, " L"]
    pooled_low: Float[np.ndarray, " L"]
    pooled_high: Float[np.ndarray, " L"]
    ranks: Float[np.ndarray, "T q"]
    uniformity: Float[np.ndarray, " q"]
    z_scores: Float[np.ndarray, "T q"]
    contraction: Float[np.ndarray, " q"]
    sharpness: Float[np.ndarray, "L q"]
    effective_draws: float

    @property
    def n_tasks(self) -> int:
        """T."""
        return len(self.ranks)

    @property
    def z_bias(self) -> Float[np.ndarray, " q"]:
        """The mean z-score: 0 where the posterior is not shifted."""
        return np.asarray(self.z_scores.mean(axis=0))

    @property
    def z_spread(self) -> Float[np.ndarray, " q"]:
        """The root mean square z-score: 1 is right, 2 is a posterior half as wide as it should be."""
        return np.sqrt(np.mean(self.z_scores**2, axis=0))

    @property
    def p_value(self) -> float:
        """Of uniform ranks of all parameters: the smallest, times their number (Bonferroni), at most 1."""
        return min(1.0, float(self.uniformity.min()) * len(self.names))

    @property
    def headline(self) -> tuple[float, float, float, float]:
        """The level nearest to 90 %, its pooled coverage, and the interval of that."""
        i = int(np.argmin(np.abs(self.levels - HEADLINE)))
        return float(self.levels[i]), float(self.pooled[i]), float(self.pooled_low[i]), float(self.pooled_high[i])

    @property
    def sentence(self) -> str:
        """What was found, for a reader who has heard of intervals."""
        level, seen, low, high = self.headline
        finding = (
            f"Over {self.n_tasks} test tasks with known rewards, {percent(level)} intervals held the truth in "
            f"{100 * seen:.0f} % of cases (95 % interval {100 * low:.0f} % to {100 * high:.0f} %)"
        )
        return f"{finding}: {self._verdict(level, low, high)}."

    def _verdict(self, level: float, low: float, high: float) -> str:
        spread = float(np.sqrt(np.mean(self.z_scores**2)))
        if high < level:
            times = f"{spread:.2g}" if spread < LARGEST_SHOWN else f"over {LARGEST_SHOWN:.0f}"
            return f"the posterior is over-confident, with typical errors of {times} times its own sd"
        if low > level:
            return "the posterior is wider than it needs to be"
        if self.p_value < 0.01:
            return f"the coverage is as promised, but the ranks are not uniform (p = {self.p_value:.1g})"
        if self.headline[1] < level - FAR_BELOW:
            return "fewer than promised, though so few tasks do not prove it"
        return "as promised, as far as so many tasks can tell"

    def to_dict(self) -> dict[str, Any]:
        """For JSON; NaN becomes None."""
        return dict(self._record)

    @cached_property
    def _record(self) -> dict[str, Any]:
        """Made once: thousands of posteriors over one bank carry the same."""
        arrays = ("coverage", "low", "high", "uniformity", "contraction", "sharpness", "z_bias", "z_spread", "ranks")
        pooled = ("levels", "pooled", "pooled_low", "pooled_high")
        return {
            "n_tasks": self.n_tasks,
            "names": list(self.names),
            "sentence": self.sentence,
            "p_value": self.p_value,
            "effective_draws": self.effective_draws,
            **{name: plain(getattr(self, name)) for name in (*pooled, *arrays)},
        }

    def describe(self) -> list[str]:
        """A table in lines of at most 80 characters: coverage per level, and what the intervals are worth."""
        head = f"{'parameter':20}" + "".join(f"{percent(level):>9}" for level in self.levels)
        lines = [f"{head}{'z mean':>8}{'z rms':>7}{'contr.':>8}"]
        for j, name in enumerate(self.names):
            shares = "".join(f"{share:9.2f}" for share in self.coverage[:, j])
            worth = f"{self.z_bias[j]:8.2f}{self.z_spread[j]:7.2f}{self.contraction[j]:8.2f}"
            lines.append(f"{shortened(name, 19):20}{shares}{worth}")
        lines.append(f"{'all':20}" + "".join(f"{share:9.2f}" for share in self.pooled))
        ends = zip(self.pooled_low, self.pooled_high, strict=True)
        limits = "".join(f"{_hundredths(low) + '-' + _hundredths(high):>9}" for low, high in ends)
        lines.append(f"{'  95 % interval':20}{limits}")
        return lines


def calibrate(
    truths: Any,
    draws: Any,
    prior_draws: Any = None,
    names: Sequence[str] = (),
    levels: Sequence[float | int] = LEVELS,
    seed: int = 0,
) -> Calibration:
    """Judge posteriors given as equal-weight draws `(T, draws, q)` by the truths `(T, q)`; prior_draws `(p, q)`."""
    prior = None if prior_draws is None else WeightedDraws.equal(np.asarray(prior_draws, dtype=float)[None])
    return _calibrated(truths, WeightedDraws.equal(draws), prior, names, levels, seed)


def calibrate_weighted(
    truths: Any,
    points: Any,
    log_weights: Any,
    log_prior_weights: Any = None,
    names: Sequence[str] = (),
    levels: Sequence[float | int] = LEVELS,
    seed: int = 0,
    log_weights_of_truths: Any = None,
) -> Calibration:
    """The same for points `(P, q)` that all tasks share, with log weights `(T, P)`; those of the prior are `(P,)`.

    log_weights_of_truths `(T,)`: the log weights that the truths would have as points. With them, ranks are uniform for
    calibrated posteriors however few points carry the weight (`WeightedDraws.ranks`).
    """
    prior = None if log_prior_weights is None else WeightedDraws.shared(points, np.atleast_2d(log_prior_weights))
    posterior = WeightedDraws.shared(points, log_weights, log_weights_of_truths)
    return _calibrated(truths, posterior, prior, names, levels, seed)


def _calibrated(
    truths: Any,
    posterior: WeightedDraws,
    prior: WeightedDraws | None,
    names: Sequence[str],
    levels: Sequence[float | int],
    seed: int,
) -> Calibration:
    truth, at = _checked(truths, posterior, prior), _checked_levels(levels)
    ranks = posterior.ranks(truth, np.random.default_rng(stream(seed, "ranks")))
    # the interval of level L holds the truth exactly where its rank is in the middle L of (0, 1)
    inside = np.abs(ranks - 0.5)[None] <= at[:, None, None] / 2
    coverage, pooled = inside.mean(axis=1), inside.mean(axis=(1, 2))
    sds = posterior.moments()[1]
    contraction, sharpness = _worth(posterior, sds, prior, at)
    return Calibration(
        names_of(names, truth.shape[1], "names", default="w"),
        at,
        coverage,
        *binomial_interval(coverage, len(truth)),
        pooled,
        *binomial_interval(pooled, len(truth)),
        ranks,
        np.array([uniformity(column) for column in ranks.T]),
        posterior.z_scores(truth),
        contraction,
        sharpness,
        float(np.quantile(posterior.effective, 0.1)),
    )


def _worth(
    posterior: WeightedDraws, sds: Table, prior: WeightedDraws | None, levels: Table
) -> tuple[Float[np.ndarray, " q"], Float[np.ndarray, "L q"]]:
    """Contraction (q,) and sharpness (L, q) against the prior; NaN without one."""
    q = sds.shape[1]
    if prior is None:
        return np.full(q, np.nan), np.full((len(levels), q), np.nan)
    prior_sds = prior.moments()[1][0]
    contraction = 1 - np.mean(sds**2, axis=0) / prior_sds**2
    return contraction, posterior.widths(levels).mean(axis=1) / prior.widths(levels)[:, 0]


def uniformity(ranks: Float[np.ndarray, " T"]) -> float:
    """The p-value of Pearson's chi-square test that ranks in (0, 1) are uniform, in bins of at least five; or 1."""
    counts = rank_counts(ranks)
    expected = len(ranks) / len(counts)
    return float(chi2.sf(np.sum((counts - expected) ** 2) / expected, len(counts) - 1)) if len(counts) > 1 else 1.0


def rank_counts(ranks: Float[np.ndarray, " T"]) -> Float[np.ndarray, " bins"]:
    """The rank histogram: as many bins as five truths in each allow, at most 20."""
    bins = max(1, min(MOST_BINS, len(ranks) // PER_BIN))
    return np.histogram(ranks, bins=bins, range=(0.0, 1.0))[0].astype(float)


def _checked(truths: Any, posterior: WeightedDraws, prior: WeightedDraws | None) -> Float[np.ndarray, "T q"]:
    truth = np.asarray(truths, dtype=np.float64)
    wanted = (posterior.n_tasks, posterior.points.shape[2])
    if truth.shape != wanted:
        raise InputError(f"truths has shape {truth.shape}; expected {wanted}: one row for each test task.")
    if not np.isfinite(truth).all():
        task = int(np.argwhere(~np.isfinite(truth))[0, 0])
        raise InputError(f"truths: the reward of test task {task + 1} is not finite.")
    if prior is not None and prior.points.shape[2] != wanted[1]:
        raise InputError(f"prior_draws have {prior.points.shape[2]} parameters; the truths have {wanted[1]}.")
    return truth


def _checked_levels(levels: Sequence[float | int]) -> Float[np.ndarray, " L"]:
    at = np.asarray(levels, dtype=np.float64)
    if at.ndim != 1 or not at.size or not ((at > 0) & (at < 1)).all():
        raise InputError(f"levels={levels!r} should be shares between 0 and 1, such as (0.5, 0.9).")
    return at


def plain(values: Any) -> Any:
    """An array as lists of numbers, None for what is not finite: JSON has no NaN."""
    if np.ndim(values) == 0:
        return float(values) if math.isfinite(float(values)) else None
    return [plain(value) for value in values]


def percent(share: float) -> str:
    """`90 %`."""
    return f"{100 * share:.3g} %"


def shortened(name: str, length: int) -> str:
    """Long names lose their middle."""
    return name if len(name) <= length else f"{name[: length // 2 - 1]}..{name[-(length // 2 - 1) :]}"


def _hundredths(share: float) -> str:
    """`.87`, `1.0`."""
    return f"{share:.2f}"[1:] if share < 0.995 else "1.0"
