"""Fit after fit in one process: does memory stay flat?

    python scripts/soak.py MINUTES TABLE.csv          a line for each fit: seconds, resident megabytes, memory maps
    python scripts/soak.py draw TABLE.csv PICTURE     memory against time, and its growth over the last half hour

Fits have many sizes and two samplers, as in the process of a service, so that new programs are compiled all the time.
"""

import csv
import sys
import time
import warnings
from pathlib import Path

import numpy as np

import kdbirl as kb
from kdbirl._jax import memory_maps


def fit(number: int) -> None:
    """One fit; the sizes go round in 24 combinations."""
    rng = np.random.default_rng(number)
    tasks, n = 4 + number % 6, 5 + 7 * (number % 4)
    rewards = rng.normal(size=(tasks, 2))
    of_row = np.repeat(np.arange(tasks), 10)
    states = rewards[of_row] + rng.normal(size=(len(of_row), 2))
    bank = kb.TaskBank.from_arrays(states=states, actions=None, tasks=of_row, rewards=rewards)
    sampler = kb.NUTS(chains=2, warmup=100, draws=100) if number % 2 else kb.Grid(draws=200)
    model = kb.KDBIRL(prior=kb.Uniform(-4, 4), features=kb.Identity(), bandwidth="median", sampler=sampler)
    model.fit(bank).posterior(kb.Demonstrations(states=rng.normal(size=(n, 2)), actions=None), seed=number).summary()


def resident() -> float:
    """Megabytes of this process in memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 2**20


def draw(table: Path, picture: Path) -> None:
    """What the documentation shows."""
    from matplotlib.figure import Figure

    with table.open() as stream:
        rows = [(float(row["seconds"]) / 60, float(row["megabytes"])) for row in csv.DictReader(stream)]
    minutes, megabytes = np.array(rows).T
    last = megabytes[minutes >= minutes[-1] - 30]
    growth = 100 * (last[-1] / last[0] - 1)
    figure = Figure(figsize=(7, 2.8), layout="constrained")
    axes = figure.add_subplot()
    axes.plot(minutes, megabytes, color="#0072b2")
    axes.axvspan(minutes[-1] - 30, minutes[-1], color="#0072b2", alpha=0.08, linewidth=0)
    axes.text(minutes[-1] - 29.5, 0.06 * megabytes.max(), f"last half hour: {growth:+.2f} %", fontsize=9)
    axes.set(xlabel="minutes", ylabel="resident memory, MiB", xlim=(0, minutes[-1]), ylim=(0, 1.2 * megabytes.max()))
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(picture, dpi=110)
    print(f"{len(megabytes)} fits, {growth:+.2f} % over the last half hour")


def main() -> None:
    warnings.simplefilter("ignore")
    if sys.argv[1] == "draw":
        return draw(Path(sys.argv[2]), Path(sys.argv[3]))
    minutes, table = float(sys.argv[1]), Path(sys.argv[2])
    began, number = time.monotonic(), 0
    with table.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["fit", "seconds", "megabytes", "maps"])
        while time.monotonic() - began < 60 * minutes:
            fit(number)
            number += 1
            writer.writerow([number, f"{time.monotonic() - began:.1f}", f"{resident():.1f}", memory_maps()])
            stream.flush()


if __name__ == "__main__":
    main()
