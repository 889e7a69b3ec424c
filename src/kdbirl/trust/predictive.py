"""Posterior predictive check: the rows that rewards drawn from this posterior would lead to, beside the expert's.

Under the CKDE a row seen with reward R comes from training task k with probability

    pi_k(R) = n_k K'(R, R_k) / sum_l n_l K'(R, R_l)          (without n where tasks weigh equally),

and, given k, it is a row of that task, smeared by K_h. So training row j has the predictive weight E[pi_k(j)] / n_k(j),
the expectation over posterior draws, and the occupancy of any part of feature space follows. The smearing by K_h is
left out: it is an artefact of estimation, not behaviour. The expert's shares have intervals from resampled episodes.
Whether the expert's rows as a whole are unusual is judged by the training tasks (`unusual`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.special import logsumexp

from kdbirl.errors import InputError
from kdbirl.likelihood.ckde import CKDE, log_reward_kernel
from kdbirl.posterior.storage import names_of
from kdbirl.random_streams import stream
from kdbirl.trust.calibration import plain
from kdbirl.trust.held_out import Plays
from kdbirl.trust.unusual import FEWEST_TASKS, UNUSUAL, Unusual, how_unusual

REPLICATES = 400  # resamples of the expert's episodes: enough for the ends of a 90 % interval
DRAWS = 1000  # posterior draws whose average is the prediction
MOST_DISTINCT = 12  # values of a feature up to which each is a bin of its own
BINS = 10


@dataclass(frozen=True, eq=False)
class Occupancy:
    """One feature: the share of rows in each bin, of the expert and as predicted.

    low, high: the middle 90 % of the expert's shares over resampled episodes. distance: the total variation between
    expert and prediction, half the sum of absolute differences. means: of the expert and as predicted.
    """

    name: str
    labels: tuple[str, ...]
    expert: Float[np.ndarray, " bins"]
    predicted: Float[np.ndarray, " bins"]
    low: Float[np.ndarray, " bins"]
    high: Float[np.ndarray, " bins"]
    distance: float
    means: tuple[float, float]


@dataclass(frozen=True, eq=False)
class Predictive:
    """Occupancy of each feature, and whether the expert's rows are unusual; None with too few tasks to tell.

    weights `(m,)`: of the training rows of the CKDE; tasks `(K,)`: E[pi_k], which training tasks speak for the expert.
    """

    features: tuple[Occupancy, ...]
    weights: Float[np.ndarray, " m"]
    tasks: Float[np.ndarray, " K"]
    unusual: Unusual | None
    rows: int

    @property
    def worst(self) -> Occupancy:
        """The feature that is furthest from its prediction."""
        return max(self.features, key=lambda feature: feature.distance)

    @property
    def p_value(self) -> float | None:
        """How often a task like the training tasks looks as unusual as the expert; None with too few tasks."""
        return None if self.unusual is None else self.unusual.p_value

    @property
    def unexplained(self) -> bool:
        """No reward explains the rows: a task like the training tasks would hardly look like this."""
        return self.unusual is not None and self.unusual.p_value <= UNUSUAL

    @property
    def unlike_training(self) -> bool:
        """A task of the bank's kind may look like this, but no training task does."""
        seen = None if self.unusual is None else self.unusual.seen_p_value
        return not self.unexplained and seen is not None and seen <= UNUSUAL

    @property
    def sentence(self) -> str:
        """What was found, and what to do about it."""
        found, worst = self.unusual, self.worst
        seen, predicted = worst.means
        fits = f"{worst.name!r} fits worst: mean {seen:.3g}, predicted {predicted:.3g}"
        if found is None:
            return (
                f"Fewer than {FEWEST_TASKS} training tasks with different rewards: too few to say whether the expert's "
                f"rows are unusual ({fits})."
            )
        left_out = f"{len(found.players)} training tasks, each left out in turn"
        if self.unexplained:
            scattered = found.scatter > found.players[:, 1].max() and found.misfit <= found.players[:, 0].max()
            why = "more scattered than" if scattered else "explained worse than"
            return (
                f"No reward explains the expert's rows: they are {why} those of {left_out} (p = {found.p_value:.2g}; "
                f"{fits}). Check the data: units, coding of labels, order of columns, rows of several agents. If they "
                "are right, the expert does not act like the agents of the training tasks: do not use this posterior."
            )
        if self.unlike_training:
            return (
                f"No training task behaves like the expert (p = {found.seen_p_value:.2g}; {fits}), but the training "
                f"tasks differ as much from each other: among {left_out}, its rows are not unusual (p = "
                f"{found.p_value:.2g}). Nothing speaks against the data; the posterior interpolates between tasks. Add "
                "training tasks that behave like the expert."
            )
        compared = "" if found.rows == self.rows else f" (the first {found.rows} were compared)"
        return (
            f"The expert's {self.rows} rows{compared} are no more unusual than those of {left_out} "
            f"(p = {found.p_value:.2g}; {fits})."
        )

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        features = [
            {
                "name": feature.name,
                "distance": feature.distance,
                **{name: plain(getattr(feature, name)) for name in ("expert", "predicted", "low", "high")},
                "labels": list(feature.labels),
                "means": list(feature.means),
            }
            for feature in self.features
        ]
        numbers = ("p_value", "unexplained", "unlike_training", "rows", "sentence")
        unusual = None if self.unusual is None else {**vars(self.unusual), "players": plain(self.unusual.players)}
        found = {name: getattr(self, name) for name in numbers}
        return {**found, "unusual": unusual, "tasks": plain(self.tasks), "features": features}


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
    h: Float[np.ndarray, " parts"],
    h_reward: float,
    plays: Plays,
    draws: Float[np.ndarray, "s q"],
    expert: Float[np.ndarray, "n d"],
    names: Sequence[str] = (),
    episodes: Any = None,
    seed: int = 0,
) -> Predictive:
    """Compare the expert's feature rows with what posterior draws predict, and with the training tasks' own rows.

    episodes: which of the expert's rows belong together.
    """
    if ckde.conditional != "state-action":
        raise InputError(
            'The posterior predictive occupancy needs conditional="state-action": p(a | s, R) does not predict states.'
        )
    if expert.ndim != 2 or not len(expert) or expert.shape[1] != ckde.rows.shape[1]:
        raise InputError(f"The expert's rows have shape {expert.shape}; expected (rows, {ckde.rows.shape[1]}).")
    rng = np.random.default_rng(stream(seed, "predictive replicates"))
    chosen = draws[rng.choice(len(draws), min(DRAWS, len(draws)), replace=False)]
    tasks = task_probabilities(ckde, chosen, h_reward).mean(axis=0)
    counts = _resampled(expert, episodes, rng)
    labels = names_of(names, expert.shape[1], "names", default="x", distinct=False)
    features = tuple(_occupancy(name, expert[:, j], ckde, j, tasks, counts) for j, name in enumerate(labels))
    weights = tasks[ckde.tasks] * ckde.weights / ckde.rows_per_task[ckde.tasks]
    unusual = how_unusual(plays, ckde.task_rewards, ckde.kernel, h, expert, seed)
    return Predictive(features, weights, tasks, unusual, len(expert))


def _resampled(expert: Float[np.ndarray, "n d"], episodes: Any, rng: np.random.Generator) -> Float[np.ndarray, "r n"]:
    """How often each row occurs when episodes are drawn with replacement; rows, where there is at most one episode."""
    n = len(expert)
    index = np.arange(n) if episodes is None else np.unique(np.asarray(episodes), return_inverse=True)[1].reshape(-1)
    if len(index) != n:
        raise InputError(f"episodes has {len(index)} values for {n} expert rows.")
    if index.max() == 0:
        index = np.arange(n)
    count = int(index.max()) + 1
    return rng.multinomial(count, np.full(count, 1 / count), size=REPLICATES)[:, index].astype(np.float64)


def _occupancy(
    name: str,
    expert: Float[np.ndarray, " n"],
    ckde: CKDE,
    column: int,
    predicted_tasks: Float[np.ndarray, " K"],
    counts: Float[np.ndarray, "r n"],
) -> Occupancy:
    """Bins of one feature."""
    values = ckde.rows[:, column]
    edges, labels = _bins(values, expert)
    place = np.searchsorted(edges, values, side="right")
    table = np.zeros((ckde.n_tasks, len(labels)))
    np.add.at(table, (ckde.tasks, place), ckde.weights / ckde.rows_per_task[ckde.tasks])
    predicted = predicted_tasks @ table
    of_bin = np.eye(len(labels))[np.searchsorted(edges, expert, side="right")]
    seen = of_bin.mean(axis=0)
    low, high = np.quantile(counts @ of_bin / counts.sum(axis=1, keepdims=True), [0.05, 0.95], axis=0)
    task_means = np.bincount(ckde.tasks, weights=values * ckde.weights, minlength=ckde.n_tasks) / ckde.rows_per_task
    means = (float(expert.mean()), float(predicted_tasks @ task_means))
    return Occupancy(name, labels, seen, predicted, low, high, float(0.5 * np.abs(seen - predicted).sum()), means)


def _bins(values: Float[np.ndarray, " m"], expert: Float[np.ndarray, " n"]) -> tuple[Any, tuple[str, ...]]:
    """Edges between bins, and what to call these: each value where there are few, else tenths of the training rows."""
    distinct = np.unique(np.concatenate([values, expert]))
    if len(distinct) <= MOST_DISTINCT:
        return (distinct[1:] + distinct[:-1]) / 2, tuple(f"{value:.3g}" for value in distinct)
    edges = np.unique(np.quantile(values, np.arange(1, BINS) / BINS))
    return edges, (f"<{edges[0]:.2g}", *(f"{edge:.2g}" for edge in edges))
