"""Identical rows collapsed: equal rows have equal kernels, so one row with a weight stands for all of them."""

import numpy as np
from jaxtyping import Float, Int


def distinct_rows(rows: Float[np.ndarray, "n d"]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Distinct rows (u, d) in sorted order, the index (n,) of each row among them, and their counts (u,)."""
    values, index, counts = np.unique(rows + 0.0, axis=0, return_inverse=True, return_counts=True)  # + 0.0: -0 is 0
    return values, index.reshape(-1), counts.astype(np.float64)


def collapse_by_task(
    rows: Float[np.ndarray, "m d"], tasks: Int[np.ndarray, " m"]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Distinct rows of each task, their weights and their tasks, sorted by task. Hashing, not sorting: cost O(m)."""
    import polars as pl

    names = [f"x{i}" for i in range(rows.shape[1])]
    frame = pl.from_numpy(rows + 0.0, schema=names, orient="row").with_columns(pl.Series("task", tasks))
    groups = (
        frame.group_by([*names, "task"], maintain_order=True)
        .agg(pl.len().alias("weight"))
        .sort("task", maintain_order=True)
    )
    return (
        np.ascontiguousarray(groups.select(names).to_numpy(), dtype=np.float64),
        groups["weight"].to_numpy().astype(np.float64),
        groups["task"].to_numpy().astype(np.int64),
    )
