"""Columns of a `Table` -> checked arrays. Every complaint names the cell: file, row, line, column, what is there."""

from collections.abc import Sequence
from decimal import Decimal

import numpy as np
import polars as pl
from jaxtyping import Bool, Float, Int

from kdbirl.data.tables import Part, Table
from kdbirl.errors import InputError, did_you_mean, quoted

MISSING = ("", "na", "n/a", "nan", "null", "none")
INT64 = (pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.UInt8, pl.UInt16, pl.UInt32)  # what an int64 holds
TRUE, FALSE = ("true", "t", "yes", "1", "1.0"), ("false", "f", "no", "0", "0.0")


def is_text(series: pl.Series) -> bool:
    return series.dtype in (pl.String, pl.Categorical, pl.Enum)


def first_true(mask: pl.Series | np.ndarray) -> int:
    return int(np.argmax(np.asarray(mask)))


def numbers(table: Table, name: str) -> Float[np.ndarray, " rows"]:
    """A column as finite float64; text that is a number counts as one."""
    series = table.column(name)
    if is_text(series):
        values, foreign = parsed(table, name)
        if foreign.any():
            raise not_a_number(table, name, first_true(foreign))
    elif series.dtype.is_numeric() or series.dtype == pl.Boolean or series.dtype == pl.Null:
        values = series.cast(pl.Float64)
    else:
        raise InputError(f"{table.name}: the column {name!r} holds {series.dtype} values, not numbers.")
    array = values.to_numpy().astype(np.float64)
    check_finite(table, name, array)
    return array


def check_finite(table: Table, name: str, array: Float[np.ndarray, " rows"]) -> None:
    bad = ~np.isfinite(array)
    if bad.any():
        row = first_true(bad)
        kind = "missing (empty or NaN)" if np.isnan(array[row]) else "infinite"
        raise InputError(
            f"{table.place(row)}, column {name!r} is {kind}; every number must be finite: fill or drop that row."
        )


def not_a_number(table: Table, name: str, row: int, hint: str = "") -> InputError:
    shown = quoted(str(table.column(name)[row]))
    return InputError(f"{table.place(row)}, column {name!r} is {shown}, which is not a number.{hint}")


def parsed(table: Table, name: str) -> tuple[pl.Series, pl.Series]:
    """(numbers, null where there is none; which cells hold text that is neither a number nor a missing value)."""
    text = _number_text(table, name)
    values = text.cast(pl.Float64, strict=False)
    foreign = values.is_null() & ~text.fill_null("").str.to_lowercase().is_in(MISSING)
    return values, foreign


def _number_text(table: Table, name: str) -> pl.Series:
    """A column of text with a decimal point in its numbers."""
    text = table.column(name).cast(pl.String).str.strip_chars()
    if table.decimal_comma:
        commas = text.str.contains(",", literal=True).fill_null(False)
        if commas.any() and text.str.contains(".", literal=True).any() and _numeric(text):
            row = first_true(commas)
            raise InputError(
                f"{table.place(row)}, column {name!r} is {quoted(text[row])}, but other cells there have a decimal "
                f"point; use one or the other throughout."
            )
        text = text.str.replace(",", ".", literal=True)
    return text


def _numeric(text: pl.Series) -> bool:
    """Does the column consist of digits and signs only? (Labels such as "Smith, J." may mix commas and points.)"""
    return bool(text.str.contains(r"^[0-9.,eE+\-]*$").fill_null(True).all())


def matrix(table: Table, names: Sequence[str]) -> tuple[Float[np.ndarray, "rows width"], tuple[str, ...]]:
    """Several columns of numbers, or one column of lists of equal length, with the names of the result's columns."""
    if len(names) == 1 and table.column(names[0]).dtype in (pl.List, pl.Array):
        return _lists(table, names[0])
    return np.column_stack([numbers(table, name) for name in names]), tuple(names)


def _lists(table: Table, name: str) -> tuple[Float[np.ndarray, "rows width"], tuple[str, ...]]:
    try:
        series = table.column(name).cast(pl.List(pl.Float64))
    except pl.exceptions.PolarsError as error:
        raise InputError(f"{table.name}: the lists in column {name!r} do not hold numbers.") from error
    lengths = series.list.len().fill_null(0)
    odd = lengths != lengths[0]
    if odd.any() or lengths[0] == 0:
        row = first_true(odd)
        raise InputError(
            f"{table.place(row)}, column {name!r} has {lengths[row]} values, row 1 has {lengths[0]}: "
            f"vectors of different length, or empty ones, cannot be used."
        )
    width = int(lengths[0])
    values = series.explode().to_numpy().astype(np.float64).reshape(-1, width)
    for column in range(width):
        check_finite(table, f"{name}[{column}]", values[:, column])
    return values, tuple(f"{name}{i}" for i in range(width))


def labels(table: Table, name: str) -> pl.Series:
    """A column as labels: text, stripped; whole numbers without a decimal point, so 1, 1.0 and "1" agree."""
    series = table.column(name)
    if series.dtype.is_float() and (series.fill_nan(None).drop_nulls() % 1 == 0).all():
        text = _whole_text(series.fill_nan(None))
    elif series.dtype == pl.Duration:  # has no text in Polars
        text = series.to_physical().cast(pl.String)
    elif is_text(series) or series.dtype.is_numeric() or series.dtype == pl.Boolean or series.dtype.is_temporal():
        text = series.cast(pl.String)
    else:
        raise InputError(f"{table.name}: the column {name!r} holds {series.dtype} values, which cannot be labels.")
    if table.untyped:
        text = text.str.strip_chars()
        if text.str.contains(r"^-?\d+\.0+$").all():
            text = text.str.replace(r"\.0+$", "")
    check_filled(table, name, text.is_null() | (text == ""))
    return text


def _whole_text(series: pl.Series) -> pl.Series:
    """Whole floats as text: 1.0 is "1"; those that no integer holds, as they are."""
    whole = series.cast(pl.Int128, strict=False)
    return (whole if whole.null_count() == series.null_count() else series).cast(pl.String)


def check_filled(table: Table, name: str, empty: pl.Series) -> None:
    """InputError naming the first row without a label, if there is one."""
    if empty.any():
        raise InputError(f"{table.place(first_true(empty))}, column {name!r} is empty; every row needs a label there.")


def labels_of_values(table: Table, name: str) -> tuple[str, ...]:
    """The distinct labels of a column, sorted."""
    series = table.column(name)
    check_filled(table, name, series.is_null())
    return tuple(labels(_of_values(table, name, series.unique()), name).unique().sort().to_list())


def _of_values(table: Table, name: str, values: pl.Series) -> Table:
    """A table of the distinct values of one column; a complaint about them names only the table."""
    return Table(values.alias(name).to_frame(), (Part(table.name, len(values)),), table.columns, table.untyped)


def codes_of(table: Table, name: str, levels: Sequence[str]) -> Int[np.ndarray, " rows"]:
    """Position of each row's label in `levels`, -1 where it is not among them.

    Only distinct values are turned into text: a hundred million numbers would take minutes.
    """
    series = table.column(name)
    check_filled(table, name, series.is_null())
    if series.dtype.is_integer() and len(series):
        low, high = int(series.min()), int(series.max())  # type: ignore[arg-type]
        if high - low < 2**20 and low >= -(2**63) and high < 2**63:
            every = pl.Series(name, low + np.arange(high - low + 1))  # NumPy counts up to 2^63 in floats
            lookup = coded(every.cast(pl.String), levels)
            return lookup[series.cast(pl.Int64).to_numpy() - low]
    if series.dtype == pl.String and not table.untyped:
        known = coded(series, levels)
        if known.min(initial=0) >= 0:
            return known
    values = series.unique()
    codes = coded(labels(_of_values(table, name, values), name), levels)
    return series.replace_strict(values, pl.Series(codes), return_dtype=pl.Int64).to_numpy()


def coded(text: pl.Series, levels: Sequence[str]) -> Int[np.ndarray, " rows"]:
    """Position of each label in `levels`, -1 where it is not among them. Vectorised: no loop over rows."""
    codes = text.cast(pl.Enum(levels), strict=False).to_physical().cast(pl.Int64)
    return codes.fill_null(-1).to_numpy()


def flags(table: Table, name: str) -> Bool[np.ndarray, " rows"]:
    """true/false, yes/no or 1/0 per row."""
    series = table.column(name)
    if series.dtype == pl.Boolean and series.null_count() == 0:
        return series.to_numpy()
    text = series.cast(pl.String).str.strip_chars().str.to_lowercase()
    bad = ~text.fill_null("").is_in(TRUE + FALSE)
    if bad.any():
        row = first_true(bad)
        raise InputError(f"{table.place(row)}, column {name!r} is {quoted(series[row])}; expected true or false.")
    return text.is_in(TRUE).to_numpy()


def episodes(table: Table, name: str) -> Int[np.ndarray, " rows"]:
    """Whole numbers as they are; other labels numbered by first appearance."""
    text = labels(table, name)
    whole = text.cast(pl.Int64, strict=False)
    if whole.null_count() == 0 and (whole.cast(pl.String) == text).all():
        return whole.to_numpy()
    return coded(text, text.unique(maintain_order=True).to_list())


def steps(table: Table, name: str) -> np.ndarray:
    """Numbers that put the rows of an episode in the order of their steps or times, and are equal where these are.

    Never rounded: times in nanoseconds differ beyond what a float holds.
    """
    series = table.column(name)
    if (series.dtype.is_temporal() or series.dtype.is_integer() or series.dtype.is_decimal()) and series.null_count():
        row = first_true(series.is_null())
        raise InputError(f"{table.place(row)}, column {name!r} is missing; every row needs a step: fill or drop it.")
    if series.dtype.is_temporal():
        return series.to_physical().to_numpy()
    if series.dtype in INT64:
        return series.to_numpy().astype(np.int64)
    if series.dtype.is_integer() or series.dtype.is_decimal():
        return series.rank("dense").to_numpy().astype(np.int64)
    values = numbers(table, name)
    return _ranks_of_text(_number_text(table, name), values) if is_text(series) else values


def _ranks_of_text(text: pl.Series, values: Float[np.ndarray, " rows"]) -> np.ndarray:
    """The values of the text, or where some of them were rounded to one, the ranks of what is written there."""
    written = text.unique()
    if len(written) == len(np.unique(values)):
        return values
    exact = [Decimal(number) for number in written]
    rank = {number: place for place, number in enumerate(sorted(set(exact)))}
    return text.replace_strict(written, pl.Series([rank[number] for number in exact]), return_dtype=pl.Int64).to_numpy()


def outside_declared(table: Table, name: str, row: int, value: str, levels: Sequence[str]) -> InputError:
    near = did_you_mean(value, levels)
    return InputError(f"{table.place(row)}, column {name!r} is {quoted(value)}, outside the declared set.{near}")
