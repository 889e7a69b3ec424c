"""All rows of a bank that is too large for memory: the one question that is asked of them is the table S."""

from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, NoReturn, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, Int

from kdbirl.errors import FileProblem
from kdbirl.likelihood.kernels import PairKernel
from kdbirl.progress import Progress

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
