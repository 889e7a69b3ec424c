"""An adaptively refined grid: a density on a box, approximated cell by cell by an exponential of a linear function.

In a cell with centre c and half-widths s the log density f is taken as f(c) + slope.(x - c), so that a cell's mass and
draws from it have closed forms. Slopes and errors come from f(c +- s_i/2), differences on the scale of the cell itself:
they see what a derivative at the centre would miss. The first cells lie between quantiles of the prior; a cell is
halved along the axis that contributes most to its error.
"""

from collections.abc import Callable

import numpy as np
from jaxtyping import Float, Int

Evaluate = Callable[[np.ndarray], np.ndarray]  # points (c, d) -> log densities (c,), -inf where the density is zero

FIRST_CELLS = {1: 256, 2: 32, 3: 10}  # cells per axis before refinement
LARGEST_ERROR = 0.5  # cells whose log density departs less from linear at their faces are not split for it
BOUND_SLACK = 0.1  # how far an upper bound may lie above the highest log density found
NEGLIGIBLE_MASS = 1e-6  # cells that cannot hold more than this share of the whole are not split


class CellTree:
    """Cells that are halved again and again; the leaves cover the box without overlap.

    Cell i is a leaf while `axis[i] < 0`; once split along an axis, its halves are cells `child[i]` and `child[i] + 1`.
    """

    def __init__(
        self, low: np.ndarray, high: np.ndarray, prior_draws: Float[np.ndarray, "p d"], evaluate: Evaluate
    ) -> None:
        self._evaluate = evaluate
        self._edges = [_edges(low[i], high[i], prior_draws[:, i], FIRST_CELLS[len(low)]) for i in range(len(low))]
        middles = [(edge[1:] + edge[:-1]) / 2 for edge in self._edges]
        widths = [(edge[1:] - edge[:-1]) / 2 for edge in self._edges]
        d = len(low)
        self.centres = np.stack(np.meshgrid(*middles, indexing="ij"), axis=-1).reshape(-1, d)
        self.halves = np.stack(np.meshgrid(*widths, indexing="ij"), axis=-1).reshape(-1, d)
        self.values, self.slopes, self.errors = self._measured(self.centres, self.halves)
        self.axis = np.full(len(self.centres), -1)
        self.child = np.full(len(self.centres), -1)

    def _measured(self, centres: np.ndarray, halves: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Values (c,), slopes (c, d) and errors (c, d): how far f is from linear at the faces across each axis.

        A cell that the support's edge cuts through has infinite error; one that lies outside has none.
        """
        count, d = centres.shape
        steps = np.eye(d)[None] * (halves / 2)[:, None, :]
        points = np.concatenate([centres[:, None], centres[:, None] - steps, centres[:, None] + steps], axis=1)
        f = self._evaluate(points.reshape(-1, d)).reshape(count, 2 * d + 1)
        inside = np.isfinite(f)
        whole = np.asarray(inside.all(axis=1))
        cut = np.asarray(inside.any(axis=1)) & ~whole
        safe = np.where(whole[:, None], f, 0.0)
        below, above = safe[:, 1 : d + 1], safe[:, d + 1 :]
        slopes = (above - below) / halves
        errors = 2 * np.abs(above + below - 2 * safe[:, :1])
        values = np.where(whole, f[:, 0], np.max(f, axis=1))
        return values, slopes, np.where(cut[:, None], np.inf, errors)

    @property
    def leaves(self) -> Int[np.ndarray, " leaves"]:
        """The cells that are not split."""
        return np.flatnonzero(self.axis < 0)

    def split(self, cells: Int[np.ndarray, " c"]) -> None:
        """Halve each cell along the axis that contributes most to its error, or along which it is steepest."""
        s = self.halves[cells]
        finite = np.where(np.isfinite(self.errors[cells]), self.errors[cells], s / s.max(axis=1, keepdims=True))
        axis = (finite + 0.1 * np.abs(self.slopes[cells]) * s + 1e-9 * s).argmax(axis=1)
        rows = np.arange(len(cells))
        step = np.zeros_like(s)
        step[rows, axis] = s[rows, axis] / 2
        centres = np.stack([self.centres[cells] - step, self.centres[cells] + step], axis=1).reshape(-1, s.shape[1])
        halves = np.repeat(s - step, 2, axis=0)
        values, slopes, errors = self._measured(centres, halves)
        self.axis[cells], self.child[cells] = axis, len(self.axis) + 2 * rows
        self.centres, self.halves = np.concatenate([self.centres, centres]), np.concatenate([self.halves, halves])
        self.values, self.slopes = np.concatenate([self.values, values]), np.concatenate([self.slopes, slopes])
        self.errors = np.concatenate([self.errors, errors])
        self.axis = np.concatenate([self.axis, np.full(len(centres), -1)])
        self.child = np.concatenate([self.child, np.full(len(centres), -1)])

    def refine(self, limit: int) -> None:
        """Split leaves until each is nearly log-linear or cannot matter, or there are `limit` of them."""
        while len(leaves := self.leaves) < limit:
            s = self.halves[leaves]
            volume = np.sum(np.log(2 * s), axis=1)
            # The whole by the midpoint rule: the linear masses of steep cells, not yet split, would be far too large.
            total = np.logaddexp.reduce(self.values[leaves] + volume)
            largest = self.values[leaves] + np.sum(np.abs(self.slopes[leaves]) * s, axis=1) + volume
            wrong = self.errors[leaves].sum(axis=1) > LARGEST_ERROR
            worth = leaves[wrong & (largest > total + np.log(NEGLIGIBLE_MASS))]
            if not len(worth):
                return
            self.split(worth)

    def predict(self, cells: np.ndarray, points: Float[np.ndarray, "p d"]) -> Float[np.ndarray, " p"]:
        """The approximate log density of points in given cells."""
        return self.values[cells] + np.sum(self.slopes[cells] * (points - self.centres[cells]), axis=1)

    def upper_bound(self, limit: int) -> float:
        """A bound of the log density over the box: leaves whose linear function reaches above it are split first."""
        while True:
            leaves = self.leaves
            reach = self.values[leaves] + np.sum(np.abs(self.slopes[leaves]) * self.halves[leaves], axis=1)
            high = leaves[reach > self.values[leaves].max() + BOUND_SLACK]
            if not len(high) or len(leaves) > limit:
                return float(reach.max())
            self.split(high)

    def draw(self, rng: np.random.Generator, n: int) -> tuple[Float[np.ndarray, "n d"], Int[np.ndarray, " n"]]:
        """n points from the approximation, and their cells."""
        leaves = self.leaves
        s = self.halves[leaves]
        log_masses = self.values[leaves] + np.sum(np.log(2 * s) + _log_sinh_ratio(self.slopes[leaves] * s), axis=1)
        edges = np.cumsum(np.exp(log_masses - log_masses.max()))
        cells = leaves[np.searchsorted(edges, rng.random(n) * edges[-1], side="right")]
        offset = _truncated_exponential(rng.random((n, s.shape[1])), (self.slopes * self.halves)[cells])
        return self.centres[cells] + offset * self.halves[cells], cells

    def find(self, points: Float[np.ndarray, "p d"]) -> Int[np.ndarray, " p"]:
        """The leaf of each point; points outside the box get the nearest cell at its edge."""
        place = [np.searchsorted(e, points[:, i], "right").clip(1, len(e) - 1) - 1 for i, e in enumerate(self._edges)]
        cells = np.ravel_multi_index(tuple(place), tuple(len(edge) - 1 for edge in self._edges))
        rows = np.arange(len(points))
        while (inner := self.axis[cells] >= 0).any():
            axis = self.axis[cells].clip(0)
            upper = points[rows, axis] > self.centres[cells, axis]
            cells = np.where(inner, self.child[cells] + upper, cells)
        return cells


def _edges(low: float, high: float, draws: np.ndarray, count: int) -> np.ndarray:
    """Between quantiles of the prior, so that a long tail does not make the first cells too wide."""
    inner = np.quantile(draws, np.arange(1, count) / count)
    return np.unique(np.concatenate([[low], inner[(inner > low) & (inner < high)], [high]]))


def _log_sinh_ratio(a: np.ndarray) -> np.ndarray:
    """log(sinh(a)/a) without overflow."""
    size = np.abs(a)
    small = size < 1e-4
    safe = np.where(small, 1.0, size)
    return np.where(small, size**2 / 6, safe + np.log(-np.expm1(-2 * safe)) - np.log(2 * safe))


def _truncated_exponential(u: np.ndarray, a: np.ndarray) -> np.ndarray:
    """Points t in [-1, 1] with density proportional to exp(a t), from uniform u."""
    size = np.abs(a)
    small = size < 1e-4
    safe = np.where(small, 1.0, size)
    steep = 1 + np.log(u + (1 - u) * np.exp(-2 * safe)) / safe
    return np.where(small, 2 * u - 1, np.sign(a) * steep).clip(-1, 1)
