"""One-hot features of discrete states and actions.

A variable with L levels gives L columns, 1 in that of the row's level and 0 elsewhere: any two levels are equally far
apart. Levels are the declared ones (0..count-1), and then a code outside them is an error; or those of the training
rows, and then one last column, all zero in training, takes every level never seen there: such a row is as far from
every seen level as these are from each other, so it is a finding about support and not a crash.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Bool, Float64, Int64

from kdbirl.data.demonstrations import Demonstrations
from kdbirl.errors import InputError
from kdbirl.features.base import SILENT, Column, FeatureMap, Features, columns_of, side_by_side
from kdbirl.features.block import Block, Source, Values, learn_block, whole_numbers
from kdbirl.progress import Progress

# A column of numbers with more whole values than this is a measurement, not a label.
MOST_LEVELS_OF_A_NUMBER = 10_000


@dataclass(frozen=True)
class Levels:
    """One encoded variable: its levels in ascending order, their texts, and whether a last column is for all others."""

    kind: ClassVar[str] = "levels"
    name: str
    levels: tuple[int, ...]
    texts: tuple[str, ...]
    has_other: bool

    def encode(self, codes: Int64[np.ndarray, " rows"]) -> Features:
        """(rows, number of levels, + 1 for the others)."""
        position, known = self._find(codes)
        encoded = np.zeros((len(codes), len(self.levels) + self.has_other))
        encoded[np.arange(len(codes)), np.where(known, position, len(self.levels))] = 1.0
        return encoded

    def _find(self, codes: Int64[np.ndarray, " rows"]) -> tuple[Int64[np.ndarray, " rows"], Bool[np.ndarray, " rows"]]:
        """Each code's place among the levels, and whether it is one of them."""
        levels = np.asarray(self.levels, dtype=np.int64)
        position = np.searchsorted(levels, codes).astype(np.int64)
        known = levels[np.minimum(position, len(levels) - 1)] == codes
        if not self.has_other and not known.all():
            row = int(np.argmin(known))
            raise InputError(
                f"Row {row + 1} has {self.name} = {codes[row]}, which is none of the {len(levels)} declared levels (0 "
                f"to {len(levels) - 1}): mend the row, or declare more levels."
            )
        return position, known

    def column_names(self) -> tuple[str, ...]:
        """`state=3`, ..., `state=<other>`."""
        return tuple(f"{self.name}={text}" for text in (*self.texts, *(["<other>"] if self.has_other else [])))


@dataclass(frozen=True)
class Encoding:
    """How one block is encoded: one `Levels` per column, or none where its rows are one-hot already."""

    kind: ClassVar[str] = "encoding"
    block: Block
    variables: tuple[Levels, ...]

    def apply(self, rows: Demonstrations) -> Features:
        """The block's one-hot columns."""
        values = self.block.read(rows)
        if not self.variables:
            return _still_one_hot(values, self.block)
        codes = whole_numbers(values, self.block, "OneHot")
        return np.concatenate(
            [levels.encode(code) for levels, code in zip(self.variables, codes.T, strict=True)], axis=1
        )

    def columns(self) -> tuple[Column, ...]:
        """All discrete."""
        encoded = tuple(name for levels in self.variables for name in levels.column_names())
        return tuple(Column(name, self.block.source, discrete=True) for name in encoded or self.block.names)


def learn_encoding(rows: Demonstrations, source: Source, declared: int | None) -> Encoding:
    """The levels of each column of the states or actions; `declared` goes before the count that the rows declare."""
    block = learn_block(rows, source)
    values = block.read(rows)
    if declared is None and not block.discrete and _one_hot_rows(values).all():
        return Encoding(block, ())
    codes = whole_numbers(values, block, "OneHot")
    count = block.declared if declared is None else declared
    named = zip(block.names, codes.T, strict=True)
    return Encoding(block, tuple(_learn_levels(name, code, block, count) for name, code in named))


def _learn_levels(name: str, codes: Int64[np.ndarray, " rows"], block: Block, declared: int | None) -> Levels:
    levels = tuple(range(declared)) if declared is not None else tuple(np.unique(codes).tolist())
    if not block.discrete and len(levels) > MOST_LEVELS_OF_A_NUMBER:
        raise InputError(
            f"OneHot would turn the {block.source} column {name!r} into {len(levels)} columns, one per value: it looks "
            "like a measurement, so use Standardize(), or Columns([...]) for the columns that are labels."
        )
    labels = block.labels or ()
    texts = tuple(labels[level] if 0 <= level < len(labels) else str(level) for level in levels)
    learnt = Levels(name, levels, texts, has_other=declared is None)
    learnt._find(codes)  # a training code outside the declared set is found here, with its row
    return learnt


def _one_hot_rows(values: Values) -> Bool[np.ndarray, " rows"]:
    """Which rows of a matrix hold one 1 and zeros; a single column of ones is no encoding."""
    binary = ((values == 0.0) | (values == 1.0)).all(axis=1)
    return np.asarray(binary & (values.sum(axis=1) == 1.0) & (values.shape[1] > 1))


def _still_one_hot(values: Values, block: Block) -> Float64[np.ndarray, "rows d"]:
    good = _one_hot_rows(values)
    if not good.all():
        raise InputError(
            f"Row {int(np.argmin(good)) + 1} is not one-hot in its {block.source} columns, but every training row is: "
            "mend the row, or use Identity() if the columns are separate measurements."
        )
    return values.astype(np.float64)


@dataclass(frozen=True)
class OneHotStates(FeatureMap):
    """One-hot states: a column per level of a discrete state, or of each state column of whole numbers.

    With `n_states` declared (here or on the rows), d = n_states and R(s) = phi(s) . w has one parameter per state.
    Rows that are one-hot already are passed through.
    """

    kind: ClassVar[str] = "one_hot_states"
    n_states: int | None = None
    encoding: Encoding | None = None

    def __post_init__(self) -> None:
        _check_count("n_states", self.n_states)

    @property
    def is_fitted(self) -> bool:
        """Whether the levels are known."""
        return self.encoding is not None

    def _fit(self, rows: Demonstrations, progress: Progress = SILENT) -> "OneHotStates":
        return replace(self, encoding=learn_encoding(rows, "state", self.n_states))

    def _apply(self, rows: Demonstrations) -> Features:
        assert self.encoding is not None
        return self.encoding.apply(rows)

    def _columns(self) -> tuple[Column, ...]:
        assert self.encoding is not None
        return self.encoding.columns()


@dataclass(frozen=True)
class OneHotActions(FeatureMap):
    """One-hot actions: a column per level of a discrete action, or of each action column of whole numbers."""

    kind: ClassVar[str] = "one_hot_actions"
    n_actions: int | None = None
    encoding: Encoding | None = None

    def __post_init__(self) -> None:
        _check_count("n_actions", self.n_actions)

    @property
    def is_fitted(self) -> bool:
        """Whether the levels are known."""
        return self.encoding is not None

    def _fit(self, rows: Demonstrations, progress: Progress = SILENT) -> "OneHotActions":
        return replace(self, encoding=learn_encoding(rows, "action", self.n_actions))

    def _apply(self, rows: Demonstrations) -> Features:
        assert self.encoding is not None
        return self.encoding.apply(rows)

    def _columns(self) -> tuple[Column, ...]:
        assert self.encoding is not None
        return self.encoding.columns()


@dataclass(frozen=True)
class OneHot(FeatureMap):
    """One-hot states, and one-hot actions where the training rows have actions: `OneHotStates() + OneHotActions()`."""

    kind: ClassVar[str] = "one_hot"
    n_states: int | None = None
    n_actions: int | None = None
    parts: tuple[FeatureMap, ...] = ()

    def __post_init__(self) -> None:
        _check_count("n_states", self.n_states)
        _check_count("n_actions", self.n_actions)

    @property
    def is_fitted(self) -> bool:
        """Whether the levels are known."""
        return bool(self.parts)

    def _fit(self, rows: Demonstrations, progress: Progress = SILENT) -> "OneHot":
        states = OneHotStates(self.n_states)._fit(rows)
        if rows.actions is None:
            return replace(self, parts=(states,))
        return replace(self, parts=(states, OneHotActions(self.n_actions)._fit(rows)))

    def _apply(self, rows: Demonstrations) -> Features:
        refuse_new_actions(self, rows)
        return side_by_side(self.parts, rows)

    def _columns(self) -> tuple[Column, ...]:
        return columns_of(self.parts)


def refuse_new_actions(feature_map: FeatureMap, rows: Demonstrations) -> None:
    """A map of "everything there is" that never saw an action would drop these rows' actions without a word."""
    if rows.actions is not None and "action" not in feature_map.groups:
        raise InputError(
            f"The feature map {type(feature_map).__name__} was fitted on rows without actions, and these rows have "
            "actions: give both with actions, or both without."
        )


def _check_count(name: str, count: Any) -> None:
    if count is not None and (isinstance(count, bool) or not isinstance(count, int | np.integer) or count < 1):
        raise InputError(
            f"{name} = {count!r} must be a positive whole number, or None to learn the levels from the rows."
        )
