"""What some rows of a streamed bank tell: `PieceSummary`, which merges with those of others."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, Literal

import numpy as np
import polars as pl
from jaxtyping import Float, Int

from kdbirl.data import columns
from kdbirl.data.arrays import LARGEST_CODE, Moments
from kdbirl.data.columns import is_text
from kdbirl.data.large_counts import WEIGHT, GridCounts
from kdbirl.data.large_rows import Roles
from kdbirl.data.large_samples import KEY, TASK, few_plays, not_too_many, rates_of, thinned
from kdbirl.data.tables import Part, Table
from kdbirl.data.variables import variable
from kdbirl.errors import InputError, quoted
from kdbirl.random_streams import stream

# What has to be known of the state or the action columns of all rows before any of them can be coded.
#
# Whether a column is discrete, and the codes of its labels, must not depend on the block in which a row stands: a
# column of whole floats with a single 0.5 is continuous, and labels are numbered over all rows. Facts of blocks merge.

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


DISTINCT_KEPT = 2**18  # distinct (task, state, action) up to which a bank is kept as counts of them


@dataclass(frozen=True)
class PieceSummary:
    """Facts about some rows of a bank; `merged` gives those of more rows.

    rows_per_task `(K,)`; unknown: labels of tasks without a reward; facts: of the state and the action columns.
    distinct: the rows as counts of the distinct ones, while these are few; else None, and then
    sample: rows with keys below `rates (K,)`; cover: for each level of a column some row that has it.
    plays: rows in whole episodes. All as they stand in the table, with the task's number.
    place: the piece of the first of the rows, and how many rows of it stand before.
    """

    rows_per_task: Int[np.ndarray, " K"]
    unknown: tuple[str, ...]
    facts: tuple[Facts, ...]
    distinct: GridCounts | pl.DataFrame | None
    sample: pl.DataFrame | None
    rates: Float[np.ndarray, " K"]
    cover: pl.DataFrame | None
    plays: pl.DataFrame
    seed: int
    variables: tuple[tuple[str, ...], ...]
    n_rows: int | None
    place: tuple[int, int]

    def merged(self, other: "PieceSummary") -> "PieceSummary":
        """Of both; merging is associative, in the order of the pieces."""
        self._check_alike(other)
        rows_per_task = self.rows_per_task + other.rows_per_task
        both = replace(
            self,
            rows_per_task=rows_per_task,
            unknown=tuple(dict.fromkeys([*self.unknown, *other.unknown])),
            plays=few_plays(pl.concat([self.plays, other.plays], how="vertical_relaxed"), len(rows_per_task)),
        )
        distinct = _merged_counts(self.distinct, other.distinct)
        if distinct is not None:
            return replace(both, distinct=distinct)
        parts = [self.sampled(), other.sampled()]
        rates = np.minimum(parts[0].rates, parts[1].rates)
        samples = [thinned(part.sample, rates) for part in parts if part.sample is not None]
        sample, rates = not_too_many(pl.concat(samples, how="vertical_relaxed"), rates)
        cover = pl.concat([part.cover for part in parts if part.cover is not None], how="vertical_relaxed")
        facts = tuple(ours.merged(theirs) for ours, theirs in zip(parts[0].facts, parts[1].facts, strict=True))
        both = replace(both, facts=facts, distinct=None, sample=sample, rates=rates)
        return replace(both, cover=cover_of(cover, self.columns))

    def _check_alike(self, other: "PieceSummary") -> None:
        """The same columns hold text, so that a bank is read alike whether or not its distinct rows are few."""
        ours, theirs = self._text(), other._text()
        for name in self.columns:
            if (name in ours) != (name in theirs):
                here, there = ("text", "numbers") if name in theirs else ("numbers", "text")
                raise InputError(
                    f"Column {quoted(name)} holds {here} in piece {other.place[0]} of the table (counted from 0), but "
                    f"{there} before it; give it one type in all of them."
                )

    def _text(self) -> set[str]:
        """The columns of text."""
        if isinstance(self.distinct, GridCounts):
            return set()
        return {name for name in self.columns if is_text(self.frame[name])}

    def counted(self) -> "PieceSummary":
        """With the facts that counted rows tell."""
        if self.distinct is None or self.facts:
            return self
        frame = _as_frame(self.distinct)
        table = Table(frame, (Part("the counted rows", frame.height),), tuple(frame.columns))
        weights = frame[WEIGHT].to_numpy().astype(np.float64)
        return replace(self, facts=tuple(facts_of(table, own, weights) for own in self.variables))

    def sampled(self) -> "PieceSummary":
        """As a sample of rows where they are counted: as many of each kind as a draw of single rows would give."""
        if self.distinct is None:
            return self
        frame, rates = _as_frame(self.distinct), rates_of(self.rows_per_task, self.n_rows)
        rng = np.random.default_rng(stream(self.seed, "sample of counted rows", *self.place))  # other rows, other draws
        drawn = rng.binomial(frame[WEIGHT].to_numpy(), rates[frame[TASK].to_numpy()])
        index = np.repeat(np.arange(len(drawn)), drawn)
        sample = frame[index].drop(WEIGHT)
        below = rates[sample[TASK].to_numpy()] * rng.random(len(index))
        sample = sample.with_columns(pl.Series(KEY, (below * 2.0**64).astype(np.uint64)))
        counted = self.counted()
        cover = cover_of(frame.select(*self.columns, TASK), with_levels(counted.facts, self.variables))
        kept = sample.select(TASK, KEY, *self.columns)
        return replace(counted, distinct=None, sample=kept, rates=rates, cover=cover)

    @property
    def columns(self) -> tuple[str, ...]:
        """State and action columns, each once."""
        return tuple(dict.fromkeys(name for own in self.variables for name in own))

    @property
    def frame(self) -> pl.DataFrame:
        """The distinct rows with their counts, or the sample."""
        found = self.sample if self.distinct is None else _as_frame(self.distinct)
        assert found is not None
        return found


def _as_frame(distinct: GridCounts | pl.DataFrame) -> pl.DataFrame:
    return distinct.frame() if isinstance(distinct, GridCounts) else distinct


def _merged_counts(
    ours: GridCounts | pl.DataFrame | None, theirs: GridCounts | pl.DataFrame | None
) -> GridCounts | pl.DataFrame | None:
    if ours is None or theirs is None:
        return None
    if isinstance(ours, GridCounts) and isinstance(theirs, GridCounts):
        grid = ours.merged(theirs)
        if grid is not None:
            return grid if may_be_kept(grid.occupied) else None
    frames = [_as_frame(part) for part in (ours, theirs)]
    both = pl.concat([frame.select(frames[0].columns) for frame in frames], how="vertical_relaxed")
    names = [name for name in both.columns if name != WEIGHT]
    merged = both.group_by(names).agg(pl.col(WEIGHT).sum())
    return merged.sort(names) if may_be_kept(merged.height) else None


def may_be_kept(distinct: int) -> bool:
    """Whether so many distinct rows are few enough to stand for the bank."""
    return distinct <= DISTINCT_KEPT


def with_levels(facts: tuple[Facts, ...], variables: tuple[tuple[str, ...], ...]) -> tuple[str, ...]:
    """The columns of labels or of few whole numbers."""
    return tuple(
        name
        for own, names in zip(facts, variables, strict=True)
        if len(own.levels) == len(names)
        for name, levels in zip(names, own.levels, strict=True)
        if levels is not None
    )


def cover_of(frame: pl.DataFrame, names: tuple[str, ...]) -> pl.DataFrame:
    """For each of some columns, a row that has each of its values."""
    firsts = [frame.unique(name, keep="first", maintain_order=True) for name in names]
    return pl.concat([frame.head(1), *firsts]).unique(maintain_order=True)
