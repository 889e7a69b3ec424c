"""Figure 2: the 10x10 grid with phi = [x, y]: w* and the posterior mean on the grid, and the joint density of w.

Beside it, the same task with a reward for each of the 100 states instead of two weights: does featurising help?
"""

from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

import numpy as np

from kdbirl.experiments import fig2_claims
from kdbirl.experiments.cell_store import Cell, CellStore
from kdbirl.experiments.experiment import Experiment, Part
from kdbirl.experiments.grid_data import GridData
from kdbirl.experiments.grid_measures import angle, distance, map_error, signs_right
from kdbirl.experiments.grid_posteriors import FULL, QUICK, Effort, kdbirl_cell
from kdbirl.experiments.grid_settings import FIG2, GridSetting
from kdbirl.experiments.quick_settings import sized
from kdbirl.experiments.request import Request
from kdbirl.experiments.state_rewards import regret_of, state_cell
from kdbirl.posterior.priors import parse_prior
from kdbirl.progress import Progress

NAME, SEEDS, QUICK_SEEDS = "fig2", 12, 2
PRIOR_DRAWS = 20_000
Row = dict[str, Any]


def measure(variant: str, request: Request, store: CellStore, progress: Progress) -> Part:
    """Both w* for every seed."""
    effort, seeds = request.size(FULL, QUICK), request.count(SEEDS, QUICK_SEEDS)
    truths = {truth: sized(settings[variant], request.quick) for truth, settings in FIG2.items()}
    rows: list[Row] = []
    shown: list[dict[str, Any]] = []
    for place, setting in enumerate(truths.values()):
        cells = []
        for seed in range(seeds):
            progress.update(NAME, place * seeds + seed, len(truths) * seeds, f"{variant}, w* = {list(setting.truth)}")
            cells.append(kdbirl_cell(store, setting, seed, effort))
            rows.append(measured(cells[-1], state_cell(store, setting, seed, effort), setting, seed, effort))
        shown.append(_shown(cells, setting, effort))
    progress.update(NAME, len(truths) * seeds, len(truths) * seeds, variant)
    settings = [asdict(setting) for setting in truths.values()]
    numbers = {
        "experiment": NAME,
        "variant": variant,
        "configuration": {"settings": settings, "effort": asdict(effort), "seeds": seeds, "quick": request.quick},
        "shown": shown,
        "rows": rows,
    }
    return _part(variant, numbers, seeds, request.quick)


def measured(cell: Cell, by_state: Cell, setting: GridSetting, seed: int, effort: Effort) -> Row:
    """One seed of one w*: everything that the claims are decided by."""
    data, truth = GridData(setting, seed, effort.discounts), np.asarray(setting.truth)
    draws, mean = np.asarray(cell["draws"]), np.asarray(cell["mean"])
    prior = parse_prior(setting.prior).for_parameters(2).sample(np.random.default_rng(seed), PRIOR_DRAWS)
    return {
        "variant": setting.variant,
        "w1": truth[0].item(),
        "w2": truth[1].item(),
        "seed": seed,
        "mean_w1": mean[0].item(),
        "mean_w2": mean[1].item(),
        "sd_w1": cell["sd"][0],
        "sd_w2": cell["sd"][1],
        "signs_right": signs_right(draws, truth),
        "angle": angle(mean, truth),
        "map_error": map_error(data.world, mean, truth),
        "distance": distance(draws, truth),
        "prior_distance": distance(prior, truth),
        "regret": regret_of(draws, data.world, truth),
        "regret_by_state": by_state["regret"],
        "tasks": cell["tasks"],
        "rank": cell["rank"],
        "identifiability": cell["identifiability"],
    }


def _shown(cells: Sequence[Cell], setting: GridSetting, effort: Effort) -> dict[str, Any]:
    """The seed of median distance from w*, as it is drawn."""
    truth = np.asarray(setting.truth)
    distances = [distance(np.asarray(cell["draws"]), truth) for cell in cells]
    seed = int(np.argsort(distances, kind="stable")[(len(distances) - 1) // 2])
    world = GridData(setting, seed, effort.discounts).world
    maps = (np.asarray(world.reward_table(w))[:, 0] for w in (truth, np.asarray(cells[seed]["mean"])))
    names = ("truth_map", "mean_map")
    return {
        "seed": seed,
        "truth": truth.tolist(),
        "prior": setting.prior,
        "draws": cells[seed]["draws"],
        **{name: values.round(6).tolist() for name, values in zip(names, maps, strict=True)},
    }


def _part(variant: str, numbers: dict[str, Any], seeds: int, quick: bool) -> Part:
    from kdbirl.report.paper_weights import plot_weights

    name = f"{NAME}-{variant}"
    drawn = " and ".join(str(part["seed"]) for part in numbers["shown"])
    silence = next((row["identifiability"] for row in numbers["rows"] if row["rank"] < 2), "")
    caption = (
        f"Figure 2, {variant}: the 10x10 grid with phi = [x, y]: w* projected on the grid, KD-BIRL's posterior mean, "
        f"and the joint density of the weights (dotted: the prior; cross: w*); seeds {drawn}, of median distance. "
        f"{silence}"
    )
    found = fig2_claims.claims(variant, numbers["rows"], quick)
    return Part(
        name, numbers, seeds, found, {name: plot_weights(numbers["shown"])}, {name: numbers["rows"]}, {name: caption}
    )


EXPERIMENT = Experiment(
    NAME,
    "Figure 2: the 10x10 grid, two weights of known features",
    {variant: partial(measure, variant) for variant in ("printed", "released", "ours")},
)
