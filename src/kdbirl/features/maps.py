"""Columns as they are: all of them (`Identity`), some (`Columns`), or x and y of a grid state (`GridCoordinates`)."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from kdbirl.data.arrays import Moments
from kdbirl.data.demonstrations import Demonstrations
from kdbirl.errors import InputError, did_you_mean
from kdbirl.features.base import SILENT, Column, FeatureMap, Features, columns_of, refuse_not_finite, side_by_side
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


# Features with mean 0 and standard deviation 1 over the training rows: the package's default.

ROUNDING = 8 * float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class Standardize(FeatureMap):
    """phi_j = (x_j - mean_j) / sd_j, with the mean and the population standard deviation (1/m) of the training rows.

    By default x are the state columns and the columns of vector actions, and discrete states and actions are one-hot
    and not scaled, as labels have no scale. `Standardize(inner)` standardises *every* column of another map. A column
    that is constant in training, up to rounding, keeps scale 1 (its standard deviation, 0, says nothing): it is centred
    only.
    """

    kind: ClassVar[str] = "standardize"
    inner: Any = None
    default: FeatureMap | None = None
    mean: tuple[float, ...] = ()
    scale: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if self.inner is not None and not isinstance(self.inner, FeatureMap):
            raise InputError(f"Standardize takes a feature map, such as Standardize(Function(f)), not {self.inner!r}.")

    @property
    def is_fitted(self) -> bool:
        """Whether means and scales are known."""
        return bool(self.scale)

    @property
    def _unscaled(self) -> FeatureMap:
        chosen = self.default if self.inner is None else self.inner
        assert isinstance(chosen, FeatureMap)
        return chosen

    def _fit(self, rows: Demonstrations, progress: Progress = SILENT) -> "Standardize":
        if self.inner is not None:
            inner = self.inner._fit(rows, progress)
            mean, scale = _mean_and_scale(inner, rows)
            return replace(self, inner=inner, mean=mean, scale=scale)
        default = Identity()._fit(rows)
        # Part by part, so that a million rows of one-hot labels are never laid out only to be left unscaled.
        learnt = [_as_it_is(part) if part.discrete else _mean_and_scale(part, rows) for part in default.parts]
        mean, scale = (tuple(value for part in side for value in part) for side in zip(*learnt, strict=True))
        return replace(self, default=default, mean=mean, scale=scale)

    def with_moments(self, moments_of: Callable[[FeatureMap], Moments]) -> "Standardize":
        """With the mean and the scale of all rows in place of a sample's."""
        if self.inner is not None:
            inner = self.inner.with_moments(moments_of)
            mean, scale = _centred_and_scaled(moments_of(inner))
            return replace(self, inner=inner, mean=mean, scale=scale)
        assert isinstance(self.default, Identity)
        parts = self.default.parts
        learnt = [_as_it_is(part) if part.discrete else _centred_and_scaled(moments_of(part)) for part in parts]
        mean, scale = (tuple(value for part in side for value in part) for side in zip(*learnt, strict=True))
        return replace(self, mean=mean, scale=scale)

    def _apply(self, rows: Demonstrations) -> Features:
        features: Features = self._unscaled._apply(rows) - np.asarray(self.mean)
        features /= np.asarray(self.scale)  # in place: the matrix may be large
        return features

    def _columns(self) -> tuple[Column, ...]:
        return self._unscaled._columns()


def _as_it_is(part: FeatureMap) -> tuple[tuple[float, ...], tuple[float, ...]]:
    return (0.0,) * len(part.names), (1.0,) * len(part.names)


def _mean_and_scale(part: FeatureMap, rows: Demonstrations) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and population standard deviation of each feature, 1 where it is constant."""
    features = refuse_not_finite(part._apply(rows), part.names, "The feature map inside Standardize")
    low, high = features.min(axis=0), features.max(axis=0)
    half_range, constant = high / 2 - low / 2, _is_constant(low, high)
    # From the middle and in units of the half range, so that squares of huge or tiny values stay in range.
    middle, unit = low / 2 + high / 2, np.where(constant, 1.0, half_range)
    units = (features - middle) / unit
    mean = np.where(constant, low, middle + unit * units.mean(axis=0))
    scale = np.where(constant, 1.0, unit * units.std(axis=0))
    return tuple(mean.tolist()), tuple(scale.tolist())


def _is_constant(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """0.1 + 0.2 and 0.3 are one value: scaling up what rounding left would make noise the largest feature."""
    smallest = np.maximum(ROUNDING * np.maximum(np.abs(low), np.abs(high)), np.finfo(np.float64).tiny)
    return np.asarray(high / 2 - low / 2 <= smallest)


def _centred_and_scaled(moments: Moments) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """As `_mean_and_scale`, from moments."""
    constant = _is_constant(moments.low, moments.high)
    mean = np.where(constant, moments.low, moments.mean)
    scale = np.where(constant, 1.0, np.sqrt(moments.squares / moments.count))
    return tuple(mean.tolist()), tuple(scale.tolist())


# A feature map that has learnt already and shall not learn again.


@dataclass(frozen=True)
class Fixed(FeatureMap):
    """`Fixed(phi.fit(rollouts))`: `fit` keeps phi as it is, where any other map would learn again from the new rows.

    A phi in which rewards w . phi(s, a) are expressed must be one and the same for the simulator, the training tasks
    and the expert: learn it once, from random rollouts say, and give `Fixed(phi)` to everything that follows.
    """

    kind: ClassVar[str] = "fixed"
    inner: Any

    def __post_init__(self) -> None:
        if not isinstance(self.inner, FeatureMap):
            raise InputError(
                f"Fixed takes a fitted feature map, such as Fixed(kb.VAE().fit(rows)), not {self.inner!r}."
            )
        if not self.inner.is_fitted:
            raise InputError(
                f"Fixed takes a feature map that is fitted, and this {type(self.inner).__name__} is not: give what its "
                "fit(rows) returns."
            )

    @property
    def is_fitted(self) -> bool:
        """Always."""
        return True

    def _fit(self, rows: Demonstrations, progress: Progress = SILENT) -> "Fixed":
        self.inner._apply(rows.take(slice(1)))  # rows of another kind are refused here, before anything is computed
        return self

    def _apply(self, rows: Demonstrations) -> Features:
        features: Features = self.inner._apply(rows)
        return features

    def _columns(self) -> tuple[Column, ...]:
        columns: tuple[Column, ...] = self.inner._columns()
        return columns
