"""Kernel sums in progress, on disk: a computation that was killed goes on where it was, with the same bits.

A file holds the table of all finished pieces, that of the piece in progress, and how far it has come. Its name is a
hash of everything that the sums depend on, so that other data, features, kernels or experts never meet it.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

import numpy as np
from jaxtyping import Float

from kdbirl.errors import FileProblem
from kdbirl.files import whole_or_not_at_all

SECONDS_BETWEEN = 10.0  # of work that a kill may cost


@dataclass
class Progressing:
    """Sums so far: `finished` over whole pieces, `current` over `blocks` blocks of piece number `piece`."""

    finished: Float[np.ndarray, "n K"]
    current: Float[np.ndarray, "n K"]
    piece: int = 0
    blocks: int = 0

    @classmethod
    def empty(cls, n: int, n_tasks: int) -> "Progressing":
        """Nothing yet."""
        return cls(np.full((n, n_tasks), -np.inf), np.full((n, n_tasks), -np.inf))

    def add(self, sums: Float[np.ndarray, "n K"]) -> None:
        """The sums of the next block."""
        self.current = np.logaddexp(self.current, sums)
        self.blocks += 1

    def end_piece(self) -> None:
        """All blocks of the piece are in."""
        self.finished = np.logaddexp(self.finished, self.current)
        self.current = np.full_like(self.current, -np.inf)
        self.piece, self.blocks = self.piece + 1, 0


@dataclass
class Checkpoint:
    """Where sums in progress are kept: in `directory`, or nowhere if it is None."""

    directory: str | None
    key: str
    _saved: float = field(default_factory=time.monotonic)

    @classmethod
    def of(cls, directory: str | None, depends_on: Sequence[bytes]) -> "Checkpoint":
        """A file for everything that the sums depend on."""
        digest = sha256()
        for part in depends_on:
            digest.update(len(part).to_bytes(8, "little") + part)
        return cls(directory, digest.hexdigest()[:32])

    @property
    def path(self) -> Path | None:
        """The file."""
        return None if self.directory is None else Path(self.directory).expanduser() / f"sums-{self.key}.npz"

    def load(self, n: int, n_tasks: int) -> Progressing:
        """What was done before; a file that cannot be read counts as nothing done."""
        if self.path is None or not self.path.is_file():
            return Progressing.empty(n, n_tasks)
        try:
            with self.path.open("rb") as stream, np.load(stream, allow_pickle=False) as found:
                finished, current = found["finished"], found["current"]
                piece, blocks = (int(value) for value in found["place"])
        except Exception:  # zipfile, zlib and NumPy raise whatever they stumble over in a damaged file
            return Progressing.empty(n, n_tasks)
        return Progressing(finished, current, piece, blocks)

    def save(self, sums: Progressing, at_once: bool = False) -> None:
        """Write the file whole or not at all, if enough time has passed."""
        if self.path is None or (not at_once and time.monotonic() - self._saved < SECONDS_BETWEEN):
            return
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise FileProblem(f"{self.path.parent} cannot be made for checkpoints: {error.strerror}.") from error
        place = np.array([sums.piece, sums.blocks])
        with whole_or_not_at_all(self.path) as unfinished, unfinished.open("wb") as stream:
            np.savez(stream, allow_pickle=False, finished=sums.finished, current=sums.current, place=place)
        self._saved = time.monotonic()
