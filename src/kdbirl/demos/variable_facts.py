"""What has to be known of the state or the action columns of all rows before any of them can be coded.

Whether a column is discrete, and the codes of its labels, must not depend on the block in which a row stands: a column
of whole floats with a single 0.5 is continuous, and labels are numbered over all rows. Facts of blocks merge.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Literal

import numpy as np
import polars as pl
from jaxtyping import Float

from kdbirl.demos import columns
from kdbirl.demos.arrays import LARGEST_CODE
from kdbirl.demos.moments import Moments
from kdbirl.demos.row_source import Roles
from kdbirl.demos.tables import Table
from kdbirl.demos.variables import variable
from kdbirl.errors import InputError, quoted

MOST_LEVELS = 10_000  # distinct whole numbers of a column that are kept; a column with more is a measurement

Kind = Literal["state", "action"]


@dataclass(frozen=True)
class Facts:
    """Facts about the state or the action columns of some rows.

    names: of the resulting columns. text: one column of labels. integers: one column of an integer type. whole: one
    column of whole numbers >= 0. levels: for each column its distinct labels or whole numbers, sorted; None: too many.
    """

    names: tuple[str, ...]
    text: bool
    integers: bool
    whole: bool
    levels: tuple[tuple[Any, ...] | None, ...]
    moments: Moments | None

    def merged(self, other: "Facts") -> "Facts":
        """Facts about both sets of rows."""
        levels = tuple(_union(ours, theirs) for ours, theirs in zip(self.levels, other.levels, strict=True))
        both = self.moments is not None and other.moments is not None
        return Facts(
            self.names,
            self.text,
            self.integers and other.integers,
            self.whole and other.whole,
            levels,
            self.moments.merged(other.moments) if both and self.moments and other.moments else None,
        )


def _union(ours: tuple[Any, ...] | None, theirs: tuple[Any, ...] | None) -> tuple[Any, ...] | None:
    if ours is None or theirs is None:
        return None
    both = ours if ours == theirs else tuple(sorted({*ours, *theirs}))
    return both if len(both) <= MOST_LEVELS or isinstance(both[0], str) else None


def merged_facts(parts: Sequence[Facts]) -> Facts:
    """Facts about all of them."""
    return reduce(Facts.merged, parts)


def facts_of(table: Table, names: Sequence[str], weights: Float[np.ndarray, " rows"] | None = None) -> Facts:
    """Facts about the rows of one block; a missing or infinite number is named. Row j may stand for `weights[j]`."""
    series = table.column(names[0])
    nested = series.dtype in (pl.List, pl.Array)
    if len(names) == 1 and not nested and columns.is_text(series):
        return Facts(tuple(names), True, False, False, (columns.labels_of_values(table, names[0]),), None)
    if nested:
        matrix, result = columns.matrix(table, names)
        values = list(matrix.T)
    else:
        values, result = [columns.numbers(table, name) for name in names], tuple(names)
    integers = len(names) == 1 and not nested and (series.dtype.is_integer() or series.dtype == pl.Boolean)
    moments = Moments.of(values) if weights is None else Moments.of_weighted(np.stack(values, axis=1), weights)
    levels = tuple(_levels(column, moments.column(i)) for i, column in enumerate(values))
    whole = levels[0] is not None or bool((values[0] == np.floor(values[0])).all())
    whole = len(result) == 1 and whole and bool(moments.low[0] >= 0 and moments.high[0] < LARGEST_CODE)
    return Facts(result, False, integers, whole, levels, moments)


def _levels(values: Float[np.ndarray, " rows"], moments: Moments) -> tuple[int, ...] | None:
    """The distinct values of a column of whole numbers; None where it is none, or has too many."""
    low, high = float(moments.low[0]), float(moments.high[0])
    if max(abs(low), abs(high)) >= LARGEST_CODE or (values[:4096] != np.floor(values[:4096])).any():
        return None
    if not (values == np.floor(values)).all():
        return None
    if high - low < 2**20:  # a table of what was seen is several times faster than sorting
        seen = np.zeros(int(high - low) + 1, dtype=bool)
        seen[(values - low).astype(np.int64)] = True
        found = np.flatnonzero(seen) + int(low)
    else:
        found = np.unique(values).astype(np.int64)
    return tuple(found.tolist()) if len(found) <= MOST_LEVELS else None


@dataclass(frozen=True)
class Coding:
    """How the state or the action columns of every block are read: `labels` of a discrete column, where it has some."""

    kind: Kind
    columns: tuple[str, ...]
    names: tuple[str, ...]
    declared: int | None
    levels: tuple[Any, ...] | None
    discrete: bool
    single: bool
    labels: tuple[str, ...] | None

    @classmethod
    def of(cls, kind: Kind, roles: Roles, facts: Facts, dtype: Any) -> "Coding":
        """Decided over all rows, by the rules of `variable`."""
        is_state = kind == "state"
        asked, names = (roles.state, roles.state_names) if is_state else (roles.action, roles.action_names)
        declared = roles.n_states if is_state else roles.n_actions
        given = None if is_state else roles.actions
        discrete = roles.discrete_states if is_state else None
        single = True if is_state else roles.single_action
        labels: tuple[str, ...] | None = None
        if facts.text and discrete is not False and given is None:
            labels = tuple(dtype.categories.to_list()) if isinstance(dtype, pl.Enum) else facts.levels[0]
        looks_discrete = facts.integers or (single and facts.whole)
        is_discrete = given is not None or labels is not None or bool(discrete)
        if not is_discrete and discrete is None and len(asked) == 1:
            is_discrete = declared is not None or (not is_state and looks_discrete)
        negative = facts.moments is not None and facts.moments.low[0] < 0
        if is_discrete and negative and declared is None and given is None:
            if facts.levels[0] is None:
                raise InputError(
                    f"Column {quoted(asked[0])}: a bank that is read block by block can tell {MOST_LEVELS:,} discrete "
                    f"{kind}s apart where they are not counted from 0, and here are more. Number them from 0."
                )
            labels = tuple(str(level) for level in facts.levels[0])
        return cls(kind, asked, names or asked, declared, given, is_discrete, single, labels)

    def fields(self, table: Table) -> dict[str, Any]:
        """The fields of `Demonstrations` for the rows of one block."""
        found = variable(
            table,
            self.kind,
            self.columns,
            declared=self.declared,
            levels=self.levels,
            discrete=self.discrete if len(self.columns) == 1 else None,
            single=self.single,
            known=self.labels,
        )
        own = found.get(f"{self.kind}_names", ())
        return found | {f"{self.kind}_names": self.names} if len(own) == len(self.names) else found
