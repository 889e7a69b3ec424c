"""Kernel sums over the rows of a bank on a cluster: each worker sums whole pieces, tables are merged by a tree."""

from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, Int

from kdbirl.cluster import Cluster
from kdbirl.likelihood.all_rows import KeptTables
from kdbirl.likelihood.kernel_sums import task_log_sums
from kdbirl.likelihood.kernels import PairKernel
from kdbirl.progress import Progress

PIECE_BYTES = 2**22  # of rows in memory that are sent to a worker at once

Question = tuple[np.ndarray, PairKernel, np.ndarray, tuple[int, ...]]  # expert rows, kernel, h, columns


@runtime_checkable
class PiecesOfRows(Protocol):
    """Rows in pieces that can be summed apart."""

    @property
    def rows_per_task(self) -> Int[np.ndarray, " K"]: ...

    def piece_log_sums(
        self,
        piece: int,
        expert: Float[np.ndarray, "n d"],
        kernel: PairKernel,
        h: Float[np.ndarray, " parts"],
        columns: tuple[int, ...],
    ) -> Float[np.ndarray, "n K"]: ...


@dataclass(frozen=True)
class ClusterRows:
    """An `AllRows` whose sums are made by a cluster. What is sent to it: the pieces' places, or rows from memory."""

    rows: PiecesOfRows
    n_pieces: int
    cluster: Cluster
    _kept: KeptTables = field(default_factory=KeptTables, repr=False, compare=False)

    @property
    def rows_per_task(self) -> Int[np.ndarray, " K"]:
        """n_k."""
        return self.rows.rows_per_task

    def task_log_sums(
        self,
        expert: Float[np.ndarray, "n d"],
        kernel: PairKernel,
        h: Float[np.ndarray, " parts"],
        columns: tuple[int, ...],
        progress: Progress | None = None,
    ) -> Float[np.ndarray, "n K"]:
        """S over all rows."""
        question: Question = (expert, kernel, h, columns)
        return self._kept.table(*question, lambda: self._summed(question, progress))

    def _summed(self, question: Question, progress: Progress | None) -> np.ndarray:
        if isinstance(self.rows, RowsInMemory):
            parts = [self.rows.part(piece) for piece in range(self.n_pieces)]
            return self.cluster.merged(_sums_of_part, parts, np.logaddexp, (question,), progress, "kernel sums")
        pieces, shared = range(self.n_pieces), (self.rows, question)
        return self.cluster.merged(_sums_of_piece, pieces, np.logaddexp, shared, progress, "kernel sums")


@dataclass(frozen=True)
class RowsInMemory:
    """Weighted rows sorted by task, cut into pieces of some megabytes."""

    rows: Float[np.ndarray, "m d"]
    weights: Float[np.ndarray, " m"]
    tasks: Int[np.ndarray, " m"]
    n_tasks: int

    @property
    def size(self) -> int:
        """Rows in a piece."""
        return max(1, PIECE_BYTES // (8 * (self.rows.shape[1] + 2)))

    @property
    def n_pieces(self) -> int:
        return -(-len(self.rows) // self.size)

    @property
    def rows_per_task(self) -> Int[np.ndarray, " K"]:
        """n_k."""
        return np.bincount(self.tasks, weights=self.weights, minlength=self.n_tasks).astype(np.int64)

    def part(self, piece: int) -> "RowsInMemory":
        """The rows of one piece."""
        own = slice(piece * self.size, (piece + 1) * self.size)
        return RowsInMemory(self.rows[own], self.weights[own], self.tasks[own], self.n_tasks)

    def piece_log_sums(
        self,
        piece: int,
        expert: Float[np.ndarray, "n d"],
        kernel: PairKernel,
        h: Float[np.ndarray, " parts"],
        columns: tuple[int, ...],
    ) -> Float[np.ndarray, "n K"]:
        """S over the rows of one piece."""
        own = self.part(piece)
        rows = own.rows[:, list(columns)]
        return task_log_sums(expert, rows, own.weights, own.tasks, self.n_tasks, kernel, h)


def _sums_of_piece(piece: int, rows: PiecesOfRows, question: Question) -> np.ndarray:
    return rows.piece_log_sums(piece, *question)


def _sums_of_part(part: RowsInMemory, question: Question) -> np.ndarray:
    return part.piece_log_sums(0, *question)
