"""All rows of a bank that is too large for memory: the one question that is asked of them is the table S."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from itertools import islice
from typing import Any, NoReturn, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, Int

from kdbirl.data.cluster import Cluster
from kdbirl.data.large import CodedRows, RowBlock
from kdbirl.errors import FileProblem
from kdbirl.features import FeatureMap
from kdbirl.likelihood.kernels import PairKernel
from kdbirl.likelihood.sums import collapse_by_task, task_log_sums
from kdbirl.progress import Progress, Silent
from kdbirl.store import checkpoint_of

TABLES_KEPT, BYTES_KEPT = 4, 2**28
FEWEST_KEPT = 2  # however large: what one likelihood is made of


@runtime_checkable
class AllRows(Protocol):
    """Rows that a `CKDE` does not hold: a stream of blocks, or a cluster."""

    @property
    def rows_per_task(self) -> Int[np.ndarray, " K"]:
        """n_k."""
        ...

    def task_log_sums(
        self,
        expert: Float[np.ndarray, "n d"],
        kernel: PairKernel,
        h: Float[np.ndarray, " parts"],
        columns: tuple[int, ...],
        progress: Progress | None = None,
    ) -> Float[np.ndarray, "n K"]:
        """S[i, k] = log sum over all rows j of task k of K_h(x_i, x_j), on some feature columns of the rows.

        `expert` has these columns only, and `kernel` numbers them from 0.
        """
        ...


class KeptTables:
    """The tables over all rows that were asked for last: a page asks again for what the likelihood was made of.

    Threads may ask at once: in the worst case one table is made twice.
    """

    def __init__(self) -> None:
        self._tables: dict[bytes, np.ndarray] = {}

    def table(
        self,
        expert: Float[np.ndarray, "n d"],
        kernel: PairKernel,
        h: Float[np.ndarray, " parts"],
        columns: tuple[int, ...],
        make: Callable[[], np.ndarray],
    ) -> Float[np.ndarray, "n K"]:
        """A copy of the kept one, or of the one that is made now and kept."""
        asked = sha256(repr((kernel, columns, expert.shape)).encode() + h.tobytes() + expert.tobytes()).digest()
        table = self._tables.get(asked)
        if table is None:
            table = self._tables[asked] = make()
            while self._too_much():
                self._tables.pop(next(iter(self._tables)), None)
        return table.copy()

    def _too_much(self) -> bool:
        kept = list(self._tables.values())
        large = sum(table.nbytes for table in kept) > BYTES_KEPT
        return len(kept) > TABLES_KEPT or (large and len(kept) > FEWEST_KEPT)

    def __getstate__(self) -> dict[str, Any]:
        """Tables stay here: rows are sent to workers without them."""
        return {"_tables": {}}


@dataclass(frozen=True)
class MissingRows:
    """Rows of a saved model whose files are gone: everything that does not need them still works."""

    rows_per_task: Int[np.ndarray, " K"]
    reason: str

    def task_log_sums(self, *_: object) -> NoReturn:
        """Says what is missing."""
        raise FileProblem(f"This model needs its training rows, and they cannot be read: {self.reason}")


# Kernel sums over the rows of a streamed bank: block by block in bounded memory, merged with `logaddexp`.
#
# A piece's table is a pure function of the piece, so it can be computed anywhere; tables are merged in the order of the
# pieces, so that a computation that was stopped and goes on gives the same bits.

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


# Kernel sums over the rows of a bank on a cluster: each worker sums whole pieces, tables are merged by a tree.

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
