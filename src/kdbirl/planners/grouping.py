"""Maxima over groups of consecutive rows, along memory: NumPy's own `maximum.reduceat` is ten times slower here."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int


@dataclass(frozen=True, eq=False)
class Groups:
    """Rows 0 .. p - 1 in g consecutive groups. Layer c holds the groups with more than c rows, and their c-th row.

    Where all groups have one size, a layer is a stride through the rows, and nothing is looked up.
    """

    layers: tuple[tuple[np.ndarray | slice, np.ndarray | slice], ...]

    @classmethod
    def of(cls, first: Int[np.ndarray, " g"], rows: int) -> "Groups":
        """From the first row of each group."""
        sizes = np.diff(np.append(first, rows))
        size = int(sizes.max())
        if (sizes == size).all():
            return cls(tuple((slice(None), slice(c, None, size)) for c in range(size)))
        layers = [np.flatnonzero(sizes > c) for c in range(size)]
        return cls(tuple((groups, first[groups] + c) for c, groups in enumerate(layers)))

    def max(self, values: Float[np.ndarray, "p r"]) -> Float[np.ndarray, "g r"]:
        """The largest value of each group."""
        best = np.array(values[self.layers[0][1]])
        for groups, rows in self.layers[1:]:
            best[groups] = np.maximum(best[groups], values[rows])
        return best

    def argmax(self, values: Float[np.ndarray, "p r"]) -> tuple[Float[np.ndarray, "g r"], Int[np.ndarray, "g r"]]:
        """The largest value of each group, and the first row that has it."""
        number = np.arange(len(values))
        best = np.array(values[self.layers[0][1]])
        chosen = np.repeat(number[self.layers[0][1]][:, None], values.shape[1], axis=1)
        for groups, rows in self.layers[1:]:
            better = values[rows] > best[groups]
            best[groups] = np.where(better, values[rows], best[groups])
            chosen[groups] = np.where(better, number[rows][:, None], chosen[groups])
        return best, chosen
