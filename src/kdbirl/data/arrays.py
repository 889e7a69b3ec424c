"""From anything array-like to checked, read-only arrays. Every complaint names the row (1-based) and the column."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from kdbirl.errors import InputError, did_you_mean, quoted

# Above this, neighbouring floats are more than one apart: "integral" says nothing any more.
LARGEST_CODE = 2.0**53


def is_frame(value: object) -> bool:
    """Is it a Polars or pandas frame? (asked without importing either)"""
    kind = type(value)
    return kind.__module__.split(".")[0] in ("polars", "pandas") and kind.__name__ in ("DataFrame", "LazyFrame")


def collected(value: Any) -> Any:
    """A lazy Polars frame with its rows; anything else as it is."""
    return value.collect() if is_frame(value) and type(value).__name__ == "LazyFrame" else value


def frozen(array: np.ndarray) -> np.ndarray:
    """A read-only copy: nobody's later assignment reaches a validated object."""
    copy: np.ndarray = np.array(array, order="C")
    copy.setflags(write=False)
    return copy


def as_array(values: Any, what: str) -> np.ndarray:
    """Lists, frames, series, JAX arrays -> NumPy; ragged or masked input is an error."""
    if np.ma.isMaskedArray(values) and np.ma.is_masked(values):
        raise InputError(f"{what}: the array has masked entries; fill or drop them first.")
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise InputError(f"{what}: the rows have different lengths; give a rectangular array.") from error
    if array.dtype.kind == "f" and isinstance(values, list | tuple) and (np.abs(array) >= LARGEST_CODE).any():
        whole = np.asarray(values, dtype=object)  # NumPy rounds a list of whole numbers beyond int64
        array = whole if _holds_integers(whole) else array
    if array.dtype.kind in "cmMV":
        raise InputError(f"{what}: {array.dtype} values are not numbers; convert them to numbers first.")
    if array.ndim not in (1, 2):
        raise InputError(f"{what}: expected an array (rows,) or (rows, columns), got shape {array.shape}.")
    if array.shape[0] == 0:
        raise InputError(f"{what}: there are no rows; at least one is needed.")
    if array.size == 0:
        raise InputError(f"{what}: there are no columns; at least one is needed.")
    if is_text(array):
        refuse_missing_labels(values if isinstance(values, list | tuple) else array, what)
    return array


def refuse_missing_labels(values: Any, what: str) -> None:
    """None and NaN would become labels of their own: 'None', 'nan'."""
    if isinstance(values, np.ndarray) and values.dtype.kind not in "Of":
        return
    for row, value in enumerate(values):
        if value is None or (isinstance(value, float) and value != value):
            raise InputError(f"{what}: row {row + 1} is missing ({value}); every row needs a label: fill or drop it.")


def is_text(array: np.ndarray) -> bool:
    """Text by dtype, or an object array that holds a string."""
    return array.dtype.kind in "UST" or (array.dtype.kind == "O" and any(isinstance(v, str) for v in array.flat))


def _holds_integers(array: np.ndarray) -> bool:
    """Integers by dtype, or an object array of nothing else."""
    return array.dtype.kind in "iu" or (
        array.dtype.kind == "O" and all(isinstance(v, int | np.integer) for v in array.flat)
    )


def as_numbers(array: np.ndarray, names: Sequence[str], what: str) -> Float[np.ndarray, "rows columns"]:
    """float64 (rows, columns), finite; the first cell that is not is named."""
    table = array.reshape(len(array), -1)
    try:
        numbers = table.astype(np.float64)
    except (ValueError, TypeError):
        row, column = next(i for i in np.ndindex(table.shape) if not _is_number(table[i]))
        name = names[column] if column < len(names) else str(column)
        shown = quoted(str(table[row, column]))
        raise InputError(f"{what}: row {row + 1}, column {name!r} is {shown}, which is not a number.") from None
    check_finite(numbers, names, what)
    return numbers + 0.0  # -0.0 becomes 0.0: equal rows must have equal bytes


def _is_number(cell: object) -> bool:
    try:
        float(cell)  # type: ignore[arg-type]
    except (ValueError, TypeError):
        return cell is None
    return True


def check_finite(numbers: Float[np.ndarray, "rows columns"], names: Sequence[str], what: str) -> None:
    """InputError naming the first NaN or infinite cell, if there is one."""
    bad = ~np.isfinite(numbers)
    if bad.any():
        row, column = divmod(int(bad.argmax()), numbers.shape[1])
        name = names[column] if column < len(names) else str(column)
        kind = "NaN (missing)" if np.isnan(numbers[row, column]) else "infinite"
        raise InputError(
            f"{what}: row {row + 1}, column {name!r} is {kind}; every number must be finite: fill or drop that row."
        )


def holds_codes(array: np.ndarray, whole_floats: bool) -> bool:
    """One dimension of integers or text, or (`whole_floats`) of floats that are all whole and not negative."""
    if array.ndim != 1:
        return False
    if array.dtype.kind in "iub" or is_text(array):
        return True
    if not whole_floats or array.dtype.kind != "f":
        return False
    return bool(np.all((array == np.floor(array)) & (array >= 0) & (array < LARGEST_CODE)))


def as_codes(
    array: np.ndarray, labels: Sequence[str] | None, declared: int | None, what: str
) -> tuple[Int[np.ndarray, " rows"], tuple[str, ...] | None]:
    """Discrete values -> (codes (rows,) int64 from 0, labels). Text is coded by `labels`, or by its sorted values."""
    column = array.reshape(len(array), -1)
    if column.shape[1] != 1:
        raise InputError(
            f"{what}: declared as discrete, but the array has {column.shape[1]} columns; give one column of codes."
        )
    column = column[:, 0]
    if is_text(column):
        codes, labels = _text_codes(column.astype(str), labels, what)
    else:
        codes = number_codes(column, what)
    check_codes(codes, labels, declared, what)
    return codes, None if labels is None else tuple(labels)


def _text_codes(
    text: np.ndarray, labels: Sequence[str] | None, what: str
) -> tuple[Int[np.ndarray, " rows"], Sequence[str]]:
    levels, inverse = np.unique(text, return_inverse=True)
    if levels[0] == "":
        raise InputError(f"{what}: row {int((text == '').argmax()) + 1} is empty; every row needs a label.")
    if labels is None:
        return inverse.astype(np.int64), tuple(str(level) for level in levels)
    position = {label: code for code, label in enumerate(labels)}
    lookup = np.array([position.get(str(level), -1) for level in levels], dtype=np.int64)
    codes = lookup[inverse]
    if (codes < 0).any():
        row = int((codes < 0).argmax())
        value = str(text[row])
        raise InputError(
            f"{what}: row {row + 1} is {quoted(value)}, not a declared label.{did_you_mean(value, labels)}"
        )
    return codes, labels


def number_codes(column: np.ndarray, what: str) -> Int[np.ndarray, " rows"]:
    """Whole numbers as int64; integers are never rounded on the way."""
    if _holds_integers(column):
        outside = ~_fits_int64(column)
        if outside.any():
            row = int(outside.argmax())
            raise InputError(f"{what}: row {row + 1} is {column[row]}, beyond what an int64 holds; give it as text.")
    elif column.dtype.kind in "Of":
        column = as_numbers(column, (what,), what)[:, 0]
        whole = column == np.floor(column)
        if not whole.all():
            row = int((~whole).argmax())
            raise InputError(f"{what}: row {row + 1} is {column[row]:g}; discrete values must be whole numbers.")
        if not (np.abs(column) < LARGEST_CODE).all():
            row = int((np.abs(column) >= LARGEST_CODE).argmax())
            raise InputError(
                f"{what}: row {row + 1} is {column[row]:.0f}, a float, which is rounded from 2^53 on; give numbers of "
                "that size as integers, or as text."
            )
    return column.astype(np.int64)


def _fits_int64(integers: np.ndarray) -> Bool[np.ndarray, " rows"]:
    largest = np.iinfo(np.int64).max
    if integers.dtype.kind == "i":
        return np.ones(len(integers), dtype=bool)
    return np.asarray((integers <= largest) & (integers >= -largest - 1), dtype=bool)


def check_codes(codes: np.ndarray, labels: Sequence[str] | None, declared: int | None, what: str) -> None:
    """Codes start at 0 and stay below the declared count and the number of labels."""
    if labels is not None and len(set(labels)) != len(labels):
        raise InputError(f"{what}: the labels {list(labels)} are not distinct.")
    if declared is not None and declared < 1:
        raise InputError(f"{what}: the declared count is {declared}; it must be at least 1.")
    if labels is not None and declared is not None and len(labels) > declared:
        raise InputError(f"{what}: {len(labels)} different labels, but only {declared} were declared: {list(labels)}.")
    limit = declared if labels is None else len(labels)
    if codes.min() < 0 or (limit is not None and codes.max() >= limit):
        outside = (codes < 0) if limit is None else (codes < 0) | (codes >= limit)
        row = int(outside.argmax())
        allowed = "0, 1, 2, ..." if limit is None else f"0 to {limit - 1}"
        raise InputError(f"{what}: row {row + 1} is {int(codes[row])}; codes must be {allowed}.")


def as_flags(values: Any, rows: int, what: str) -> Bool[np.ndarray, " rows"] | None:
    """True/false per row (0 and 1 count), or None."""
    if values is None:
        return None
    array = as_array(values, what)
    check_length(array, rows, what)
    if array.ndim != 1 or not (array.dtype.kind == "b" or np.isin(array, (0, 1)).all()):
        raise InputError(f"{what}: expected one true/false value per row.")
    return frozen(array.astype(bool))


def as_episodes(values: Any, rows: int) -> Int[np.ndarray, " rows"]:
    """Episode numbers (rows,) int64, zeros when not given; text, and what no int64 holds, by first appearance."""
    if values is None:
        return frozen(np.zeros(rows, dtype=np.int64))
    array = as_array(values, "episodes")
    check_length(array, rows, "episodes")
    if array.ndim != 1:
        raise InputError(f"episodes: expected one value per row, got shape {array.shape}.")
    if is_text(array) or (_holds_integers(array) and not _fits_int64(array).all()):
        _, first, inverse = np.unique(array.astype(str), return_index=True, return_inverse=True)
        return frozen(np.argsort(np.argsort(first))[inverse].astype(np.int64))
    return frozen(number_codes(array, "episodes"))


def check_length(array: np.ndarray, rows: int, what: str) -> None:
    """One value per row of the states."""
    if len(array) != rows:
        raise InputError(f"{what}: {len(array)} rows, but the states have {rows}; they must match row by row.")


def column_names(given: Sequence[str], width: int, default: Sequence[str], what: str) -> tuple[str, ...]:
    """The given names, checked for number and repetition, or the default ones."""
    names = tuple(str(name) for name in given) or tuple(default)
    if len(names) != width:
        raise InputError(f"{what}: {len(names)} names for {width} columns: {list(names)}.")
    if len(set(names)) != len(names):
        raise InputError(f"{what}: the names {list(names)} are not distinct.")
    return names


# Mean, variance and range of columns, from parts of the rows.


@dataclass(frozen=True)
class Moments:
    """Count, mean, sum of squared deviations, lowest and highest of each of some columns."""

    count: int
    mean: Float[np.ndarray, " width"]
    squares: Float[np.ndarray, " width"]
    low: Float[np.ndarray, " width"]
    high: Float[np.ndarray, " width"]

    @classmethod
    def of(cls, columns: Sequence[Float[np.ndarray, " rows"]]) -> "Moments":
        """Of columns with at least one row; deviations are from the first row, so that squares stay small."""
        first = np.array([column[0] for column in columns])
        shifted = [column - start for column, start in zip(columns, first, strict=True)]
        shift = np.array([column.mean() for column in shifted])
        squares = np.array([float(column @ column) for column in shifted]) - len(columns[0]) * shift**2
        low, high = (np.array([float(edge(column)) for column in columns]) for edge in (np.min, np.max))
        return cls(len(columns[0]), first + shift, np.maximum(squares, 0.0), low, high)

    @classmethod
    def of_weighted(cls, values: Float[np.ndarray, "rows width"], weights: Float[np.ndarray, " rows"]) -> "Moments":
        """Of rows that occur `weights` times each."""
        mean = np.average(values, axis=0, weights=weights)
        squares = weights @ (values - mean) ** 2
        return cls(int(weights.sum()), mean, squares, values.min(axis=0), values.max(axis=0))

    def merged(self, other: "Moments") -> "Moments":
        """Of both sets of rows (Chan, Golub and LeVeque)."""
        count = self.count + other.count
        gap = other.mean - self.mean
        mean = self.mean + gap * (other.count / count)
        squares = self.squares + other.squares + gap**2 * (self.count * other.count / count)
        return Moments(count, mean, squares, np.minimum(self.low, other.low), np.maximum(self.high, other.high))

    def column(self, index: int) -> "Moments":
        """Those of one column."""
        at = slice(index, index + 1)
        return Moments(self.count, self.mean[at], self.squares[at], self.low[at], self.high[at])
