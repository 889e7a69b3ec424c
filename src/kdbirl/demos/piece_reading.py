"""One piece of a streamed bank -> its summary; a pure function, here or on a worker of a cluster."""

from collections.abc import Iterator
from functools import reduce

import numpy as np
import polars as pl
from jaxtyping import Int

from kdbirl.demos import columns
from kdbirl.demos.counted_rows import CountedRows, plays_of
from kdbirl.demos.grid_counts import WEIGHT
from kdbirl.demos.piece_summary import PieceSummary, cover_of, may_be_kept, with_levels
from kdbirl.demos.row_sampling import KEY, ROW, TASK, as_fraction, keys, rates_of
from kdbirl.demos.streamed_bank import StreamedBank
from kdbirl.demos.tables import Table
from kdbirl.demos.variable_facts import Facts, facts_of

SUMMARY_BLOCKS = 4  # blocks that are summarised at once: there is no kernel to compute beside them
PROBED = 2**12  # rows that are looked at to see whether rows repeat at all


def summarise_piece(bank: StreamedBank, piece: int, seed: int) -> PieceSummary | None:
    """One piece, read once, block by block; None where it has no rows."""
    return reduce(merged, _summaries(bank, piece, seed), None)


def merged(ours: PieceSummary | None, theirs: PieceSummary | None) -> PieceSummary | None:
    """Of two neighbours, of which either may have no rows."""
    return theirs if ours is None else ours if theirs is None else ours.merged(theirs)


def _summaries(bank: StreamedBank, piece: int, seed: int) -> Iterator[PieceSummary | None]:
    """Of blocks that are counted together as long as they can be, and of others one by one."""
    counted, suits = CountedRows(bank, seed), CountedRows.suits(bank)
    for table, first in blocks_of(bank, piece):
        plays = plays_of(bank, table, piece, first, seed)
        if suits and counted.add(table.frame, plays, (piece, first)):
            continue
        yield counted.summary()
        counted = CountedRows(bank, seed)
        if not (suits and counted.add(table.frame, plays, (piece, first))):
            yield _summarised(bank, table, plays, piece, first, seed)
            counted = CountedRows(bank, seed)
    yield counted.summary()


def blocks_of(bank: StreamedBank, piece: int) -> Iterator[tuple[Table, int]]:
    """The rows of a piece in blocks, each with the number of rows before it."""
    first = 0
    for table in bank.tables(piece, bank.roles.every_column, SUMMARY_BLOCKS * bank.block_rows):
        yield table, first
        first += table.frame.height


def _summarised(
    bank: StreamedBank, table: Table, plays: pl.DataFrame, piece: int, first: int, seed: int
) -> PieceSummary:
    """One block: its distinct rows, if they are few, or else moments, a sample and levels."""
    roles, n_rows = bank.roles, bank.source.n_rows
    variables, chosen = roles.kinds, tuple(dict.fromkeys(roles.variables))
    tasks, unknown = _tasks_of(bank, table)
    placed = table.frame.select(chosen).with_columns(pl.Series(TASK, tasks))
    rows_per_task = np.bincount(tasks, minlength=bank.n_tasks).astype(np.int64)
    rates, distinct = rates_of(rows_per_task, n_rows), _distinct(placed)
    facts: tuple[Facts, ...] = ()
    sample = cover = None
    if distinct is None:
        facts = tuple(facts_of(table, own) for own in variables)
        key = keys(np.arange(first, first + len(tasks)), seed, piece, 1)
        kept = np.flatnonzero(as_fraction(key) < rates[tasks])
        sample = placed[kept].with_columns(pl.Series(KEY, key[kept])).select(TASK, KEY, *chosen)
        cover = cover_of(placed, with_levels(facts, variables))
    plays = plays.hstack([pl.Series(TASK, tasks[plays[ROW].to_numpy() - first])])
    found = rows_per_task, unknown, facts, distinct, sample, rates, cover, plays
    return PieceSummary(*found, seed, variables, n_rows, (piece, first))


def _tasks_of(bank: StreamedBank, table: Table) -> tuple[Int[np.ndarray, " rows"], tuple[str, ...]]:
    """The task of each row, and labels without a reward: these are refused when all pieces are known, together."""
    tasks = columns.codes_of(table, bank.roles.task, bank.names)
    if tasks.min() >= 0:
        return tasks, ()
    found = columns.labels_of_values(table, bank.roles.task)
    return np.maximum(tasks, 0), tuple(name for name in found if name not in set(bank.names))


def _distinct(placed: pl.DataFrame) -> pl.DataFrame | None:
    """Distinct rows of each task and how often they occur; None where they hardly repeat, or a value is missing."""
    names = tuple(placed.columns)
    if any(placed.schema[name].is_nested() for name in names):
        return None
    probe = placed.head(PROBED)
    if probe.height >= PROBED and probe.n_unique() > PROBED // 2:
        return None
    counts = placed.group_by(names).len(WEIGHT).with_columns(pl.col(WEIGHT).cast(pl.Int64))
    whole = may_be_kept(counts.height) and not sum(counts.null_count().row(0))
    return counts.sort(names) if whole else None
