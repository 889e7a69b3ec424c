"""Maxima over groups of consecutive rows, along memory: NumPy's own `maximum.reduceat` is ten times slower here."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int


@dataclass(frozen=True, eq=False)
class Groups:
    """Rows 0 .. p - 1 in g consecutive groups. Layer c holds the groups with more than c rows, and their c-th row."""

    layers: tuple[tuple[np.ndarray, np.ndarray], ...]

    @classmethod
    def of(cls, first: Int[np.ndarray, " g"], rows: int) -> "Groups":
        """From the first row of each group."""
        sizes = np.diff(np.append(first, rows))
        layers = [np.flatnonzero(sizes > c) for c in range(int(sizes.max()))]
        return cls(tuple((groups, first[groups] + c) for c, groups in enumerate(layers)))

    def max(self, values: Float[np.ndarray, "p r"]) -> Float[np.ndarray, "g r"]:
        """The largest value of each group."""
        best = values[self.layers[0][1]]
        for groups, rows in self.layers[1:]:
            best[groups] = np.maximum(best[groups], values[rows])
        return best

    def first_best(self, values: Float[np.ndarray, "p r"]) -> Int[np.ndarray, "g r"]:
        """The first row of each group that has its largest value."""
        best = values[self.layers[0][1]]
        chosen = np.repeat(self.layers[0][1][:, None], values.shape[1], axis=1)
        for groups, rows in self.layers[1:]:
            better = values[rows] > best[groups]
            best[groups] = np.where(better, values[rows], best[groups])
            chosen[groups] = np.where(better, rows[:, None], chosen[groups])
        return chosen
