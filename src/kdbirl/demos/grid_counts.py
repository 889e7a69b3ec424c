"""Rows of whole numbers counted in a dense array: a bank of discrete states costs hardly more than reading its file."""

from dataclasses import dataclass

import numpy as np
import polars as pl
from jaxtyping import Int64

MOST_CELLS = 2**22  # (task, state, action) up to which all of them have a counter
CHUNK = 2**16  # rows whose keys are made at once: they stay in the cache
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
        keys = _keys(columns, [low for low, _ in ranges], shape)
        counts = np.bincount(keys, minlength=int(np.prod(shape))).reshape(shape)
        return cls(names, tuple(low for low, _ in ranges), counts)

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


def _keys(columns: list[np.ndarray], lows: list[int], shape: list[int]) -> Int64[np.ndarray, " rows"]:
    """Row-major places in the array of counts, chunk by chunk, in integers that are no wider than they must be."""
    keys = np.empty(len(columns[0]), dtype=np.int64)
    strides = [int(np.prod(shape[i + 1 :])) for i in range(len(shape))]
    shift = sum(low * stride for low, stride in zip(lows, strides, strict=True))
    largest = sum(
        max(abs(low), abs(low + size)) * stride for low, size, stride in zip(lows, shape, strides, strict=True)
    )
    narrow = largest < 2**31 and all(column.dtype.itemsize <= 4 and column.dtype != np.uint32 for column in columns)
    kind = np.int32 if narrow else np.int64
    chunk, term = (np.empty(min(CHUNK, len(keys)), dtype=kind) for _ in range(2))
    for start in range(0, len(keys), CHUNK):
        size = min(CHUNK, len(keys) - start)
        chunk[:size] = -shift
        for column, stride in zip(columns, strides, strict=True):
            part = column[start : start + size]
            np.multiply(part, kind(stride), out=term[:size], dtype=kind, casting="unsafe")
            np.add(chunk[:size], term[:size], out=chunk[:size])
        keys[start : start + size] = chunk[:size]
    return keys
