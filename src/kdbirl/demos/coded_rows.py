"""The rows of a streamed bank, coded alike in every block: what a pass over all of them reads."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

from kdbirl.demos import columns
from kdbirl.demos.data import Demonstrations
from kdbirl.demos.streamed_bank import RowBlock, StreamedBank
from kdbirl.demos.variable_facts import Coding


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
