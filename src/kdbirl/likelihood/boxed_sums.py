"""Kernel sums within a stated tolerance: boxes that are far from an expert row are not opened, full ones are condensed.

For the Gaussian kernel, lengths in units of h, and a box (`boxes.py`) at distance D of the expert row x: every row of
it has a kernel between 0 and k = exp(-D^2/2). So

- not opening boxes of weights w, and taking U/2 for them with U = sum of w k, is wrong by U/2 at most;
- nodes in place of rows of weight w are wrong by w k (product over columns of (1 + q) - 1) at most, where q k_i
  bounds the remainder of interpolation along column i (k is the product of the k_i): for p Chebyshev nodes on [-a, a]
  that is 2 (a/2)^p / p! max |f^(p)|, with f^(p)(t) = He_p(t) exp(-t^2/2), whose extremes are the zeros of He_p+1;
- rounding is wrong by eps (2 + e) of the sum of |terms| at most, with exponents up to e, in single precision relative
  to a box's centre within blocks of points, in double between them. The |terms| of rows are their sum; those of nodes
  are at most k times their weights without signs.

The three add up to E, so log S is within -log(1 - E / value), which is held against the tolerance for every expert row
and task. In a first round boxes within `RADIUS` are opened. Pairs that fail get a radius of their own in further
rounds, which look further: with L below the sum (the first round's, or that of a box whose rows were all in its
furthest corner), opening all boxes with k > share L / (weight of the task) makes U/2 at most half the share of L.
Boxes outside of a round's reach are counted in U as if at its edge. Expert rows that fail to the end are named.
"""

from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from math import factorial, prod
from os import sched_getaffinity
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int
from numpy.polynomial import hermite_e
from scipy.sparse import csr_array

from kdbirl.likelihood.boxes import ORDER, WIDTH, Boxes
from kdbirl.likelihood.kernel_sums import SMALLEST_SAFE_SUM, WIDE, rounded_up
from kdbirl.precision import float64

RADIUS = 5.0  # of the first round, in bandwidths
LANES = 8  # expert rows that meet a block at once
PART_ROWS = 256  # expert rows of one thread; the same on every machine, and so are the results
PAIRS_PER_STEP = 2**18  # in a step of the scan: 1 MB in single precision
REACHES = (7.0, 10.0, 20.0, np.inf)  # boxes further away than this are not looked at; inf always suffices
SMALLEST_TOLERANCE = 2e-4
LARGEST_LOG = 600.0  # of a bound that is too large in any case
PRECISIONS = ((jnp.float32, 60.0, 2.0**-19), (jnp.float64, 600.0, 2.0**-23))  # type, largest exponent, eps


@float64
def boxed_log_sums(
    expert: Float[np.ndarray, "n d"], boxes: Boxes, tolerance: float
) -> tuple[Float[np.ndarray, "n K"], Bool[np.ndarray, " n"]]:
    """S within the tolerance, and which rows must be summed exactly instead."""
    order = np.argsort(expert[:, np.argmax(np.ptp(expert, axis=0))])  # rows that are neighbours open the same boxes
    parts = np.array_split(order, -(-len(expert) // PART_ROWS))
    laid = boxes.on_device  # once, before the threads ask for it

    @float64
    def of_part(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return _Block(expert[rows] / boxes.scale, boxes, laid).log_sums(-np.expm1(-tolerance))

    table, far = np.empty((len(expert), boxes.n_tasks)), np.empty(len(expert), dtype=bool)
    with ThreadPoolExecutor(len(sched_getaffinity(0))) as pool:  # XLA runs loops of small steps on one core
        waiting = [pool.submit(copy_context().run, of_part, rows) for rows in parts]
        for rows, each in zip(parts, waiting, strict=True):
            table[rows], far[rows] = each.result()
    return table, far


@dataclass(frozen=True)
class _Pairs:
    """Pairs of expert rows and boxes, sorted by row, with D^2 and the largest |exponent|."""

    row: Int[np.ndarray, " pairs"]
    box: Int[np.ndarray, " pairs"]
    nearest: Float[np.ndarray, " pairs"]

    def __getitem__(self, kept: np.ndarray) -> "_Pairs":
        return _Pairs(self.row[kept], self.box[kept], self.nearest[kept])


@dataclass(frozen=True)
class _Block:
    """Some expert rows, in bandwidths, before the boxes."""

    expert: Float[np.ndarray, "n d"]
    boxes: Boxes
    laid: tuple[Array, Array]  # the boxes' points and weights where JAX computes

    def log_sums(self, share: float) -> tuple[np.ndarray, np.ndarray]:
        """(n, K), and who failed; `share` of a sum is its largest error."""
        value, error = self._first_round()
        good = error <= share * value
        with np.errstate(divide="ignore"):
            table, below = np.log(value), np.log(np.maximum(value - error, 0.0))
        for reach in REACHES[1:]:
            row, task = np.nonzero(~good)
            if len(row):
                table[row, task], good[row, task] = self._next_round(row, task, below[row, task], share, reach)
        return table, np.asarray(~good.all(axis=1))

    def _first_round(self) -> tuple[np.ndarray, np.ndarray]:
        """Sums and their largest errors (n, K)."""
        boxes, n_tasks = self.boxes, self.boxes.n_tasks
        dtype, largest, eps = PRECISIONS[0]
        near = self.near(np.arange(len(self.expert)), REACHES[0])
        opened = np.flatnonzero(near.nearest <= RADIUS**2)
        exponent = self._exponent(near.row[opened], near.box[opened])
        opened, exponent = opened[exponent <= largest], exponent[exponent <= largest]
        k = np.exp(-0.5 * near.nearest)
        outside = np.exp(-0.5 * REACHES[0] ** 2) * boxes.mass.sum(axis=0)[None]
        own, own_k, rounding = near[opened], k[opened], eps * (2.0 + exponent)
        k[opened] = 0.0
        left_out = 0.5 * (self._over_boxes(near, k, boxes.mass) + outside)
        order = np.argsort(own.box, kind="stable")
        first = own.box[order] * n_tasks
        total = self._opened(own[order], (first, first + n_tasks), np.zeros(len(first)), dtype)
        error = left_out + rounding.max(initial=0.0) * total
        if boxes.of_nodes.any():
            error += self._over_boxes(own, own_k * self._remainder(own), np.where(boxes.of_nodes > 0, boxes.mass, 0.0))
            error += self._over_boxes(own, own_k * rounding, boxes.of_nodes)
        return total + left_out, error

    def _next_round(
        self, row: np.ndarray, task: np.ndarray, below: np.ndarray, share: float, reach: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """Log sums of some rows over a task each, and whether they are good; `below`: logs of what they are above."""
        boxes, n = self.boxes, len(row)
        rows, of_pair = np.unique(row, return_inverse=True)
        near = self.near(rows, reach)
        ends = np.searchsorted(near.row, rows), np.searchsorted(near.row, rows, side="right")
        start, counts = ends[0][of_pair], (ends[1] - ends[0])[of_pair]
        pair = np.repeat(np.arange(n), counts)
        near = near[np.arange(len(pair)) + np.repeat(start - (np.cumsum(counts) - counts), counts)]
        kept = np.flatnonzero(boxes.mass[near.box, task[pair]])
        near, pair = near[kept], pair[kept]
        mass, in_all = boxes.mass[near.box, task[pair]], boxes.mass.sum(axis=0)[task]
        lower, reference = below.copy(), below.copy()  # logs below the sums, and above their largest parts
        np.maximum.at(lower, pair, np.log(mass) - 0.5 * self._furthest(near))
        np.maximum.at(reference, pair, np.log(mass) - 0.5 * near.nearest)
        found = np.isfinite(lower)
        reference = np.where(found, reference, 0.0)
        k = np.exp(-0.5 * near.nearest - reference[pair])
        opened = np.flatnonzero(-0.5 * near.nearest > (np.log(share / in_all) + lower)[pair])
        outside = in_all * np.exp(np.minimum(-0.5 * reach**2 - reference, LARGEST_LOG))
        left_out = 0.5 * (np.bincount(pair, mass * k, n) - np.bincount(pair[opened], (mass * k)[opened], n) + outside)
        total, error = left_out.copy(), left_out.copy()
        near, pair, k = near[opened], pair[opened], k[opened]
        exponent, smallest = self._exponent(near.row, near.box), -1.0
        error[pair[exponent > PRECISIONS[-1][1]]] = np.inf
        for dtype, largest, eps in PRECISIONS:
            here = np.flatnonzero((exponent > smallest) & (exponent <= largest))
            smallest = largest
            if len(here):
                here = here[np.argsort(near.box[here] * boxes.n_tasks + task[pair[here]], kind="stable")]
                own, p, rounding = near[here], pair[here], eps * (2.0 + exponent[here])
                cell = own.box * boxes.n_tasks + task[p]
                sums = self._opened(own, (cell, cell + 1), reference[p], dtype)[row, task]
                total += sums
                error += rounding.max() * sums
                of_nodes = boxes.of_nodes[own.box, task[p]]
                if of_nodes.any():
                    replaced = np.where(of_nodes > 0, boxes.mass[own.box, task[p]], 0.0)
                    error += np.bincount(p, k[here] * (replaced * self._remainder(own) + of_nodes * rounding), n)
        with np.errstate(divide="ignore"):
            return np.log(total) + reference, found & (total > SMALLEST_SAFE_SUM) & (error <= share * total)

    def near(self, rows: Int[np.ndarray, " rows"], reach: float) -> _Pairs:
        """The boxes within reach of some rows, column by column of the grid; or among all boxes, if these are few."""
        boxes = self.boxes
        x = self.expert[rows]
        within = np.clip(np.floor((x - boxes.low - reach) / boxes.sides), 0, boxes.last).astype(np.int64)
        until = np.clip(np.floor((x - boxes.low + reach) / boxes.sides), 0, boxes.last).astype(np.int64)
        if np.prod(until - within + 1.0, axis=1).sum() > len(rows) * len(boxes.mass):
            row, box = np.repeat(rows, len(boxes.mass)), np.tile(np.arange(len(boxes.mass)), len(rows))
            nearest = sum(np.maximum(self._gap(i, row, box) - a, 0.0) ** 2 for i, a in enumerate(boxes.half))
            return _Pairs(row, box, nearest)[nearest <= reach**2]
        at, code, nearest = np.arange(len(rows)), np.zeros(len(rows), dtype=np.int64), np.zeros(len(rows))
        for i, a in enumerate(boxes.half):
            counts = (until - within + 1)[at, i]
            line = np.arange(counts.sum()) + np.repeat(within[at, i] - (np.cumsum(counts) - counts), counts)
            at, code, nearest = np.repeat(at, counts), np.repeat(code, counts), np.repeat(nearest, counts)
            code = code * (boxes.last[i] + 1) + line
            nearest += np.maximum(np.abs(x[at, i] - boxes.low[i] - (line + 0.5) * boxes.sides[i]) - a, 0.0) ** 2
            kept = np.flatnonzero(nearest <= reach**2)
            at, code, nearest = at[kept], code[kept], nearest[kept]
        box = boxes.box_of_code[code]
        kept = np.flatnonzero(box >= 0)
        return _Pairs(rows[at[kept]], box[kept], nearest[kept])

    def _gap(self, column: int, row: np.ndarray, box: np.ndarray) -> np.ndarray:
        return np.abs(self.expert[row, column] - self.boxes.centre[box, column])

    def _exponent(self, row: np.ndarray, box: np.ndarray) -> np.ndarray:
        """The largest |exponent| of points relative to the centre."""
        return np.asarray(sum(self._gap(i, row, box) * a + 0.5 * a**2 for i, a in enumerate(self.boxes.half)))

    def _furthest(self, pairs: _Pairs) -> np.ndarray:
        """Squared distance to the furthest corner."""
        gaps = (self._gap(i, pairs.row, pairs.box) + a for i, a in enumerate(self.boxes.half))
        return np.asarray(sum(gap**2 for gap in gaps))

    def _remainder(self, pairs: _Pairs) -> np.ndarray:
        """product over columns of (1 + q) - 1."""
        gaps = (np.maximum(self._gap(i, pairs.row, pairs.box) - a, 0.0) for i, a in enumerate(self.boxes.half))
        return np.asarray(prod(1.0 + _remainder(gap, a) for gap, a in zip(gaps, self.boxes.half, strict=True)) - 1.0)

    def _over_boxes(self, pairs: _Pairs, values: np.ndarray, weights: Float[np.ndarray, "B K"]) -> np.ndarray:
        """Sums over each row's pairs of the values times the weights of the box."""
        ends = np.searchsorted(pairs.row, np.arange(len(self.expert) + 1))
        shape = len(self.expert), len(weights)
        return np.asarray(csr_array((values, pairs.box, ends), shape=shape) @ weights)

    def _opened(
        self, pairs: _Pairs, cells: tuple[np.ndarray, np.ndarray], reference: np.ndarray, dtype: Any
    ) -> Float[np.ndarray, "n K"]:
        """Sums over exp(reference) for pairs of boxes and rows: each over the blocks of some neighbouring cells."""
        n, n_tasks, row, box = len(self.expert), self.boxes.n_tasks, pairs.row, pairs.box
        if not len(row):
            return np.zeros((n, n_tasks))
        first, last = (self.boxes.starts[edge] for edge in cells)
        new = np.flatnonzero(np.diff(cells[0], prepend=-1))  # pairs of the same blocks are neighbours: tiles of rows
        counts = np.diff(np.append(new, len(row)))
        tiles_of = -(-counts // LANES)
        inside = np.arange(len(row)) - np.repeat(new, counts)
        place = np.repeat(np.cumsum(tiles_of) - tiles_of, counts) + inside // LANES, inside % LANES
        of_tile = np.repeat(new, tiles_of)
        rows = np.full((len(of_tile), LANES), n)
        u, factor = np.zeros((*rows.shape, self.expert.shape[1] + 1)), np.zeros(rows.shape)
        own = self.expert[row] - self.boxes.centre[box]
        rows[place], u[place] = row, np.append(own, np.ones((len(own), 1)), axis=1)
        factor[place] = np.exp(-0.5 * np.sum(own**2, axis=1) - reference)
        blocks = (last - first)[of_tile]
        tile = np.repeat(np.arange(len(rows)), blocks)
        block = np.arange(len(tile)) + np.repeat(first[of_tile] - (np.cumsum(blocks) - blocks), blocks)
        sums = _job_sums(self.laid, u.astype(dtype), factor, tile, block)
        to = (rows * n_tasks)[tile]
        to += self.boxes.task_of_block[block][:, None]
        return np.bincount(to.reshape(-1), sums.reshape(-1), (n + 1) * n_tasks)[: n * n_tasks].reshape(n, n_tasks)


def _job_sums(
    laid: tuple[Array, Array],
    u: Float[np.ndarray, "tiles lanes d_and_1"],
    factor: Float[np.ndarray, "tiles lanes"],
    tile: Int[np.ndarray, " jobs"],
    block: Int[np.ndarray, " jobs"],
) -> Float[np.ndarray, "jobs lanes"]:
    """Sums of a block's points for the rows of a tile; sizes are rounded up, so that few programs are compiled."""
    at_once = PAIRS_PER_STEP // (LANES * WIDTH)
    steps = rounded_up(-(-len(tile) // at_once), 4)
    u, factor = (_padded(part, rounded_up(len(part), 4)) for part in (u, factor))
    jobs = [_padded(job.astype(np.int32), steps * at_once).reshape(steps, at_once) for job in (tile, block)]
    sums = _summed(u, factor, *laid, *jobs)
    return np.asarray(sums).reshape(-1, LANES)[: len(tile)]


def _padded(values: np.ndarray, length: int) -> np.ndarray:
    """With zeros at the end."""
    return np.concatenate([values, np.zeros((length - len(values), *values.shape[1:]), dtype=values.dtype)])


@partial(jax.jit, compiler_options=WIDE)
def _summed(
    u: Float[Array, "tiles lanes d_and_1"],
    factor: Float[Array, "tiles lanes"],
    points: Float[Array, "blocks d_and_1 W"],
    weights: Float[Array, "blocks W"],
    tile: Int[Array, "steps jobs"],
    block: Int[Array, "steps jobs"],
) -> Float[Array, "steps jobs lanes"]:
    """Sums of weight * exp(u.v - |v|^2/2), times the factor."""

    def step(_: None, job: tuple[Array, Array]) -> tuple[None, Array]:
        t, b = job
        left, right = u[t], points[b].astype(u.dtype)
        # written out: a fifth faster than a batch of such small matrix products
        exponent = sum(left[:, :, i, None] * right[:, None, i] for i in range(u.shape[2]))
        sums = jnp.einsum("jgw,jw->jg", jnp.exp(exponent), weights[b].astype(u.dtype))
        return None, sums.astype(factor.dtype) * factor[t]

    return jax.lax.scan(step, None, (tile, block))[1]


def _remainder(t: Float[np.ndarray, "..."], a: float) -> Float[np.ndarray, "..."]:
    """q of p nodes on [-a, a], where t is the smallest |argument|: the remainder over exp(-t^2/2)."""
    he = [0.0] * ORDER + [1.0]
    largest = np.abs(hermite_e.hermeval(t, he))
    for z in hermite_e.hermeroots([0.0, *he]):
        if z >= 0:
            extreme = abs(hermite_e.hermeval(z, he)) * np.exp(np.minimum(0.5 * (t**2 - z**2), 0.0))
            largest = np.where(t < z, np.maximum(largest, extreme), largest)
    return np.asarray(2 * (a / 2) ** ORDER / factorial(ORDER) * largest)
