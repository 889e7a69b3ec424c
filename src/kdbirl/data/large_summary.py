"""What one pass over a streamed bank leaves in memory: everything that a fit needs of its rows but kernel sums."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import polars as pl
from jaxtyping import Float, Int

from kdbirl.data import columns
from kdbirl.data.arrays import Moments
from kdbirl.data.demonstrations import Demonstrations, TaskBank
from kdbirl.data.large import CodedRows, RowBlock, StreamedBank
from kdbirl.data.large_counts import WEIGHT
from kdbirl.data.large_pieces import Coding, Facts, Kind, PieceSummary
from kdbirl.data.large_samples import EPISODE, PIECE, ROW, TASK, first_episodes, many_plays
from kdbirl.data.readers import check_same_tasks, episode_groups, step_order
from kdbirl.data.tables import Part, Table
from kdbirl.errors import InputError

KINDS: tuple[Kind, ...] = ("state", "action")


@dataclass(frozen=True)
class BankSummary:
    """A streamed bank in brief.

    rows, weights `(r,)`: if `exact`, all distinct rows with their counts; else a seeded sample of rows, each with the
    number of rows that it stands for, so that every task has its own total.
    fit_rows: what feature maps are fitted on: these rows, and for each label or whole number of a column some row.
    plays: rows in whole episodes, as a bank.
    """

    bank: StreamedBank
    seed: int
    rows_per_task: Int[np.ndarray, " K"]
    codings: tuple[Coding, ...]
    facts: tuple[Facts, ...]
    exact: bool
    rows: RowBlock
    weights: Float[np.ndarray, " r"]
    fit_rows: Demonstrations
    plays: TaskBank

    @property
    def n_rows(self) -> int:
        """m, of the whole bank."""
        return int(self.rows_per_task.sum())

    @classmethod
    def of(cls, bank: StreamedBank, found: PieceSummary | None) -> "BankSummary":
        """From the merged summaries of all pieces; tasks without rows or without a reward are named."""
        if found is None:
            raise InputError(f"{bank.source.name}: the table has no rows; at least one is needed.")
        with_rows = [name for name, rows in zip(bank.names, found.rows_per_task, strict=True) if rows]
        check_same_tasks([*with_rows, *found.unknown], bank.names, bank.source.name, bank.rewards_name)
        found = found.counted()
        kinds = KINDS[: len(found.facts)]
        dtypes = [bank.source.schema[names[0]] for names in (bank.roles.state, bank.roles.action) if names]
        codings = tuple(map(partial(_coding, bank), kinds, found.facts, dtypes))
        frame = found.frame.sort(TASK, maintain_order=True)
        tasks = frame[TASK].to_numpy()
        exact = found.distinct is not None or frame.height == int(found.rows_per_task.sum())
        if found.distinct is None:
            sampled = np.bincount(tasks, minlength=bank.n_tasks)
            weights = (found.rows_per_task / np.maximum(sampled, 1))[tasks]
            assert found.cover is not None
            extra = pl.concat([frame.select(found.columns), found.cover.select(found.columns)])
        else:
            weights, extra = frame[WEIGHT].to_numpy().astype(np.float64), frame
        return cls(
            bank=bank,
            seed=found.seed,
            rows_per_task=found.rows_per_task,
            codings=codings,
            facts=found.facts,
            exact=exact,
            rows=RowBlock(_coded(bank, codings, frame), tasks),
            weights=weights,
            fit_rows=_coded(bank, codings, extra),
            plays=_plays(bank, codings, found),
        )

    @property
    def coded(self) -> CodedRows:
        """All rows, for further passes."""
        return CodedRows(self.bank, self.codings, self.rows_per_task)

    def moments(self, source: Kind, name: str) -> Moments | None:
        """Of one state or action column as it stands in the table; None for labels."""
        for kind, facts, coding in zip(KINDS, self.facts, self.codings, strict=False):
            names = coding.names if len(coding.names) == len(facts.names) else facts.names
            if kind == source and name in names and facts.moments is not None:
                return facts.moments.column(names.index(name))
        return None


def _coding(bank: StreamedBank, kind: Kind, facts: Facts, dtype: Any) -> Coding:
    return Coding.of(kind, bank.roles, facts, dtype)


def _table(bank: StreamedBank, frame: pl.DataFrame) -> Table:
    part = Part(f"a sample of {bank.source.name}", frame.height)
    return Table(frame, (part,), tuple(frame.columns), notes=bank.source.notes)


def _coded(bank: StreamedBank, codings: tuple[Coding, ...], frame: pl.DataFrame) -> Demonstrations:
    table = _table(bank, frame)
    return Demonstrations(**{name: value for coding in codings for name, value in coding.fields(table).items()})


def _plays(bank: StreamedBank, codings: tuple[Coding, ...], found: PieceSummary) -> TaskBank:
    """Whole episodes as a bank, in the order that `read_task_bank` would give these rows."""
    frame = _with_every_task(found).sort([PIECE, ROW])
    made = int((frame[PIECE] < 0).sum())  # first come the rows of tasks without plays: no episode, no step
    table, own, tasks = _table(bank, frame), _table(bank, frame[made:]), frame[TASK].to_numpy()
    fields = {name: value for coding in codings for name, value in coding.fields(table).items()}
    episodes = _episodes(bank, own, bool(frame.height < found.rows_per_task.sum()))
    if episodes is not None:
        free = np.setdiff1d(np.arange(bank.n_tasks + len(episodes)), episodes)  # the largest may be that of int64
        episodes = np.concatenate([free[tasks[:made]], episodes])
    data, order = Demonstrations(**fields, episodes=episodes), np.arange(frame.height)
    if bank.roles.step is not None:
        steps = np.concatenate([np.arange(made), columns.steps(own, bank.roles.step)])
        by_step = step_order(episode_groups(tasks, data.episodes), steps, strict=bank.roles.episode is not None)
        order = order if by_step is None else by_step
    order = order[np.argsort(tasks[order], kind="stable")]
    return TaskBank(data.take(order), tasks[order], bank.rewards, bank.names, bank.reward_names)


def _with_every_task(found: PieceSummary) -> pl.DataFrame:
    """The plays; of a task so rare that it has none, the rows that were sampled or counted."""
    many = many_plays(int(found.rows_per_task.sum()))  # not of the plays: these depend on how pieces were merged
    plays = first_episodes(found.plays, len(found.rows_per_task)) if many else found.plays
    missing = np.setdiff1d(np.arange(len(found.rows_per_task)), plays[TASK].to_numpy())
    if not len(missing):
        return plays
    rows = found.frame.filter(pl.col(TASK).is_in(missing)).select(TASK, *found.columns)
    places = pl.lit(-1, pl.Int64).alias(PIECE), pl.int_range(pl.len()).alias(ROW), pl.lit(0, pl.UInt64).alias(EPISODE)
    return pl.concat([plays, rows.with_columns(*places)], how="diagonal_relaxed")


def _episodes(bank: StreamedBank, table: Table, some: bool) -> Int[np.ndarray, " rows"] | None:
    """Episode numbers; where there is no such column and only some rows are kept, those of runs of neighbours."""
    if bank.roles.episode is not None:
        return columns.episodes(table, bank.roles.episode)
    return np.unique(table.frame[EPISODE].to_numpy(), return_inverse=True)[1] if some else None
