"""Rows of whole numbers counted in a dense array: a bank of discrete states costs one reading of its file."""

from dataclasses import dataclass
from functools import reduce

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
        series = [frame[name] for name in names]
        if not all(column.dtype.is_integer() and column.null_count() == 0 for column in series):
            return None
        columns = [column.to_numpy() for column in series]
        ranges = [(int(column.min()), int(column.max())) for column in columns]
        shape = [high - low + 1 for low, high in ranges]
        if np.prod(shape, dtype=float) > MOST_CELLS:
            return None
        lows = tuple(low for low, _ in ranges)
        return cls(names, lows, _counted(columns, lows, shape).reshape(shape))

    def merged(self, other: "GridCounts") -> "GridCounts | None":
        """The counts of both; None where all combinations of their ranges are too many."""
        if self.lows == other.lows and self.counts.shape == other.counts.shape:
            return GridCounts(self.names, self.lows, self.counts + other.counts)
        lows = np.minimum(self.lows, other.lows)
        ends = np.maximum(np.add(self.lows, self.counts.shape), np.add(other.lows, other.counts.shape))
        if np.prod(ends - lows, dtype=float) > MOST_CELLS:
            return None
        both = np.zeros(ends - lows, dtype=np.int64)
        for part in (self, other):
            first = np.subtract(part.lows, lows)
            both[tuple(slice(a, a + size) for a, size in zip(first, part.counts.shape, strict=True))] += part.counts
        return GridCounts(self.names, tuple(int(low) for low in lows), both)

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


def _counted(columns: list[np.ndarray], lows: tuple[int, ...], shape: list[int]) -> Int64[np.ndarray, " cells"]:
    """Rows in each cell, row-major. A chunk's keys are made and counted while its columns are in the cache."""
    counts = np.zeros(int(np.prod(shape)), dtype=np.int64)
    kind = np.int32 if _fits_32_bits(columns, lows, shape) else np.int64
    rows = len(columns[0])
    chunk = np.empty(min(CHUNK, rows), dtype=kind)
    places = np.empty(len(chunk), dtype=np.intp)
    first = np.uint64(_place(lows, shape) % 2**64).astype(kind)  # of the lowest values: key 0; wraps as the keys do
    for start in range(0, rows, CHUNK):
        parts = [column[start : start + CHUNK] for column in columns]
        keys = chunk[: len(parts[0])]
        np.copyto(keys, parts[0], casting="unsafe")
        for part, size in zip(parts[1:], shape[1:], strict=True):
            np.multiply(keys, kind(size), out=keys)
            np.add(keys, part, out=keys, dtype=kind, casting="unsafe")
        np.subtract(keys, first, out=places[: len(keys)])
        np.add.at(counts, places[: len(keys)], 1)
    return counts


def _place(values: tuple[int, ...], shape: list[int]) -> int:
    """The row-major place of some values in an array of this shape (Horner)."""
    return reduce(lambda place, item: place * item[1] + item[0], zip(values, shape, strict=True), 0)


def _fits_32_bits(columns: list[np.ndarray], lows: tuple[int, ...], shape: list[int]) -> bool:
    """Whether keys, and all that is added up on the way to them, are below 2^31; narrow integers are twice as fast."""
    narrow = all(column.dtype.itemsize <= 4 and column.dtype != np.uint32 for column in columns)
    largest = tuple(max(abs(low), abs(low + size)) for low, size in zip(lows, shape, strict=True))
    return narrow and _place(largest, shape) < 2**31
