"""Bandwidths by cross-validation over whole tasks (`bandwidth="cv"`).

Each task k is left out in turn, and its rows are scored under its own known reward by the density of the others:

    score(h, h') = mean_i log [ sum_{l != k} e^{S_il + b_l(R_k)} / sum_{l != k} n_l e^{b_l(R_k)} ] - log c(h).

Rows are never left out singly: the rest of their own task would give them away (h' would go to 0), and a repeated row
would make the score diverge as h goes to 0. For the same reason c(h) is an integral over continuous columns only: over
columns that take few values (labels, one-hot codes) K_h is normalised by its sum over those values, as a probability.
That factorises for the Gaussian on Euclidean and the Laplace kernel on Manhattan distance; where a single kernel of
another kind sees columns of both kinds, it is an approximation. The score is that of the joint density p(s, a | R) also
where the posterior will use p(a | s, R).
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from kdbirl.errors import InputError
from kdbirl.likelihood.ckde import CKDE, log_reward_kernel
from kdbirl.likelihood.kernels import Categorical, PairKernel, Part
from kdbirl.likelihood.sums import distinct_rows, order_by_content, task_log_sums
from kdbirl.random_streams import stream

SCORED_ROWS = 1000  # rows that are scored, over all tasks
BANK_ROWS = 20_000  # training rows that they are scored against
FACTORS = 2.0 ** np.arange(-5.0, 2.5, 0.5)  # candidates, as multiples of the median rule's bandwidths
DISCRETE_VALUES = 500  # columns with at most this many distinct rows, each seen often, are treated as discrete
TIE = 1e-6  # scores per row that differ by less are equal; the widest of equal bandwidths is taken


@dataclass(frozen=True)
class _Folds:
    """What every candidate is scored on: training rows, and rows that the tasks other than their own must explain."""

    ckde: CKDE
    rows: Float[np.ndarray, "m d"]
    weights: Float[np.ndarray, " m"]
    tasks: Int[np.ndarray, " m"]
    scored: Float[np.ndarray, "u d"]  # distinct rows
    index: Int[np.ndarray, " n"]  # of each scored row among them
    held_out: Int[np.ndarray, " folds"]  # tasks of which rows are scored
    fold: Int[np.ndarray, " n"]  # of each scored row
    discrete: tuple[Bool[np.ndarray, " _"], ...]  # for each part of the kernel, which of its columns are


def cross_validated(
    ckde: CKDE, start_h: Float[np.ndarray, " parts"], start_h_reward: float, seed: int
) -> tuple[Float[np.ndarray, " parts"], float, tuple[str, ...]]:
    """h, h' and notes: the best of a grid of multiples of the median rule's bandwidths."""
    folds = _folds(ckde, seed)
    held_out = ckde.task_rewards[folds.held_out]
    b = log_reward_kernel(ckde.reward_kernel, held_out, ckde.task_rewards, start_h_reward * FACTORS)
    has_scale = np.array([not isinstance(part.kernel, Categorical) for part in ckde.kernel.parts])
    candidates = [np.where(has_scale, start_h * factor, start_h) for factor in FACTORS]
    scores = np.stack([_scores(folds, h, b) for h in candidates])
    if not np.isfinite(scores).any():
        raise InputError("cv found no bandwidths with a finite score; give them as numbers, bandwidth=(h, h_reward).")
    best = np.argwhere(scores >= scores.max() - TIE)[-1]
    h_reward = start_h_reward * (FACTORS[best[1]] if ckde.n_tasks > 2 else 1.0)
    return candidates[best[0]], float(h_reward), _notes(best, ckde.n_tasks, len(folds.index))


def _notes(best: Int[np.ndarray, " 2"], n_tasks: int, scored: int) -> tuple[str, ...]:
    notes = [f"cv: {scored} rows scored, each by the tasks other than its own"]
    if best[0] in (0, len(FACTORS) - 1):
        notes.append(f"cv: h ended at the edge of the search ({FACTORS[best[0]]:g} times the median rule's)")
    if n_tasks == 2:
        notes.append("cv: with two tasks nothing is left to choose h_reward by; it is the median rule's")
    elif best[1] in (0, len(FACTORS) - 1):
        notes.append(f"cv: h_reward ended at the edge of the search ({FACTORS[best[1]]:g} times the median rule's)")
    return tuple(notes)


def _folds(ckde: CKDE, seed: int) -> _Folds:
    rows, weights, tasks = _thinned(ckde, seed)
    chosen = _scored_rows(weights, order_by_content(rows, ckde.task_rewards[tasks], seed), seed)
    scored, index, _ = distinct_rows(rows[chosen])
    held_out, fold = np.unique(tasks[chosen], return_inverse=True)
    discrete = tuple(_discrete_columns(rows[:, list(part.columns)], weights.sum()) for part in ckde.kernel.parts)
    return _Folds(ckde, rows, weights, tasks, scored, index, held_out, fold, discrete)


def _thinned(ckde: CKDE, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """At most BANK_ROWS distinct rows of the bank, sampled with a seed, in their order."""
    if len(ckde.rows) <= BANK_ROWS:
        return ckde.rows, ckde.weights, ckde.tasks
    order = order_by_content(ckde.rows, ckde.task_rewards[ckde.tasks], seed)
    rng = np.random.default_rng(stream(seed, "rows of the bank"))
    chosen = np.sort(order[rng.choice(len(order), BANK_ROWS, replace=False)])
    return ckde.rows[chosen], ckde.weights[chosen], ckde.tasks[chosen]


def _scored_rows(weights: Float[np.ndarray, " m"], order: Int[np.ndarray, " m"], seed: int) -> Int[np.ndarray, " n"]:
    """Indices of the rows to score, drawn as often as they occur."""
    total = round(float(weights.sum()))
    if total <= SCORED_ROWS:
        return np.repeat(np.arange(len(weights)), weights.astype(int))
    places = np.sort(np.random.default_rng(stream(seed, "rows to score")).choice(total, SCORED_ROWS, replace=False))
    return order[np.searchsorted(np.cumsum(weights[order]), places, side="right")]


def _discrete_columns(columns: Float[np.ndarray, "m c"], n_rows: float) -> Bool[np.ndarray, " c"]:
    """Columns that together take few values, each often. Those with the fewest values of their own come first."""
    discrete = np.zeros(columns.shape[1], dtype=bool)
    limit = min(DISCRETE_VALUES, 0.5 * n_rows)
    for column in np.argsort([len(np.unique(column)) for column in columns.T], kind="stable"):
        discrete[column] = True
        if len(distinct_rows(columns[:, discrete])[0]) > limit:
            discrete[column] = False
            break
    return discrete


def _scores(
    folds: _Folds, h: Float[np.ndarray, " parts"], log_reward_kernels: Float[np.ndarray, "candidates folds K"]
) -> Float[np.ndarray, " candidates"]:
    """The mean score of one h with every candidate h'."""
    ckde = folds.ckde
    weights, log_constant = _normalised(folds, h)
    table = task_log_sums(folds.scored, folds.rows, weights, folds.tasks, ckde.n_tasks, ckde.kernel, h)[folds.index]
    counts = np.bincount(folds.tasks, weights=folds.weights, minlength=ckde.n_tasks)
    log_counts = np.log(np.maximum(counts, 1.0))
    shift = log_counts if ckde.task_weights == "equal" else np.zeros(ckde.n_tasks)
    left_out = (folds.held_out[:, None] == np.arange(ckde.n_tasks)[None, :]) | (counts == 0)[None, :]
    table = np.where(left_out[folds.fold], -np.inf, table - shift[None, :])
    others = np.where(left_out, -np.inf, (log_counts - shift)[None, :])
    result = []
    for b in log_reward_kernels:  # (folds, K): log K'(R_k, R_l)
        above, below = _log_sums(table + b[folds.fold]), _log_sums(others + b)[folds.fold]
        in_reach = np.isfinite(below)
        logs = np.where(in_reach, above - np.where(in_reach, below, 0.0), -np.inf)
        result.append(np.mean(logs) - log_constant)
    return np.asarray(result)


def _log_sums(terms: Float[np.ndarray, "n K"]) -> Float[np.ndarray, " n"]:
    """log sum exp of each row; -inf where every term is."""
    largest = terms.max(axis=1)
    shift = np.where(np.isfinite(largest), largest, 0.0)
    total = np.exp(terms - shift[:, None]).sum(axis=1)
    return np.where(total > 0, np.log(np.where(total > 0, total, 1.0)) + shift, -np.inf)


def _normalised(folds: _Folds, h: Float[np.ndarray, " parts"]) -> tuple[Float[np.ndarray, " m"], float]:
    """Weights divided by the kernel's sum over discrete values, and the log of its integral over the other columns.

    The constant of a categorical kernel is left out: it does not depend on h.
    """
    log_weights, log_constant = np.log(folds.weights), 0.0
    for part, discrete, width in zip(folds.ckde.kernel.parts, folds.discrete, h, strict=True):
        if isinstance(part.kernel, Categorical):
            continue
        constant = 0.0 if discrete.all() else part.kernel.log_constant(int((~discrete).sum()), float(width))
        if constant is None:
            raise InputError(
                f"cv compares bandwidths, which needs the kernel's constant; it is not known for the {part.group} "
                f"kernel, {part.kernel.describe()}. Use another rule, or give the bandwidths as numbers."
            )
        log_constant += constant
        if discrete.any():
            values, index, _ = distinct_rows(folds.rows[:, np.asarray(part.columns)[discrete]])
            log_weights = log_weights - _log_sum_over(values, part, float(width))[index]
    return np.exp(log_weights), log_constant


def _log_sum_over(values: Float[np.ndarray, "v c"], part: Part, h: float) -> Float[np.ndarray, " v"]:
    """log sum_v K_h(x, v) for each x of the values."""
    kernel = PairKernel((Part(part.group, tuple(range(values.shape[1])), part.kernel),))
    one_task = np.zeros(len(values), dtype=np.int64)
    return task_log_sums(values, values, np.ones(len(values)), one_task, 1, kernel, np.array([h]))[:, 0]
