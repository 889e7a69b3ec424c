"""Rows of whole numbers counted in a dense array: a bank of discrete states costs one reading of its file."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from jaxtyping import Int64

MOST_CELLS = 2**22  # (task, state, action) up to which all of them have a counter
CHUNK = 2**16  # rows that are counted at once: their keys stay in the cache
WEIGHT = "(weight)"
WHOLE = (pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.UInt8, pl.UInt16, pl.UInt32, pl.UInt64)


@dataclass(frozen=True)
class GridCounts:
    """How often each combination of whole numbers occurs: `counts[i, j, ...]` of the values `lows + (i, j, ...)`."""

    names: tuple[str, ...]
    lows: tuple[int, ...]
    counts: Int64[np.ndarray, "..."]

    @classmethod
    def zero(cls, names: tuple[str, ...], lows: Sequence[int], ends: Sequence[int]) -> "GridCounts | None":
        """Of no rows, for values from `lows` to before `ends`; None where they have too many combinations."""
        shape = [end - low for low, end in zip(lows, ends, strict=True)]
        if math.prod(shape) > MOST_CELLS or max(ends) > 2**63:  # what is told of the values is int64
            return None
        return cls(names, tuple(lows), np.zeros(shape, dtype=np.int64))

    @property
    def ends(self) -> tuple[int, ...]:
        """The values after the last ones."""
        return tuple(low + size for low, size in zip(self.lows, self.counts.shape, strict=True))

    def merged(self, other: "GridCounts") -> "GridCounts | None":
        """The counts of both; None where all combinations of their ranges are too many."""
        both = self.grown(other.lows, other.ends)
        if both is not None:
            both.counts[both._places(other)] += other.counts
        return both

    def grown(self, lows: Sequence[int], ends: Sequence[int]) -> "GridCounts | None":
        """A copy with place for more values; None where there are too many combinations."""
        both = GridCounts.zero(self.names, [*map(min, self.lows, lows)], [*map(max, self.ends, ends)])
        if both is not None:
            both.counts[both._places(self)] = self.counts
        return both

    def _places(self, part: "GridCounts") -> tuple[slice, ...]:
        """Where a smaller grid lies in this one."""
        firsts = [ours - low for ours, low in zip(part.lows, self.lows, strict=True)]
        return tuple(slice(first, first + size) for first, size in zip(firsts, part.counts.shape, strict=True))

    def relabelled(self, codes: Int64[np.ndarray, " values"], size: int, name: str) -> "GridCounts | pl.DataFrame":
        """With the values of the first column replaced by codes 0..size-1; those of code -1 are left out.

        As the frame of those that occur, where a counter for every combination would be too many.
        """
        names = (name, *self.names[1:])
        if np.array_equal(codes, np.arange(size)):
            return GridCounts(names, (0, *self.lows[1:]), self.counts)
        known = codes >= 0
        if size * (self.counts.size // len(self.counts)) > MOST_CELLS:
            frame = self.frame()
            of_row = codes[frame[self.names[0]].to_numpy() - self.lows[0]]
            return frame.drop(self.names[0]).insert_column(0, pl.Series(name, of_row)).filter(of_row >= 0)
        counts = np.zeros((size, *self.counts.shape[1:]), dtype=np.int64)
        counts[codes[known]] = self.counts[known]
        return GridCounts(names, (0, *self.lows[1:]), counts)

    @property
    def occupied(self) -> int:
        """Combinations that occur."""
        return int(np.count_nonzero(self.counts))

    @property
    def of_first(self) -> Int64[np.ndarray, " values"]:
        """How many rows have each value of the first column."""
        return np.asarray(self.counts.reshape(len(self.counts), -1).sum(axis=1))

    def frame(self) -> pl.DataFrame:
        """The combinations that occur, with their counts as weights."""
        places = np.nonzero(self.counts)
        columns = {name: low + place for name, low, place in zip(self.names, self.lows, places, strict=True)}
        return pl.DataFrame({**columns, WEIGHT: self.counts[places]})


class GridTally:
    """Counts to which rows are added; `grid` has them, and grows with the values. `distinct`: combinations so far."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names
        self.grid: GridCounts | None = None
        self.distinct = 0

    def add(self, frame: pl.DataFrame) -> bool:
        """Count the rows of a frame. False where they are no whole numbers, or do not fit with those that are there.

        Nothing is counted then.
        """
        columns = self._columns(frame)
        if columns is None:
            return False
        if self.grid is not None and self._count(columns, self.grid, 1):
            return True
        grid = self._grown([int(column.min()) for column in columns], [int(column.max()) + 1 for column in columns])
        if grid is not None:
            self.grid = grid
            self._count(columns, grid, 1)
        return grid is not None

    def take_back(self, frame: pl.DataFrame) -> None:
        """Undo the counting of a frame."""
        columns = self._columns(frame)
        assert columns is not None
        assert self.grid is not None
        self._count(columns, self.grid, -1)
        self.distinct = self.grid.occupied

    def _columns(self, frame: pl.DataFrame) -> list[np.ndarray] | None:
        series = [frame[name] for name in self.names]
        whole = all(column.dtype in WHOLE and column.null_count() == 0 for column in series)
        columns = [column.to_numpy() for column in series] if whole and frame.height else None
        large = columns is not None and any(column.dtype == np.uint64 and column.max() >= 2**63 for column in columns)
        return None if large else columns

    def _grown(self, lows: Sequence[int], ends: Sequence[int]) -> GridCounts | None:
        """What is counted so far, with place for these values."""
        return GridCounts.zero(self.names, lows, ends) if self.grid is None else self.grid.grown(lows, ends)

    def _count(self, columns: list[np.ndarray], grid: GridCounts, by: int) -> bool:
        """Add rows to the counts, in place: a chunk's keys are made and counted while they are in the cache.

        False, and nothing is counted, where a value is outside of the grid.
        """
        from kdbirl.data.large_loops import add_digit, tally

        room, counts, rows, new = np.empty(CHUNK, dtype=np.uint32), grid.counts.reshape(-1), len(columns[0]), 0
        for start in range(0, rows, CHUNK):
            keys, stop = room[: rows - start], start + CHUNK
            for place, (column, low, size) in enumerate(zip(columns, grid.lows, grid.counts.shape, strict=True)):
                if not add_digit(keys, column[start:stop], low, size, place == 0):
                    if start:
                        self._count([column[:start] for column in columns], grid, -by)
                    return False
            new += tally(counts, keys, by)
        self.distinct += new if by > 0 else 0
        return True
