"""Figure 5: sepsis, KD-BIRL's marginal posterior of each weight for a fifth w*, in both worlds."""

from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

import numpy as np
from jaxtyping import Float

from kdbirl.evaluation.cells import Cell, CellStore
from kdbirl.progress import Progress
from kdbirl.worlds import icu_sepsis
from paper.claims import Statement
from paper.experiment import Experiment, Part, Request
from paper.fig4 import FULL_EFFORT, QUICK_EFFORT, QUICK_SEEDS, SEEDS, study
from paper.grid_settings import CONCENTRATED, NEAR
from paper.ledger import Claim
from paper.patient_cells import Study
from paper.patient_worlds import LATENTS, NAMES, SETTINGS

NAME = "fig5"
FIFTH = 4
EXPERT_ROWS = 500  # of the scripts
POINTS, QUICK_POINTS = 24**3, 6**3  # of the prior: a grid
Row = dict[str, Any]


def statements(world: str) -> tuple[Statement, Statement]:
    """Concentrated in all weights; and nearer to w* than the prior."""
    where = "Section 6.4, Figure 5 and its text"
    return (
        Statement(
            f"{world}-fifth-concentrated",
            "in sepsis the posterior for a fifth w* is concentrated at the true parameter",
            where,
            f"posterior mass within {NEAR:g} of the prior's width of w*_j, in the worst weight",
            above=CONCENTRATED,
        ),
        Statement(
            f"{world}-fifth-nearer",
            "in sepsis the posterior for a fifth w* is nearer to it than the prior is",
            where,
            "mean over weights of E|w_j - w*_j|: the posterior's minus the prior's",
            below=0.0,
        ),
    )


def measure(variant: str, request: Request, store: CellStore, progress: Progress) -> Part:
    """The posterior of every seed, and the figure of the seed of median distance."""
    seeds, quick = request.count(SEEDS[variant], QUICK_SEEDS), request.quick
    n, count = request.size(EXPERT_ROWS, max(QUICK_EFFORT.rows)), request.size(POINTS, QUICK_POINTS)
    rows: list[Row] = []
    shown: dict[str, list[dict[str, list[float]]]] = {}
    for world in request.size(FULL_EFFORT, QUICK_EFFORT).worlds:
        made = study(world, variant, request, store, progress)
        own = []
        for seed in range(seeds):
            progress.update(NAME, seed, seeds, f"{variant}, {world}")
            own.append({"variant": variant, "world": world, "seed": seed, **fifth(made, seed, n, count)})
        progress.update(NAME, seeds, seeds, f"{variant}, {world}")
        typical = int(np.argsort([row["distance"] for row in own], kind="stable")[(seeds - 1) // 2])
        shown[world] = own[typical]["marginals"]
        rows += own
    setting, effort = SETTINGS[variant], request.size(FULL_EFFORT, QUICK_EFFORT)
    configuration = {"setting": asdict(setting), "effort": asdict(effort), "n": n, "seeds": seeds, "quick": quick}
    numbers: dict[str, Any] = {"experiment": NAME, "variant": variant, "configuration": configuration, "shown": shown}
    numbers["rows"] = [{key: value for key, value in row.items() if key != "marginals"} for row in rows]
    return _part(variant, numbers, seeds, quick)


def fifth(made: Study, seed: int, n: int, count: int) -> Cell:
    """What one seed's posterior says about the fifth w*."""
    key = {"what": "fifth", "world": made.world.name, "setting": asdict(made.setting), "seed": seed, "n": n}

    def compute() -> Cell:
        truth = made.setting.stars()[FIFTH]
        points, weights = made.posterior(seed, FIFTH, n, count)
        away = np.abs(points - truth)
        near = weights @ (away <= NEAR * (1.0 - made.setting.low))
        found = {"mass_near": near.tolist(), "distance": float((weights @ away).mean())}
        found |= {"prior_distance": float(away.mean()), "mean": (weights @ points).tolist()}
        return {**found, "marginals": [marginal(column, weights, made.setting.low) for column in points.T]}

    return made.store.get(key | {"count": count, "scale": asdict(made.effort.scale)}, compute)


def marginal(values: Float[np.ndarray, " P"], weights: Float[np.ndarray, " P"], low: float) -> dict[str, list[float]]:
    """The posterior and the prior density of one weight in the cells of the points' grid, and the cells' edges."""
    cells, index = np.unique(values, return_inverse=True)
    edges = np.concatenate([[low], (cells[1:] + cells[:-1]) / 2, [1.0]])
    width = np.diff(edges)
    posterior, prior = np.bincount(index, weights=weights) / width, np.bincount(index) / len(values) / width
    return {"edges": edges.tolist(), "posterior": posterior.round(6).tolist(), "prior": prior.round(6).tolist()}


def claims(variant: str, rows: Sequence[Row], quick: bool) -> list[Claim]:
    """One ledger row for each claim and world."""
    found = []
    for world in dict.fromkeys(row["world"] for row in rows):
        own = [row for row in rows if row["world"] == world]
        worst = np.array([min(row["mass_near"]) for row in own])
        gain: Float[np.ndarray, " seeds"] = np.array([row["distance"] - row["prior_distance"] for row in own])
        mean = ", ".join(f"{value:.2f}" for value in np.mean([row["mean"] for row in own], axis=0))
        truth = ", ".join(f"{value:.2f}" for value in SETTINGS[variant].stars()[FIFTH])
        why = f"posterior means [{mean}] in the mean over seeds, w* = [{truth}]"
        for statement, values in zip(statements(world), (worst, gain), strict=True):
            found.append(statement.decide(NAME, variant, values, why, quick))
    return found


def _part(variant: str, numbers: dict[str, Any], seeds: int, quick: bool) -> Part:
    from paper.fig4 import plot_weight_marginals

    name, setting = f"{NAME}-{variant}", SETTINGS[variant]
    caption = (
        f"Figure 5, {variant}: KD-BIRL's marginal posteriors of the three weights for a fifth w* (dashed), from "
        f"{numbers['configuration']['n']} expert rows; the seed of median distance from w*. Dotted: the prior."
    )
    names = NAMES if setting.phi == "named" else [f"latent {j + 1}" for j in range(LATENTS)]
    figures = {name: plot_weight_marginals(numbers["shown"], setting.stars()[FIFTH].tolist(), names)}
    found = claims(variant, numbers["rows"], quick)
    tidy = [{**row, **{f"mass_near_{j}": m for j, m in enumerate(row["mass_near"])}} for row in numbers["rows"]]
    tidy = [{key: value for key, value in row.items() if not isinstance(value, list)} for row in tidy]
    return Part(name, numbers, seeds, found, figures, {name: tidy}, {name: caption})


EXPERIMENT = Experiment(
    NAME,
    "Figure 5: sepsis, marginal posteriors for a fifth w*",
    {variant: partial(measure, variant) for variant in SETTINGS},
    needs=(icu_sepsis.assets,),
)
