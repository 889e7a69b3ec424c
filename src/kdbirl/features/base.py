"""The interface of every feature map phi(s, a): rows -> (rows, d), and concatenation.

A map is a frozen object. `fit` returns a *new*, fitted map and leaves the old one as it was; a fitted map works on each
row by itself, so phi of some rows is the same whatever other rows stand beside them. A new map is a frozen dataclass
with `_fit`, `_apply`, `_columns`, `is_fitted` and a `kind`, entered in the table of `named.py`.
"""

import base64
import binascii
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
from jaxtyping import Float64, Int64

from kdbirl.data.arrays import Moments
from kdbirl.data.demonstrations import Demonstrations, TaskBank
from kdbirl.errors import InputError
from kdbirl.progress import Progress, Silent

Features = Float64[np.ndarray, "rows d"]
SILENT: Progress = Silent()


@dataclass(frozen=True)
class Column:
    """One feature: its name, what it is computed from, and whether it takes finitely many values by construction."""

    name: str
    source: Literal["state", "action", "mixed"]
    discrete: bool = False


class FeatureMap(ABC):
    """phi(s, a). See the module's text for what a subclass gives."""

    kind: ClassVar[str]
    code_field: ClassVar[str | None] = None  # the field that holds Python code, which is never written to a file

    @property
    @abstractmethod
    def is_fitted(self) -> bool:
        """Whether the map can be called."""

    @abstractmethod
    def _fit(self, rows: Demonstrations, progress: Progress = SILENT) -> "FeatureMap":
        """A fitted copy; maps that learn for long tell `progress`."""

    @abstractmethod
    def _apply(self, rows: Demonstrations) -> Features:
        """phi of the rows, as a new array; the map is fitted."""

    @abstractmethod
    def _columns(self) -> tuple[Column, ...]:
        """What the d features are; the map is fitted."""

    def fit(self, demonstrations: Demonstrations | TaskBank, progress: Progress | None = None) -> "FeatureMap":
        """A new map that has learnt from the training rows what there is to learn (levels, means, networks)."""
        rows = _rows(demonstrations)
        if isinstance(
            demonstrations, TaskBank
        ):  # tasks number their episodes alike: what holds out whole ones must not
            rows = replace(rows, episodes=demonstrations.episode_index)
        return self._fit(rows, progress or SILENT)

    def __call__(self, demonstrations: Demonstrations | TaskBank) -> Features:
        """phi of each row: (rows, d) float64, all finite."""
        self._require_fitted()
        rows = _rows(demonstrations)
        # A value beyond 1e308 is refused below with its row and column, which says more than NumPy's warning.
        with np.errstate(over="ignore", invalid="ignore"):
            features = self._apply(rows)
        return refuse_not_finite(features, self.names, f"The feature map {type(self).__name__}")

    def with_moments(self, moments_of: "Callable[[FeatureMap], Moments]") -> "FeatureMap":
        """A fitted map whose means and scales, if it has any, are those of *all* rows.

        For a map that was fitted on a sample: `moments_of` gives the moments of another map's features over all rows.
        """
        return self

    def distinct(
        self, demonstrations: Demonstrations | TaskBank
    ) -> tuple[Float64[np.ndarray, "distinct d"], Int64[np.ndarray, " rows"]]:
        """(features of the distinct rows, index): `features[index]` equals `self(demonstrations)`.

        Rows of discrete states and actions are collapsed *before* they are mapped: a million rows over 700 one-hot
        states need no matrix of a million by 700. Other rows are not compared. They come back as they stand, like
        discrete ones of which none repeats: the index then counts from 0.
        """
        rows = _rows(demonstrations)
        if not rows.discrete_states or not (rows.actions is None or rows.discrete_actions):
            return self(rows), np.arange(rows.n_rows)
        pair = np.unique(rows.states, return_inverse=True)[1].astype(np.int64)
        if rows.actions is not None:
            levels, action = np.unique(rows.actions, return_inverse=True)
            pair = pair * len(levels) + action  # of ranks and not of codes, whose product might overflow
        _, first, index = np.unique(pair, return_index=True, return_inverse=True)
        if len(first) == rows.n_rows:  # callers then use the rows without the index
            return self(rows), np.arange(rows.n_rows)
        return self(rows.take(first)), index.astype(np.int64)

    def of_pairs(
        self, states: Float64[np.ndarray, "S width"], n_actions: int, state_names: tuple[str, ...]
    ) -> tuple["FeatureMap", Float64[np.ndarray, "S A d"]]:
        """phi of every state with every action, for a tabular world whose states have covariates; the map, too.

        A map that is not fitted learns from these pairs; those of one state are an episode, so that what is held out
        of learning are whole states.
        """
        state, action = np.divmod(np.arange(len(states) * n_actions), n_actions)
        rows = Demonstrations(states[state], action, episodes=state, state_names=state_names, n_actions=n_actions)
        fitted = self if self.is_fitted else self.fit(rows)
        return fitted, fitted(rows).reshape(len(states), n_actions, -1)

    @property
    def names(self) -> tuple[str, ...]:
        """The d features' names."""
        return tuple(column.name for column in self._fitted_columns())

    @property
    def groups(self) -> dict[str, tuple[int, ...]]:
        """Indices of the features computed from the "state", the "action", or both ("mixed"); no group is empty."""
        groups: dict[str, list[int]] = {}
        for index, column in enumerate(self._fitted_columns()):
            groups.setdefault(column.source, []).append(index)
        return {source: tuple(groups[source]) for source in ("state", "action", "mixed") if source in groups}

    @property
    def discrete_columns(self) -> tuple[int, ...]:
        """Indices of the features that take finitely many values by construction (one-hot codes, grid coordinates)."""
        return tuple(index for index, column in enumerate(self._fitted_columns()) if column.discrete)

    @property
    def discrete(self) -> bool:
        """Whether every feature takes finitely many values by construction."""
        return all(column.discrete for column in self._fitted_columns())

    def __add__(self, other: "FeatureMap") -> "Concatenated":
        """`a + b`: the features of a, then those of b."""
        if not isinstance(other, FeatureMap):
            return NotImplemented
        return Concatenated((*_flattened(self), *_flattened(other)))

    def to_spec(self) -> dict[str, Any]:
        """The map as JSON-able values, for `features.from_spec`; what it learnt is included, exactly.

        Python code cannot be written down: of a function or transformer only its name is, and the same object is given
        again when loading, `from_spec(spec, functions={name: object})`. So two of them may not share a name.
        """
        seen: dict[str, Any] = {}
        for name, code in _python_code(self):
            if seen.setdefault(name, code) is not code:
                raise InputError(
                    f"Two different Python objects in this feature map are called {name!r}, so the map could not be "
                    "loaded again: give each its own name, as in Function(f, name='speed')."
                )
        spec: dict[str, Any] = _encoded(self)
        return spec

    def _fitted_columns(self) -> tuple[Column, ...]:
        self._require_fitted()
        return self._columns()

    def _require_fitted(self) -> None:
        if not self.is_fitted:
            raise InputError(
                f"The feature map {type(self).__name__} is not fitted yet: use the map that its fit(bank) returns (fit "
                "does not change the map itself)."
            )


@dataclass(frozen=True)
class Concatenated(FeatureMap):
    """phi = [phi_1, phi_2, ...]: the features of several maps side by side; written `phi_1 + phi_2`."""

    kind: ClassVar[str] = "concatenated"
    parts: tuple[FeatureMap, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "parts", tuple(self.parts))
        if not self.parts:
            raise InputError("A concatenation needs at least one feature map.")

    @property
    def is_fitted(self) -> bool:
        """Whether every part is."""
        return all(part.is_fitted for part in self.parts)

    def _fit(self, rows: Demonstrations, progress: Progress = SILENT) -> "Concatenated":
        return Concatenated(tuple(part._fit(rows, progress) for part in self.parts))

    def with_moments(self, moments_of: "Callable[[FeatureMap], Moments]") -> "Concatenated":
        """Each part's."""
        return Concatenated(tuple(part.with_moments(moments_of) for part in self.parts))

    def _apply(self, rows: Demonstrations) -> Features:
        return side_by_side(self.parts, rows)

    def _columns(self) -> tuple[Column, ...]:
        return columns_of(self.parts)


def side_by_side(parts: tuple[FeatureMap, ...], rows: Demonstrations) -> Features:
    """The features of several fitted maps, as one matrix."""
    return np.concatenate([part._apply(rows) for part in parts], axis=1)


def columns_of(parts: tuple[FeatureMap, ...]) -> tuple[Column, ...]:
    """What the features of several fitted maps are."""
    return tuple(column for part in parts for column in part._columns())


def refuse_not_finite(features: Features, names: tuple[str, ...], what: str) -> Features:
    """The features, or an InputError with the first row and column that is NaN or infinite."""
    finite = np.isfinite(features)
    if not finite.all():
        row, column = np.argwhere(~finite)[0]
        raise InputError(
            f"{what} gives {features[row, column]} in row {row + 1}, column {names[column]!r}; every feature must be a "
            "finite number: mend the value or leave the row out."
        )
    return features


def _rows(demonstrations: Demonstrations | TaskBank) -> Demonstrations:
    return demonstrations.demonstrations if isinstance(demonstrations, TaskBank) else demonstrations


def _flattened(feature_map: FeatureMap) -> tuple[FeatureMap, ...]:
    return feature_map.parts if isinstance(feature_map, Concatenated) else (feature_map,)


def _python_code(value: Any) -> Iterator[tuple[str, Any]]:
    """(name, object) of every function or transformer inside a map."""
    code_field = getattr(value, "code_field", None)
    if code_field is not None:
        yield value.name, getattr(value, code_field)
    inside = value if isinstance(value, tuple) else _kept(value).values() if is_dataclass(value) else ()
    for item in inside:
        yield from _python_code(item)


def _kept(value: Any) -> dict[str, Any]:
    """The fields of a map or of a part of one, but for Python code."""
    code_field = getattr(value, "code_field", None)
    return {field.name: getattr(value, field.name) for field in fields(value) if field.name != code_field}


def _encoded(value: Any) -> Any:
    """Frozen dataclasses as objects with their `kind`, tuples as lists; JSON reads the floats back equal."""
    if isinstance(value, tuple):
        return [_encoded(item) for item in value]
    if not is_dataclass(value):
        return value
    kind = getattr(value, "kind")  # noqa: B009 (mypy knows only that it is a dataclass)
    return {"kind": kind, **{name: _encoded(item) for name, item in _kept(value).items()}}


# Matrix products for rows in blocks of one size, so that phi of a row does not depend on the rows beside it.
#
# A matrix product rounds differently for other numbers of rows, in the last digit. Always the same shape (the last
# block is filled up with zeros) gives a row the same bits wherever it stands, and bounds the memory of hidden layers.

ROWS = 1024  # 1024 rows of 100 units are 0.8 MB, which stays in the cache
Matrix = Float64[np.ndarray, "rows _"]


def in_row_blocks(function: Callable[[Matrix], Matrix], rows: Float64[np.ndarray, "rows d"]) -> Matrix:
    """`function(rows)`, for a function that maps each row by itself: (1024, d) -> (1024, o)."""
    blocks = [_filled_up(rows[start : start + ROWS]) for start in range(0, max(len(rows), 1), ROWS)]
    return np.concatenate([function(block) for block in blocks])[: len(rows)]


def _filled_up(block: Float64[np.ndarray, "some d"]) -> Float64[np.ndarray, "1024 d"]:
    filled = np.zeros((ROWS, block.shape[1]))
    filled[: len(block)] = block
    return filled


# An array of numbers inside a feature map: frozen, comparable, and exact in a JSON text (base64 of its bytes).

Precision = Literal["float32", "float64"]


@dataclass(frozen=True)
class StoredArray:
    """`shape` and `precision` of the values, which are kept as the base64 text of their little-endian bytes.

    A third of the size of decimal numbers in JSON, quicker to read, and equal to the last bit.
    """

    kind: ClassVar[str] = "array"
    shape: tuple[int, ...]
    precision: Precision
    base64: str = field(repr=False)

    @classmethod
    def of(cls, values: Any, precision: Precision = "float64") -> "StoredArray":
        """Keep a copy of an array."""
        array = np.asarray(values)
        stored = np.ascontiguousarray(array, dtype=_little_endian(precision))
        return cls(array.shape, precision, base64.b64encode(stored.tobytes()).decode("ascii"))

    @cached_property
    def values(self) -> np.ndarray:
        """The array in double precision, read-only."""
        try:
            content = base64.b64decode(self.base64, validate=True)
            array = np.frombuffer(content, dtype=_little_endian(self.precision)).reshape(self.shape)
        except (binascii.Error, ValueError, TypeError) as problem:
            raise InputError(
                f"The description of an array of shape {self.shape} in a feature map is damaged: save the map again."
            ) from problem
        wide = array.astype(np.float64)
        wide.setflags(write=False)
        return wide


def _little_endian(precision: Precision) -> np.dtype[Any]:
    return np.dtype({"float32": "<f4", "float64": "<f8"}[precision])
