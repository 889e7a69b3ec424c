# %% [markdown]
# # Your own CSV files: from tables as people have them to a report
#
# A notebook as a plain script; run it in an empty directory. The tables are made up here, and awkward on purpose:
# semicolons, decimal commas, a byte-order mark, names with spaces, actions as words.

# %% Twelve mice that walk to a goal that is known, and one whose goal is not
import subprocess
import sys
from pathlib import Path

import numpy as np

import kdbirl as kb

rng = np.random.default_rng(0)
HIDDEN = np.array([0.8, 0.3])


def walks(goal, episodes):
    """Six steps to a goal, a row per step: episode, step, x, y, what it did."""
    for episode in range(episodes):
        place = rng.uniform(0, 1, 2)
        for step in range(6):
            gap = goal - place
            axis = int(np.argmax(np.abs(gap)))
            yield episode, step, *place, ("left", "right", "down", "up")[2 * axis + int(gap[axis] > 0)]
            place = place + 0.5 * gap + rng.normal(0, 0.02, 2)


def write(name, head, rows):
    """As a spreadsheet exports it in half of Europe."""
    cells = ([f"{v:.4f}".replace(".", ",") if isinstance(v, float) else str(v) for v in row] for row in rows)
    lines = [";".join(line) for line in [head, *cells]]
    Path(name).write_text("\r\n".join(lines) + "\r\n", encoding="utf-8-sig", newline="")


goals = {f"mouse {k}": rng.uniform(0, 1, 2) for k in range(12)}
columns = ["episode", "step", "pos x", "pos y", "what it did"]
write("mice.csv", ["task", *columns], [(name, *row) for name, goal in goals.items() for row in walks(goal, 8)])
write("goals.csv", ["task", "goal x", "goal y"], [(name, *goal) for name, goal in goals.items()])
write("new mouse.csv", columns, walks(HIDDEN, 3))

# %% Fit, as on the command line
command = ["fit", "--training", "mice.csv", "--rewards", "goals.csv", "--expert", "new mouse.csv"]
command += ["--state", "pos x,pos y", "--action", "what it did", "--prior", "uniform:0,1", "--out", "run"]
subprocess.run([sys.executable, "-m", "kdbirl", *command], check=True)

# %% Look: run/report.html in a browser, and go on in Python
post = kb.load_posterior("run/posterior.nc")
print(post.summary())
kb.plot_marginals(post, true=HIDDEN)

# %% The numbers that a test looks at
low, high = np.quantile(post.flat, [0.05, 0.95], axis=0)
numbers = {
    "inside_90": int(((low <= HIDDEN) & (high >= HIDDEN)).sum()),
    "error": float(np.abs(post.mean() - HIDDEN).max()),
    "megabytes": Path("run/report.html").stat().st_size / 1e6,
}
print(numbers)
