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

from kdbirl.demos.coded_rows import CodedRows
from kdbirl.demos.streamed_bank import RowBlock
from kdbirl.features import FeatureMap
from kdbirl.likelihood.all_rows import KeptTables
from kdbirl.likelihood.distinct import collapse_by_task
from kdbirl.likelihood.kernel_sums import task_log_sums
from kdbirl.likelihood.kernels import PairKernel
from kdbirl.likelihood.sums_checkpoint import Checkpoint
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
        n_tasks = len(self.rows_per_task)
        checkpoint = self._checkpoint(expert, kernel, h, columns)
        sums = checkpoint.load(len(expert), n_tasks)
        with ThreadPoolExecutor(1) as reader:
            while sums.piece < self.coded.n_pieces:
                blocks = islice(self._weighted(sums.piece, columns), sums.blocks, None)
                for rows, weights, tasks in _ahead(reader, blocks):
                    sums.add(task_log_sums(expert, rows, weights, tasks, n_tasks, kernel, h))
                    checkpoint.save(sums)
                sums.end_piece()
                progress.update("kernel sums", sums.piece, self.coded.n_pieces, "pieces of the training table")
        checkpoint.save(sums, at_once=True)
        return sums.finished

    def _checkpoint(
        self, expert: np.ndarray, kernel: PairKernel, h: np.ndarray, columns: tuple[int, ...]
    ) -> Checkpoint:
        """Named by the data and by what features and kernel make of its first rows, which knows a user's code, too."""
        bank = self.coded.bank
        if bank.checkpoint is None:
            return Checkpoint(None, "")
        pieces = range(self.coded.n_pieces)  # of which the first may be empty
        rows, weights, tasks = next(block for piece in pieces for block in self._weighted(piece, columns))
        some = slice(0, PROBED)
        probe = task_log_sums(expert, rows[some], weights[some], tasks[some], bank.n_tasks, kernel, h)
        parts = [(part.group, part.columns, part.kernel.describe()) for part in kernel.parts]
        text = f"{bank.fingerprint()} {bank.block_rows} {columns} {parts}"
        return Checkpoint.of(bank.checkpoint, [text.encode(), expert.tobytes(), h.tobytes(), probe.tobytes()])

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
