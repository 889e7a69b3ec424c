"""Seeded samples of rows and of whole episodes that do not depend on the order in which pieces are read.

Every row, and every episode, gets a key: a hash of the seed and of where it is. Kept are those with the lowest keys. So
a sample of a whole bank is a merge of samples of its pieces.
"""

import numpy as np
import polars as pl
from jaxtyping import Bool, Float, Int, UInt64

from kdbirl.data import columns
from kdbirl.data.tables import Table

ROWS_SAMPLED = 200_000  # rows that stand for all of them, over all tasks
FEWEST_OF_A_TASK = 200  # of each task in a piece, if it has so many
PLAYED_ROWS = 200_000  # rows in whole episodes, over all tasks
RUN = 1024  # without an episode column, so many neighbouring rows stand for an episode

TASK, KEY, PIECE, ROW, EPISODE = "(task)", "(key)", "(piece)", "(row)", "(episode)"  # no column of a user's


def keys(numbers: np.ndarray, *salt: int) -> UInt64[np.ndarray, " rows"]:
    """Hashes that look like independent uniform draws of 64 bits (the finaliser of SplitMix64)."""
    state = np.array([0x9E3779B97F4A7C15], dtype=np.uint64)
    for value in salt:
        state = _mixed(state + np.array([value % 2**64], dtype=np.uint64) * np.uint64(0xD1342543DE82EF95))
    return _mixed(numbers.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + state)


def _mixed(z: np.ndarray) -> np.ndarray:
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def as_fraction(key: UInt64[np.ndarray, "*shape"]) -> Float[np.ndarray, "*shape"]:
    """Keys as numbers in [0, 1)."""
    return (key >> np.uint64(11)).astype(np.float64) * 2.0**-53


def rates_of(rows_per_task: Int[np.ndarray, " K"], n_rows: int | None) -> Float[np.ndarray, " K"]:
    """The share of each task's rows in a piece that are kept for the sample; `n_rows` are those of the whole bank."""
    counts = np.maximum(rows_per_task, 1)
    if n_rows is None:
        return np.minimum(1.0, ROWS_SAMPLED / len(counts) / counts)
    return np.minimum(1.0, np.maximum(1.5 * ROWS_SAMPLED / n_rows, FEWEST_OF_A_TASK / counts))


def thinned(sample: pl.DataFrame, rates: Float[np.ndarray, " K"]) -> pl.DataFrame:
    """The rows of a sample with keys below their task's rate."""
    kept = as_fraction(sample[KEY].to_numpy()) < rates[sample[TASK].to_numpy()]
    return sample.filter(pl.Series(kept))


def not_too_many(sample: pl.DataFrame, rates: Float[np.ndarray, " K"]) -> tuple[pl.DataFrame, Float[np.ndarray, " K"]]:
    """A sample that has grown too large, with lower rates for the tasks that have more than their share of it."""
    if sample.height <= 2 * ROWS_SAMPLED:
        return sample, rates
    counts = np.bincount(sample[TASK].to_numpy(), minlength=len(rates))
    share = max(ROWS_SAMPLED / len(rates), FEWEST_OF_A_TASK)
    lower = rates * np.minimum(1.0, share / np.maximum(counts, 1))
    return thinned(sample, lower), lower


def with_places(
    frame: pl.DataFrame, piece: int, rows: Int[np.ndarray, " rows"], episodes: UInt64[np.ndarray, " rows"]
) -> pl.DataFrame:
    """The frame with each row's place, and the key of its episode."""
    pieces = np.full(len(rows), piece, dtype=np.int64)
    return frame.hstack([pl.Series(PIECE, pieces), pl.Series(ROW, rows), pl.Series(EPISODE, episodes)])


def play_rate(n_rows: int | None) -> float:
    """Keys of episodes below this share of their range are looked at: several times as many as will be kept."""
    return 1.0 if n_rows is None else min(1.0, 8.0 * PLAYED_ROWS / n_rows)


def some_episodes(
    table: Table, episode: str | None, piece: int, first: int, seed: int, n_rows: int | None
) -> tuple[Int[np.ndarray, " kept"], UInt64[np.ndarray, " kept"]]:
    """Rows of the episodes with low keys, and these keys.

    Without an episode column, a run of neighbouring rows stands for an episode. Episodes of different tasks may share a
    number, and then a key: they are chosen together.
    """
    rate, height = play_rate(n_rows), table.frame.height
    limit = np.uint64(2**64 - 1) if rate >= 1.0 else np.uint64(rate * 2.0**64)
    if episode is None:
        runs = np.arange(first // RUN, (first + height - 1) // RUN + 1)
        key = keys(runs, seed, piece, 2)
        low = np.flatnonzero(key <= limit)
        rows = ((runs[low] * RUN - first)[:, None] + np.arange(RUN)[None]).reshape(-1)
        inside = (rows >= 0) & (rows < height)
        return rows[inside], np.repeat(key[low], RUN)[inside]
    label = table.column(episode)
    columns.check_filled(table, episode, label.is_null())
    whole = label.dtype.is_integer()
    text = label if whole else columns.labels(table, episode).hash(seed)
    numbers = text.cast(pl.UInt64, wrap_numerical=True).to_numpy()
    starts = np.flatnonzero(_differs(numbers))  # one for each run of rows of an episode, which mostly stand together
    sizes, key = np.diff(np.append(starts, height)), keys(numbers[starts], seed, 3)
    kept = key <= limit
    return np.flatnonzero(np.repeat(kept, sizes)), np.repeat(key[kept], sizes[kept])


def few_plays(plays: pl.DataFrame, n_tasks: int) -> pl.DataFrame:
    """As they are while they are few, and else the first episodes, among which are those of any bank with more rows."""
    return first_episodes(plays, n_tasks) if many_plays(plays.height) else plays


def many_plays(rows: int) -> bool:
    """Whether so many rows are more than wait in memory until some are chosen; a bank of fewer rows keeps all."""
    return rows > 4 * PLAYED_ROWS


def first_episodes(plays: pl.DataFrame, n_tasks: int) -> pl.DataFrame:
    """Of each task the episodes with the lowest keys, until they have the task's share of the rows that are played."""
    share = max(PLAYED_ROWS // n_tasks, 1)
    tasks, key = plays[TASK].to_numpy(), plays[EPISODE].to_numpy()
    starts = np.flatnonzero(_differs(tasks) | _differs(key))  # runs of one episode: few, where rows stand in order
    sizes = np.diff(np.append(starts, len(tasks)))
    order = np.lexsort((key[starts], tasks[starts]))
    of_task, of_key = tasks[starts][order], key[starts][order]
    first = _differs(of_task) | _differs(of_key)  # an episode may come in several runs
    episode = np.cumsum(first) - 1
    rows = np.bincount(episode, weights=sizes[order])
    before = np.cumsum(rows) - rows
    new_task = _differs(of_task[first])
    before -= before[new_task][np.cumsum(new_task) - 1]  # counted from the first episode of the task
    kept = np.empty(len(starts), dtype=bool)
    kept[order] = (before < share)[episode]
    return plays.filter(pl.Series(np.repeat(kept, sizes)))


def _differs(values: np.ndarray) -> Bool[np.ndarray, " rows"]:
    """Where a value is not that of the row before; true in the first row."""
    return np.concatenate([np.ones(min(len(values), 1), dtype=bool), values[1:] != values[:-1]])
