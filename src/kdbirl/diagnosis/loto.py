"""Bandwidths and a power of the likelihood chosen by leaving one training task out (`bandwidth="loto"`).

The reward of a training task is known, so it can play the test task: n of its rows, in whole episodes, are the expert's
rows, and the other tasks are the bank. A candidate (h, h', eta) is scored by what its posterior says of the truth,

    score_k = log [ p(R_k | rows of k) / p(R_k) ] = eta log L_k(R_k) - log E_prior[ L_k(R)^eta ],

0 for a posterior that says no more than the prior. One badly wrong posterior is -1,000 or worse, and would choose for
all; the choice is therefore made by the bounded score log((1 - e) exp(score) + e), e = 0.001, which is the score of the
posterior mixed with a little prior. With few tasks the highest mean of many candidates is partly luck: the candidate
with the highest mean *minus two standard errors* is taken: what it is worth at least. Both scores are reported.

Rows of one episode are not independent, and the CKDE is an approximation; eta <= 1 pays for both. The choice speaks
for test tasks that are exchangeable with the training tasks, and for n rows. It never sees a test task.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from scipy.special import logsumexp

from kdbirl.checkpoints import checkpoint_of
from kdbirl.cluster import Cluster
from kdbirl.diagnosis.calibration import Calibration, calibrate_weighted
from kdbirl.diagnosis.extrapolation import all_extrapolate
from kdbirl.diagnosis.held_out import HeldOutTasks, log_mean_and_effective
from kdbirl.diagnosis.plays import Plays
from kdbirl.errors import InputError
from kdbirl.likelihood.bandwidths import Bandwidths
from kdbirl.likelihood.ckde import CKDE
from kdbirl.likelihood.kernels import Categorical
from kdbirl.posterior.prior_points import prior_points
from kdbirl.posterior.priors import Prior
from kdbirl.progress import Progress, Silent

FALLBACK = "median"  # the rule that is used where leaving tasks out says nothing
CAUTION = 2.0  # standard errors that are taken off a mean score before candidates are compared
MIXED_IN = 1e-3  # share of the prior in the bounded score: no task can cost more than log 0.001 = -6.9
H_FACTORS = 2.0 ** np.arange(-4.0, 1.5, 1.0)  # candidates, as multiples of the median rule's bandwidths
H_REWARD_FACTORS = 2.0 ** np.arange(-3.5, 1.0, 0.5)
POWERS = 2.0 ** -np.arange(0.0, 9.5, 0.75)
POINTS = {1: 512, 2: 1600, 3: 2197}  # that stand for the prior, by the number of parameters
POINTS_BEYOND = 4096
PLAYS_AT_ONCE = 10  # by a worker of a cluster
PLAYS = 40  # in all: each of K tasks plays up to PLAYS / K times
LARGEST_WORK = 4e10  # kernel-mixture terms of the whole search: with more rows, fewer points stand for the prior
FEWEST_POINTS = 512
FEWEST_EFFECTIVE = 20.0  # points behind a posterior, below which its normalising constant is not known well enough

Candidate = tuple[int, int, int]  # places of h, h' and the power among the candidates
Objective = Callable[[np.ndarray, np.ndarray, np.ndarray], float]


@dataclass(frozen=True, eq=False)
class Loto:
    """The choice and the whole search. Arrays over candidates are (h, h', power).

    means, standard_errors: of the bounded score (or the objective) over tasks; raw_means: of the unbounded score.
    calibration: of the posteriors of the held-out tasks, each with the candidate that the *other* tasks choose: judging
    the choice by the tasks that made it would flatter it.
    """

    h: Float[np.ndarray, " parts"]
    h_reward: float
    power: float
    n: int
    tasks: Int[np.ndarray, " t"]
    h_candidates: Float[np.ndarray, "a parts"]
    h_reward_candidates: Float[np.ndarray, " b"]
    power_candidates: Float[np.ndarray, " c"]
    means: Float[np.ndarray, "a b c"]
    standard_errors: Float[np.ndarray, "a b c"]
    raw_means: Float[np.ndarray, "a b c"]
    chosen: Candidate
    calibration: Calibration
    notes: tuple[str, ...] = ()

    @property
    def bandwidths(self) -> Bandwidths:
        """The bandwidths with what the user should know of them."""
        return Bandwidths(self.h, self.h_reward, "loto", self.notes)

    @property
    def mean(self) -> float:
        """The chosen candidate's mean bounded score."""
        return float(self.means[self.chosen])

    @property
    def standard_error(self) -> float:
        """Of the chosen candidate's mean bounded score."""
        return float(self.standard_errors[self.chosen])

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "h": self.h.tolist(),
            "h_reward": self.h_reward,
            "power": self.power,
            "n": self.n,
            "tasks": len(self.tasks),
            "mean_score": self.mean,
            "standard_error": self.standard_error,
            "raw_mean_score": _finite(float(self.raw_means[self.chosen])),
            "candidates": list(self.means.shape),
            "calibration": self.calibration.to_dict(),
            "notes": list(self.notes),
        }


@dataclass(frozen=True)
class LotoSettings:
    """What the search may try: `KDBIRL(bandwidth=kb.LotoSettings(...))`.

    h_factors, h_reward_factors: candidates, as multiples of the median rule's bandwidths; powers: of the likelihood.

    objective(truth (q,), points (P, q), weights (P,)) -> a number, higher is better, replaces the score: for instance
    minus the expected value difference in a known world (`kb.evd_objective`).
    """

    h_factors: Float[np.ndarray, " a"] | tuple[float, ...] = tuple(H_FACTORS.tolist())
    h_reward_factors: Float[np.ndarray, " b"] | tuple[float, ...] = tuple(H_REWARD_FACTORS.tolist())
    powers: Float[np.ndarray, " c"] | tuple[float, ...] = tuple(POWERS.tolist())
    objective: Objective | None = None

    def __post_init__(self) -> None:
        for name in ("h_factors", "h_reward_factors", "powers"):
            values = np.asarray(getattr(self, name), dtype=float)
            if values.ndim != 1 or not len(values) or not (np.isfinite(values) & (values > 0)).all():
                raise InputError(f"LotoSettings({name}={getattr(self, name)!r}): positive numbers were expected.")


def why_not(ckde: CKDE, prior: Prior) -> str | None:
    """Why leaving tasks out would say nothing about this bank; None where it does."""
    distinct, q = len(np.unique(ckde.task_rewards, axis=0)), ckde.task_rewards.shape[1]
    if distinct < q + 3:
        return f"{distinct} training rewards are too few for {q} parameters (at least {q + 3} are needed)"
    inside = len(np.unique(ckde.task_rewards[prior.contains(ckde.task_rewards)], axis=0))
    if inside < q + 3:
        return f"only {inside} training rewards lie in the prior's support (at least {q + 3} are needed)"
    if all_extrapolate(ckde.task_rewards):
        return (
            "every training reward lies far outside the others, so that leaving it out tests nothing but extrapolation"
        )
    return None


def leave_one_task_out(
    ckde: CKDE,
    plays: Plays,
    prior: Prior,
    start: Bandwidths,
    n: int,
    names: tuple[str, ...],
    settings: LotoSettings | None = None,
    progress: Progress | None = None,
    others: int | None = None,
    seed: int = 0,
    cluster: Cluster | None = None,
    power: float | None = None,
) -> Loto:
    """Choose (h, h', eta) for an expert of n rows. `start` are the bandwidths that the candidates are multiples of.

    others: how many of the other tasks each held-out task is judged by, drawn with the seed; None is all.
    power: one that is asked for is used as it is; None searches those of the settings.
    """
    settings, progress = settings or LotoSettings(), progress or Silent()
    settings = settings if power is None else replace(settings, powers=(power,))
    held_out, played = _held_out(ckde, plays, prior, n, settings)
    if others is not None:
        held_out = held_out.thinned(others, seed)
    search = _Search(held_out, start, settings, cluster)
    chosen, means, errors, raw = search.run(progress)
    a, b, c = chosen
    fewer = int((plays.sizes[held_out.tasks] < played).sum())
    notes = (
        _score_note(search, chosen, means, errors, raw, played, fewer),
        *_power_note(played, n, power),
        *_warnings(search, chosen, means, errors),
    )
    return Loto(
        h=search.h[a],
        h_reward=float(search.h_reward[b]),
        power=float(search.powers[c]) * min(1.0, played / n) if power is None else power,
        n=n,
        tasks=held_out.tasks,
        h_candidates=search.h,
        h_reward_candidates=search.h_reward,
        power_candidates=search.powers,
        means=means,
        standard_errors=errors,
        raw_means=raw,
        chosen=chosen,
        calibration=search.calibration(names),
        notes=notes,
    )


def _held_out(ckde: CKDE, plays: Plays, prior: Prior, n: int, settings: LotoSettings) -> tuple[HeldOutTasks, int]:
    """The tasks inside the prior's support, and how many rows they play (a typical task's, if it has fewer than n)."""
    tasks = np.flatnonzero(prior.contains(ckde.task_rewards))
    played = int(min(n, np.median(plays.sizes[tasks])))
    q, each = ckde.task_rewards.shape[1], max(PLAYS // len(tasks), 1)
    pairs = len(settings.h_factors) * len(settings.h_reward_factors)
    work = pairs * len(tasks) * each * played * ckde.n_tasks
    count = int(np.clip(LARGEST_WORK / work, FEWEST_POINTS, POINTS.get(q, POINTS_BEYOND)))
    return HeldOutTasks.of(ckde, plays, tasks, played, each, prior_points(prior, count)), played


class _Search:
    """Every candidate's scores of every play."""

    def __init__(
        self, held_out: HeldOutTasks, start: Bandwidths, settings: LotoSettings, cluster: Cluster | None = None
    ) -> None:
        self.held_out, self.objective, self._cluster = held_out, settings.objective, cluster
        has_scale = np.array([not isinstance(part.kernel, Categorical) for part in held_out.ckde.kernel.parts])
        self.h_factors = np.asarray(settings.h_factors, dtype=float) if has_scale.any() else np.ones(1)
        self.h = np.where(has_scale[None], start.h[None] * self.h_factors[:, None], start.h[None])
        self.h_reward = start.h_reward * np.asarray(settings.h_reward_factors)
        self.powers = np.asarray(settings.powers, dtype=float)

    def run(self, progress: Progress) -> tuple[Candidate, np.ndarray, np.ndarray, np.ndarray]:
        """The chosen candidate; means, standard errors and raw means of all (h, h', power)."""
        checkpoint = checkpoint_of(
            "leave one task out", self.held_out, self.h, self.h_reward, self.powers, self.objective
        )
        tables = (checkpoint.held() or {"tables": []})["tables"]
        for logs in self._log_likelihoods(len(tables), progress):
            progress.update("leave one task out", len(tables), len(self.h))
            tables.append(self._scores(*logs))
            checkpoint.keep({"tables": tables}, last=len(tables) == len(self.h))
        progress.update("leave one task out", len(self.h), len(self.h))
        scores, raw, effective = (np.stack(parts) for parts in zip(*tables, strict=True))
        known = effective >= min(FEWEST_EFFECTIVE, len(self.held_out.points) / 10)
        self._known = known if known.any() else np.ones_like(known)
        self._by_task = scores
        means, errors = _mean_and_error(scores)
        return self._best(scores), means, errors, raw.mean(axis=-1)

    def _log_likelihoods(self, done: int, progress: Progress) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Of every play with every h', for each h but the first `done`; on a cluster, some plays on each worker."""
        if self._cluster is None:
            kernels = self.held_out.reward_kernels(self.h_reward)
            yield from (self.held_out.log_likelihoods(h, kernels) for h in self.h[done:])
            return
        tasks, each, _ = self.held_out.counts.shape
        at_once = max(PLAYS_AT_ONCE // each, 1)
        parts = [self.held_out.part(slice(first, first + at_once)) for first in range(0, tasks, at_once)]
        pairs = [(h, part) for h in self.h[done:] for part in range(len(parts))]
        job = "leave one task out"
        found = self._cluster.mapped(_of_part, pairs, (parts, self.h_reward), progress, job)
        for first in range(0, len(found), len(parts)):
            at_points, at_truths = zip(*found[first : first + len(parts)], strict=True)
            yield np.concatenate(at_points, axis=1), np.concatenate(at_truths, axis=1)

    def _best(self, by_task: Float[np.ndarray, "a b c t"]) -> Candidate:
        """The candidate that these tasks choose."""
        means, errors = _mean_and_error(by_task)
        lower = np.where(self._known, means - CAUTION * errors, -np.inf)
        a, b, c = np.unravel_index(int(np.argmax(lower)), lower.shape)
        return int(a), int(b), int(c)

    def _scores(
        self, at_points: Float[np.ndarray, "b t p P"], at_truths: Float[np.ndarray, "b t p"]
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Means over plays of the bounded score (or objective) and the raw one (b, c, t); median effective points."""
        raw = np.empty((len(at_points), len(self.powers), *at_points.shape[1:3]))
        effective = np.empty(raw.shape[:2])
        scores = np.empty_like(raw)
        for c, power in enumerate(self.powers):
            evidence, effective_points = log_mean_and_effective(at_points, float(power))
            reached = np.isfinite(evidence) & np.isfinite(at_truths)
            usual = power * at_truths - np.where(np.isfinite(evidence), evidence, 0.0)
            raw[:, c] = np.where(reached, usual, -np.inf)
            effective[:, c] = np.median(effective_points, axis=(1, 2))
            scores[:, c] = bounded(raw[:, c]) if self.objective is None else self._objectives(power * at_points)
        return scores.mean(axis=-1), raw.mean(axis=-1), effective

    def _objectives(self, logs: Float[np.ndarray, "b t p P"]) -> Float[np.ndarray, "b t p"]:
        assert self.objective is not None
        logs = np.where(np.isfinite(logs).any(axis=-1, keepdims=True), logs, 0.0)
        weights = np.exp(logs - logsumexp(logs, axis=-1, keepdims=True))
        values = np.empty(logs.shape[:-1])
        for place in np.ndindex(values.shape):
            values[place] = self.objective(self.held_out.truths[place[1]], self.held_out.points, weights[place])
        return values

    def calibration(self, names: tuple[str, ...]) -> Calibration:
        """Of the held-out tasks' posteriors; one play a task, since plays of a task are dependent."""
        truths, points = self.held_out.truths, self.held_out.points
        logs, own_logs = np.empty((len(truths), len(points))), np.empty(len(truths))
        chosen = [self._best(np.delete(self._by_task, t, axis=-1)) for t in range(len(truths))]
        for a, b, c in set(chosen):
            own = [t for t, candidate in enumerate(chosen) if candidate == (a, b, c)]
            kernels = self.held_out.reward_kernels(self.h_reward[b : b + 1])
            at_points, at_truths = (part[0, :, 0] for part in self.held_out.log_likelihoods(self.h[a], kernels))
            logs[own], own_logs[own] = self.powers[c] * at_points[own], self.powers[c] * at_truths[own]
        explained = np.asarray(np.isfinite(logs).any(axis=1))
        logs = np.where(explained[:, None], logs, 0.0)  # rows that nobody explains keep the prior
        even, own_logs = np.zeros(len(points)), np.where(explained, own_logs, 0.0)
        return calibrate_weighted(truths, points, logs, even, names, log_weights_of_truths=own_logs)


def _of_part(
    pair: tuple[np.ndarray, int], parts: list[HeldOutTasks], h_reward: Float[np.ndarray, " b"]
) -> tuple[np.ndarray, np.ndarray]:
    h, part = pair
    return parts[part].log_likelihoods(h, parts[part].reward_kernels(h_reward))


def bounded(scores: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
    """log((1 - e) exp(score) + e): the score of the posterior mixed with a share e of the prior."""
    return np.logaddexp(np.log1p(-MIXED_IN) + scores, np.log(MIXED_IN))


def _mean_and_error(by_task: Float[np.ndarray, "... t"]) -> tuple[np.ndarray, np.ndarray]:
    return by_task.mean(axis=-1), by_task.std(axis=-1, ddof=1) / np.sqrt(by_task.shape[-1])


def _score_note(
    search: _Search,
    chosen: Candidate,
    means: np.ndarray,
    errors: np.ndarray,
    raw: np.ndarray,
    played: int,
    fewer: int,
) -> str:
    found = f"{means[chosen]:.2f} +- {errors[chosen]:.2f}"
    score = f"mean score {found} (the prior has 0), unbounded {raw[chosen]:.2f}"
    rows = f"{played} rows ({fewer} with fewer show all of theirs)" if fewer else f"{played} rows"
    return (
        f"loto: chosen by leaving out each of {len(search.held_out.tasks)} tasks, which shows {rows}; "
        f"{score if search.objective is None else f'mean objective {found}'}"
    )


def _power_note(played: int, n: int, asked: float | None) -> tuple[str, ...]:
    """Where training tasks cannot show as many rows as the expert: what that did to the power."""
    if played >= n:
        return ()
    consequence = (
        f"the power is scaled by {played / n:.2g} so that the posterior is no narrower"
        if asked is None
        else f"the power is {asked:g}, as asked for, so the posterior may be narrower than what was checked"
    )
    few = f"a typical training task has only {played} rows to show, and the expert {n}"
    return (f"loto: {few}: checked with {played}, and {consequence}",)


def _warnings(search: _Search, chosen: Candidate, means: np.ndarray, errors: np.ndarray) -> Iterator[str]:
    if search.objective is None and means[chosen] < CAUTION * errors[chosen]:
        yield "loto: no candidate is clearly better than the prior: this bank says little about held-out tasks"
    a, b, c = chosen
    edges = [
        name
        for name, values, place in (("h", search.h_factors, a), ("h_reward", search.h_reward, b))
        if values[place] in (values.min(), values.max()) and len(values) > 1
    ]
    power = search.powers[c]
    if len(search.powers) > 1 and (power == search.powers.min() or 1 != power == search.powers.max()):
        edges.append("the power")
    if edges:
        yield f"loto: {' and '.join(edges)} ended at the edge of the search"


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None
