"""Figure 1: the 2x2 grid, the marginal posterior of each state's reward by KD-BIRL, BIRL, AVRIL, AVRIL with prior."""

from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

import numpy as np

from kdbirl.experiments import fig1_claims
from kdbirl.experiments.cell_store import Cell, CellStore
from kdbirl.experiments.experiment import Experiment, Part
from kdbirl.experiments.grid_baselines import avril_cells, birl_cell
from kdbirl.experiments.grid_measures import expected_distance, mass_near
from kdbirl.experiments.grid_posteriors import FULL, QUICK, kdbirl_cell
from kdbirl.experiments.grid_settings import FIG1, GridSetting
from kdbirl.experiments.quick_settings import sized
from kdbirl.experiments.request import Request
from kdbirl.progress import Progress

METHODS = ("kdbirl", "birl", "avril", "avril-prior")
NAME, SEEDS, QUICK_SEEDS = "fig1", 12, 2
Row = dict[str, Any]


def measure(variant: str, request: Request, store: CellStore, progress: Progress) -> Part:
    """All four posteriors of every seed, what they say about R*, and the figure of a typical seed."""
    setting, effort = sized(FIG1[variant], request.quick), request.size(FULL, QUICK)
    seeds = request.count(SEEDS, QUICK_SEEDS)
    found: dict[str, list[Cell]] = {"kdbirl": [], "birl": []}
    for seed in range(seeds):
        progress.update(NAME, seed, seeds, variant)
        found["kdbirl"].append(kdbirl_cell(store, setting, seed, effort))
        found["birl"].append(birl_cell(store, setting, seed, effort))
    found["avril"] = avril_cells(store, setting, seeds, effort, informative=False)
    found["avril-prior"] = avril_cells(store, setting, seeds, effort, informative=True)
    cells = [{method: own[seed] for method, own in found.items()} for seed in range(seeds)]
    progress.update(NAME, seeds, seeds, variant)
    rows, shown = table(cells, setting), typical([cell["kdbirl"] for cell in cells], setting)
    numbers = {
        "experiment": NAME,
        "variant": variant,
        "configuration": {"setting": asdict(setting), "effort": asdict(effort), "seeds": seeds, "quick": request.quick},
        "identifiability": cells[0]["kdbirl"]["identifiability"],
        "shown_seed": shown,
        "shown": {method: cells[shown][method]["draws"] for method in METHODS},
        "truth": list(setting.truth),
        "rows": rows,
    }
    return _part(variant, numbers, seeds, request.quick)


def _part(variant: str, numbers: dict[str, Any], seeds: int, quick: bool) -> Part:
    from kdbirl.report.paper_marginals import plot_state_marginals

    name = f"{NAME}-{variant}"
    draws = {method: np.asarray(values) for method, values in numbers["shown"].items()}
    caption = (
        f"Figure 1, {variant}: marginal posteriors of the four state rewards of the 2x2 grid (seed "
        f"{numbers['shown_seed']}, of median distance from R*). Dashed: the true reward. {numbers['identifiability']}"
    )
    figures = {name: plot_state_marginals(draws, np.asarray(numbers["truth"]))}
    found = fig1_claims.claims(variant, numbers["rows"], numbers["identifiability"], quick)
    return Part(name, numbers, seeds, found, figures, {name: numbers["rows"]}, {name: caption})


def table(cells: Sequence[dict[str, Cell]], setting: GridSetting) -> list[Row]:
    """A row for each seed, method and state."""
    truth = np.asarray(setting.truth)
    rows = []
    for seed, by_method in enumerate(cells):
        for method, cell in by_method.items():
            draws = np.asarray(cell["draws"])
            distances, masses = expected_distance(draws, truth), mass_near(draws, truth)
            for state in range(len(truth)):
                found = {"mean": cell["mean"][state], "sd": cell["sd"][state]}
                found |= {"distance": float(distances[state]), "mass_near": float(masses[state])}
                own = {"variant": setting.variant, "seed": seed, "method": method, "state": state}
                rows.append(own | {"truth": truth[state].item(), **found, "r_hat": cell["r_hat"]})
    return rows


def typical(cells: Sequence[Cell], setting: GridSetting) -> int:
    """The seed of median distance from R*: the one that is drawn."""
    distances = [expected_distance(np.asarray(cell["draws"]), np.asarray(setting.truth)).mean() for cell in cells]
    return int(np.argsort(distances, kind="stable")[(len(distances) - 1) // 2])


EXPERIMENT = Experiment(
    NAME,
    "Figure 1: marginal posteriors in the 2x2 grid",
    {variant: partial(measure, variant) for variant in FIG1},
)
