"""`Gridworld`: the paper's grid (appendix "Gridworld environment"), of any size."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from kdbirl.errors import MEMORY_BYTES, InputError, did_you_mean
from kdbirl.worlds.tabular import TabularMDP

ACTIONS = ("NO ACTION", "UP", "RIGHT", "LEFT", "DOWN")
MOVES = np.array([(0, 0), (0, 1), (1, 0), (-1, 0), (0, -1)])  # (dx, dy) of each action; UP raises y
DISCOUNT = 0.95  # the paper names none for its grids


@dataclass(frozen=True, eq=False, init=False, repr=False)
class Gridworld(TabularMDP):
    """A grid of `size` x `size` cells in which an agent moves one cell at a time, or stays.

    ## States
    Cell (x, y) is state s = y * size + x: 0 is the lower left corner, size^2 - 1 the upper right one. This is the order
    of `kb.GridCoordinates(size)`; `kb.OneHot()` gives the paper's one-hot vectors.

    ## Actions
    NO ACTION, UP, RIGHT, LEFT, DOWN, in this order (UP raises y). A move against the border or a wall stays put.

    ## Rewards
    `features="state"`: one parameter per cell, earned by every action taken in that cell, R(s, a) = reward[s].
    `features="xy"`: phi = [x, y], raw from 0 to size - 1, or with `scaled=True` from 0 to 1: R(s, a) = w.phi(s).

    ## Start and end
    `start`: "uniform" over the cells that are neither walls nor, with a goal, the goal itself; a cell; a distribution.
    Episodes have no end of their own, unless a `goal` is given: the first action taken *at the goal* earns its reward
    and ends the episode (in an added end state, which no demonstration shows).

    ## Arguments
    size: cells on each side. slip: the probability that a move (not NO ACTION) goes in one of the four directions
    instead, chosen evenly. walls: cells that cannot be entered. discount: 0.95 unless given (the paper names none; it
    is part of `repr` and `describe`). horizon: steps after which an episode is over, for planning; None: never.
    """

    size: int
    slip: float
    walls: tuple[int, ...]
    goal: int | None

    def __init__(
        self,
        size: Any = 5,
        start: Any = "uniform",
        slip: Any = 0.0,
        walls: Iterable[Any] = (),
        goal: Any = None,
        discount: Any = DISCOUNT,
        features: str = "state",
        scaled: bool = False,
        horizon: Any = None,
    ) -> None:
        side = _side(size)
        cells = side**2
        blocked = tuple(sorted({_cell(wall, cells, "walls") for wall in walls}))
        target = None if goal is None else _cell(goal, cells, "goal")
        if target in blocked:
            raise InputError(f"goal={goal!r} is a wall.")
        phi, names = _features(features, side, scaled)
        ends = 0 if target is None else 1
        TabularMDP.__init__(
            self,
            _transitions(side, _slip(slip), blocked, target),
            _start(start, side, blocked, target, ends),
            discount,
            np.vstack([phi, np.zeros((ends, phi.shape[1]))]),
            terminal=np.arange(cells + ends) >= cells,
            horizon=horizon,
            feature_names=names,
            action_names=ACTIONS,
            recorded_states=cells,
        )
        for name, value in {"size": side, "slip": float(slip), "walls": blocked, "goal": target}.items():
            object.__setattr__(self, name, value)

    def describe(self) -> dict[str, Any]:
        """As of any world, with the grid's own settings."""
        return TabularMDP.describe(self) | {
            "size": self.size,
            "slip": self.slip,
            "walls": list(self.walls),
            "goal": self.goal,
        }

    def __repr__(self) -> str:
        options = f", slip {self.slip:g}" * (self.slip > 0) + f", {len(self.walls)} walls" * bool(self.walls)
        options += "" if self.goal is None else f", goal {self.goal}"
        options += "" if self.horizon is None else f", horizon {self.horizon}"
        parameters = f"{self.n_parameters} reward parameters"
        return f"Gridworld({self.size} x {self.size}, {parameters}, discount {self.discount:g}{options})"


def _side(size: Any) -> int:
    if isinstance(size, bool) or not isinstance(size, int | np.integer) or size < 1:
        raise InputError(f"size={size!r} should be the number of cells on a side, such as 5.")
    MEMORY_BYTES.check(8 * len(ACTIONS) * int(size) ** 4, f"A grid of {size} x {size} cells has too large a table")
    return int(size)


def _cell(value: Any, cells: int, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not 0 <= value < cells:
        raise InputError(f"{what}: there is no cell {value!r}; cells are whole numbers from 0 to {cells - 1}.")
    return int(value)


def _slip(value: Any) -> float:
    number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    if not number or not 0 <= value <= 1:
        raise InputError(f"slip={value!r} should be a probability, from 0 to 1.")
    return float(value)


def _features(kind: str, side: int, scaled: bool) -> tuple[Float[np.ndarray, "cells q"], list[str]]:
    cells = np.arange(side**2)
    if kind == "state":
        return np.eye(side**2), [f"cell {s}" for s in cells]
    if kind != "xy":
        raise InputError(f"features={kind!r} is unknown.{did_you_mean(kind, ('state', 'xy'))}")
    coordinates = np.stack([cells % side, cells // side], axis=1).astype(np.float64)
    return coordinates / max(side - 1, 1) if scaled else coordinates, ["x", "y"]


def _neighbours(side: int, walls: tuple[int, ...]) -> Int[np.ndarray, "cells 5"]:
    """The cell that each action leads to when it does not slip."""
    cells = np.arange(side**2)
    x = cells[:, None] % side + MOVES[None, :, 0]
    y = cells[:, None] // side + MOVES[None, :, 1]
    inside = (x >= 0) & (x < side) & (y >= 0) & (y < side)
    after = np.where(inside, y * side + x, cells[:, None])
    return np.where(np.isin(after, walls), cells[:, None], after)


def _transitions(side: int, slip: float, walls: tuple[int, ...], goal: int | None) -> Float[np.ndarray, "S 5 S"]:
    cells = side**2
    total = cells if goal is None else cells + 1
    after = _neighbours(side, walls)
    table = np.zeros((total, len(ACTIONS), total))
    everywhere = np.arange(cells)
    for action in range(len(ACTIONS)):
        certain = 1.0 - slip if action else 1.0  # staying put cannot slip
        table[everywhere, action, after[:, action]] += certain
        for other in range(1, len(ACTIONS)) if certain < 1 else ():
            table[everywhere, action, after[:, other]] += slip / 4
    if goal is not None:
        table[goal] = table[cells] = 0.0
        table[goal, :, cells] = table[cells, :, cells] = 1.0
    return table


def _start(start: Any, side: int, walls: tuple[int, ...], goal: int | None, ends: int) -> Float[np.ndarray, " S"]:
    cells = side**2
    if isinstance(start, str) and start == "uniform":
        free = np.ones(cells, dtype=bool)
        free[list(walls)] = False
        if goal is not None:
            free[goal] = False
        if not free.any():
            raise InputError('start="uniform": walls and the goal leave no cell to start from.')
        chosen = free / free.sum()
    elif isinstance(start, str):
        raise InputError(f'start={start!r} should be "uniform", a cell or a distribution over the {cells} cells.')
    elif np.ndim(start) == 0:
        chosen = np.eye(cells)[_cell(start, cells, "start")]
    else:
        chosen = np.asarray(start, dtype=np.float64)
        if chosen.shape != (cells,):
            raise InputError(f"start: shape {chosen.shape}, expected a probability for each of the {cells} cells.")
    inside = [wall for wall in walls if chosen[wall] > 0]
    if inside:
        raise InputError(f"start: cell {inside[0]} is a wall, where nobody can be; start in a free cell.")
    return np.concatenate([chosen, np.zeros(ends)])
