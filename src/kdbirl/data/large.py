"""`StreamedBank`: training tasks whose rows stay on disk (or on a cluster) and are read in blocks of bounded size.

Everything that a fit needs of the rows is a merge over the pieces of the bank's source:

    summary = merged(merged(summarise_piece(bank, 0, seed), summarise_piece(bank, 1, seed)), ...)    one pass
    S       = logaddexp over pieces of their tables of kernel sums                                   a pass for each h

so pieces can be read in any place. `summarise` (`large_pass.py`) makes the first pass and keeps
what it leaves in memory with the bank.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from kdbirl._jax import refuse_fork
from kdbirl.data import columns
from kdbirl.data.demonstrations import Demonstrations
from kdbirl.data.large_pieces import Coding
from kdbirl.data.large_rows import Roles, RowSource
from kdbirl.data.tables import Table
from kdbirl.errors import InputError, did_you_mean

BLOCK_ROWS = 2**18


@dataclass(frozen=True)
class RowBlock:
    """Some rows of a bank: demonstrations that are coded like those of every other block, and the task of each row."""

    demonstrations: Demonstrations
    tasks: Int[np.ndarray, " rows"]


@dataclass(frozen=True, eq=False)
class StreamedBank:
    """K training tasks with known rewards whose rows are read block by block; `read_task_bank(..., stream=True)`.

    source: the rows. roles: which columns are what. names, rewards `(K, q)`, reward_names: as in `TaskBank`.
    block_rows: rows that are decoded, mapped and summed at once, which is what memory a pass takes.
    """

    source: RowSource
    roles: Roles
    names: tuple[str, ...]
    rewards: Float[np.ndarray, "K q"]
    reward_names: tuple[str, ...]
    rewards_name: str = "the rewards"
    block_rows: int = BLOCK_ROWS
    _summaries: dict[int, Any] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        rows: Any = self.block_rows
        if isinstance(rows, bool) or not isinstance(rows, int | np.integer) or rows < 1:
            raise InputError(f"block_rows={rows!r} should be a whole number of rows, at least 1.")
        for name in self.roles.every_column:
            if name not in self.source.schema:
                near = did_you_mean(name, self.source.schema)
                raise InputError(f"{self.source.name} has no column {name!r}.{near}")

    def __repr__(self) -> str:
        rows = "rows" if self.source.n_rows is None else f"{self.source.n_rows:,} rows"
        pieces = "1 piece" if self.source.n_pieces == 1 else f"{self.source.n_pieces} pieces"
        return f"StreamedBank({self.n_tasks} tasks, {rows} in {pieces}: {self.source.name})"

    @property
    def n_tasks(self) -> int:
        """K."""
        return len(self.rewards)

    @property
    def n_parameters(self) -> int:
        """q."""
        return int(self.rewards.shape[1])

    def fingerprint(self) -> str:
        """SHA-256 of the source's fingerprint (for Parquet: of the footers), the columns' roles and the rewards."""
        text = repr((self.source.fingerprint(), self.roles, self.names, self.reward_names))
        return sha256(text.encode() + np.ascontiguousarray(self.rewards).tobytes()).hexdigest()

    def tables(self, piece: int, columns: Collection[str], rows: int) -> Iterator[Table]:
        """The rows of a piece, as they stand in the source, at most so many at once."""
        refuse_fork("Polars")
        first = 0
        for frame in self.source.read(piece, columns, rows):
            if not frame.height:  # partitions of a filtered Dask frame
                continue
            parts = self.source.parts(piece, first, frame.height)
            yield Table(frame, parts, tuple(frame.columns), notes=self.source.notes)
            first += frame.height

    def __getstate__(self) -> Mapping[str, Any]:
        """Without summaries: a worker is sent the bank, not what was learnt from it."""
        return {**vars(self), "_summaries": {}}


# The rows of a streamed bank, coded alike in every block: what a pass over all of them reads.


@dataclass(frozen=True)
class CodedRows:
    """A bank, the codings of its states and actions, and how many rows each task has. Small; it can be sent away."""

    bank: StreamedBank
    codings: tuple[Coding, ...]
    rows_per_task: Int[np.ndarray, " K"]

    @property
    def n_rows(self) -> int:
        """m."""
        return int(self.rows_per_task.sum())

    @property
    def n_pieces(self) -> int:
        """Pieces of the bank's source."""
        return self.bank.source.n_pieces

    def blocks(self, piece: int) -> Iterator[RowBlock]:
        """The rows of a piece."""
        roles = self.bank.roles
        for table in self.bank.tables(piece, {roles.task, *roles.variables}, self.bank.block_rows):
            fields = {name: value for coding in self.codings for name, value in coding.fields(table).items()}
            yield RowBlock(Demonstrations(**fields), columns.codes_of(table, roles.task, self.bank.names))
