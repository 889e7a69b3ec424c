"""Training tables on disk for the tests of streamed banks."""

from pathlib import Path

import numpy as np
import polars as pl

import kdbirl as kb

K = 6
REWARDS = {f"t{k}": vector for k, vector in enumerate(np.random.default_rng(7).random((K, 2)))}
CONTINUOUS = {"state": ["x", "y"], "action": "action", "rewards": REWARDS}
DISCRETE = {"state": "cell", "action": "action", "rewards": REWARDS, "discrete_states": True}


def table(rows: int, seed: int = 0) -> pl.DataFrame:
    """Steps of K tasks, shuffled episode by episode; a state of two numbers, or of a cell; three labelled actions."""
    rng = np.random.default_rng(seed)
    task = np.repeat(rng.integers(K, size=-(-rows // 20)), 20)[:rows]
    xy = np.stack(list(REWARDS.values()))[task] + 0.3 * rng.normal(size=(rows, 2))
    return pl.DataFrame(
        {
            "task": [f"t{k}" for k in task],
            "episode": np.arange(rows) // 20,
            "step": np.arange(rows) % 20,
            "x": xy[:, 0],
            "y": xy[:, 1],
            "cell": np.clip((xy * 4).astype(int), 0, 4) @ np.array([1, 5]),
            "action": rng.choice(["left", "stay", "up"], rows),
        }
    )


def written(directory: Path, frame: pl.DataFrame, files: int = 3, row_group: int = 100) -> Path:
    """The table as several Parquet files of small row groups."""
    directory.mkdir(exist_ok=True)
    size = -(-frame.height // files)
    for part in range(files):
        frame[part * size : (part + 1) * size].write_parquet(
            directory / f"part-{part}.parquet", row_group_size=row_group
        )
    return directory


def expert(frame: pl.DataFrame, rows: int = 15, cells: bool = False) -> kb.Demonstrations:
    """The first rows of a task."""
    own = frame.filter(pl.col("task") == "t1").head(rows)
    return (
        kb.read_demonstrations(own, state="cell", discrete_states=True, action="action")
        if cells
        else (kb.read_demonstrations(own, state=["x", "y"], action="action"))
    )
