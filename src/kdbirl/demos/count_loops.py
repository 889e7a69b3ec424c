"""The loops of `grid_counts.py`, compiled by Numba: other threads can work while rows are counted."""

import numpy as np

from kdbirl.compiled import compiled


@compiled()
def add_digit(keys, column, low, size, first):
    """keys * size + (column - low), the next step of Horner's scheme; False where a value is outside of the range."""
    largest = np.uint64(0)
    for i in range(len(keys)):
        digit = np.int64(column[i]) - low
        largest = max(largest, np.uint64(digit))  # what is below zero is very large
        keys[i] = digit if first else keys[i] * size + digit
    return largest < np.uint64(size)


@compiled()
def tally(counts, keys, by):
    """Add to the count of each key; how many more keys have a count now."""
    more = 0
    for key in keys:
        before = counts[key]
        counts[key] = before + by
        more += int(before == 0) - int(before + by == 0)
    return more
