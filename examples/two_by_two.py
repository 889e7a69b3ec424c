"""The paper's smallest world, end to end: a 2x2 grid, a training task per cell, an expert who wants the last cell.

It writes the tables that a user would bring (training.parquet, rewards.csv, expert.csv), runs `kdbirl fit` on them as a
user would, and looks at the posterior. `make demo` calls it.
"""

# %% Everything that it needs
import argparse
import subprocess
import sys
from itertools import count
from pathlib import Path

import numpy as np

import kdbirl as kb

ACTIONS = ("NO ACTION", "UP", "RIGHT", "LEFT", "DOWN")
MOVES = {"NO ACTION": (0, 0), "UP": (0, 1), "RIGHT": (1, 0), "LEFT": (-1, 0), "DOWN": (0, -1)}
SIZE = 2
EPISODES, STEPS = 20, 5


# %% How agents walk
def optimal_actions(cell: int, goal: int) -> list[str]:
    """All first steps of a shortest way to the goal; at the goal, stay."""
    x, y, goal_x, goal_y = cell % SIZE, cell // SIZE, goal % SIZE, goal // SIZE
    actions = [("RIGHT" if goal_x > x else "LEFT")] * (goal_x != x) + [("UP" if goal_y > y else "DOWN")] * (goal_y != y)
    return actions or ["NO ACTION"]


def episodes(goal: int, count: int, rng: np.random.Generator) -> kb.Demonstrations:
    """Walks from random cells to the goal, ties broken at random."""
    cells, actions = [], []
    for _ in range(count):
        cell = int(rng.integers(SIZE**2))
        for _ in range(STEPS):
            action = str(rng.choice(optimal_actions(cell, goal)))
            cells.append(cell)
            actions.append(ACTIONS.index(action))
            cell += MOVES[action][0] + SIZE * MOVES[action][1]
    return kb.Demonstrations(
        states=np.array(cells),
        actions=np.array(actions),
        episodes=np.repeat(np.arange(count), STEPS),
        n_states=SIZE**2,
        n_actions=len(ACTIONS),
        action_labels=ACTIONS,
    )


# %% The tables of a user
def write_tables(folder: Path, seed: int) -> None:
    """The three files of a user: training demonstrations, their rewards, and the expert's few demonstrations."""
    rng = np.random.default_rng(seed)
    tasks = {f"goal {goal}": (episodes(goal, EPISODES, rng), np.eye(SIZE**2)[goal]) for goal in range(SIZE**2)}
    bank = kb.TaskBank.from_tasks(tasks, reward_names=[f"cell {i}" for i in range(SIZE**2)])
    kb.write_task_bank(bank, folder / "training.parquet", folder / "rewards.csv")
    kb.write_demonstrations(episodes(SIZE**2 - 1, 4, rng), folder / "expert.csv")


# %% Fit them, and look
def main(out: Path, seed: int = 0) -> np.ndarray:
    """Run the example; gives the posterior mean of the four cells' rewards. The truth is [0, 0, 0, 1]."""
    tables = out / "tables"
    tables.mkdir(parents=True, exist_ok=True)
    write_tables(tables, seed)
    run = next(place for number in count(1) if not (place := out / f"run-{number}").exists())
    command = ["kdbirl", "fit", "--training", "training.parquet", "--rewards", "rewards.csv", "--expert", "expert.csv"]
    command += [
        "--state",
        "state",
        "--action",
        "action",
        "--discrete-states",
        "--n-states",
        "4",
        "--features",
        "onehot",
    ]
    command += ["--prior", "uniform:0,1", "--bandwidth", "0.7,0.63", "--out", str(run.resolve())]
    print("$ " + " ".join(f"'{word}'" if " " in word else word for word in command), flush=True)
    subprocess.run([sys.executable, "-m", *command], cwd=tables, check=True)
    post = kb.load_posterior(run / "posterior.nc")
    print(f"\nThe expert wants the last cell. P(cell 3 has the highest reward) = {most_likely_last(post):.2f}")
    print(f"Open {run / 'report.html'}")
    return post.mean()


def most_likely_last(post: kb.Posterior) -> float:
    """The posterior probability that the last cell has the highest reward."""
    return post.probability(
        lambda reward: np.stack([reward[name] for name in post.names]).argmax(axis=0) == SIZE**2 - 1
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("demo-run"))
    main(parser.parse_args().out)
