"""Training rows in boxes of a regular grid, all tasks on the same one, with sides of two or three bandwidths.

The rows of one task in one box are its *points*. Where they are more than `ORDER`^d they are replaced by that many
points with (signed) weights, at Chebyshev nodes of the box: sums of every function of the row that is a polynomial of
degree below `ORDER` in each column stay what they were. Lengths are in units of the bandwidth throughout.
"""

from dataclasses import dataclass
from functools import cached_property

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Float32, Int

from kdbirl.likelihood.kernel_sums import rounded_up
from kdbirl.precision import float64

SIDES = (2.0, 2.0, 3.0)  # of a box, in bandwidths, at most, for one, two, and more columns
SMALLEST_SIDE = 1e-6
LARGEST_HALF_WITH_NODES = 1.2
WIDTH = 32  # points that are summed at once
FILL = 4  # times the rows: the points with padding, at most
ROWS_AT_ONCE = 2**12  # whose moments are made
ORDER = 8  # Chebyshev nodes along a side
MOST_COLUMNS_WITH_NODES = 3  # beyond, ORDER^d is more than the rows of a box
MOST_PLACES, MOST_BOXES, MOST_CELLS = 2**22, 2**15, 2**23  # of the grid, boxes, boxes times tasks: else sides double


@dataclass(frozen=True)
class Boxes:
    """B boxes, and the points of K tasks in blocks of one box and one task, sorted by both.

    scale: h. half: half the sides. low, sides, last: the grid, and codes: the row-major places of boxes in it.
    mass `(B, K)`: weight of the rows; of_nodes: that of nodes, without signs. starts: the first block of each box and
    task, and the end. points: relative to the centre, then -|point|^2/2; weights: zero for padding.
    """

    scale: float
    half: Float[np.ndarray, " d"]
    low: Float[np.ndarray, " d"]
    sides: Float[np.ndarray, " d"]
    last: Int[np.ndarray, " d"]
    codes: Int[np.ndarray, " B"]
    mass: Float[np.ndarray, "B K"]
    of_nodes: Float[np.ndarray, "B K"]
    starts: Int[np.ndarray, " boxes_tasks_and_1"]
    points: Float32[np.ndarray, "blocks d_and_1 W"]
    weights: Float32[np.ndarray, "blocks W"]

    @classmethod
    def of(
        cls,
        rows: Float[np.ndarray, "m d"],
        weights: Float[np.ndarray, " m"],
        tasks: Int[np.ndarray, " m"],
        n_tasks: int,
        h: float,
    ) -> "Boxes":
        """Boxes of rows that are sorted by task."""
        grid = _Grid.around(rows, h, n_tasks)
        while True:
            order, first, cell, task = grid.sorted(rows, tasks, n_tasks)
            codes, box = np.unique(cell, return_inverse=True)
            few = (
                len(codes) <= MOST_BOXES
                and len(codes) * n_tasks <= MOST_CELLS
                and len(first) * WIDTH <= FILL * len(rows)
            )
            if few or grid.cells == 1:
                break
            grid = grid.coarser()
        counts = np.diff(np.append(first, len(rows)))
        laid = _Laid(n_tasks, box, task, counts, grid.half)
        relative = rows[order]
        relative /= h
        relative -= np.repeat(grid.centres(cell), counts, axis=0)
        last = np.array(grid.counts) - 1
        return cls(h, grid.half, grid.low, grid.sides, last, codes, *laid.of(relative, weights[order]))

    @property
    def n_tasks(self) -> int:
        """K."""
        return self.mass.shape[1]

    @cached_property
    def centre(self) -> Float[np.ndarray, "B d"]:
        """Of each box."""
        return self.low + (np.stack(np.unravel_index(self.codes, self.last + 1), axis=1) + 0.5) * self.sides

    @cached_property
    def box_of_code(self) -> Int[np.ndarray, " cells"]:
        """For each cell of the grid its box, or -1."""
        found = np.full(int(np.prod(self.last + 1)), -1)
        found[self.codes] = np.arange(len(self.codes))
        return found

    @cached_property
    def task_of_block(self) -> Int[np.ndarray, " blocks"]:
        """The task of each block."""
        return np.repeat(np.arange(self.mass.size) % self.mass.shape[1], np.diff(self.starts))

    @cached_property
    @float64
    def on_device(self) -> tuple[Array, Array]:
        """Points and weights where JAX computes, padded: few programs are compiled."""
        missing = rounded_up(len(self.points), 4) - len(self.points)
        points, weights = (np.pad(a, ((0, missing), *[(0, 0)] * (a.ndim - 1))) for a in (self.points, self.weights))
        return jnp.asarray(points), jnp.asarray(weights)


@dataclass(frozen=True)
class _Grid:
    """`counts` boxes along each column, from `low` on, of the given sides, in bandwidths."""

    h: float
    low: Float[np.ndarray, " d"]
    sides: Float[np.ndarray, " d"]
    counts: tuple[int, ...]

    @classmethod
    def around(cls, rows: np.ndarray, h: float, n_tasks: int) -> "_Grid":
        low, high = (np.array([edge(column) for column in rows.T]) / h for edge in (np.min, np.max))
        counts = np.maximum(np.ceil((high - low) / SIDES[min(len(low), len(SIDES)) - 1]), 1.0)
        while (
            np.prod(counts) > MOST_PLACES or np.prod(counts) * n_tasks * len(rows) >= 2.0**62
        ):  # `sorted` packs the latter
            counts = np.ceil(counts / 2)
        return cls(h, low, (high - low) / counts, tuple(int(count) for count in counts))

    @property
    def cells(self) -> int:
        return int(np.prod(self.counts))

    @property
    def half(self) -> np.ndarray:
        """Half the sides, and what rounding may put a row outside of them."""
        return self.sides / 2 + 1e-12 * (np.abs(self.low) + self.sides * self.counts)

    def coarser(self) -> "_Grid":
        counts = tuple(-(-count // 2) for count in self.counts)
        return _Grid(self.h, self.low, self.sides * self.counts / np.array(counts), counts)

    def centres(self, cell: np.ndarray) -> np.ndarray:
        return np.asarray(self.low + (np.stack(np.unravel_index(cell, self.counts), axis=1) + 0.5) * self.sides)

    def sorted(self, rows: np.ndarray, tasks: np.ndarray, n_tasks: int) -> tuple[np.ndarray, ...]:
        """Order of the rows by task and cell, and for each pair that occurs its first row, its cell and its task."""
        code = tasks.astype(np.int64)
        for column, low, side, count in zip(rows.T, self.low, self.sides, self.counts, strict=True):
            index = ((column / self.h - low) / side).astype(np.int64) if count > 1 else np.zeros(1, dtype=np.int64)
            code = code * count + np.minimum(index, count - 1)
        packed = np.sort(code * len(rows) + np.arange(len(rows)))  # numbers sort several times faster than their places
        code, order = np.divmod(packed, len(rows))
        first = np.flatnonzero(np.diff(code, prepend=-1))
        task, cell = np.divmod(code[first], self.cells)
        return order, first, cell, task


@dataclass(frozen=True)
class _Laid:
    """Groups of rows (one box and one task each, in the rows' order) as blocks of points, sorted by box and task."""

    n_tasks: int
    box: Int[np.ndarray, " groups"]
    task: Int[np.ndarray, " groups"]
    counts: Int[np.ndarray, " groups"]
    half: Float[np.ndarray, " d"]

    def of(self, rows: Float[np.ndarray, "m d"], weights: Float[np.ndarray, " m"]) -> tuple[np.ndarray, ...]:
        """The fields of `Boxes` from `mass` on."""
        first = np.cumsum(self.counts) - self.counts
        whole = np.zeros(len(self.counts), dtype=bool)
        nodes = ORDER ** len(self.half)
        if len(self.half) <= MOST_COLUMNS_WITH_NODES and (self.half <= LARGEST_HALF_WITH_NODES).all():
            whole = self.counts > nodes
        sizes = np.where(whole, nodes, self.counts)
        blocks = -(-sizes // WIDTH)
        order = np.lexsort((self.task, self.box))
        place = np.empty(len(blocks), dtype=np.int64)
        place[order] = np.cumsum(blocks[order]) - blocks[order]
        points = np.zeros((int(blocks.sum()), len(self.half) + 1, WIDTH), dtype=np.float32)
        own = np.zeros((len(points), WIDTH), dtype=np.float32)
        mass, of_nodes = np.add.reduceat(weights, first), np.zeros(len(first))
        kept = np.repeat(~whole, self.counts) if whole.any() else slice(None)
        _put(points, own, place[~whole], self.counts[~whole], rows[kept], weights[kept])
        if whole.any():
            kept = ~np.asarray(kept)
            found = node_weights(rows[kept] / self.half, weights[kept], self.counts[whole])
            of_nodes[whole] = np.abs(found).sum(axis=1)
            at = np.tile(chebyshev_nodes(self.half), (len(found), 1))
            _put(points, own, place[whole], sizes[whole], at, found.reshape(-1))
        n_boxes = int(self.box.max()) + 1
        cell = self.box * self.n_tasks + self.task
        tables = [np.zeros((n_boxes, self.n_tasks)) for _ in range(2)]
        for table, values in zip(tables, (mass, of_nodes), strict=True):
            table.reshape(-1)[cell] = values
        per_cell = np.zeros(n_boxes * self.n_tasks, dtype=np.int64)
        per_cell[cell] = blocks
        return *tables, np.concatenate([[0], np.cumsum(per_cell)]), points, own


def chebyshev_nodes(half: Float[np.ndarray, " d"]) -> Float[np.ndarray, "nodes d"]:
    """Chebyshev nodes of a box around zero."""
    grids = np.meshgrid(*(side * _nodes_of_a_side() for side in half), indexing="ij")
    return np.stack([grid.reshape(-1) for grid in grids], axis=1)


def _nodes_of_a_side() -> Float[np.ndarray, " p"]:
    return np.cos(np.pi * (np.arange(ORDER) + 0.5) / ORDER)


def _put(
    points: np.ndarray, own: np.ndarray, place: np.ndarray, counts: np.ndarray, rows: np.ndarray, weights: np.ndarray
) -> None:
    """Write groups of points, from the given blocks on."""
    to = np.arange(len(rows)) + np.repeat(place * WIDTH - (np.cumsum(counts) - counts), counts)
    own.reshape(-1)[to] = weights
    block, lane = np.divmod(to, WIDTH)
    to, flat, norm = block * (points.shape[1] * WIDTH) + lane, points.reshape(-1), np.zeros(len(rows))
    for column in rows.T:
        flat[to] = column
        norm -= 0.5 * column**2
        to += WIDTH
    flat[to] = norm


def node_weights(
    rows: Float[np.ndarray, "r d"], weights: Float[np.ndarray, " r"], counts: Int[np.ndarray, " groups"]
) -> Float[np.ndarray, "groups nodes"]:
    """Weights of the nodes of [-1, 1]^d for groups of rows: sums of products of Lagrange's polynomials.

    That of node t is (1 + 2 sum over q of T_q(t) T_q(y)) / p, so they come from the groups' moments of T_0 to T_p-1.
    """
    d, ends = rows.shape[1], np.cumsum(counts)
    moments, start = np.empty((len(counts), ORDER ** (d - 1), ORDER)), 0
    while start < len(counts):  # some groups at once, in the cache
        first = int(ends[start] - counts[start])
        stop = max(int(np.searchsorted(ends, first + ROWS_AT_ONCE, side="right")), start + 1)
        own = slice(first, int(ends[stop - 1]))
        left = weights[own, None]
        for column in rows[own].T[:-1]:
            left = (left[:, :, None] * _chebyshev(column)[:, None, :]).reshape(len(left), -1)
        right = _chebyshev(rows[own, -1])
        for group in range(start, stop):
            here = slice(int(ends[group] - counts[group]) - first, int(ends[group]) - first)
            np.matmul(left[here].T, right[here], out=moments[group])
        start = stop
    degree = np.arange(ORDER)
    lagrange = (
        np.cos(degree[:, None] * np.arccos(_nodes_of_a_side())[None]) * np.where(degree, 2.0, 1.0)[:, None] / ORDER
    )
    found = moments.reshape(-1, *[ORDER] * d)
    for _ in range(d):  # each turn transforms the first axis of the moments, and puts it last
        found = np.tensordot(found, lagrange, axes=(1, 0))
    return found.reshape(len(counts), -1)


def _chebyshev(y: Float[np.ndarray, " r"]) -> Float[np.ndarray, "r p"]:
    """T_0(y) to T_p-1(y)."""
    found = np.ones((len(y), ORDER))
    found[:, 1] = y
    for q in range(2, ORDER):
        found[:, q] = 2 * y * found[:, q - 1] - found[:, q - 2]
    return found
