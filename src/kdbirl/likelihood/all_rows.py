"""All rows of a bank that is too large for memory: the one question that is asked of them is the table S."""

from dataclasses import dataclass
from typing import NoReturn, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, Int

from kdbirl.errors import FileProblem
from kdbirl.likelihood.kernels import PairKernel
from kdbirl.progress import Progress


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


@dataclass(frozen=True)
class MissingRows:
    """Rows of a saved model whose files are gone: everything that does not need them still works."""

    rows_per_task: Int[np.ndarray, " K"]
    reason: str

    def task_log_sums(self, *_: object) -> NoReturn:
        """Says what is missing."""
        raise FileProblem(f"This model needs its training rows, and they cannot be read: {self.reason}")
