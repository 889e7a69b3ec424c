"""The paper's Eq. 6 written out as it stands: a double sum over expert and training *rows*, slow and obvious.

Nothing here knows of tasks as groups, of weights or of tables. Kernels are given as logs of one pair of points, so that
the sums can be taken without underflow; `exactly` does the same in 60 decimal digits for the Gaussian and the Laplace
kernel.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal, localcontext

import numpy as np

LogKernel = Callable[[np.ndarray, np.ndarray], float]


def _log(value: float) -> float:
    return math.log(value) if value > 0 else -math.inf


LOG_PROFILES: dict[str, Callable[[float], float]] = {
    "gaussian": lambda u: -(u**2) / 2,
    "laplace": lambda u: -u,
    "uniform": lambda u: _log(float(u <= 1)),
    "triangular": lambda u: _log(1 - u),
    "epanechnikov": lambda u: _log(1 - u**2),
}


def _cosine(x: np.ndarray, y: np.ndarray) -> float:
    lengths = np.linalg.norm(x) * np.linalg.norm(y)
    return max(1 - float(x @ y) / lengths, 0.0) if lengths > 0 else 1.0


DISTANCES: dict[str, Callable[[np.ndarray, np.ndarray], float]] = {
    "euclidean": lambda x, y: float(np.linalg.norm(x - y)),
    "manhattan": lambda x, y: float(np.abs(x - y).sum()),
    "cosine": _cosine,
    "dot": lambda x, y: max(1 - float(x @ y), 0.0),
}


def radial(profile: str, distance: str, h: float) -> LogKernel:
    """log K(d(x, y) / h)."""
    return lambda x, y: LOG_PROFILES[profile](DISTANCES[distance](x, y) / h)


def categorical(mismatch: float) -> LogKernel:
    """log of 1 for equal labels, of `mismatch` for others."""
    return lambda x, y: 0.0 if (x == y).all() else _log(mismatch)


def product(factors: Iterable[tuple[Sequence[int], LogKernel]]) -> LogKernel:
    """The product of kernels on their own columns."""
    parts = [(list(columns), factor) for columns, factor in factors]
    return lambda x, y: sum(factor(x[columns], y[columns]) for columns, factor in parts)


def log_sum(terms: Sequence[float]) -> float:
    """log sum exp."""
    largest = max(terms)
    return -math.inf if largest == -math.inf else largest + math.log(math.fsum(math.exp(t - largest) for t in terms))


def log_likelihood(
    expert: np.ndarray,
    rows: np.ndarray,
    tasks: np.ndarray,
    rewards: np.ndarray,
    reward: np.ndarray,
    log_kernel: LogKernel,
    log_reward_kernel: LogKernel,
    log_state_kernel: LogKernel = lambda x, y: 0.0,
    log_row_weights: np.ndarray | None = None,
) -> float:
    """sum_i log [ sum_j w_j K(x_i, x_j) K'(R, R_j) / sum_j w_j K_state(x_i, x_j) K'(R, R_j) ] over rows i and j.

    The paper has weights w_j = 1 and no kernel in the denominator (K_state = 1).
    """
    weights = np.zeros(len(rows)) if log_row_weights is None else log_row_weights
    b = [log_reward_kernel(reward, rewards[k]) + w for k, w in zip(tasks, weights, strict=True)]
    total = 0.0
    for x in expert:
        above = log_sum([log_kernel(x, y) + b_j for y, b_j in zip(rows, b, strict=True)])
        below = log_sum([log_state_kernel(x, y) + b_j for y, b_j in zip(rows, b, strict=True)])
        total += above - below if math.isfinite(below) else -math.inf
    return total


def exactly(
    expert: np.ndarray,
    rows: np.ndarray,
    tasks: np.ndarray,
    rewards: np.ndarray,
    reward: np.ndarray,
    profile: str,
    h: float,
    h_reward: float,
) -> float:
    """The same in 60 digits, for the Gaussian or the Laplace kernel on Euclidean distances."""
    with localcontext() as context:
        context.prec = 60
        b = [_exact_log_kernel(profile, reward, rewards[k], h_reward) for k in tasks]
        total = Decimal(0)
        for x in expert:
            above = [_exact_log_kernel(profile, x, y, h) + b_j for y, b_j in zip(rows, b, strict=True)]
            total += exact_log_sum(above) - exact_log_sum(b)
        return float(total)


def _exact_log_kernel(profile: str, x: np.ndarray, y: np.ndarray, h: float) -> Decimal:
    square = sum((Decimal(float(p)) - Decimal(float(q))) ** 2 for p, q in zip(x, y, strict=True)) / Decimal(h) ** 2
    return -square / 2 if profile == "gaussian" else -square.sqrt()


def exact_log_sum(terms: Sequence[Decimal]) -> Decimal:
    """log sum exp in the digits of the current context."""
    largest = max(terms)
    return largest + sum((term - largest).exp() for term in terms).ln()
