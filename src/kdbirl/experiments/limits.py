"""The paper's limitations and open questions, measured: expert quality, features, kernel and distance, cost.

All but the cost on the 10x10 grid of Figure 2, the two w* in turn from seed to seed, each variant with its own bank,
experts and bandwidths.
"""

from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import Any

from kdbirl.experiments import limits_claims
from kdbirl.experiments.cell_store import Cell, CellStore
from kdbirl.experiments.experiment import Experiment, Part
from kdbirl.experiments.grid_posteriors import FULL, QUICK, Effort
from kdbirl.experiments.grid_settings import FIG2, GridSetting
from kdbirl.experiments.limit_cells import choice_cell, cost_cell, feature_cell, quality_cell
from kdbirl.experiments.quick_settings import sized
from kdbirl.experiments.request import Request
from kdbirl.progress import Progress

NAME, SEEDS, QUICK_SEEDS = "limits", 10, 2
TRUTHS = tuple(FIG2)
NOISES = (0.0, 0.2, 0.4, 0.6)  # shares of random actions in the training demonstrations
FEATURES = ("x, y", "halves", "x only")
CHOICES = (
    ("gaussian", "euclidean"),
    ("laplace", "euclidean"),
    ("triangular", "euclidean"),
    ("gaussian", "manhattan"),
    ("gaussian", "cosine"),
)
SIDES, ROWS = (2, 4, 6), (100, 400, 1600)  # of the cost: reward parameters are sides squared; rows are n = m
QUICK_SIZES = {
    "noises": (0.0, 0.4),
    "features": FEATURES[::2],
    "choices": CHOICES[:1],
    "sides": (2, 3),
    "rows": (60, 120),
}
FULL_SIZES = {"noises": NOISES, "features": FEATURES, "choices": CHOICES, "sides": SIDES, "rows": ROWS}
Row = dict[str, Any]
Rows = dict[str, list[Row]]
Settings = dict[tuple[float, float], GridSetting]


def measure(variant: str, request: Request, store: CellStore, progress: Progress) -> Part:
    """Every table of one variant."""
    effort, seeds = request.size(FULL, QUICK), request.count(SEEDS, QUICK_SEEDS)
    sizes = request.size(FULL_SIZES, QUICK_SIZES)
    chosen = {truth: sized(settings[variant], request.quick) for truth, settings in FIG2.items()}
    jobs = _jobs(variant, chosen, store, effort, seeds, sizes)
    tables: Rows = {"quality": [], "features": [], "choices": [], "cost": []}
    for done, (table, labels, job) in enumerate(jobs):
        progress.update(NAME, done, len(jobs), f"{variant}, {table}")
        tables[table].append({"variant": variant, **labels, **job()})
    progress.update(NAME, len(jobs), len(jobs), variant)
    settings = [asdict(setting) for setting in chosen.values()]
    configuration = {"settings": settings, "effort": asdict(effort), "seeds": seeds, "quick": request.quick, **sizes}
    numbers = {"experiment": NAME, "variant": variant, "configuration": configuration, **tables}
    return _part(variant, numbers, tables, seeds, request.quick)


def _jobs(
    variant: str, chosen: Settings, store: CellStore, effort: Effort, seeds: int, sizes: dict[str, Any]
) -> list[tuple[str, Row, Callable[[], Cell]]]:
    """What is to be measured: the table, what tells its rows apart, and the cell."""
    jobs: list[tuple[str, Row, Callable[[], Cell]]] = []
    for seed in range(seeds):
        truth = TRUTHS[seed % len(TRUTHS)]
        setting, own = chosen[truth], {"w1": truth[0], "w2": truth[1], "seed": seed}
        for noise in sizes["noises"]:
            job = partial(quality_cell, store, setting, seed, effort, noise)
            jobs.append(("quality", {**own, "noise": noise}, job))
        for name in sizes["features"]:
            job = partial(feature_cell, store, setting, seed, effort, name)
            jobs.append(("features", {**own, "features": name}, job))
        for kernel, distance in sizes["choices"]:
            job = partial(choice_cell, store, setting, seed, effort, kernel, distance)
            jobs.append(("choices", {**own, "kernel": kernel, "distance_measure": distance}, job))
    sides, rows = sizes["sides"], sizes["rows"]
    shapes = [*((side, rows[len(rows) // 2]) for side in sides), *((sides[len(sides) // 2], n) for n in rows)]
    for side, n in dict.fromkeys(shapes):
        for seed in range(seeds):
            labels = {"seed": seed, "parameters": side**2, "n": n}
            jobs.append(("cost", labels, partial(cost_cell, store, variant, side, n, seed, effort)))
    return jobs


def _part(variant: str, numbers: dict[str, Any], tables: Rows, seeds: int, quick: bool) -> Part:
    from kdbirl.report.limits_plots import plot_limits

    name = f"{NAME}-{variant}"
    caption = (
        f"Limitations and open questions, {variant}: quality of the training demonstrations, poorer features, kernel "
        "and distance (10x10 grid, the two w* in turn), and the cost of an effective draw. "
        "Bars: 95 % intervals over seeds."
    )
    found = limits_claims.claims(variant, tables, quick)
    files = {f"{name}-{table}": rows for table, rows in tables.items()}
    return Part(name, numbers, seeds, found, {name: plot_limits(tables)}, files, {name: caption})


EXPERIMENT = Experiment(
    NAME,
    "Limitations and open questions, measured",
    {variant: partial(measure, variant) for variant in ("printed", "released", "ours")},
)
