"""Bandwidths by cross-validation over whole tasks (`bandwidth="cv"`).

Each task k is left out in turn, and its rows are scored under its own known reward by the density of the others:

    score(h, h') = mean_i log [ sum_{l != k} e^{S_il + b_l(R_k)} / sum_{l != k} n_l e^{b_l(R_k)} ] - log c(h).

Rows are never left out singly: the rest of their own task would give them away (h' would go to 0), and a repeated row
would make the score diverge as h goes to 0. Where the features take few distinct values, K_h is normalised over those
values, as a probability, for the same reason.
"""

import math

import numpy as np
from jaxtyping import Float, Int

from kdbirl.errors import InputError
from kdbirl.likelihood.bandwidths import Bandwidths
from kdbirl.likelihood.ckde import CKDE
from kdbirl.likelihood.distinct import distinct_rows
from kdbirl.likelihood.kernel_sums import task_log_sums
from kdbirl.likelihood.kernels import Categorical
from kdbirl.likelihood.reward_weights import log_reward_kernel

SCORED_ROWS = 1000  # rows that are scored, over all tasks
BANK_ROWS = 20_000  # training rows that they are scored against
FACTORS = 2.0 ** np.arange(-5.0, 2.5, 0.5)  # candidates, as multiples of the median rule's bandwidths
DISCRETE_VALUES = 500  # features with at most this many distinct rows, each seen often, are treated as discrete


def cross_validated(ckde: CKDE, start: Bandwidths, seed: int) -> Bandwidths:
    """The best of a grid of multiples of the median rule's bandwidths."""
    rows, weights, tasks = _thinned(ckde, seed)
    scored, scored_tasks = _scored_rows(rows, weights, tasks, seed)
    scored_rewards = ckde.task_rewards[np.unique(scored_tasks)]
    rewards = log_reward_kernel(ckde.reward_kernel, scored_rewards, ckde.task_rewards, start.h_reward * FACTORS)
    scores = np.stack(
        [_scores(ckde, start.h * factor, rows, weights, tasks, scored, scored_tasks, rewards) for factor in FACTORS]
    )
    if not np.isfinite(scores).any():
        raise InputError("cv found no bandwidths with a finite score; give them as numbers, bandwidth=(h, h_reward).")
    best = np.unravel_index(np.argmax(np.where(np.isfinite(scores), scores, -np.inf)), scores.shape)
    notes = _notes(best, ckde.n_tasks, len(scored))
    h_reward = start.h_reward * (FACTORS[best[1]] if ckde.n_tasks > 2 else 1.0)
    return Bandwidths(start.h * FACTORS[best[0]], float(h_reward), "cv", notes)


def _notes(best: tuple[np.intp, ...], n_tasks: int, scored: int) -> tuple[str, ...]:
    notes = [f"cv: {scored} rows scored, each by the tasks other than its own"]
    if best[0] in (0, len(FACTORS) - 1):
        notes.append(f"cv: h ended at the edge of the search ({FACTORS[best[0]]:g} times the median rule's)")
    if n_tasks == 2:
        notes.append("cv: with two tasks nothing is left to choose h_reward by; it is the median rule's")
    elif best[1] in (0, len(FACTORS) - 1):
        notes.append(f"cv: h_reward ended at the edge of the search ({FACTORS[best[1]]:g} times the median rule's)")
    return tuple(notes)


def _thinned(ckde: CKDE, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """At most BANK_ROWS distinct rows of the bank, sampled with a seed, in their order."""
    if len(ckde.rows) <= BANK_ROWS:
        return ckde.rows, ckde.weights, ckde.tasks
    chosen = np.sort(np.random.default_rng(seed).choice(len(ckde.rows), BANK_ROWS, replace=False))
    return ckde.rows[chosen], ckde.weights[chosen], ckde.tasks[chosen]


def _scored_rows(rows: np.ndarray, weights: np.ndarray, tasks: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows to score, drawn as often as they occur."""
    index = np.repeat(np.arange(len(rows)), weights.astype(int))
    if len(index) > SCORED_ROWS:
        index = np.sort(np.random.default_rng(seed + 1).choice(index, SCORED_ROWS, replace=False))
    return rows[index], tasks[index]


def _scores(
    ckde: CKDE,
    h: Float[np.ndarray, " parts"],
    rows: np.ndarray,
    weights: np.ndarray,
    tasks: np.ndarray,
    scored: np.ndarray,
    scored_tasks: Int[np.ndarray, " n"],
    rewards: Float[np.ndarray, "candidates scored_tasks K"],
) -> Float[np.ndarray, " candidates"]:
    """The mean score of one h with every candidate h'."""
    normalised, log_constant = _normalised_weights(ckde, h, rows, weights)
    values, index, _ = distinct_rows(scored)
    table = task_log_sums(values, rows, normalised, tasks, ckde.n_tasks, ckde.kernel, h)[index]
    counts = np.bincount(tasks, weights=weights, minlength=ckde.n_tasks)
    log_counts = np.log(np.maximum(counts, 1.0))
    shift = log_counts if ckde.task_weights == "equal" else np.zeros(ckde.n_tasks)
    left_out = (scored_tasks[:, None] == np.arange(ckde.n_tasks)[None, :]) | (counts == 0)[None, :]
    table = np.where(left_out, -np.inf, table - shift[None, :])
    others = np.where(left_out, -np.inf, (log_counts - shift)[None, :])
    _, place = np.unique(scored_tasks, return_inverse=True)
    result = []
    for of_tasks in rewards:
        b = of_tasks[place]  # (n, K): log K'(R_k, R_l) for the task k of each scored row
        with np.errstate(invalid="ignore"):  # -inf - -inf: no other task in reach, a score of -inf
            logs = np.logaddexp.reduce(table + b, axis=1) - np.logaddexp.reduce(others + b, axis=1)
        result.append(np.mean(np.nan_to_num(logs, nan=-np.inf, neginf=-np.inf)) - log_constant)
    return np.asarray(result)


def _normalised_weights(ckde: CKDE, h: np.ndarray, rows: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, float]:
    """Weights divided by the kernel's sum over the distinct values (discrete), or the constant of K_h (continuous)."""
    values, index, _ = distinct_rows(rows)
    if len(values) <= DISCRETE_VALUES and len(values) < 0.5 * weights.sum():
        one_task = np.zeros(len(values), dtype=np.int64)
        totals = task_log_sums(values, values, np.ones(len(values)), one_task, 1, ckde.kernel, h)[:, 0]
        return weights * np.exp(-totals)[index], 0.0
    parts = [(p, width) for p, width in zip(ckde.kernel.parts, h, strict=True) if not isinstance(p.kernel, Categorical)]
    constants = [part.kernel.log_constant(len(part.columns), float(width)) for part, width in parts]  # labels have no h
    if None in constants:
        raise InputError("cv compares bandwidths, which needs the kernel's constant; it is not known for this kernel.")
    return weights, math.fsum(constant for constant in constants if constant is not None)
