"""Mean, variance and range of columns, from parts of the rows."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float


@dataclass(frozen=True)
class Moments:
    """Count, mean, sum of squared deviations, lowest and highest of each of some columns."""

    count: int
    mean: Float[np.ndarray, " width"]
    squares: Float[np.ndarray, " width"]
    low: Float[np.ndarray, " width"]
    high: Float[np.ndarray, " width"]

    @classmethod
    def of(cls, columns: Sequence[Float[np.ndarray, " rows"]]) -> "Moments":
        """Of columns with at least one row; deviations are from the first row, so that squares stay small."""
        first = np.array([column[0] for column in columns])
        shifted = [column - start for column, start in zip(columns, first, strict=True)]
        shift = np.array([column.mean() for column in shifted])
        squares = np.array([float(column @ column) for column in shifted]) - len(columns[0]) * shift**2
        low, high = (np.array([float(edge(column)) for column in columns]) for edge in (np.min, np.max))
        return cls(len(columns[0]), first + shift, np.maximum(squares, 0.0), low, high)

    @classmethod
    def of_weighted(cls, values: Float[np.ndarray, "rows width"], weights: Float[np.ndarray, " rows"]) -> "Moments":
        """Of rows that occur `weights` times each."""
        mean = np.average(values, axis=0, weights=weights)
        squares = weights @ (values - mean) ** 2
        return cls(int(weights.sum()), mean, squares, values.min(axis=0), values.max(axis=0))

    def merged(self, other: "Moments") -> "Moments":
        """Of both sets of rows (Chan, Golub and LeVeque)."""
        count = self.count + other.count
        gap = other.mean - self.mean
        mean = self.mean + gap * (other.count / count)
        squares = self.squares + other.squares + gap**2 * (self.count * other.count / count)
        return Moments(count, mean, squares, np.minimum(self.low, other.low), np.maximum(self.high, other.high))

    def column(self, index: int) -> "Moments":
        """Those of one column."""
        at = slice(index, index + 1)
        return Moments(self.count, self.mean[at], self.squares[at], self.low[at], self.high[at])
