"""Training tasks that play the test task: n rows of each, in whole episodes, as an expert would have shown them."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from kdbirl.demos.data import TaskBank
from kdbirl.features import FeatureMap
from kdbirl.random_streams import stream

ROWS_KEPT = 200_000  # over all tasks: what is kept of a large bank to play with


@dataclass(frozen=True)
class Plays:
    """Feature rows of every task, its episodes in random order.

    rows: distinct feature rows; `index (r,)` finds row j of the plays among them; `first (K + 1,)` says where each
    task's rows begin. Episodes stay whole and in their order. A task of a single episode starts at a random row, and
    goes on from its first row after its last.
    """

    rows: Float[np.ndarray, "u d"]
    index: Int[np.ndarray, " r"]
    first: Int[np.ndarray, " tasks_and_end"]

    @classmethod
    def from_bank(cls, bank: TaskBank, features: FeatureMap, seed: int) -> "Plays":
        """Shuffle each task's episodes, and keep whole episodes up to a task's share of `ROWS_KEPT`."""
        rng, episodes = np.random.default_rng(stream(seed, "plays")), bank.demonstrations.episodes
        share = max(ROWS_KEPT // bank.n_tasks, 1)
        ends = np.cumsum(bank.rows_per_task)
        chosen = [
            start + _in_random_order(episodes[start:end], rng)[:share]
            for start, end in zip(ends - bank.rows_per_task, ends, strict=True)
        ]
        rows, index = features.distinct(bank.demonstrations.take(np.concatenate(chosen)))
        return cls(rows, index.astype(np.int64), np.concatenate([[0], np.cumsum([len(c) for c in chosen])]))

    @property
    def sizes(self) -> Int[np.ndarray, " K"]:
        """Rows of each task."""
        return np.diff(self.first)

    def of_task(self, task: int, n: int, most: int) -> list[Int[np.ndarray, " _"]]:
        """Up to `most` disjoint plays of n rows of one task (its first n rows, the next, ...); one if it has fewer."""
        own = self.index[self.first[task] : self.first[task + 1]]
        count = max(min(len(own) // n, most), 1)
        return [own[i * n : (i + 1) * n] for i in range(count)]


def _in_random_order(episodes: Int[np.ndarray, " rows"], rng: np.random.Generator) -> Int[np.ndarray, " rows"]:
    labels = np.unique(episodes)
    if len(labels) == 1:  # perhaps no episodes are known: neighbours stay neighbours
        return np.roll(np.arange(len(episodes)), -int(rng.integers(len(episodes))))
    place = rng.permutation(len(labels))[np.searchsorted(labels, episodes)]
    return np.argsort(place, kind="stable")
