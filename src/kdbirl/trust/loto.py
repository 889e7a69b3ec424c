"""Bandwidths and a power of the likelihood chosen by leaving one training task out (`bandwidth="loto"`).

The reward of a training task is known, so it can play the test task: n of its rows, in whole episodes, are the expert's
rows, and the other tasks are the bank. A candidate (h, h', eta) is scored by what its posterior says of the truth,

    score_k = log [ p(R_k | rows of k) / p(R_k) ] = eta log L_k(R_k) - log E_prior[ L_k(R)^eta ],

0 for a posterior that says no more than the prior. One badly wrong posterior is -1,000 or worse, and would choose for
all; the choice is therefore made by the bounded score log((1 - e) exp(score) + e), e = 0.001, which is the score of the
posterior mixed with a little prior. With few tasks the highest mean of many candidates is partly luck: candidates are
compared by their mean *minus two standard errors*: what they are worth at least. Both scores are reported.

Many candidates are nearly as good as the best one, and which of them is best depends on the rows that happen to play.
The choice is therefore their geometric mean, with weights that fall by a factor e for each quarter of a standard error.

Rows of one episode are not independent, and the CKDE is an approximation; eta <= 1 pays for both. The choice speaks
for test tasks that are exchangeable with the training tasks, and for n rows. It never sees a test task.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from scipy.special import logsumexp

from kdbirl.data.cluster import Cluster
from kdbirl.errors import InputError
from kdbirl.likelihood.bandwidths import Bandwidths
from kdbirl.likelihood.ckde import CKDE
from kdbirl.likelihood.kernels import Categorical
from kdbirl.posterior.priors import Prior, prior_points
from kdbirl.progress import Progress, Silent
from kdbirl.store import checkpoint_of
from kdbirl.trust.calibration import Calibration, calibrate_weighted
from kdbirl.trust.held_out import HeldOutTasks, Plays, all_extrapolate, log_mean_and_effective

FALLBACK = "median"  # the rule that is used where leaving tasks out says nothing
CAUTION = 2.0  # standard errors that are taken off a mean score before candidates are compared
MIXED_IN = 1e-3  # share of the prior in the bounded score: no task can cost more than log 0.001 = -6.9
H_FACTORS = 2.0 ** np.arange(-4.0, 1.5, 1.0)  # candidates, as multiples of the median rule's bandwidths
H_REWARD_FACTORS = 2.0 ** np.arange(-3.5, 1.0, 0.5)
POWERS = 2.0 ** -np.arange(0.0, 9.5, 0.75)
POINTS = {1: 512, 2: 1600, 3: 2197}  # that stand for the prior, by the number of parameters
POINTS_BEYOND = 4096
PLAYS_AT_ONCE = 10  # by a worker of a cluster
PLAYS = 80  # in all: each of K tasks plays up to PLAYS / K times
PLAYS_WITH_OBJECTIVE = 40  # an objective is a Python function, called for each play and candidate
NEAR = 0.25  # standard errors of the best candidate's mean, below it by which a candidate counts e times less
LARGEST_WORK = 8e10  # kernel-mixture terms of the whole search: with more rows, fewer points stand for the prior
FEWEST_POINTS = 512
FEWEST_EFFECTIVE = 20.0  # points behind a posterior, below which its normalising constant is not known well enough

Candidate = tuple[int, int, int]  # places of h, h' and the power among the candidates
Factors = tuple[float, float, float]  # of the first h and h', and the power
Objective = Callable[[np.ndarray, np.ndarray, np.ndarray], float]


@dataclass(frozen=True, eq=False)
class Loto:
    """The choice and the whole search. Arrays over candidates are (h, h', power).

    mean, standard_error: of the choice's bounded score (or objective) over tasks; raw_mean: of the unbounded score.
    means, standard_errors, raw_means: the same of each candidate.
    calibration: of the posteriors of the held-out tasks, each with the candidate next to what the *other* tasks choose:
    judging the choice by the tasks that made it would flatter it.
    """

    h: Float[np.ndarray, " parts"]
    h_reward: float
    power: float
    n: int
    tasks: Int[np.ndarray, " t"]
    mean: float
    standard_error: float
    raw_mean: float
    h_candidates: Float[np.ndarray, "a parts"]
    h_reward_candidates: Float[np.ndarray, " b"]
    power_candidates: Float[np.ndarray, " c"]
    means: Float[np.ndarray, "a b c"]
    standard_errors: Float[np.ndarray, "a b c"]
    raw_means: Float[np.ndarray, "a b c"]
    calibration: Calibration
    notes: tuple[str, ...] = ()

    @property
    def bandwidths(self) -> Bandwidths:
        """The bandwidths with what the user should know of them."""
        return Bandwidths(self.h, self.h_reward, "loto", self.notes)

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
            "raw_mean_score": _finite(self.raw_mean),
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
    search.run(progress)
    factors = search.choice(search.by_task)
    score, raw = search.of_choice(factors)
    mean, error = (float(part[0]) for part in _mean_and_error(score[None]))
    fewer = int((plays.sizes[held_out.tasks] < played).sum())
    means, errors = _mean_and_error(search.by_task)
    return Loto(
        h=search.h_of(factors[0]),
        h_reward=start.h_reward * factors[1],
        power=factors[2] * min(1.0, played / n) if power is None else power,
        n=n,
        tasks=held_out.tasks,
        mean=mean,
        standard_error=error,
        raw_mean=float(raw.mean()),
        h_candidates=search.h,
        h_reward_candidates=search.h_reward,
        power_candidates=search.powers,
        means=means,
        standard_errors=errors,
        raw_means=search.raw,
        calibration=search.calibration(names),
        notes=(
            _score_note(search, mean, error, float(raw.mean()), played, fewer),
            *_power_note(played, n, power),
            *_warnings(search, mean, error),
        ),
    )


def _held_out(ckde: CKDE, plays: Plays, prior: Prior, n: int, settings: LotoSettings) -> tuple[HeldOutTasks, int]:
    """The tasks inside the prior's support, and how many rows they play (a typical task's, if it has fewer than n)."""
    tasks = np.flatnonzero(prior.contains(ckde.task_rewards))
    played = int(min(n, np.median(plays.sizes[tasks])))
    q, in_all = ckde.task_rewards.shape[1], PLAYS if settings.objective is None else PLAYS_WITH_OBJECTIVE
    held_out = HeldOutTasks.of(ckde, plays, tasks, played, max(in_all // len(tasks), 1), np.zeros((0, q)))
    work = len(settings.h_factors) * len(settings.h_reward_factors) * held_out.index.size * ckde.n_tasks
    count = int(np.clip(LARGEST_WORK / work, FEWEST_POINTS, POINTS.get(q, POINTS_BEYOND)))
    return replace(held_out, points=prior_points(prior, count)), played


class _Search:
    """Every candidate's scores of every play."""

    def __init__(
        self, held_out: HeldOutTasks, start: Bandwidths, settings: LotoSettings, cluster: Cluster | None = None
    ) -> None:
        self.held_out, self.objective, self._start, self._cluster = held_out, settings.objective, start, cluster
        self._has_scale = np.array([not isinstance(part.kernel, Categorical) for part in held_out.ckde.kernel.parts])
        factors = settings.h_factors if self._has_scale.any() else (1.0,)
        given = factors, settings.h_reward_factors, settings.powers
        self.factors = tuple(np.asarray(values, dtype=float) for values in given)
        self.h = np.stack([self.h_of(factor) for factor in self.factors[0]])
        self.h_reward, self.powers = start.h_reward * self.factors[1], self.factors[2]

    def h_of(self, factor: float) -> Float[np.ndarray, " parts"]:
        """The bandwidths of all parts of the kernel: labels have no scale."""
        return np.where(self._has_scale, self._start.h * factor, self._start.h)

    def run(self, progress: Progress) -> None:
        """The scores of all candidates: `by_task (h, h', power, task)`, and the means of the raw ones, `raw`."""
        checkpoint = checkpoint_of(
            "leave one task out", self.held_out, self.h, self.h_reward, self.powers, self.objective
        )
        tables = (checkpoint.held() or {"tables": []})["tables"]
        for logs in self._log_likelihoods(len(tables), progress):
            progress.update("leave one task out", len(tables), len(self.h))
            tables.append(self._scores(*logs, self.powers))
            checkpoint.keep({"tables": tables}, last=len(tables) == len(self.h))
        progress.update("leave one task out", len(self.h), len(self.h))
        self.by_task, raw, effective = (np.stack(parts) for parts in zip(*tables, strict=True))
        self.raw = raw.mean(axis=-1)
        known = effective >= min(FEWEST_EFFECTIVE, len(self.held_out.points) / 10)
        self._known = known if known.any() else np.ones_like(known)

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

    def weights(self, by_task: Float[np.ndarray, "a b c t"]) -> Float[np.ndarray, "a b c"]:
        """What these tasks say of each candidate: 1 of the best one, less of others."""
        means, errors = _mean_and_error(by_task)
        lower = np.where(self._known, means - CAUTION * errors, -np.inf)
        best = np.unravel_index(int(np.argmax(lower)), lower.shape)
        with np.errstate(over="ignore"):  # where all tasks agree there are no errors, and only the best ones count
            return np.exp((lower - lower[best]) / max(NEAR * errors[best], np.finfo(float).tiny))

    def choice(self, by_task: Float[np.ndarray, "a b c t"]) -> Factors:
        """What these tasks choose: the weighted geometric mean of the candidates."""
        weights = self.weights(by_task)
        h, h_reward, power = (
            _geometric_mean(values, weights.sum(axis=others))
            for values, others in zip(self.factors, ((1, 2), (0, 2), (0, 1)), strict=True)
        )
        return h, h_reward, power

    def nearest(self, factors: Factors) -> Candidate:
        """The candidate next to a choice."""
        a, b, c = (
            int(np.argmin(np.abs(np.log(values / own)))) for values, own in zip(self.factors, factors, strict=True)
        )
        return a, b, c

    def of_choice(self, factors: Factors) -> tuple[Float[np.ndarray, " t"], Float[np.ndarray, " t"]]:
        """The bounded score (or objective) of each task, and the raw one."""
        kernels = self.held_out.reward_kernels(np.array([self._start.h_reward * factors[1]]))
        logs = self.held_out.log_likelihoods(self.h_of(factors[0]), kernels)
        scores, raw, _ = self._scores(*logs, np.array([factors[2]]))
        return scores[0, 0], raw[0, 0]

    def _scores(
        self,
        at_points: Float[np.ndarray, "b t p P"],
        at_truths: Float[np.ndarray, "b t p"],
        powers: Float[np.ndarray, " c"],
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Means over plays of the bounded score (or objective) and the raw one (b, c, t); median effective points."""
        evidence, effective = (np.swapaxes(part, 0, 1) for part in log_mean_and_effective(at_points, powers))
        reached = np.isfinite(evidence) & np.isfinite(at_truths)[:, None]
        usual = powers[None, :, None, None] * at_truths[:, None] - np.where(np.isfinite(evidence), evidence, 0.0)
        raw = np.where(reached, usual, -np.inf)
        if self.objective is None:
            scores = bounded(raw)
        else:
            scores = np.stack([self._objectives(power * at_points) for power in powers], axis=1)
        return scores.mean(axis=-1), raw.mean(axis=-1), np.median(effective, axis=(2, 3))

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
        chosen = [self.nearest(self.choice(np.delete(self.by_task, t, axis=-1))) for t in range(len(truths))]
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


def _geometric_mean(values: Float[np.ndarray, " c"], weights: Float[np.ndarray, " c"]) -> float:
    return float(values[0] * np.exp(np.average(np.log(values / values[0]), weights=weights)))


def _score_note(search: _Search, mean: float, error: float, raw: float, played: int, fewer: int) -> str:
    found = f"{mean:.2f} +- {error:.2f}"
    score = f"mean score {found} (the prior has 0), unbounded {raw:.2f}"
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


def _warnings(search: _Search, mean: float, error: float) -> Iterator[str]:
    if search.objective is None and mean < CAUTION * error:
        yield "loto: not clearly better than the prior: this bank says little about held-out tasks"
    weights = search.weights(search.by_task)
    best = np.unravel_index(int(np.argmax(weights)), weights.shape)
    edges = [
        name
        for name, values, place in zip(("h", "h_reward", "power"), search.factors, best, strict=True)
        if len(values) > 1 and values[place] in (values.min(), values.max())
        if not (name == "power" and values[place] == values.max() == 1)  # the largest that makes sense
    ]
    if edges:
        yield f"loto: the best {' and '.join(edges)} {'is' if len(edges) == 1 else 'are'} at the edge of the search"


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None
