"""Rows of whole numbers are only counted: all that a pass over a bank of discrete states does beside reading it."""

from functools import lru_cache

import numpy as np
import polars as pl
from jaxtyping import Int

from kdbirl.demos import columns
from kdbirl.demos.grid_counts import GridTally
from kdbirl.demos.piece_summary import PieceSummary, may_be_kept
from kdbirl.demos.row_sampling import TASK, few_plays, many_plays, rates_of, some_episodes, with_places
from kdbirl.demos.streamed_bank import StreamedBank
from kdbirl.demos.tables import Table


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
