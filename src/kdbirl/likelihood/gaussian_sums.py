"""Sums of Gaussian kernels on Euclidean distance, on this machine's cores: the loops of `gaussian_loops.py`.

-|x - y|^2 / 2h^2 = factor |2^k (x - y)|^2 in powers of two, where 2^k is next to 1/h: multiplying by a power of two is
exact, so the differences are those of the rows as they are. Nothing is centred and no square is expanded: no digit is
lost far from zero. Every sum is scaled by one of its larger terms, so none underflows. What an expert row gets does not
depend on the other rows beside it, nor on the number of cores.
"""

import math

import numpy as np
from jaxtyping import Float, Int

from kdbirl.threads import cores, on_all_cores

LARGEST = 1e150  # of a coordinate in bandwidths: squares of differences stay in range
PAIRS_OF_A_THREAD = 2**19  # fewer, and starting a thread would take longer than it saves
EXPERT_ROWS = 128  # that a thread takes at once, at most


def in_range(values: Float[np.ndarray, "rows d"], h: float) -> bool:
    """Whether squares of these rows, in bandwidths, are finite numbers; False if a value is not a number."""
    scale, ends = _scale(h), (float(values.min(initial=0.0)), float(values.max(initial=0.0)))
    return scale < math.inf and all(abs(end) * scale < LARGEST for end in ends)


def gaussian_log_sums(
    expert: Float[np.ndarray, "n d"],
    rows: Float[np.ndarray, "m d"],
    weights: Float[np.ndarray, " m"],
    first: Int[np.ndarray, " ends"],
    h: float,
) -> Float[np.ndarray, "n segments"]:
    """log sums over the rows of each segment: from first[s] to before first[s + 1], and none is empty."""
    from kdbirl.likelihood.gaussian_loops import scaled_sums

    # in one layout and writable, since each other one would be compiled anew
    given = [np.require(array, np.float64, ("C", "W")) for array in (expert, rows, weights)]
    scale = _scale(h)
    factor = -0.5 / math.log(2) / (h * scale) ** 2
    totals, near = np.empty((2, len(expert), len(first) - 1))

    def of_part(part: slice) -> None:
        scaled_sums(given[0][part], *given[1:], first, scale, factor, totals[part], near[part])

    if len(expert) * len(rows) < PAIRS_OF_A_THREAD:
        of_part(slice(None))
    else:
        size = min(EXPERT_ROWS, -(-len(expert) // cores()))
        on_all_cores(of_part, [slice(i, i + size) for i in range(0, len(expert), size)])
    return np.log(totals) + (factor * math.log(2)) * near


def _scale(h: float) -> float:
    """The power of two next to 1/h, from above; infinite where doubles end."""
    try:
        return math.ldexp(1.0, 1 - math.frexp(h)[1])
    except OverflowError:
        return math.inf
