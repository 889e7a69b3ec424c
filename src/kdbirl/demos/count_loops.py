"""The loops of `grid_counts.py`, compiled by Numba: other threads can work while rows are counted."""

import numpy as np

from kdbirl.compiled import compiled


@compiled()
def add_digit(keys, column, low, size):
    """keys * size + (column - low)."""
    for i in range(len(keys)):
        keys[i] = keys[i] * size + (np.int64(column[i]) - low)


@compiled()
def tally(counts, keys, by):
    """Add to the count of each key."""
    for key in keys:
        counts[key] += by
