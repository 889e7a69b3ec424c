"""The loops of `independence.py`, compiled by Numba: other threads can work beside them."""

import numpy as np

from kdbirl.compiled import compiled
from kdbirl.likelihood.gaussian_loops import LOOSE, squares_to


@compiled(fastmath=LOOSE)
def _total_of_powers(squares, over_nu, power, bases, powers):
    """Sum of (1 + square / nu)^-power, by repeated squaring. `bases` and `powers` are room of the same length."""
    for j in range(len(squares)):
        bases[j] = 1.0 / (1.0 + squares[j] * over_nu)
        powers[j] = 1.0
    while power > 1:
        if power % 2:
            for j in range(len(squares)):
                powers[j] *= bases[j]
        for j in range(len(squares)):
            bases[j] *= bases[j]
        power //= 2
    total = 0.0
    for j in range(len(squares)):
        total += powers[j] * bases[j]
    return total


@compiled()
def mean_kernels(points, centres, nu, power, out):
    """Fill out `(points,)`: the mean over centres `(q, c)` of (1 + |x - c|^2 / nu)^-power."""
    count = centres.shape[1]
    squares, bases, powers = np.empty(count), np.empty(count), np.empty(count)
    for i in range(len(points)):
        squares_to(points[i], centres, count, squares)
        out[i] = _total_of_powers(squares, 1.0 / nu, power, bases, powers) / count


@compiled()
def accepted(log_weights, log_levels, at):
    """Fill at `(chains, n)`: the proposal that each chain stands at, which is 0 at first.

    It moves to proposal j where level j - 1 is below the difference of their log weights; not from -inf to -inf.
    """
    for chain in range(len(at)):
        place = 0
        at[chain, 0] = 0
        for j in range(1, at.shape[1]):
            if log_levels[chain, j - 1] < log_weights[chain, j] - log_weights[chain, place]:
                place = j
            at[chain, j] = place
