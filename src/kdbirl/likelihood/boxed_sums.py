"""Kernel sums within a stated tolerance: boxes that are far from an expert row are not opened, full ones are condensed.

For the Gaussian kernel, lengths in units of h, and a box (`boxes.py`) at distance D of the expert row x: every row of
it has a kernel between 0 and k = exp(-D^2/2). So

- not opening boxes of weights w, and taking U/2 for them with U = sum of w k, is wrong by U/2 at most;
- nodes in place of rows of weight w are wrong by w k (product over columns of (1 + q) - 1) at most, where q k_i
  bounds the remainder of interpolation along column i (k is the product of the k_i): for p Chebyshev nodes on [-a, a]
  that is 2 (a/2)^p / p! max |f^(p)|, with f^(p)(t) = He_p(t) exp(-t^2/2), whose extremes are the zeros of He_p+1;
- rounding: points are kept in single precision, relative to the middle of a box with a as half its diagonal, so a
  distance r is wrong by 2^-24 (r + 2a) at most, and the exponent r^2/2, which is at most e in the box, by 2^-24 (4e +
  2 r a); what squares, exp, weights and sums of four add is below 2^-22 (4 + e). As r^2 and a^2 are at most 2e, terms
  are within 2^-20 (2 + e) of themselves, e of the furthest box that is opened. The |terms| of rows are their sum; those
  of nodes are at most k times their weights without signs.

The three add up to E, so log S is within -log(1 - E / value), which is held against the tolerance for every expert row
and task. In the first round, in single precision, boxes within `RADIUS` are opened, those within `REACH` are looked at,
and all others are counted in U as if at its edge. Pairs of an expert row and a task that fail are summed again, over
the rows themselves and in double precision. All groups of boxes are looked at then, and the boxes of some: with L below
the sum (the first round's, or that of a box whose rows were all in its furthest corner), opening all boxes with
k > share L / (2 weight of the task) leaves out at most half the share of L.
"""

import numpy as np
from jaxtyping import Float

from kdbirl.likelihood.boxes import Boxes
from kdbirl.threads import cores, on_all_cores

RADIUS, REACH = 5.3, 7.0  # of the first round, in bandwidths
PART_ROWS = 64  # expert rows that a thread takes at once
SMALLEST_SAFE_SUM = 1e-20  # of the first round: the least that single precision can tell from zero is far below
SMALLEST_TOLERANCE = 2e-4


def boxed_log_sums(expert: Float[np.ndarray, "n d"], boxes: Boxes, tolerance: float) -> Float[np.ndarray, "n K"]:
    """S within the tolerance."""
    given, table = np.asarray(expert, dtype=np.float64), np.empty((len(expert), len(boxes.in_all)))
    order = np.lexsort(boxes.scaled(given).T // REACH)  # rows that are neighbours open the same boxes

    def of_part(own: np.ndarray) -> None:
        table[own] = _log_sums(given[own], boxes, -np.expm1(-tolerance))

    on_all_cores(of_part, np.array_split(order, max(1, -(-len(order) // PART_ROWS), min(cores(), len(order)))))
    return table


def _log_sums(given: Float[np.ndarray, "n d"], boxes: Boxes, share: float) -> Float[np.ndarray, "n K"]:
    """The same; `share` of a sum is its largest error."""
    from kdbirl.likelihood.box_loops import first_round, second_round

    expert = boxes.scaled(given)
    value, error = first_round(expert, boxes.cells, boxes.points, boxes.in_all, boxes.most_fours, RADIUS, REACH)
    good = (error <= share * value) & (value > SMALLEST_SAFE_SUM) & np.isfinite(value)
    with np.errstate(divide="ignore", invalid="ignore"):
        table, below = np.log(value), np.where(error < 0.5 * value, np.log(value - error), -np.inf)
    task, row = np.nonzero(~good.T)  # in the order of the tasks, whose boxes then stay in the cache
    if len(row):
        of_rows = boxes.cells, boxes.groups, boxes.in_all, boxes.rows, boxes.weights, 1 / boxes.h
        table[row, task] = second_round(expert, given, row, task, below[row, task], share, *of_rows)
    return table
