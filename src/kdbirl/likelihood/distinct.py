"""Identical rows collapsed: equal rows have equal kernels, so one row with a weight stands for all of them."""

import numpy as np
from jaxtyping import Float, Int

from kdbirl.random_streams import stream
from kdbirl.threads import refuse_fork


def distinct_rows(rows: Float[np.ndarray, "n d"]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Distinct rows (u, d) in sorted order, the index (n,) of each row among them, and their counts (u,)."""
    values, index, counts = np.unique(rows + 0.0, axis=0, return_inverse=True, return_counts=True)  # + 0.0: -0 is 0
    return values, index.reshape(-1), counts.astype(np.float64)


def collapse_by_task(
    rows: Float[np.ndarray, "u d"], tasks: Int[np.ndarray, " m"], index: Int[np.ndarray, " m"] | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Distinct rows of each task, their weights and their tasks, sorted by task.

    Row j of the bank is `rows[index[j]]`, or `rows[j]` without an index: rows known to repeat need not be written out.
    """
    index = np.arange(len(rows)) if index is None else index
    pairs, counts = np.unique(tasks.astype(np.int64) * len(rows) + index, return_counts=True)
    of_task, of_row = np.divmod(pairs, len(rows))
    return weighted_by_task(rows, of_task, of_row, counts.astype(np.float64))


def weighted_by_task(
    rows: Float[np.ndarray, "u d"],
    of_task: Int[np.ndarray, " m"],
    of_row: Int[np.ndarray, " m"],
    weights: Float[np.ndarray, " m"],
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The same of rows `rows[of_row]` that have weights already."""
    import polars as pl

    refuse_fork("Polars")
    names = [f"x{i}" for i in range(rows.shape[1])]
    columns = [pl.Series("task", of_task), pl.Series("weight", weights)]
    frame = pl.from_numpy(rows[of_row] + 0.0, schema=names, orient="row").with_columns(columns)
    groups = frame.group_by(["task", *names], maintain_order=True).agg(pl.col("weight").sum())
    groups = groups.sort("task", maintain_order=True)
    return (
        np.ascontiguousarray(groups.select(names).to_numpy(), dtype=np.float64),
        groups["weight"].to_numpy().astype(np.float64),
        groups["task"].to_numpy().astype(np.int64),
    )


def order_by_content(
    rows: Float[np.ndarray, "m d"], rewards: Float[np.ndarray, "m q"], seed: int
) -> Int[np.ndarray, " m"]:
    """Rows along a random direction: seeded samples of rows in this order do not depend on the order of tasks and rows.

    Sums of each row by itself, since a matrix product may round equal rows differently.
    """
    rng = np.random.default_rng(stream(seed, "direction of rows"))
    along, by_reward = (np.sum(table * rng.normal(size=table.shape[1]), axis=1) for table in (rows, rewards))
    return np.lexsort((by_reward, along))
