"""Training rows in boxes: leaves of a k-d tree of each task, of equal size, with what bounds on kernels need.

Rows of a box are near each other, so that one look at the box tells how much all of them can matter to an expert row.
"""

from dataclasses import dataclass
from functools import cached_property

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Float32

from kdbirl.precision import float64

FEWEST, MOST = 32, 1024  # rows of a box
BOXES_OF_A_TASK = 200  # aimed at: many boxes cost looking at, few are wide


@dataclass(frozen=True)
class Boxes:
    """B boxes for each of K tasks, of W rows each, padded with rows of log weight -inf and boxes of total weight 0.

    centre, half: the middle and the half widths of each box; mean, variance: of its rows (weighted, the variance summed
    over columns); log_total: log of its weight. rows: relative to the centre, then their squared norms, then the logs
    of their weights.
    """

    centre: Float[np.ndarray, "K B d"]
    half: Float[np.ndarray, "K B d"]
    mean: Float[np.ndarray, "K B d"]
    variance: Float[np.ndarray, "K B"]
    log_total: Float[np.ndarray, "K B"]
    rows: Float32[np.ndarray, "K B W d_and_2"]

    @classmethod
    def of(
        cls, rows: Float[np.ndarray, "m d"], weights: Float[np.ndarray, " m"], tasks: np.ndarray, n_tasks: int
    ) -> "Boxes":
        """Boxes of rows that are sorted by task."""
        ends = np.searchsorted(tasks, np.arange(n_tasks + 1))
        counts, d = np.diff(ends), rows.shape[1]
        width = _width(int(counts.max()))
        size = max(-(-int(counts.max()) // width), 1)
        size = 2 ** int(np.ceil(np.log2(size)))
        laid = np.zeros((n_tasks, size, width, d))
        own = np.zeros((n_tasks, size, width))
        for k in range(n_tasks):
            part, weight = rows[ends[k] : ends[k + 1]], weights[ends[k] : ends[k + 1]]
            for leaf, index in enumerate(_leaves(part, width)):
                laid[k, leaf, : len(index)], own[k, leaf, : len(index)] = part[index], weight[index]
        return cls._laid_out(laid, own)

    @classmethod
    def _laid_out(cls, laid: Float[np.ndarray, "K B W d"], weights: Float[np.ndarray, "K B W"]) -> "Boxes":
        real, total = weights > 0, weights.sum(axis=-1)
        low = np.where(real[..., None], laid, np.inf).min(axis=2)
        high = np.where(real[..., None], laid, -np.inf).max(axis=2)
        used = total > 0
        low, high = (np.where(used[..., None], edge, 0.0) for edge in (low, high))
        centre, safe = (low + high) / 2, np.where(used, total, 1.0)
        relative = np.where(real[..., None], laid - centre[:, :, None], 0.0)
        mean = np.einsum("kbw,kbwd->kbd", weights, relative) / safe[..., None]
        spread = np.einsum("kbw,kbwd->kb", weights, (relative - mean[:, :, None]) ** 2) / safe
        with np.errstate(divide="ignore"):
            log_total, log_weights = np.log(total), np.log(weights)
        return cls(
            centre,
            (high - low) / 2,
            centre + mean,
            spread,
            log_total,
            np.concatenate(
                [relative, np.sum(relative**2, axis=-1, keepdims=True), log_weights[..., None]],
                axis=-1,
                dtype=np.float32,
            ),
        )

    @cached_property
    @float64
    def on_device(self) -> tuple[Array, Array]:
        """Centres (boxes, d) and rows (boxes, d + 2, W), over all tasks, where JAX computes."""
        k, b, width, columns = self.rows.shape
        laid = np.swapaxes(self.rows.reshape(k * b, width, columns), 1, 2)
        return jnp.asarray(self.centre.reshape(k * b, -1)), jnp.asarray(np.ascontiguousarray(laid))


def _width(rows: int) -> int:
    """A power of two."""
    return int(np.clip(2 ** round(np.log2(max(rows / BOXES_OF_A_TASK, 1.0))), FEWEST, MOST))


def _leaves(rows: Float[np.ndarray, "m d"], width: int) -> list[np.ndarray]:
    """Indices of the rows of each leaf: halves along the widest column, until a leaf has at most `width` rows."""
    waiting, leaves = [np.arange(len(rows))], []
    while waiting:
        index = waiting.pop()
        if len(index) <= width:
            leaves.append(index)
            continue
        own = rows[index]
        column = own[:, int(np.argmax(own.max(axis=0) - own.min(axis=0)))]
        full = -(-len(index) // width)  # leaves below; the left side takes whole ones
        middle = width * (2 ** int(np.ceil(np.log2(full))) // 2)
        order = np.argpartition(column, middle)
        waiting += [index[order[:middle]], index[order[middle:]]]
    return leaves
