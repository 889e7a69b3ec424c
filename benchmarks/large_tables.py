"""Training tables of up to 10^8 rows on disk, written in blocks: what the streaming benchmark reads."""

from pathlib import Path

import numpy as np

FILE_ROWS = 10_000_000
GROUP_ROWS = 1_000_000  # PyArrow's own default is 1,048,576
EPISODE_ROWS = 100  # neighbouring rows of one task
TASKS, STATES, ACTIONS = 100, 500, 8


def rewards() -> dict[str, np.ndarray]:
    """A reward vector of three weights for each of the 100 tasks, which are called 0 to 99."""
    return {str(k): vector for k, vector in enumerate(np.random.default_rng(1).normal(size=(TASKS, 3)))}


def write_continuous(directory: Path, rows: int) -> None:
    """`task, x, y, z`: three float64 features around the task's weights."""
    centres = np.stack(list(rewards().values()))

    def block(rng: np.random.Generator, tasks: np.ndarray) -> dict[str, np.ndarray]:
        features = 0.5 * centres[tasks] + rng.normal(size=(len(tasks), 3))
        return {"task": tasks.astype(np.int32), **{name: features[:, i] for i, name in enumerate("xyz")}}

    _write(directory, rows, block)


def write_discrete(directory: Path, rows: int) -> None:
    """`task, state, action`: 500 states, each task's own favourite ones, and 8 actions, as int32."""

    def block(rng: np.random.Generator, tasks: np.ndarray) -> dict[str, np.ndarray]:
        states = (5 * tasks + rng.integers(0, 50, len(tasks))) % STATES
        actions = rng.integers(0, ACTIONS, len(tasks))
        columns = {"task": tasks, "state": states, "action": actions}
        return {name: values.astype(np.int32) for name, values in columns.items()}

    _write(directory, rows, block)


def _write(directory: Path, rows: int, block: object) -> None:
    """Files of at most ten million rows, in row groups of a million; each group has its own seed."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    directory.mkdir(parents=True)
    for start in range(0, rows, FILE_ROWS):
        writer = None
        for first in range(start, min(start + FILE_ROWS, rows), GROUP_ROWS):
            rng, size = np.random.default_rng([2, first]), min(GROUP_ROWS, rows - first)
            tasks = np.repeat(rng.integers(0, TASKS, -(-size // EPISODE_ROWS)), EPISODE_ROWS)[:size]
            table = pa.table(block(rng, tasks))  # type: ignore[operator]
            path = directory / f"part-{start // FILE_ROWS:03d}.parquet"
            writer = writer or pq.ParquetWriter(path, table.schema)
            writer.write_table(table, row_group_size=GROUP_ROWS)
        if writer is not None:
            writer.close()
