"""Training tasks that play the test task: n rows of each, in whole episodes, as an expert would have shown them."""

from dataclasses import dataclass
from hashlib import sha256

import numpy as np
from jaxtyping import Float, Int, UInt64

from kdbirl.demos.data import Demonstrations, TaskBank
from kdbirl.demos.row_sampling import keys
from kdbirl.features import FeatureMap

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
        """Shuffle each task's episodes, and keep whole episodes up to a task's share of `ROWS_KEPT`.

        The order follows from the seed and from what is in the episodes: not from names, nor from the order of tasks
        and episodes in the bank.
        """
        key, episode = episode_keys(bank, seed), bank.episode_index
        order = np.lexsort((episode, key[episode], bank.tasks))
        share, chosen = max(ROWS_KEPT // bank.n_tasks, 1), []
        for own in np.split(order, np.cumsum(bank.rows_per_task)[:-1]):
            if episode[own[0]] == episode[own[-1]]:  # perhaps no episodes are known: neighbours stay neighbours
                own = np.roll(own, -int(key[episode[own[0]]] % np.uint64(len(own))))
            chosen.append(own[:share])
        rows, index = features.distinct(bank.demonstrations.take(np.concatenate(chosen)))
        return cls(rows, index.astype(np.int64), np.concatenate([[0], np.cumsum([len(c) for c in chosen])]))

    @property
    def sizes(self) -> Int[np.ndarray, " K"]:
        """Rows of each task."""
        return np.diff(self.first)

    def of_task(self, task: int, n: int, count: int) -> list[Int[np.ndarray, " _"]]:
        """So many plays of n rows of one task: disjoint ones, or, of too few rows, ones that begin evenly apart.

        The first row follows the last one. A play of a task with fewer rows than n has them all.
        """
        own = self.index[self.first[task] : self.first[task + 1]]
        apart, rows = min(n, len(own) / count), np.arange(min(n, len(own)))
        return [own[(int(i * apart) + rows) % len(own)] for i in range(count)]


def episode_keys(bank: TaskBank, seed: int) -> UInt64[np.ndarray, " episodes"]:
    """Hashes of each episode's rows in their order, its task's reward, and the seed.

    Rows are raw states and actions: features round differently where the tasks stand in another order.
    """
    episode = bank.episode_index
    by_episode = np.argsort(episode, kind="stable")
    starts = np.flatnonzero(np.diff(episode[by_episode], prepend=-1))
    step = np.arange(len(episode)) - np.repeat(starts, np.diff(starts, append=len(episode)))
    content = np.add.reduceat(keys(_row_keys(bank.demonstrations)[by_episode] ^ keys(step, 1)), starts)
    reward = _folded(bank.rewards.T)[bank.tasks[by_episode[starts]]]
    return keys(content ^ keys(reward, 2), seed)


def _row_keys(rows: Demonstrations) -> UInt64[np.ndarray, " rows"]:
    """A hash of each row's state and action, by their labels where they have any."""
    variables = [(rows.states, rows.state_labels)]
    if rows.actions is not None:
        variables.append((rows.actions, rows.action_labels))
    columns: list[np.ndarray] = []
    for values, labels in variables:
        if labels is None:
            columns += list(np.atleast_2d(values.T))
        else:
            digests = [int.from_bytes(sha256(label.encode(errors="surrogatepass")).digest()[:6]) for label in labels]
            columns.append(np.array(digests)[values])
    return _folded(columns)


def _folded(columns: "list[np.ndarray] | np.ndarray") -> UInt64[np.ndarray, " rows"]:
    """One hash of the numbers in each row of these columns; 1 and 1.0 are one number, and so are 0 and -0."""
    found = np.zeros(len(columns[0]), dtype=np.uint64)
    for column in columns:
        found = keys(found ^ (np.asarray(column, dtype=np.float64) + 0.0).view(np.uint64))
    return found
