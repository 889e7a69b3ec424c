"""Figure 4: sepsis, the EVD of KD-BIRL, AVRIL and AVRIL with prior against the expert's rows, for four w*."""

from dataclasses import asdict
from functools import partial
from typing import Any

from kdbirl.envs import icu_sepsis
from kdbirl.experiments import fig4_claims
from kdbirl.experiments.cell_store import Cell, CellStore
from kdbirl.experiments.experiment import Experiment, Part
from kdbirl.experiments.patient_cells import ROWS, Effort, Study
from kdbirl.experiments.patient_settings import SETTINGS
from kdbirl.experiments.patient_worlds import FULL, QUICK, WORLDS, patient_world
from kdbirl.experiments.request import Request
from kdbirl.progress import Progress

NAME = "fig4"
SEEDS = {"printed": 10, "released": 10, "ours": 20}  # of KD-BIRL
QUICK_SEEDS = 2
AVRIL_SEEDS = 10  # the most for AVRIL, whose trainings take nearly all of the time; compared over these seeds
FIRST_STARS = 4
FULL_EFFORT = Effort(WORLDS, stars=FIRST_STARS, points=10**3, avril_steps=2000, rows=ROWS, scale=FULL)
# Without the simulator, whose policies take minutes to learn, however few the updates are.
QUICK_EFFORT = Effort(("icu-sepsis",), stars=2, points=3**3, avril_steps=50, rows=(10, 30), scale=QUICK)
Row = dict[str, Any]


def study(world: str, variant: str, request: Request, store: CellStore, progress: Progress) -> Study:
    """One world under one setting; policies that were learnt stay beside the cells."""
    effort = request.size(FULL_EFFORT, QUICK_EFFORT)
    made = patient_world(world, SETTINGS[variant].phi, effort.scale, store.directory, progress)
    return Study(made, SETTINGS[variant], effort, store)


def measure(variant: str, request: Request, store: CellStore, progress: Progress) -> Part:
    """All three methods in both worlds."""
    seeds = request.count(SEEDS[variant], QUICK_SEEDS)
    rows: list[Row] = []
    for world in request.size(FULL_EFFORT, QUICK_EFFORT).worlds:
        made = study(world, variant, request, store, progress)
        found: dict[str, list[list[Cell]]] = {"kdbirl": []}
        for seed in range(seeds):
            progress.update(NAME, seed, seeds, f"{variant}, {world}")
            found["kdbirl"].append(made.kdbirl(seed))
        for method, informative in (("avril", False), ("avril-prior", True)):
            progress.update(NAME, seeds, seeds, f"{variant}, {world}, {method}")
            found[method] = made.avril(min(seeds, AVRIL_SEEDS), informative)
        rows += [
            {"variant": variant, "world": world, "seed": seed, "method": method, **row}
            for method, cells in found.items()
            for seed, cell in enumerate(cells)
            for row in cell
        ]
        progress.update(NAME, seeds, seeds, f"{variant}, {world}")
    configuration: dict[str, Any] = {
        "setting": asdict(SETTINGS[variant]),
        "effort": asdict(request.size(FULL_EFFORT, QUICK_EFFORT)),
    }
    configuration |= {
        "seeds": seeds,
        "avril_seeds": min(seeds, AVRIL_SEEDS),
        "quick": request.quick,
        "stars": SETTINGS[variant].stars().tolist(),
    }
    numbers = {"experiment": NAME, "variant": variant, "configuration": configuration, "rows": rows}
    return _part(variant, numbers, seeds, request.quick)


def _part(variant: str, numbers: dict[str, Any], seeds: int, quick: bool) -> Part:
    from kdbirl.report.paper_sepsis import plot_evd_against_rows

    name = f"{NAME}-{variant}"
    caption = (
        f"Figure 4, {variant}: the value lost by acting on what was learnt, as a share of (best - random), against the "
        f"expert's rows, for four w* (columns) in two worlds (rows of panels). Bars: standard errors over {seeds} "
        f"seeds ({min(seeds, AVRIL_SEEDS)} for AVRIL). Grey: draws from the prior."
    )
    stars = numbers["configuration"]["stars"][: numbers["configuration"]["effort"]["stars"]]
    figures = {name: plot_evd_against_rows(numbers["rows"], stars)}
    found = fig4_claims.claims(variant, numbers["rows"], quick)
    return Part(name, numbers, seeds, found, figures, {name: numbers["rows"]}, {name: caption})


EXPERIMENT = Experiment(
    NAME,
    "Figure 4: sepsis, EVD against the number of expert rows",
    {variant: partial(measure, variant) for variant in SETTINGS},
    needs=(icu_sepsis.assets,),
)
