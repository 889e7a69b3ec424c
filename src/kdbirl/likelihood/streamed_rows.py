"""Kernel sums over the rows of a streamed bank: block by block in bounded memory, merged with `logaddexp`.

A piece's table is a pure function of the piece, so it can be computed anywhere; tables are merged in the order of the
pieces, so that a computation that was stopped and goes on gives the same bits.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import islice

import numpy as np
from jaxtyping import Float, Int

from kdbirl.checkpoints import checkpoint_of
from kdbirl.demos.coded_rows import CodedRows
from kdbirl.demos.streamed_bank import RowBlock
from kdbirl.features import FeatureMap
from kdbirl.likelihood.all_rows import KeptTables
from kdbirl.likelihood.distinct import collapse_by_task
from kdbirl.likelihood.kernel_sums import task_log_sums
from kdbirl.likelihood.kernels import PairKernel
from kdbirl.progress import Progress, Silent

PROBED = 4096  # rows of a block that are looked at to see whether rows repeat

Weighted = tuple[Float[np.ndarray, "m d"], Float[np.ndarray, " m"], Int[np.ndarray, " m"]]


@dataclass(frozen=True)
class StreamedRows:
    """All rows of a streamed bank in feature space; an `AllRows`. Tables that were asked for last are kept."""

    coded: CodedRows
    features: FeatureMap
    _kept: KeptTables = field(default_factory=KeptTables, repr=False, compare=False)

    @property
    def rows_per_task(self) -> Int[np.ndarray, " K"]:
        """n_k."""
        return self.coded.rows_per_task

    def task_log_sums(
        self,
        expert: Float[np.ndarray, "n d"],
        kernel: PairKernel,
        h: Float[np.ndarray, " parts"],
        columns: tuple[int, ...],
        progress: Progress | None = None,
    ) -> Float[np.ndarray, "n K"]:
        """S over all rows, piece after piece; the next block is read while one is summed."""
        make = partial(self._summed, expert, kernel, h, columns, progress or Silent())
        return self._kept.table(expert, kernel, h, columns, make)

    def _summed(
        self, expert: np.ndarray, kernel: PairKernel, h: np.ndarray, columns: tuple[int, ...], progress: Progress
    ) -> np.ndarray:
        bank, n_tasks = self.coded.bank, len(self.rows_per_task)
        decides = bank.fingerprint(), bank.block_rows, self.features, kernel, h, columns, expert
        checkpoint = checkpoint_of("kernel sums", *decides)
        nothing = np.full((len(expert), n_tasks), -np.inf)
        held = checkpoint.held() or {"finished": nothing, "current": nothing, "piece": 0, "blocks": 0}
        finished, current, first, done = (held[name] for name in ("finished", "current", "piece", "blocks"))
        with ThreadPoolExecutor(1) as reader:
            for piece in range(first, self.coded.n_pieces):
                for rows, weights, tasks in _ahead(reader, islice(self._weighted(piece, columns), done, None)):
                    current = np.logaddexp(current, task_log_sums(expert, rows, weights, tasks, n_tasks, kernel, h))
                    done += 1
                    checkpoint.keep({"finished": finished, "current": current, "piece": piece, "blocks": done})
                finished, current, done = np.logaddexp(finished, current), nothing, 0
                progress.update("kernel sums", piece + 1, self.coded.n_pieces, "pieces of the training table")
        at_end = {"finished": finished, "current": current, "piece": self.coded.n_pieces, "blocks": 0}
        checkpoint.keep(at_end, last=True)
        return np.asarray(finished)

    def piece_log_sums(
        self,
        piece: int,
        expert: Float[np.ndarray, "n d"],
        kernel: PairKernel,
        h: Float[np.ndarray, " parts"],
        columns: tuple[int, ...],
    ) -> Float[np.ndarray, "n K"]:
        """S over the rows of one piece, for whoever merges pieces."""
        table = np.full((len(expert), len(self.rows_per_task)), -np.inf)
        for rows, weights, tasks in self._weighted(piece, columns):
            table = np.logaddexp(table, task_log_sums(expert, rows, weights, tasks, table.shape[1], kernel, h))
        return table

    def _weighted(self, piece: int, columns: tuple[int, ...]) -> Iterator[Weighted]:
        """Feature rows, weights and tasks of each block, sorted by task."""
        for block in self.coded.blocks(piece):
            yield _sorted_by_task(block, self.features, columns)


def _sorted_by_task(block: RowBlock, features: FeatureMap, columns: tuple[int, ...]) -> Weighted:
    """Identical rows are collapsed where rows repeat at all; otherwise looking for them would cost time for nothing."""
    rows, index = features.distinct(block.demonstrations)
    if len(columns) < rows.shape[1]:
        rows = rows[:, list(columns)]
    if len(rows) < len(index) or _repeats(rows):
        return collapse_by_task(rows, block.tasks, index)
    tasks = block.tasks
    if (tasks[1:] < tasks[:-1]).any():
        order = np.argsort(tasks.astype(np.int32), kind="stable")
        rows, tasks = rows[order], tasks[order]
    return rows, np.ones(len(rows)), tasks


def _repeats(rows: Float[np.ndarray, "m d"]) -> bool:
    """Whether at least one in ten of a block's rows, evenly spread, has a twin among them."""
    probe = np.ascontiguousarray(rows[:: max(len(rows) // PROBED, 1)])
    few = 0.9 * len(probe)
    sums = probe @ np.sqrt(np.arange(2.0, 2.0 + probe.shape[1]))  # equal where rows are, and much faster to sort
    return len(np.unique(sums)) < few and len(np.unique(probe, axis=0)) < few


def _ahead(reader: ThreadPoolExecutor, blocks: Iterator[Weighted]) -> Iterator[Weighted]:
    """The blocks, of which the next is made on the reader's thread while the caller works on one."""
    waiting = reader.submit(next, blocks, None)
    while (block := waiting.result()) is not None:
        waiting = reader.submit(next, blocks, None)
        yield block
