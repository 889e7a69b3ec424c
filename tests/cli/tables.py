"""Small tables as a user would bring them: three training tasks in a plane, and an expert who does as task `b` does."""

from pathlib import Path

import numpy as np
import polars as pl

GOALS = {"a": (0.1, 0.2), "b": (0.9, 0.1), "c": (0.5, 0.9)}
ACTIONS = ("left", "right", "stay")
STEPS = 4


def rows_of(goal: tuple[float, float], episodes: int, rng: np.random.Generator) -> list[tuple]:
    """Walks in the neighbourhood of a goal: (episode, step, x, y, action), rounded so that text keeps every digit."""
    table = []
    for episode in range(episodes):
        for step in range(STEPS):
            x, y = (round(float(0.7 * goal[i] + 0.3 * rng.uniform()), 4) for i in range(2))
            action = ACTIONS[0] if x > goal[0] + 0.05 else ACTIONS[1] if x < goal[0] - 0.05 else ACTIONS[2]
            table.append((episode, step, x, y, action))
    return table


def training() -> pl.DataFrame:
    rng = np.random.default_rng(0)
    rows = [(task, *row) for task, goal in GOALS.items() for row in rows_of(goal, 6, rng)]
    return pl.DataFrame(rows, ["task", "episode", "step", "x", "y", "action"], orient="row")


def rewards() -> pl.DataFrame:
    return pl.DataFrame([(task, *goal) for task, goal in GOALS.items()], ["task", "w_x", "w_y"], orient="row")


def expert() -> pl.DataFrame:
    rows = rows_of(GOALS["b"], 3, np.random.default_rng(1))
    return pl.DataFrame(rows, ["episode", "step", "x", "y", "action"], orient="row")


def write_tables(folder: Path) -> None:
    """The three files of README's examples."""
    training().write_parquet(folder / "training.parquet")
    rewards().write_csv(folder / "rewards.csv")
    expert().write_csv(folder / "expert.csv")
