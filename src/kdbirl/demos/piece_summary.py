"""What some rows of a streamed bank tell: `PieceSummary`, which merges with those of others."""

from dataclasses import dataclass, replace

import numpy as np
import polars as pl
from jaxtyping import Float, Int

from kdbirl.demos.columns import is_text
from kdbirl.demos.grid_counts import WEIGHT, GridCounts
from kdbirl.demos.row_sampling import (
    KEY,
    TASK,
    few_plays,
    not_too_many,
    rates_of,
    thinned,
)
from kdbirl.demos.tables import Part, Table
from kdbirl.demos.variable_facts import Facts, facts_of
from kdbirl.errors import InputError, quoted
from kdbirl.random_streams import stream

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
