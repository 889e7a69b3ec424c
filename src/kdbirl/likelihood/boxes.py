"""Training rows in boxes of a regular grid, all tasks on the same one, with sides of two or three bandwidths.

The rows of one task in one box are a *cell*, and its *points*. Where they are more than the nodes of the box
(`nodes.py`) these take their place. Lengths are in bandwidths, and there are always three columns: those that the rows
do not have are zero, one box long.
"""

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float, Float32, Int

from kdbirl.likelihood.nodes import chebyshev_nodes, node_weights
from kdbirl.threads import cores, on_all_cores

if TYPE_CHECKING:
    from kdbirl.likelihood.box_loops import Cells, Groups, Points

SIDES = (2.0, 2.0, 3.0)  # of a box, in bandwidths, at most, for one, two and three columns
LARGEST_HALF_WITH_NODES = 1.2
MOST_PLACES = 2**22  # of the grid: else sides grow
ROWS_OF_A_GROUP = 32  # of 4 x 4 x 4 boxes and one task, on average at least: else sides grow


@dataclass(frozen=True)
class Boxes:
    """Weighted rows, their cells for the bandwidth h from `origin` on, and `in_all`, the weight of each of K tasks."""

    h: float
    rows: Float[np.ndarray, "m d"]
    weights: Float[np.ndarray, " m"]
    origin: Float[np.ndarray, " d"]
    cells: "Cells"
    points: "Points"
    groups: "Groups"
    in_all: Float[np.ndarray, " K"]

    @classmethod
    def of(
        cls,
        rows: Float[np.ndarray, "m d"],
        weights: Float[np.ndarray, " m"],
        tasks: Int[np.ndarray, " m"],
        n_tasks: int,
        h: float,
    ) -> "Boxes":
        """Boxes of rows that are sorted by task, with up to three columns, and weights that fit in single precision."""
        from kdbirl.likelihood.box_loops import groups_of

        rows, weights = np.ascontiguousarray(rows, dtype=np.float64), np.asarray(weights, dtype=np.float64)
        grid = _Grid.around(rows, h)
        while True:
            cells, points = grid.cells(rows, weights, tasks)
            groups = groups_of(cells, n_tasks)
            crowd = len(groups.mass) * ROWS_OF_A_GROUP / len(rows)
            if crowd <= 1 or (grid.counts == 1).all():
                in_all = np.bincount(cells.task, cells.mass, n_tasks)
                return cls(h, rows, weights, grid.origin, cells, _in_fours(cells, points), groups, in_all)
            grid = grid.coarser(max(2.0, crowd ** (1 / rows.shape[1])))

    @cached_property
    def most_fours(self) -> int:
        """Of points of a box."""
        return int(np.diff(self.points.first).max())

    def scaled(self, rows: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n 3"]:
        """Rows in bandwidths from the origin, with three columns."""
        return np.pad((rows - self.origin) / self.h, ((0, 0), (0, 3 - rows.shape[1])))


@dataclass(frozen=True)
class _Grid:
    """`counts` boxes along each of three columns, over `size` bandwidths from the origin."""

    h: float
    origin: Float[np.ndarray, " d"]
    size: Float[np.ndarray, "3"]
    counts: Int[np.ndarray, "3"]

    @classmethod
    def around(cls, rows: np.ndarray, h: float) -> "_Grid":
        from kdbirl.likelihood.box_loops import extent

        edges = on_all_cores(lambda part: extent(rows[part]), _parts(len(rows)))
        low, high = np.min([low for low, _ in edges], axis=0), np.max([high for _, high in edges], axis=0)
        size = np.pad((high - low) / h, (0, 3 - len(low)))
        counts = np.maximum(np.ceil(size / SIDES[rows.shape[1] - 1]), 1.0)
        while np.prod(np.ceil(counts / 4)) * 64 > MOST_PLACES:
            counts = np.ceil(counts / 2)
        return cls(h, low, size, counts.astype(np.int64))

    def coarser(self, factor: float) -> "_Grid":
        return _Grid(self.h, self.origin, self.size, np.ceil(self.counts / factor).astype(np.int64))

    def cells(
        self, rows: np.ndarray, weights: np.ndarray, tasks: np.ndarray
    ) -> tuple["Cells", Float32[np.ndarray, "4 m"]]:
        """The rows sorted by place, and as points; those of a place stay in their order, which is that of the tasks."""
        from kdbirl.likelihood import box_loops

        sides, parts = self.size / self.counts, _parts(len(rows))
        per_side = np.divide(1.0, sides, out=np.zeros(3), where=sides > 0)
        n_places = int(np.prod(-(-self.counts // 4))) * 64
        lattice = box_loops.Lattice(self.origin, 1 / self.h, sides, per_side, self.counts)
        placed = on_all_cores(lambda part: box_loops.places_of(rows[part], lattice, n_places), parts)
        found = np.stack([counts for _, counts in placed])
        first = np.concatenate([[0], np.cumsum(found.sum(axis=0))])
        to = first[:-1] + np.cumsum(found, axis=0) - found
        points = np.zeros((4, len(rows)), dtype=np.float32)
        task, order = np.empty(len(rows), dtype=np.int32), np.empty(len(rows), dtype=np.int64)

        def put(part: slice, place: np.ndarray, to: np.ndarray) -> None:
            box_loops.put(rows, weights, tasks, part.start, place, to, lattice, points, task, order)

        on_all_cores(lambda given: put(*given), zip(parts, (place for place, _ in placed), to, strict=True))
        first_row, of_cell, place, mass, first_cell = box_loops.cells_of(first, task, points[3])
        mass *= 1 + 2.0**-23  # not below the weight of the rows, which single precision rounds
        half = sides / 2 + 1e-12 * self.size  # rounding may put a row outside
        cells = box_loops.Cells(sides, half, self.counts, first_cell, place, of_cell, mass, first_row, order)
        return cells, points


def _in_fours(cells: "Cells", points: Float32[np.ndarray, "4 m"], condense: bool = True) -> "Points":
    """Points of cells, with nodes in place of the rows of full ones."""
    from kdbirl.likelihood.box_loops import Points, put_fours

    nodes, rows = chebyshev_nodes(cells.half), np.diff(cells.first_row)
    full = np.flatnonzero(rows > len(nodes))
    if not condense or (cells.half > LARGEST_HALF_WITH_NODES).any():
        full = full[:0]
    weights, number = np.zeros((len(full), len(nodes))), np.full(len(rows), -1)
    number[full] = np.arange(len(full))

    def weigh(part: slice) -> None:
        own = full[part]
        weights[part] = node_weights(points, cells.first_row[own], cells.first_row[own + 1], cells.half)

    on_all_cores(weigh, _parts(len(full)))
    size = np.where(number < 0, rows, len(nodes))
    first = np.concatenate([[0], np.cumsum(-(-size // 4))])
    found, task = np.zeros((4, 4 * first[-1]), dtype=np.float32), np.empty(first[-1], dtype=np.int32)
    on_all_cores(
        lambda part: put_fours(cells, points, part.start, part.stop, nodes, weights, number, first, found, task),
        _parts(len(rows)),
    )
    first_full = np.searchsorted(full, cells.first_cell)
    return Points(first[cells.first_cell], task, found, full, first_full, np.abs(weights).sum(axis=1))


def _parts(items: int) -> list[slice]:
    """One for each core."""
    edges = np.linspace(0, items, min(cores(), items) + 1).astype(int)
    return [slice(int(start), int(stop)) for start, stop in pairwise(edges)]
