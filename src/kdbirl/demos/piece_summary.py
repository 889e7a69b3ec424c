"""What one piece of a streamed bank tells: `summarise_piece`, and the merge of pieces."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache, reduce

import numpy as np
import polars as pl
from jaxtyping import Float, Int

from kdbirl.demos import columns
from kdbirl.demos.grid_counts import WEIGHT, GridCounts
from kdbirl.demos.row_sampling import (
    EPISODE,
    KEY,
    TASK,
    as_fraction,
    first_episodes,
    keys,
    not_too_many,
    rates_of,
    some_episodes,
    thinned,
    with_places,
)
from kdbirl.demos.streamed_bank import StreamedBank
from kdbirl.demos.tables import Part, Table
from kdbirl.demos.variable_facts import Facts, facts_of

DISTINCT_KEPT = 2**18  # distinct (task, state, action) up to which a bank is kept as counts of them
SUMMARY_BLOCKS = 4  # blocks that are summarised at once: there is no kernel to compute beside them
PROBED = 2**12  # rows that are looked at to see whether rows repeat at all


@dataclass(frozen=True)
class PieceSummary:
    """Facts about some rows of a bank; `merged` gives those of more rows.

    rows_per_task `(K,)`; unknown: labels of tasks without a reward; facts: of the state and the action columns.
    distinct: the rows as counts of the distinct ones, while these are few; else None, and then
    sample: rows with keys below `rates (K,)`; cover: for each level of a column some row that has it.
    plays: rows in whole episodes. All as they stand in the table, with the task's number.
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

    def merged(self, other: "PieceSummary") -> "PieceSummary":
        """Of both; merging is associative, in the order of the pieces."""
        rows_per_task = self.rows_per_task + other.rows_per_task
        both = replace(
            self,
            rows_per_task=rows_per_task,
            unknown=tuple(dict.fromkeys([*self.unknown, *other.unknown])),
            plays=first_episodes(pl.concat([self.plays, other.plays], how="vertical_relaxed"), len(rows_per_task)),
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
        return replace(both, facts=facts, distinct=None, sample=sample, rates=rates, cover=_cover(cover, self.columns))

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
        rng = np.random.default_rng([self.seed, int(self.rows_per_task.sum()), frame.height])
        drawn = rng.binomial(frame[WEIGHT].to_numpy(), rates[frame[TASK].to_numpy()])
        index = np.repeat(np.arange(len(drawn)), drawn)
        sample = frame[index].drop(WEIGHT)
        below = rates[sample[TASK].to_numpy()] * rng.random(len(index))
        sample = sample.with_columns(pl.Series(KEY, (below * 2.0**64).astype(np.uint64)))
        counted = self.counted()
        cover = _cover(frame.select(*self.columns, TASK), _with_levels(counted.facts, self.variables))
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


def summarise_piece(bank: StreamedBank, piece: int, seed: int) -> PieceSummary:
    """One piece, read once, block by block."""
    blocks = (_summarised(bank, table, piece, first, seed) for table, first in _with_places(bank, piece))
    return reduce(PieceSummary.merged, blocks)


def _with_places(bank: StreamedBank, piece: int) -> Iterator[tuple[Table, int]]:
    first = 0
    for table in bank.tables(piece, bank.roles.every_column, SUMMARY_BLOCKS * bank.block_rows):
        yield table, first
        first += table.frame.height


def _summarised(bank: StreamedBank, table: Table, piece: int, first: int, seed: int) -> PieceSummary:
    """One block. Blocks of whole numbers are only counted; of others moments, a sample and levels are taken."""
    roles, n_rows = bank.roles, bank.source.n_rows
    chosen = tuple(dict.fromkeys(roles.variables))
    played, episodes = some_episodes(table, roles.episode, piece, first, seed, n_rows)
    variables = (roles.state, roles.action) if roles.action else (roles.state,)
    unknown, distinct, tasks, of_played = _fused(bank, table, chosen, played)
    facts: tuple[Facts, ...] = ()
    sample = cover = None
    if isinstance(distinct, GridCounts):
        rows_per_task = distinct.counts.reshape(bank.n_tasks, -1).sum(axis=1)
    else:
        rows_per_task = np.bincount(tasks, minlength=bank.n_tasks).astype(np.int64)
    rates = rates_of(rows_per_task, n_rows)
    if distinct is None:
        facts = tuple(facts_of(table, own) for own in variables)
        key = keys(np.arange(first, first + len(tasks)), seed, piece, 1)
        kept = np.flatnonzero(as_fraction(key) < rates[tasks])
        placed = table.frame.select(chosen).with_columns(pl.Series(TASK, tasks))
        sample = placed[kept].with_columns(pl.Series(KEY, key[kept])).select(TASK, KEY, *chosen)
        cover = _cover(placed, _with_levels(facts, variables))
    plays = with_places(table.frame[played], of_played, piece, first + played)
    plays = plays.with_columns(pl.Series(EPISODE, episodes)).filter(pl.col(TASK) >= 0)
    return PieceSummary(rows_per_task, unknown, facts, distinct, sample, rates, cover, plays, seed, variables, n_rows)


def _fused(
    bank: StreamedBank, table: Table, chosen: tuple[str, ...], played: Int[np.ndarray, " played"]
) -> tuple[tuple[str, ...], GridCounts | pl.DataFrame | None, Int[np.ndarray, " rows"], Int[np.ndarray, " played"]]:
    """Labels without a reward, distinct rows with counts if they are few, the tasks of all rows, and of some.

    Where rows are counted in a grid, nobody needs the tasks of all, and none are given.

    Unknown labels are refused when all pieces are known, together.
    """
    roles = bank.roles
    grid = GridCounts.of(table.frame, (roles.task, *chosen)) if roles.task not in chosen else None
    if grid is not None and grid.occupied <= DISTINCT_KEPT:
        low, size = grid.lows[0], len(grid.counts)
        codes = _codes_of_numbers(bank.names, low, size)
        strange = np.flatnonzero((codes < 0) & (grid.counts.reshape(size, -1).sum(axis=1) > 0))
        unknown = tuple(str(low + value) for value in strange.tolist())
        of_played = codes[table.frame[roles.task].to_numpy()[played].astype(np.int64) - low]
        return unknown, grid.relabelled(codes, bank.n_tasks, TASK), codes[:0], of_played
    tasks, unknown = columns.codes_of(table, roles.task, bank.names), ()
    if tasks.min() < 0:
        found = columns.labels_of_values(table, roles.task)
        unknown = tuple(name for name in found if name not in set(bank.names))
        tasks = np.maximum(tasks, 0)
    counted = _counted(table.frame.select(chosen).with_columns(pl.Series(TASK, tasks)))
    return unknown, counted, tasks, tasks[played]


@lru_cache(maxsize=8)  # the blocks of a bank ask for the same ones
def _codes_of_numbers(names: tuple[str, ...], low: int, size: int) -> Int[np.ndarray, " size"]:
    """The number of the task that is called low, low + 1, ...; -1 where none is."""
    return columns.coded(pl.Series([str(low + value) for value in range(size)]), names)


def _with_levels(facts: tuple[Facts, ...], variables: tuple[tuple[str, ...], ...]) -> tuple[str, ...]:
    """The columns of labels or of few whole numbers."""
    return tuple(
        name
        for own, names in zip(facts, variables, strict=True)
        if len(own.levels) == len(names)
        for name, levels in zip(names, own.levels, strict=True)
        if levels is not None
    )


def _counted(placed: pl.DataFrame) -> pl.DataFrame | None:
    """Distinct rows of each task and how often they occur; None where they hardly repeat, or a value is missing."""
    names = tuple(placed.columns)
    if any(placed.schema[name].is_nested() for name in names):
        return None
    probe = placed.head(PROBED)
    if probe.height >= PROBED and probe.n_unique() > PROBED // 2:
        return None
    counts = placed.group_by(names).len(WEIGHT).with_columns(pl.col(WEIGHT).cast(pl.Int64))
    whole = counts.height <= DISTINCT_KEPT and not sum(counts.null_count().row(0))
    return counts.sort(names) if whole else None


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
            return grid if grid.occupied <= DISTINCT_KEPT else None
    frames = [_as_frame(part) for part in (ours, theirs)]
    both = pl.concat([frame.select(frames[0].columns) for frame in frames], how="vertical_relaxed")
    names = [name for name in both.columns if name != WEIGHT]
    merged = both.group_by(names).agg(pl.col(WEIGHT).sum())
    return merged.sort(names) if merged.height <= DISTINCT_KEPT else None


def _cover(frame: pl.DataFrame, names: tuple[str, ...]) -> pl.DataFrame:
    """For each of some columns, a row that has each of its values."""
    firsts = [frame.unique(name, keep="first", maintain_order=True) for name in names]
    return pl.concat([frame.head(1), *firsts]).unique(maintain_order=True)
