"""An adaptively refined grid: a density on a box, approximated cell by cell by an exponential of a linear function.

In a cell with centre c and half-widths s the log density is taken as value + gradient.(x - c), so that a cell's mass and
draws from it have closed forms, and the error is of second order in s. The first cells lie between quantiles of the
prior; cells are halved along every axis where the error matters.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields
from itertools import product

import numpy as np
from jaxtyping import Float, Int

Evaluate = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]  # (c, d) -> values (c,), gradients (c, d)

FIRST_CELLS = {1: 256, 2: 48, 3: 14}  # cells per axis before refinement
LINEAR_ERROR = 0.5  # a cell whose children differ by less from its linear prediction is not split further
NEGLIGIBLE_MASS = 1e-6  # cells that cannot hold more than this share of the whole are not split
DEEPEST = 16  # halvings, so that a cell's place fits one 64-bit number


@dataclass(frozen=True)
class Cells:
    """Disjoint boxes with the log density and its gradient at their centres.

    `root`, `level` and `place` say where a cell lies: which first cell, how often halved, and its position in there.
    """

    centres: Float[np.ndarray, "c d"]
    halves: Float[np.ndarray, "c d"]
    values: Float[np.ndarray, " c"]
    gradients: Float[np.ndarray, "c d"]
    root: Int[np.ndarray, " c"]
    level: Int[np.ndarray, " c"]
    place: Int[np.ndarray, "c d"]

    def take(self, index: np.ndarray) -> "Cells":
        """Some of the cells."""
        return Cells(*(getattr(self, item.name)[index] for item in fields(self)))

    def log_masses(self) -> Float[np.ndarray, " c"]:
        """log of the integral over each cell: value + sum over axes of log(2 s sinh(a)/a), a = gradient * s."""
        a = np.abs(self.gradients * self.halves)
        return self.values + np.sum(np.log(2 * self.halves) + _log_sinh_ratio(a), axis=1)

    def midpoint_masses(self) -> Float[np.ndarray, " c"]:
        """log of volume times density at the centre."""
        return self.values + np.sum(np.log(2 * self.halves), axis=1)

    def largest_masses(self) -> Float[np.ndarray, " c"]:
        """log mass if the whole cell had the largest density that its linear function reaches."""
        return self.midpoint_masses() + np.sum(np.abs(self.gradients * self.halves), axis=1)

    def predict(self, cell: np.ndarray, points: Float[np.ndarray, "p d"]) -> Float[np.ndarray, " p"]:
        """The approximate log density of points in given cells."""
        return self.values[cell] + np.sum(self.gradients[cell] * (points - self.centres[cell]), axis=1)

    def draw(self, rng: np.random.Generator, n: int) -> tuple[Float[np.ndarray, "n d"], Float[np.ndarray, " n"]]:
        """n points from the approximation, and their approximate log density."""
        log_masses = self.log_masses()
        edges = np.cumsum(np.exp(log_masses - log_masses.max()))
        cell = np.searchsorted(edges, rng.random(n) * edges[-1], side="right").clip(max=len(edges) - 1)
        offset = _truncated_exponential(rng.random((n, self.centres.shape[1])), (self.gradients * self.halves)[cell])
        points = self.centres[cell] + offset * self.halves[cell]
        return points, self.predict(cell, points)


@dataclass(frozen=True)
class Box:
    """The region that the grid covers, cut into first cells by `edges`, one increasing array per axis."""

    edges: tuple[np.ndarray, ...]

    @classmethod
    def between(cls, low: np.ndarray, high: np.ndarray, prior_draws: Float[np.ndarray, "p d"]) -> "Box":
        """First cells between quantiles of the prior, so that a long tail does not make them too wide."""
        count = FIRST_CELLS[len(low)]
        shares = np.arange(1, count) / count
        inner = np.quantile(prior_draws, shares, axis=0)
        edges = []
        for i in range(len(low)):
            inside = inner[(inner[:, i] > low[i]) & (inner[:, i] < high[i]), i]
            edges.append(np.unique(np.concatenate([[low[i]], inside, [high[i]]])))
        return cls(tuple(edges))

    def first_cells(self, evaluate: Evaluate) -> Cells:
        """The unrefined grid."""
        middles = [(edge[1:] + edge[:-1]) / 2 for edge in self.edges]
        widths = [(edge[1:] - edge[:-1]) / 2 for edge in self.edges]
        centres = np.stack(np.meshgrid(*middles, indexing="ij"), axis=-1).reshape(-1, len(self.edges))
        halves = np.stack(np.meshgrid(*widths, indexing="ij"), axis=-1).reshape(-1, len(self.edges))
        count = len(centres)
        return evaluated(centres, halves, np.arange(count), np.zeros(count, int), np.zeros(centres.shape, int), evaluate)

    def find(self, cells: Cells, points: Float[np.ndarray, "p d"]) -> Int[np.ndarray, " p"]:
        """The cell of each point, or -1 outside the box."""
        shape = tuple(len(edge) - 1 for edge in self.edges)
        axis_cell = np.stack([np.searchsorted(e, points[:, i], "right") - 1 for i, e in enumerate(self.edges)], axis=1)
        inside = ((axis_cell >= 0) & (axis_cell < np.array(shape))).all(axis=1)
        axis_cell = axis_cell.clip(0, np.array(shape) - 1)
        root = np.ravel_multi_index(tuple(axis_cell.T), shape)
        lower = np.stack([e[axis_cell[:, i]] for i, e in enumerate(self.edges)], axis=1)
        upper = np.stack([e[axis_cell[:, i] + 1] for i, e in enumerate(self.edges)], axis=1)
        share = (points - lower) / (upper - lower)
        found = np.full(len(points), -1)
        for level in np.unique(cells.level):
            members = np.flatnonzero(cells.level == level)
            keys = _keys(cells.root[members], cells.place[members], int(level))
            order = np.argsort(keys)
            place = np.floor(share * 2.0**level).astype(int).clip(0, 2 ** int(level) - 1)
            wanted = _keys(root, place, int(level))
            spot = np.searchsorted(keys[order], wanted).clip(max=len(keys) - 1)
            match = (keys[order][spot] == wanted) & inside
            found[match] = members[order][spot][match]
        return found


def _keys(root: np.ndarray, place: np.ndarray, level: int) -> np.ndarray:
    """One number for a cell's place."""
    key = root.astype(np.int64)
    for axis in range(place.shape[1]):
        key = (key << level) + place[:, axis]
    return key


def evaluated(
    centres: np.ndarray, halves: np.ndarray, root: np.ndarray, level: np.ndarray, place: np.ndarray, evaluate: Evaluate
) -> Cells:
    """Cells with the density at their centres. Outside the support the density is zero, and so is its slope."""
    values, gradients = evaluate(centres)
    inside = np.isfinite(values)
    slopes = np.where(inside[:, None] & np.isfinite(gradients), gradients, 0.0)
    return Cells(centres, halves, np.where(inside, values, -np.inf), slopes, root, level, place)


def _log_sinh_ratio(a: np.ndarray) -> np.ndarray:
    """log(sinh(a)/a) for a >= 0 without overflow."""
    small = a < 1e-4
    safe = np.where(small, 1.0, a)
    return np.where(small, a**2 / 6, safe + np.log(-np.expm1(-2 * safe)) - np.log(2 * safe))


def _truncated_exponential(u: np.ndarray, a: np.ndarray) -> np.ndarray:
    """Points t in [-1, 1] with density proportional to exp(a t), from uniform u."""
    size = np.abs(a)
    small = size < 1e-4
    safe = np.where(small, 1.0, size)
    steep = 1 + np.log(u + (1 - u) * np.exp(-2 * safe)) / safe
    return np.where(small, 2 * u - 1, np.sign(a) * steep).clip(-1, 1)


def split(cells: Cells, evaluate: Evaluate) -> tuple[Cells, np.ndarray]:
    """All children of all cells (2^d each, in the order of their parents) and each parent's linear error."""
    count, d = cells.centres.shape
    corners = np.array(list(product((0, 1), repeat=d)))
    fan = len(corners)
    centres = (cells.centres[:, None, :] + (corners[None] - 0.5) * cells.halves[:, None, :]).reshape(-1, d)
    place = (2 * cells.place[:, None, :] + corners[None]).reshape(-1, d)
    parent = np.repeat(np.arange(count), fan)
    children = evaluated(
        centres, cells.halves[parent] / 2, cells.root[parent], cells.level[parent] + 1, place, evaluate
    )
    with np.errstate(invalid="ignore"):  # -inf against -inf: nothing there
        error = np.abs(children.values - cells.predict(parent, centres))
    return children, np.nan_to_num(error, nan=0.0, posinf=np.inf).reshape(count, fan).max(axis=1)


def refined(cells: Cells, evaluate: Evaluate, limit: int, active: np.ndarray | None = None) -> Cells:
    """Split cells, first the active ones, until each is nearly log-linear or cannot matter, or there are `limit`."""
    settled: list[Cells] = []
    current = cells
    worth = _matters(cells, settled) if active is None else active
    while worth.any() and sum(len(part.values) for part in settled) + len(current.values) < limit:
        settled.append(current.take(~worth))
        children, error = split(current.take(worth), evaluate)
        fan = len(children.values) // len(error)
        current = children
        worth = np.repeat(error > LINEAR_ERROR, fan) & _matters(children, settled) & (children.level < DEEPEST)
    parts = [*settled, current]
    return Cells(*(np.concatenate([getattr(part, item.name) for part in parts]) for item in fields(Cells)))


def _matters(cells: Cells, others: list[Cells]) -> np.ndarray:
    """Which cells could hold a share of the mass that is not negligible.

    The whole is taken by the midpoint rule: the linear masses of steep cells, not yet split, would be far too large.
    """
    parts = [np.logaddexp.reduce(part.midpoint_masses()) for part in (*others, cells) if len(part.values)]
    return cells.largest_masses() > np.logaddexp.reduce(parts) + np.log(NEGLIGIBLE_MASS)
