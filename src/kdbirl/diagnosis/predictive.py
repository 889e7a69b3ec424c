"""Posterior predictive check: would rewards drawn from this posterior lead to rows like the expert's?

Under the CKDE a row seen with reward R comes from training task k with probability

    pi_k(R) = n_k K'(R, R_k) / sum_l n_l K'(R, R_l)          (without n where tasks weigh equally),

and, given k, it is a row of that task, smeared by K_h. So training row j has the predictive weight
E[pi_k(j)] / n_k(j), the expectation over posterior draws, and the occupancy of any part of feature space follows. The
smearing by K_h is left out: it is an artefact of estimation, not behaviour. Replicates of the expert's data are drawn
from the same law, one reward for each, and the discrepancy of the expert's rows is compared with theirs.

What this cannot do: the bank's episodes are not kept, so replicates consist of independent rows, fewer of them
(`effective_rows`) where the expert's episodes show that its rows repeat each other; without episodes, small p-values
are too small. And the posterior has seen these rows, so that a p-value is rarely small by chance: it is a check for
gross misfit, no test.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.spatial.distance import cdist
from scipy.special import logsumexp

from kdbirl.diagnosis.calibration import plain
from kdbirl.errors import InputError
from kdbirl.likelihood.ckde import CKDE
from kdbirl.likelihood.reward_weights import log_reward_kernel
from kdbirl.posterior.record import names_of
from kdbirl.random_streams import stream

REPLICATES = 400  # p-values down to 1/401; enough to see a gross misfit
DRAWS = 1000  # posterior draws whose average is the prediction
MOST_DISTINCT = 12  # values of a feature up to which each is a bin of its own
BINS = 10
ROWS_COMPARED = 400  # rows on each side of the energy distance, which compares all pairs
DOUBTFUL = 0.01


@dataclass(frozen=True, eq=False)
class Occupancy:
    """One feature: the share of rows in each bin, of the expert and as predicted, with the middle 90 % of replicates.

    distance: the total variation between the two, half the sum of absolute differences; p_value: the share of
    replicates that lie as far from the prediction. means: of the expert and as predicted.
    """

    name: str
    labels: tuple[str, ...]
    expert: Float[np.ndarray, " bins"]
    predicted: Float[np.ndarray, " bins"]
    low: Float[np.ndarray, " bins"]
    high: Float[np.ndarray, " bins"]
    distance: float
    p_value: float
    means: tuple[float, float]


@dataclass(frozen=True, eq=False)
class Predictive:
    """Occupancy of each feature, and the energy distance between all features of the expert and the prediction.

    weights `(m,)`: of the training rows of the CKDE; tasks `(K,)`: E[pi_k], which training tasks speak for the expert.
    """

    features: tuple[Occupancy, ...]
    weights: Float[np.ndarray, " m"]
    tasks: Float[np.ndarray, " K"]
    energy: float
    energy_p_value: float
    rows: int
    effective_rows: float

    @property
    def worst(self) -> Occupancy:
        """The feature with the smallest p-value, the furthest of them if several have it."""
        return min(self.features, key=lambda feature: (feature.p_value, -feature.distance))

    @property
    def p_value(self) -> float:
        """Of all features: the smallest times their number (Bonferroni), or that of the energy distance, if smaller."""
        return min(1.0, self.worst.p_value * len(self.features), self.energy_p_value)

    @property
    def sentence(self) -> str:
        """What was found."""
        worst, (seen, predicted) = self.worst, self.worst.means
        if self.p_value >= DOUBTFUL:
            return (
                f"Rows predicted from the posterior look like the expert's {self.rows} rows (energy distance p = "
                f"{self.energy_p_value:.2g}; the feature that fits worst is {worst.name!r}, p = {worst.p_value:.2g})."
            )
        return (
            f"No reward in this posterior explains the expert's rows: {worst.name!r} fits worst (mean {seen:.3g}, "
            f"predicted {predicted:.3g}, p = {worst.p_value:.2g}; energy distance p = {self.energy_p_value:.2g}). The "
            "expert does something that no mixture of the training tasks does: add tasks like it, or check the data."
        )

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        features = [
            {
                **{name: getattr(feature, name) for name in ("name", "distance", "p_value")},
                **{name: plain(getattr(feature, name)) for name in ("expert", "predicted", "low", "high")},
                "labels": list(feature.labels),
                "means": list(feature.means),
            }
            for feature in self.features
        ]
        numbers = ("energy", "energy_p_value", "p_value", "rows", "effective_rows", "sentence")
        return {**{name: getattr(self, name) for name in numbers}, "tasks": plain(self.tasks), "features": features}


def task_probabilities(ckde: CKDE, rewards: Float[np.ndarray, "r q"], h_reward: float) -> Float[np.ndarray, "r K"]:
    """pi_k(R) for each reward."""
    logs = log_reward_kernel(ckde.reward_kernel, rewards, ckde.task_rewards, np.array([h_reward]))[0]
    if ckde.task_weights == "rows":
        logs = logs + np.log(ckde.rows_per_task)
    totals = logsumexp(logs, axis=1, keepdims=True)
    if not np.isfinite(totals).all():
        raise InputError("Some posterior draws are out of reach of every training task: use a wider h_reward.")
    return np.exp(logs - totals)


def predict_occupancy(
    ckde: CKDE,
    h_reward: float,
    draws: Float[np.ndarray, "s q"],
    expert: Float[np.ndarray, "n d"],
    names: Sequence[str] = (),
    episodes: Any = None,
    seed: int = 0,
) -> Predictive:
    """Compare the expert's feature rows with what posterior draws predict; `episodes`: which rows belong together."""
    if ckde.conditional != "state-action":
        raise InputError(
            'The posterior predictive occupancy needs conditional="state-action": p(a | s, R) does not predict states.'
        )
    if expert.ndim != 2 or not len(expert) or expert.shape[1] != ckde.rows.shape[1]:
        raise InputError(f"The expert's rows have shape {expert.shape}; expected (rows, {ckde.rows.shape[1]}).")
    rng = np.random.default_rng(stream(seed, "predictive replicates"))
    chosen = draws[rng.choice(len(draws), min(DRAWS, len(draws)), replace=False)]
    of_draw = task_probabilities(ckde, chosen, h_reward)
    size = _effective_rows(expert, episodes)
    of_replicate = of_draw[rng.integers(len(of_draw), size=REPLICATES)]
    labels = names_of(names, expert.shape[1], "names", default="x", distinct=False)
    features = tuple(
        _occupancy(name, expert[:, j], ckde, j, of_draw.mean(axis=0), of_replicate, size, rng)
        for j, name in enumerate(labels)
    )
    weights = of_draw.mean(axis=0)[ckde.tasks] * ckde.weights / ckde.rows_per_task[ckde.tasks]
    energy, p_value = _energy(expert, ckde, weights, of_replicate, size, rng)
    return Predictive(features, weights, of_draw.mean(axis=0), energy, p_value, len(expert), size)


def _effective_rows(expert: Float[np.ndarray, "n d"], episodes: Any) -> float:
    """How many independent rows would give the mean of the features the precision that the episodes give it.

    n / design effect; the design effect of a feature is the variance of its mean with whole episodes as units over
    that with rows as units, and the median over features counts. n without episodes, or with one episode.
    """
    n = len(expert)
    if episodes is None:
        return float(n)
    _, index = np.unique(np.asarray(episodes), return_inverse=True)
    if len(index) != n:
        raise InputError(f"episodes has {len(index)} values for {n} expert rows.")
    count, centred = int(index.max()) + 1, expert - expert.mean(axis=0)
    variance, varies = centred.var(axis=0), np.ptp(expert, axis=0) > 0
    if count < 2 or not varies.any():
        return float(n)
    totals = np.stack([np.bincount(index, weights=column) for column in centred.T[varies]], axis=1)
    effects = (totals**2).sum(axis=0) * count / (count - 1) / (n * variance[varies])
    return float(n / max(1.0, float(np.median(effects))))


def _occupancy(
    name: str,
    expert: Float[np.ndarray, " n"],
    ckde: CKDE,
    column: int,
    predicted_tasks: Float[np.ndarray, " K"],
    of_replicate: Float[np.ndarray, "r K"],
    size: float,
    rng: np.random.Generator,
) -> Occupancy:
    """Bins of one feature. A replicate's counts are multinomial: its rows are independent given its reward."""
    values = ckde.rows[:, column]
    edges, labels = _bins(values, expert)
    place = np.searchsorted(edges, values, side="right")
    table = np.zeros((ckde.n_tasks, len(labels)))
    np.add.at(table, (ckde.tasks, place), ckde.weights / ckde.rows_per_task[ckde.tasks])
    predicted = predicted_tasks @ table
    seen = np.bincount(np.searchsorted(edges, expert, side="right"), minlength=len(labels)) / len(expert)
    shares = of_replicate @ table
    rows = max(1, round(size))
    replicates = rng.multinomial(rows, shares / shares.sum(axis=1, keepdims=True)) / rows
    distance, others = _variation(seen, predicted), _variation(replicates, predicted)
    low, high = np.quantile(replicates, [0.05, 0.95], axis=0)
    task_means = np.bincount(ckde.tasks, weights=values * ckde.weights, minlength=ckde.n_tasks) / ckde.rows_per_task
    means = (float(expert.mean()), float(predicted_tasks @ task_means))
    p_value = _p_value(others, float(distance))
    return Occupancy(name, labels, seen, predicted, low, high, float(distance), p_value, means)


def _variation(shares: Float[np.ndarray, "... bins"], predicted: Float[np.ndarray, " bins"]) -> Any:
    return 0.5 * np.abs(shares - predicted).sum(axis=-1)


def _p_value(replicates: Float[np.ndarray, " r"], observed: float) -> float:
    """The share of replicates, with the data itself among them, whose discrepancy is as large."""
    return float((1 + np.sum(replicates >= observed - 1e-12)) / (1 + len(replicates)))


def _bins(values: Float[np.ndarray, " m"], expert: Float[np.ndarray, " n"]) -> tuple[Any, tuple[str, ...]]:
    """Edges between bins, and what to call these: each value where there are few, else tenths of the training rows."""
    distinct = np.unique(np.concatenate([values, expert]))
    if len(distinct) <= MOST_DISTINCT:
        return (distinct[1:] + distinct[:-1]) / 2, tuple(f"{value:.3g}" for value in distinct)
    edges = np.unique(np.quantile(values, np.arange(1, BINS) / BINS))
    return edges, (f"<{edges[0]:.2g}", *(f"{edge:.2g}" for edge in edges))


def _energy(
    expert: Float[np.ndarray, "n d"],
    ckde: CKDE,
    weights: Float[np.ndarray, " m"],
    of_replicate: Float[np.ndarray, "r K"],
    size: float,
    rng: np.random.Generator,
) -> tuple[float, float]:
    """Energy distance of the expert's rows to predicted ones, features scaled to spread one, and its p-value.

    Large data are thinned to `ROWS_COMPARED` rows; replicates have as many rows as are compared, or as are effective.
    """
    spread = np.sqrt(np.maximum(weights @ (ckde.rows - weights @ ckde.rows) ** 2, 0.0))
    scale = np.where(spread > 0, spread, 1.0)
    reference = ckde.rows[rng.choice(len(weights), ROWS_COMPARED, p=weights / weights.sum())] / scale
    within = float(cdist(reference, reference).mean())
    kept = expert if len(expert) <= ROWS_COMPARED else expert[rng.choice(len(expert), ROWS_COMPARED, replace=False)]
    observed = _energy_distance(kept / scale, reference, within)
    rows = max(1, math.ceil(min(size, len(kept))))
    replicates = [_energy_distance(_rows(ckde, pi, rows, rng) / scale, reference, within) for pi in of_replicate[::4]]
    return observed, _p_value(np.array(replicates), observed)


def _rows(ckde: CKDE, probabilities: Float[np.ndarray, " K"], n: int, rng: np.random.Generator) -> Any:
    """n rows under one reward: a task for each, then a row of that task."""
    weights = probabilities[ckde.tasks] * ckde.weights / ckde.rows_per_task[ckde.tasks]
    return ckde.rows[rng.choice(len(weights), n, p=weights / weights.sum())]


def _energy_distance(x: Float[np.ndarray, "n d"], y: Float[np.ndarray, "r d"], within_y: float) -> float:
    """2 E|X - Y| - E|X - X'| - E|Y - Y'|: zero only for equal distributions (Szekely and Rizzo 2013)."""
    return float(2 * cdist(x, y).mean() - cdist(x, x).mean() - within_y)
