"""The one pass over a streamed bank: threads read its pieces, and what they tell is merged in their order."""

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import lru_cache, reduce
from typing import TypeVar

import numpy as np
import polars as pl
from jaxtyping import Int

from kdbirl._jax import cores
from kdbirl.data import columns
from kdbirl.data.large import StreamedBank
from kdbirl.data.large_counts import WEIGHT, GridTally
from kdbirl.data.large_pieces import Facts, PieceSummary, cover_of, facts_of, may_be_kept, with_levels
from kdbirl.data.large_samples import (
    KEY,
    ROW,
    TASK,
    as_fraction,
    few_plays,
    keys,
    many_plays,
    rates_of,
    some_episodes,
    with_places,
)
from kdbirl.data.large_summary import BankSummary
from kdbirl.data.tables import Table
from kdbirl.progress import Progress, Silent

# Rows of whole numbers are only counted: all that a pass over a bank of discrete states does beside reading it.


class CountedRows:
    """The distinct rows of a bank with how often they occur, and some whole episodes, of blocks that are added.

    A block is counted where the last one was: it costs no merge. Only one thread may add.
    """

    def __init__(self, bank: StreamedBank, seed: int) -> None:
        self.bank, self.seed = bank, seed
        self.tally, self.plays = GridTally(bank.roles.task_and_variables), list[pl.DataFrame]()
        self.place: tuple[int, int] | None = None

    @staticmethod
    def suits(bank: StreamedBank) -> bool:
        """Whether the tasks and all variables are whole numbers, and no variable is the task."""
        roles, schema = bank.roles, bank.source.schema
        whole = all(schema[name].is_integer() for name in roles.task_and_variables)
        return whole and roles.task not in roles.variables

    def add(self, rows: pl.DataFrame, plays: pl.DataFrame, place: tuple[int, int]) -> bool:
        """Count a block's rows, and keep its `plays_of`; `place` is that of its first row.

        False, and nothing is counted, where they are no whole numbers, or too many distinct ones together with those
        that are here.
        """
        if not self.tally.add(rows):
            return False
        if not may_be_kept(self.tally.distinct):
            self.tally.take_back(rows)
            return False
        self.place = self.place or place
        labels = plays[self.bank.roles.task].cast(pl.Int64)  # as in all other files
        self.plays.append(plays.clone().replace_column(plays.get_column_index(labels.name), labels))
        if many_plays(sum(part.height for part in self.plays)):
            self.plays = [self._all_plays().drop(TASK)]
        return True

    def summary(self) -> PieceSummary | None:
        """What the rows tell; None where none are counted."""
        bank, grid = self.bank, self.tally.grid
        if self.place is None or grid is None:
            return None
        codes, low = self._codes()
        of_label = grid.of_first
        strange = np.flatnonzero((codes < 0) & (of_label > 0))
        known = codes >= 0
        rows_per_task = np.zeros(bank.n_tasks, dtype=np.int64)
        rows_per_task[codes[known]] = of_label[known]
        return PieceSummary(
            rows_per_task=rows_per_task,
            unknown=tuple(str(low + value) for value in strange.tolist()),
            facts=(),
            distinct=grid.relabelled(codes, bank.n_tasks, TASK),
            sample=None,
            rates=rates_of(rows_per_task, bank.source.n_rows),
            cover=None,
            plays=self._all_plays(),
            seed=self.seed,
            variables=bank.roles.kinds,
            n_rows=bank.source.n_rows,
            place=self.place,
        )

    def _all_plays(self) -> pl.DataFrame:
        """Those of tasks with a reward, with their tasks."""
        plays = pl.concat(self.plays, how="vertical_relaxed")
        codes, low = self._codes()
        tasks = codes[plays[self.bank.roles.task].to_numpy() - low]
        plays = plays.hstack([pl.Series(TASK, tasks)])
        return few_plays(plays.filter(tasks >= 0) if np.any(tasks < 0) else plays, self.bank.n_tasks)

    def _codes(self) -> tuple[Int[np.ndarray, " labels"], int]:
        """The numbers of the tasks that are called low, low + 1, ... up to the largest label so far, and low."""
        grid = self.tally.grid
        assert grid is not None
        return _codes_of_numbers(self.bank.names, grid.lows[0], len(grid.counts)), grid.lows[0]


def plays_of(bank: StreamedBank, table: Table, piece: int, first: int, seed: int) -> pl.DataFrame:
    """A block's rows of the episodes that are kept, with their places; `first` rows of the piece stand before it."""
    rows, episodes = some_episodes(table, bank.roles.episode, piece, first, seed, bank.source.n_rows)
    return with_places(table.frame[rows], piece, first + rows, episodes)


@lru_cache(maxsize=8)  # the blocks of a bank ask for the same ones
def _codes_of_numbers(names: tuple[str, ...], low: int, size: int) -> Int[np.ndarray, " size"]:
    """The number of the task that is called low, low + 1, ...; -1 where none is."""
    return columns.coded(pl.Series([str(low + value) for value in range(size)]), names)


# One piece of a streamed bank -> its summary; a pure function, here or on a worker of a cluster.

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


Found = TypeVar("Found")


def summarise(bank: StreamedBank, seed: int = 0, progress: Progress | None = None) -> BankSummary:
    """What one pass over all rows tells; kept with the bank for each seed."""
    if seed not in bank._summaries:
        bank._summaries[seed] = _one_pass(bank, seed, progress)
    return bank._summaries[seed]


def _one_pass(bank: StreamedBank, seed: int, progress: Progress | None) -> BankSummary:
    """Small pieces of whole numbers are counted; of others each thread summarises some."""
    pieces = range(bank.source.n_pieces)
    with closing(_Pass(bank, seed, progress or Silent())) as run:
        counted, left = run.counted(pieces) if _may_be_counted(bank) else (None, pieces)
        found = merged(counted, run.merged(left))
    return BankSummary.of(bank, found)


def _may_be_counted(bank: StreamedBank) -> bool:
    """Whole numbers, in pieces that are one block each: these wait in memory."""
    sizes = [bank.source.rows_of(piece) for piece in range(bank.source.n_pieces)]
    small = all(rows is not None and rows <= SUMMARY_BLOCKS * bank.block_rows for rows in sizes)
    return small and CountedRows.suits(bank)


class _Pass:
    """Threads that read, and what is made of it in the order of the pieces."""

    def __init__(self, bank: StreamedBank, seed: int, progress: Progress) -> None:
        self.bank, self.seed, self.progress = bank, seed, progress
        self.workers = min(cores(), bank.source.n_pieces)
        self.pool = ThreadPoolExecutor(self.workers)

    def close(self) -> None:
        self.pool.shutdown(cancel_futures=True)

    def counted(self, pieces: range) -> tuple[PieceSummary | None, range]:
        """Threads decode and choose episodes, this one counts, until it cannot: the summary so far, and what is left.

        One thread counts where the last block was counted, so that nothing has to be merged.
        """
        counted = CountedRows(self.bank, self.seed)
        for piece, block in self._in_order(self._only_block, pieces):
            if block is not None and not counted.add(*block, (piece, 0)):
                return counted.summary(), pieces[piece:]
        return counted.summary(), pieces[len(pieces) :]

    def _only_block(self, piece: int) -> tuple[pl.DataFrame, pl.DataFrame] | None:
        """The rows of a piece and those of its episodes that are kept; None where it has none."""
        for table, first in blocks_of(self.bank, piece):
            return table.frame, plays_of(self.bank, table, piece, first, self.seed)
        return None

    def merged(self, pieces: range) -> PieceSummary | None:
        """Each thread summarises pieces."""
        found = self._in_order(lambda piece: summarise_piece(self.bank, piece, self.seed), pieces)
        return reduce(merged, (one for _, one in found), None)

    def _in_order(self, work: Callable[[int], Found], pieces: range) -> Iterator[tuple[int, Found]]:
        """What the threads make of the pieces; few in flight, so that memory stays bounded."""
        waiting = deque(self.pool.submit(work, piece) for piece in pieces[: self.workers + 1])
        for place, piece in enumerate(pieces):
            found = waiting.popleft().result()
            for following in pieces[place + self.workers + 1 : place + self.workers + 2]:
                waiting.append(self.pool.submit(work, following))
            yield piece, found
            self.progress.update("reading", piece + 1, self.bank.source.n_pieces, "pieces of the training table")
