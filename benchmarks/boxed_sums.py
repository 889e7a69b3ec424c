"""(l) Kernel sums within a tolerance, over exact ones: 500 expert rows, h a tenth of the features' spread.

The boxes of the bank are made before, once for this h, and their seconds are in the record. Both are timed in turns.
Banks of 20 tasks; and one of 100, where sums over a task have few rows and many have to be looked at twice.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.measuring import interleaved, seconds_of

TOLERANCE, N, TASKS, MANY_TASKS = 1e-3, 500, 20, 100


def compare(quick: bool, repeats: int) -> dict[str, Any]:
    """Ratios for two and three features; the bank of a million rows is the one that is judged."""
    sizes = (100_000,) if quick else (1_000_000, 10_000_000)
    cases = {f"d={d}, m={m}": _case(d, m, TASKS, repeats) for m in sizes for d in (2, 3)}
    cases |= {f"d={d}, m={sizes[0]}, {MANY_TASKS} tasks": _case(d, sizes[0], MANY_TASKS, repeats) for d in (2, 3)}
    return {
        "problem": {"n": N, "tasks": TASKS, "tolerance": TOLERANCE, "h": "a tenth of the spread"},
        "ratios": {name: case.pop("ratio") for name, case in cases.items()},
        "errors": {name: case.pop("error") for name, case in cases.items()},
        "cases": cases,
    }


def _case(d: int, m: int, n_tasks: int, repeats: int) -> dict[str, Any]:
    from kdbirl.likelihood.boxed_sums import boxed_log_sums
    from kdbirl.likelihood.boxes import Boxes
    from kdbirl.likelihood.kernel_sums import task_log_sums
    from kdbirl.likelihood.kernels import as_kernel, on_columns

    rng = np.random.default_rng(d)
    tasks = np.repeat(np.arange(n_tasks), m // n_tasks)
    rows = rng.uniform(-1, 1, (n_tasks, d))[tasks] + 0.7 * rng.normal(size=(m, d))
    expert = rng.uniform(-0.5, 0.5, d) + 0.7 * rng.normal(size=(N, d))
    h, weights = 0.1 * float(np.sqrt(rows.var(axis=0).mean())), np.ones(m)
    kernel = on_columns(as_kernel("gaussian"), [f"x{i}" for i in range(d)], {})
    made: list[Boxes] = []
    building = seconds_of(lambda: made.append(Boxes.of(rows, weights, tasks, n_tasks, h)))
    boxes = made[0]
    contenders: dict[str, Callable[[], Any]] = {
        "exact": lambda: task_log_sums(expert, rows, weights, tasks, n_tasks, kernel, np.array([h])),
        "boxed": lambda: boxed_log_sums(expert, boxes, TOLERANCE),
    }
    exact, boxed = contenders["exact"](), contenders["boxed"]()
    seconds = interleaved(contenders, repeats)
    error = float(np.abs(exact - boxed).max())
    if error > TOLERANCE:
        raise RuntimeError(f"The error {error} is above the tolerance {TOLERANCE}.")
    ratio = seconds["exact"].over(seconds["boxed"])
    print(f"  d={d}, m={m}, {n_tasks} tasks: {ratio}, largest error {error:.2g}, boxes in {building:.3g} s", flush=True)
    return {
        "ratio": ratio.record(),
        "error": error,
        "seconds": {name: spread.record() for name, spread in seconds.items()},
        "seconds_of_making_boxes": building,
    }
