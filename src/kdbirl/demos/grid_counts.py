"""Rows of whole numbers counted in a dense array: a bank of discrete states costs one reading of its file."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import le

import numpy as np
import polars as pl
from jaxtyping import Int64

MOST_CELLS = 2**22  # (task, state, action) up to which all of them have a counter
CHUNK = 2**15  # rows that are counted at once: they stay in the cache
WEIGHT = "(weight)"


@dataclass(frozen=True)
class GridCounts:
    """How often each combination of whole numbers occurs: `counts[i, j, ...]` of the values `lows + (i, j, ...)`."""

    names: tuple[str, ...]
    lows: tuple[int, ...]
    counts: Int64[np.ndarray, "..."]

    @classmethod
    def of(cls, frame: pl.DataFrame, names: tuple[str, ...]) -> "GridCounts | None":
        """Of some columns; None where they are not all whole numbers without gaps, or have too many combinations."""
        tally = GridTally(names)
        return tally.grid if tally.add(frame) else None

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
        if self.lows == other.lows and self.counts.shape == other.counts.shape:
            return GridCounts(self.names, self.lows, self.counts + other.counts)
        both = GridCounts.zero(self.names, [*map(min, self.lows, other.lows)], [*map(max, self.ends, other.ends)])
        if both is None:
            return None
        for part in (self, other):
            firsts = [ours - low for ours, low in zip(part.lows, both.lows, strict=True)]
            both.counts[tuple(map(slice, firsts, np.add(firsts, part.counts.shape)))] += part.counts
        return both

    def relabelled(self, codes: Int64[np.ndarray, " values"], size: int, name: str) -> "GridCounts":
        """With the values of the first column replaced by codes 0..size-1; those of code -1 are left out."""
        if np.array_equal(codes, np.arange(size)):
            return GridCounts((name, *self.names[1:]), (0, *self.lows[1:]), self.counts)
        counts = np.zeros((size, *self.counts.shape[1:]), dtype=np.int64)
        known = codes >= 0
        counts[codes[known]] = self.counts[known]
        return GridCounts((name, *self.names[1:]), (0, *self.lows[1:]), counts)

    @property
    def occupied(self) -> int:
        """Combinations that occur."""
        return int(np.count_nonzero(self.counts))

    def frame(self) -> pl.DataFrame:
        """The combinations that occur, with their counts as weights."""
        places = np.nonzero(self.counts)
        columns = {name: low + place for name, low, place in zip(self.names, self.lows, places, strict=True)}
        return pl.DataFrame({**columns, WEIGHT: self.counts[places]})


class GridTally:
    """Counts to which rows are added; `grid` has them, and grows with the values."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names
        self.grid: GridCounts | None = None

    def add(self, frame: pl.DataFrame) -> bool:
        """Count the rows of a frame, some at a time. False where this cannot be, and then the tally is of no use."""
        series = [frame[name] for name in self.names]
        if not all(column.dtype.is_integer() and column.null_count() == 0 for column in series):
            return False
        columns = [column.to_numpy() for column in series]
        starts = range(0, len(columns[0]), CHUNK)
        return all(self._add([column[start : start + CHUNK] for column in columns]) for start in starts)

    def _add(self, columns: list[np.ndarray]) -> bool:
        lows, ends = [int(column.min()) for column in columns], [int(column.max()) + 1 for column in columns]
        grid = self._grid_for(lows, ends)
        if grid is not None:
            _count(columns, grid)
            self.grid = grid
        return grid is not None

    def _grid_for(self, lows: Sequence[int], ends: Sequence[int]) -> GridCounts | None:
        """What is counted so far, with place for these values."""
        if self.grid is None:
            return GridCounts.zero(self.names, lows, ends)
        if all(map(le, self.grid.lows, lows)) and all(map(le, ends, self.grid.ends)):
            return self.grid
        more = GridCounts.zero(self.names, lows, ends)
        return None if more is None else self.grid.merged(more)


def _count(columns: list[np.ndarray], grid: GridCounts) -> None:
    """Add rows to the counts, in place: row-major keys by Horner's scheme, all of it in the processor's cache."""
    lows, shape, counts = grid.lows, grid.counts.shape, grid.counts.reshape(-1)
    kind = np.int32 if _fits_32_bits(columns, lows, shape) else np.int64
    first = np.uint64(_place(lows, shape) % 2**64).astype(kind)  # of the lowest values: key 0; wraps as the keys do
    keys = columns[0].astype(kind)
    for column, size in zip(columns[1:], shape[1:], strict=True):
        np.multiply(keys, kind(size), out=keys)
        np.add(keys, column, out=keys, dtype=kind, casting="unsafe")
    np.add.at(counts, np.subtract(keys, first, dtype=kind).astype(np.intp, copy=False), 1)


def _place(values: Sequence[int], shape: Sequence[int]) -> int:
    """The row-major place of some values in an array of this shape (Horner)."""
    return reduce(lambda place, item: place * item[1] + item[0], zip(values, shape, strict=True), 0)


def _fits_32_bits(columns: list[np.ndarray], lows: Sequence[int], shape: Sequence[int]) -> bool:
    """Whether keys, and all that is added up on the way to them, are below 2^31; narrow integers are twice as fast."""
    narrow = all(column.dtype.itemsize <= 4 and column.dtype != np.uint32 for column in columns)
    largest = tuple(max(abs(low), abs(low + size)) for low, size in zip(lows, shape, strict=True))
    return narrow and _place(largest, shape) < 2**31
