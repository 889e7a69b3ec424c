"""Matrix products for rows in blocks of one size, so that phi of a row does not depend on the rows beside it.

A matrix product rounds differently for other numbers of rows, in the last digit. Always the same shape (the last block
is filled up with zeros) gives a row the same bits wherever it stands, and bounds the memory of hidden layers.
"""

from collections.abc import Callable

import numpy as np
from jaxtyping import Float64

ROWS = 1024  # 1024 rows of 100 units are 0.8 MB, which stays in the cache
Matrix = Float64[np.ndarray, "rows _"]


def in_row_blocks(function: Callable[[Matrix], Matrix], rows: Float64[np.ndarray, "rows d"]) -> Matrix:
    """`function(rows)`, for a function that maps each row by itself: (1024, d) -> (1024, o)."""
    blocks = [_filled_up(rows[start : start + ROWS]) for start in range(0, max(len(rows), 1), ROWS)]
    return np.concatenate([function(block) for block in blocks])[: len(rows)]


def _filled_up(block: Float64[np.ndarray, "some d"]) -> Float64[np.ndarray, "1024 d"]:
    filled = np.zeros((ROWS, block.shape[1]))
    filled[: len(block)] = block
    return filled
