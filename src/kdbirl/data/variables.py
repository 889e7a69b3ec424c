"""Is a column discrete or continuous? The state and action columns of a table -> the fields of `Demonstrations`."""

from collections.abc import Collection, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

import numpy as np
import polars as pl
from jaxtyping import Float

from kdbirl.data import columns
from kdbirl.data.arrays import LARGEST_CODE
from kdbirl.data.tables import Table
from kdbirl.errors import InputError, quoted


def variable(
    table: Table,
    kind: str,
    names: Sequence[str],
    *,
    declared: int | None,
    levels: Collection[Any] | None = None,
    discrete: bool | None = None,
    single: bool = True,
    known: Sequence[str] | None = None,
) -> dict[str, Any]:
    """Fields of `Demonstrations` for the "state" or the "action" columns `names`.

    `declared`: number of levels; `levels`: the declared set itself; `discrete`: True or False decides, None looks at
    the column; `single`: the caller named one column, not a list (a list of one column of floats is a vector);
    `known`: the labels of the whole column, where these rows are only some of it.
    """
    labels = known
    if levels is not None:
        labels, declared = _declared_levels(kind, levels, declared)
    nested = table.column(names[0]).dtype in (pl.List, pl.Array)
    if len(names) > 1 or nested:
        if discrete or declared is not None:
            raise InputError(f"{kind}: a declared count or set needs one column of codes, not {list(names)}.")
        values, result_names = columns.matrix(table, names)
        return {f"{kind}s": values, f"{kind}_names": result_names}
    fields = _one_column(table, kind, names[0], declared, labels, discrete, single)
    return {f"{kind}_names": (names[0],)} | fields


def _declared_levels(
    kind: str, levels: Collection[Any], declared: int | None
) -> tuple[tuple[str, ...] | None, int | None]:
    """The declared set as labels (None when it is just the codes 0..n-1), and its size."""
    if len(levels) == 0:
        raise InputError(f"{kind}s: the declared set is empty; name its members, or leave it out.")
    if declared is not None and declared != len(levels):
        raise InputError(f"{kind}s: the declared set has {len(levels)} members, but the declared count is {declared}.")
    if all(isinstance(v, int | np.integer) for v in levels) and sorted(levels) == list(range(len(levels))):
        return None, len(levels)
    labels = tuple(str(v) for v in levels)
    if len(set(labels)) < len(labels):
        twice = next(label for label in labels if labels.count(label) > 1)
        raise InputError(f"{kind}s: the declared set names {quoted(twice)} twice; name each once.")
    # A set has no order of its own; sorted, the codes are the same in every process.
    return tuple(sorted(labels)) if isinstance(levels, AbstractSet) else labels, len(levels)


def _one_column(
    table: Table,
    kind: str,
    name: str,
    declared: int | None,
    levels: Sequence[str] | None,
    discrete: bool | None,
    single: bool,
) -> dict[str, Any]:
    if levels is not None or (discrete is not False and _holds_labels(table, name, kind, discrete)):
        return _labelled(table, kind, name, levels, declared)
    values = columns.numbers(table, name)
    if discrete is None:
        discrete = declared is not None or (kind == "action" and _looks_discrete(table, name, values, single))
    if not discrete:
        return {f"{kind}s": values[:, None]}
    return _codes(table, kind, name, values, declared)


def _holds_labels(table: Table, name: str, kind: str, discrete: bool | None) -> bool:
    """Typed text holds labels. A CSV column does if no cell is a number; a mixture is more likely a slip."""
    series = table.column(name)
    if not columns.is_text(series):
        return False
    if not table.untyped:
        return True
    values, foreign = columns.parsed(table, name)
    if foreign.any() and values.count() > 0 and not discrete:
        argument = "actions=[...] with all labels" if kind == "action" else "discrete_states=True"
        hint = f" If these are labels, say so with {argument}."
        raise columns.not_a_number(table, name, columns.first_true(foreign), hint)
    # "01" is a label: as a number it would no longer be equal to the text "01" of another table.
    leading_zero = series.str.contains(r"^\s*0\d").any() and (kind == "action" or bool(discrete))
    return bool(foreign.any() or leading_zero)


def _labelled(table: Table, kind: str, name: str, levels: Sequence[str] | None, declared: int | None) -> dict[str, Any]:
    series, text = table.column(name), columns.labels(table, name)
    if levels is None:
        # An Enum brings its own order; otherwise sorted, so that the order of the rows does not matter.
        enum = series.dtype if isinstance(series.dtype, pl.Enum) else None
        levels = text.unique().sort().to_list() if enum is None else enum.categories.to_list()
    codes = columns.coded(text, levels)
    if (codes < 0).any():
        row = columns.first_true(codes < 0)
        raise columns.outside_declared(table, name, row, text[row], levels)
    if declared is not None and len(levels) > declared:
        raise InputError(
            f"{table.name}, column {name!r} has {len(levels)} different labels, but {declared} were declared: "
            f"{list(levels)[:10]}."
        )
    return {f"{kind}s": codes, f"{kind}_labels": tuple(levels), f"n_{kind}s": declared}


def _looks_discrete(table: Table, name: str, values: Float[np.ndarray, " rows"], single: bool) -> bool:
    """Integers are codes. Whole, non-negative floats are too, unless the caller gave a list (= a vector)."""
    series = table.column(name)
    integers = series.dtype.is_integer() or series.dtype == pl.Boolean
    if table.untyped:
        integers = bool(series.str.contains(r"^\s*[+-]?\d+\s*$").all())
    whole = bool(((values == np.floor(values)) & (values >= 0) & (values < LARGEST_CODE)).all())
    return integers or (single and whole)


def _codes(
    table: Table, kind: str, name: str, values: Float[np.ndarray, " rows"], declared: int | None
) -> dict[str, Any]:
    large = np.abs(values) >= LARGEST_CODE
    if large.any():
        row = columns.first_true(large)
        raise InputError(
            f"{table.place(row)}, column {name!r} is {table.column(name)[row]}; discrete {kind}s are told apart up to "
            "2^53 alone: write numbers of that size as text that is not a number, such as 'a9007199254740993'."
        )
    broken = values != np.floor(values)
    if broken.any():
        row = columns.first_true(broken)
        raise InputError(
            f"{table.place(row)}, column {name!r} is {values[row]:g}; discrete {kind}s must be whole numbers or text."
        )
    codes = values.astype(np.int64)
    outside = (codes < 0) | (codes >= declared) if declared is not None else np.zeros(len(codes), dtype=bool)
    if outside.any():
        row = columns.first_true(outside)
        raise InputError(
            f"{table.place(row)}, column {name!r} is {codes[row]}, outside the declared set: "
            f"{declared} {kind}s are coded 0, 1, 2, ..."
        )
    if codes.min() < 0:  # codes start at 0, so negative numbers become labels, in their order
        levels, codes = np.unique(codes, return_inverse=True)
        return {f"{kind}s": codes, f"{kind}_labels": tuple(str(level) for level in levels)}
    return {f"{kind}s": codes, f"n_{kind}s": declared}
