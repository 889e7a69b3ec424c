"""Columns as they are: all of them (`Identity`), some (`Columns`), or x and y of a grid state (`GridCoordinates`)."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from kdbirl.demos.data import Demonstrations
from kdbirl.errors import InputError, did_you_mean
from kdbirl.features.base import SILENT, Column, FeatureMap, Features, columns_of, side_by_side
from kdbirl.features.block import Block, Source, learn_block, whole_numbers
from kdbirl.features.one_hot import OneHotActions, OneHotStates, refuse_new_actions
from kdbirl.progress import Progress


@dataclass(frozen=True)
class Columns(FeatureMap):
    """The named state and action columns, in this order, unscaled. Codes without labels count as numbers."""

    kind: ClassVar[str] = "columns"
    columns: Any
    blocks: tuple[Block, ...] = ()

    def __post_init__(self) -> None:
        columns = (self.columns,) if isinstance(self.columns, str) else tuple(self.columns)
        object.__setattr__(self, "columns", columns)
        if not columns or not all(isinstance(name, str) for name in columns):
            raise InputError(f'Columns takes the names of columns, such as Columns(["x", "y"]), not {self.columns!r}.')

    @property
    def is_fitted(self) -> bool:
        """Whether the columns were found."""
        return bool(self.blocks)

    def _fit(self, rows: Demonstrations, progress: Progress = SILENT) -> "Columns":
        blocks = [learn_block(rows, "state")]
        if rows.actions is not None:
            blocks.append(learn_block(rows, "action"))
        used = {_find(name, blocks).source for name in self.columns}
        return replace(self, blocks=tuple(block for block in blocks if block.source in used))

    def _apply(self, rows: Demonstrations) -> Features:
        values = {block.source: _as_numbers(block, rows) for block in self.blocks}
        found = [(name, _find(name, self.blocks)) for name in self.columns]
        return np.stack([values[block.source][:, block.names.index(name)] for name, block in found], axis=1)

    def _columns(self) -> tuple[Column, ...]:
        found = [(name, _find(name, self.blocks)) for name in self.columns]
        return tuple(Column(name, block.source, block.discrete) for name, block in found)

    def block_of(self, name: str) -> Block:
        """Whether a column is one of the states' or of the actions'; the map is fitted."""
        return _find(name, self.blocks)


def _find(name: str, blocks: list[Block] | tuple[Block, ...]) -> Block:
    """The block that holds a column."""
    holders = [block for block in blocks if name in block.names]
    if not holders:
        known = [known for block in blocks for known in block.names]
        raise InputError(
            f"There is no column {name!r} among the training rows' states and actions.{did_you_mean(name, known)}"
        )
    if len(holders) > 1:
        raise InputError(f"The column {name!r} is both a state and an action column: rename one of them.")
    if holders[0].labels is not None:
        raise InputError(
            f"The column {name!r} holds labels ({', '.join(holders[0].labels[:5])}), which are no numbers: use "
            f"{'OneHotStates' if holders[0].source == 'state' else 'OneHotActions'}()."
        )
    return holders[0]


def _as_numbers(block: Block, rows: Demonstrations) -> Features:
    values = block.read(rows).astype(np.float64)
    return values[:, None] if block.discrete else values


@dataclass(frozen=True)
class Identity(FeatureMap):
    """States and actions as they are; what is discrete is one-hot, as labels have no order. Actions may be absent."""

    kind: ClassVar[str] = "identity"
    parts: tuple[FeatureMap, ...] = ()

    @property
    def is_fitted(self) -> bool:
        """Whether the columns are known."""
        return bool(self.parts)

    def _fit(self, rows: Demonstrations, progress: Progress = SILENT) -> "Identity":
        parts: list[FeatureMap] = [OneHotStates()._fit(rows) if rows.discrete_states else _all_columns(rows, "state")]
        if rows.actions is not None:
            parts.append(OneHotActions()._fit(rows) if rows.discrete_actions else _all_columns(rows, "action"))
        return Identity(tuple(parts))

    def _apply(self, rows: Demonstrations) -> Features:
        refuse_new_actions(self, rows)
        return side_by_side(self.parts, rows)

    def _columns(self) -> tuple[Column, ...]:
        return columns_of(self.parts)


def _all_columns(rows: Demonstrations, source: Source) -> Columns:
    """Only that block, so that a name which is both a state and an action column is no trouble here."""
    block = learn_block(rows, source)
    return Columns(block.names, (block,))


@dataclass(frozen=True)
class GridCoordinates(FeatureMap):
    """Discrete state s of a grid -> x = s % width, y = s // width. `size` is the side of a square, or (width, height).

    States alone: write `GridCoordinates(5) + OneHotActions()` for actions too.
    """

    kind: ClassVar[str] = "grid_coordinates"
    size: Any
    block: Block | None = None

    def __post_init__(self) -> None:
        size = tuple(self.size) if isinstance(self.size, tuple | list) else (self.size, self.size)
        whole = all(isinstance(n, int | np.integer) and not isinstance(n, bool) and n > 0 for n in size)
        if len(size) != 2 or not whole:
            raise InputError(
                f"GridCoordinates(size={self.size!r}): give the side of the grid, such as 5, or (width, height)."
            )
        object.__setattr__(self, "size", (int(size[0]), int(size[1])))

    @property
    def is_fitted(self) -> bool:
        """Whether the states were seen to lie on the grid."""
        return self.block is not None

    def _fit(self, rows: Demonstrations, progress: Progress = SILENT) -> "GridCoordinates":
        block, cells = learn_block(rows, "state"), self.size[0] * self.size[1]
        if block.labels is not None or len(block.names) != 1:
            raise InputError(
                f"GridCoordinates needs one column of state numbers 0 to {cells - 1}; the training rows have "
                f"{'states with labels' if block.labels is not None else block.summary()}."
            )
        if block.declared not in (None, cells):
            # A grid of another width would give wrong coordinates without any sign of it.
            raise InputError(
                f"A grid of {self.size[0]} x {self.size[1]} has {cells} states, but {block.declared} are declared."
            )
        fitted = replace(self, block=block)
        fitted._apply(rows)
        return fitted

    def _apply(self, rows: Demonstrations) -> Features:
        assert self.block is not None
        states = whole_numbers(self.block.read(rows), self.block, "GridCoordinates")[:, 0]
        width, height = self.size
        outside = (states < 0) | (states >= width * height)
        if outside.any():
            row = int(np.argmax(outside))
            raise InputError(
                f"Row {row + 1} has state {states[row]}, outside a grid of {width} x {height} (0 to "
                f"{width * height - 1}): mend the row, or give the grid's size."
            )
        return np.stack([states % width, states // width], axis=1).astype(np.float64)

    def _columns(self) -> tuple[Column, ...]:
        return Column("x", "state", discrete=True), Column("y", "state", discrete=True)
