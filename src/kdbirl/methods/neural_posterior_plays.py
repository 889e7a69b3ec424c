"""Training data of the neural posterior: training tasks that play the test task, over and over, each time differently.

A play is a random task, a random order of its episodes, and its first rows in that order: whole episodes, but for the
last one. A task of a single episode starts at a random row, and goes on from its first row after its last.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from kdbirl.demos.data import TaskBank
from kdbirl.features import FeatureMap
from kdbirl.methods.neural_posterior_network import Sets

DENSE = 4096  # distinct rows up to which a play is a weight for each of them, ...
DENSE_SHARE = 16  # ... and not more than so many times a play's rows
MOST_ROWS = 1000  # of a play, where the user names no number
CELLS = 2**22  # of the table of a block of plays


@dataclass(frozen=True, eq=False)
class InputScale:
    """(x - centre) / scale of each feature; columns with finitely many values by construction stay as they are."""

    centre: Float[np.ndarray, " d"]
    scale: Float[np.ndarray, " d"]

    @classmethod
    def learn(cls, rows: Float[np.ndarray, "u d"], discrete: tuple[int, ...]) -> "InputScale":
        """From the distinct rows of the bank."""
        centre, spread = rows.mean(axis=0), rows.std(axis=0)
        scale = np.where(spread > 0, spread, 1.0)
        centre[list(discrete)], scale[list(discrete)] = 0.0, 1.0
        return cls(centre, scale)

    def __call__(self, rows: Float[np.ndarray, "u d"]) -> np.ndarray:
        return ((rows - self.centre) / self.scale).astype(np.float32)


@dataclass(frozen=True, eq=False)
class PlayGround:
    """The bank's rows as plays need them, and how long plays are.

    rows: distinct feature rows; `index (m,)`: which one each bank row is; tasks, episodes `(m,)`: of each bank row
    (episodes numbered over the whole bank); n: rows of a play, None for random numbers up to a task's own.
    """

    rows: Float[np.ndarray, "u d"]
    index: Int[np.ndarray, " m"]
    tasks: Int[np.ndarray, " m"]
    episodes: Int[np.ndarray, " m"]
    n: int | None

    @classmethod
    def of(cls, bank: TaskBank, features: FeatureMap, n: int | None) -> "PlayGround":
        """All rows of a bank."""
        rows, index = features.distinct(bank.demonstrations)
        return cls(rows, index, bank.tasks, bank.episode_index, n)

    @property
    def sizes(self) -> Int[np.ndarray, " K"]:
        """Rows of each task."""
        return np.bincount(self.tasks)

    @property
    def longest(self) -> int:
        """The most rows that a play has."""
        return min(int(self.sizes.max()), MOST_ROWS if self.n is None else self.n)

    @property
    def dense(self) -> bool:
        """Whether plays are weights of all distinct rows, which are then embedded once for a whole batch."""
        return len(self.rows) <= min(DENSE, DENSE_SHARE * self.longest)

    @property
    def table_length(self) -> int:
        """Rows of the table that the network is given: a power of two, so that banks share few compiled programs."""
        return 2 ** int(np.ceil(np.log2(len(self.rows))))

    @property
    def width(self) -> int:
        """Cells that one play takes."""
        return max(self.longest, self.table_length) if self.dense else self.longest

    def table(self, scale: InputScale) -> np.ndarray:
        """The distinct rows as the network sees them, filled up with zeros."""
        rows = scale(self.rows)
        return np.concatenate([rows, np.zeros((self.table_length - len(rows), rows.shape[1]), np.float32)])

    def plays(self, tasks: Int[np.ndarray, " p"], rng: np.random.Generator) -> Sets:
        """A play of each of these tasks."""
        order, starts = self._shuffled(tasks, rng)
        count, size = self._lengths(tasks, rng), self.sizes[tasks]
        first = np.searchsorted(self.tasks, tasks)
        step = np.arange(self.longest)
        place = first[:, None] + (starts[:, None] + step) % size[:, None]
        shown = step < count[:, None]
        return self._sets(self.index[order[place]], shown, count)

    def _lengths(self, tasks: Int[np.ndarray, " p"], rng: np.random.Generator) -> Int[np.ndarray, " p"]:
        """n rows, or as many as there are; without n a number from 1 up, its logarithm uniform."""
        most = np.minimum(self.sizes[tasks], self.longest)
        if self.n is not None:
            return most
        return np.minimum(np.exp(rng.uniform(0, np.log(most + 1.0))).astype(np.int64), most)

    def _shuffled(
        self, tasks: Int[np.ndarray, " p"], rng: np.random.Generator
    ) -> tuple[Int[np.ndarray, " m"], Int[np.ndarray, " p"]]:
        """Bank rows, each task's episodes in random order, and where in its task each play starts: with an episode."""
        episodes = int(self.episodes.max()) + 1
        order = np.lexsort((rng.random(episodes)[self.episodes], self.tasks))
        new = np.ones(len(order), dtype=bool)
        new[1:] = np.diff(self.episodes[order]) != 0
        begins = np.flatnonzero(new)
        per_task = np.bincount(self.tasks[begins], minlength=len(self.sizes))
        of_task = np.concatenate([[0], np.cumsum(per_task)])[tasks]
        chosen = begins[of_task + (rng.random(len(tasks)) * per_task[tasks]).astype(np.int64)]
        anywhere = (rng.random(len(tasks)) * self.sizes[tasks]).astype(np.int64)
        starts = np.where(per_task[tasks] == 1, anywhere, chosen - np.searchsorted(self.tasks, tasks))
        return order, starts

    def _sets(self, rows: Int[np.ndarray, "p n"], shown: np.ndarray, count: Int[np.ndarray, " p"]) -> Sets:
        weight = (shown / count[:, None]).astype(np.float32)
        counts = count.astype(np.float32)
        if not self.dense:
            return Sets(rows.astype(np.int32), weight, counts)  # type: ignore[arg-type]
        p, u = len(rows), self.table_length
        cells = np.bincount((np.arange(p)[:, None] * u + rows).ravel(), weight.ravel(), minlength=p * u)
        return Sets(None, cells.reshape(p, u).astype(np.float32), counts)  # type: ignore[arg-type]
