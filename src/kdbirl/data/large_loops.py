"""The loops of `large_counts.py`, compiled by Numba: other threads can work while rows are counted."""

import numpy as np

from kdbirl.compiled import compiled


@compiled()
def add_digit(keys, column, low, size, first):
    """keys * size + (column - low), the next step of Horner's scheme; False where a value is outside of the range.

    Keys are uint32, which is half the memory of int64: those of all cells fit, and others are not used.
    """
    largest, factor = np.uint64(0), np.uint32(0 if first else size)
    for i in range(len(keys)):
        digit = np.int64(column[i]) - low
        largest = max(largest, np.uint64(digit))  # what is below zero is very large
        keys[i] = np.uint32(keys[i] * factor) + np.uint32(digit)
    return largest < np.uint64(size)


@compiled()
def tally(counts, keys, by):
    """Add to the count of each key; how many of them had none."""
    new = 0
    for key in keys:
        before = counts[key]
        counts[key] = before + by
        new += before == 0
    return new
