"""Figure 3: the 5x5 grid with one rewarded cell: truth, posterior mean, occupancy of the training and expert rows."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from kdbirl.evaluation.cells import Cell, CellStore
from kdbirl.progress import Progress
from kdbirl.report.panels import INK, NORMAL, SMALL
from paper.claims import Statement
from paper.experiment import Experiment, Part, Request, sized
from paper.fig1 import typical
from paper.grid_data import GridData
from paper.grid_posteriors import FULL, QUICK, Effort, kdbirl_cell
from paper.grid_settings import FIG3, NEAR, GridSetting, arrival, effective_states, expected_distance, wrong_states
from paper.ledger import Claim

NAME, SEEDS, QUICK_SEEDS = "fig3", 12, 2
WHERE = "Section 6.3 (Original reward function parameterization), Figure 3 and the paragraphs before it"
ARRIVES = Statement(
    "equivalence-class",
    "in the 5x5 grid the posterior mean is in the equivalence class of R*: its policy reaches the goal",
    WHERE,
    "chance that the posterior mean's optimal policy, started anywhere, stands at the goal after 20 steps",
    above=0.9,
)
WRONG = Statement(
    "single-states-wrong",
    "while single states of the 5x5 posterior mean are wrong",
    WHERE,
    f"number of states whose posterior mean is more than {NEAR:g} from R*",
    above=1.0,
)
COVER = Statement(
    "training-covers-more",
    "the training demonstrations cover more states than the expert's",
    WHERE,
    "effective number of states (exp of the entropy of the occupancy): training minus expert rows, paired over seeds",
    above=0.0,
)
STATEMENTS = (ARRIVES, WRONG, COVER)
Row = dict[str, Any]


def measure(variant: str, request: Request, store: CellStore, progress: Progress) -> Part:
    """KD-BIRL's posterior of every seed, where its mean leads, and what the demonstrations cover."""
    setting, effort = sized(FIG3[variant], request.quick), request.size(FULL, QUICK)
    seeds = request.count(SEEDS, QUICK_SEEDS)
    cells, rows = [], []
    for seed in range(seeds):
        progress.update(NAME, seed, seeds, variant)
        cells.append(kdbirl_cell(store, setting, seed, effort))
        rows.append(measured(cells[-1], setting, seed, effort))
    progress.update(NAME, seeds, seeds, variant)
    shown = typical(cells, setting)
    data = GridData(setting, shown, effort.discounts)
    numbers = {
        "experiment": NAME,
        "variant": variant,
        "configuration": {"setting": asdict(setting), "effort": asdict(effort), "seeds": seeds, "quick": request.quick},
        "identifiability": cells[0]["identifiability"],
        "shown_seed": shown,
        "maps": {
            "truth": list(setting.truth),
            "mean": cells[shown]["mean"],
            "training": occupancy(data.bank.demonstrations.states, setting),
            "expert": occupancy(data.expert.states, setting),
        },
        "rows": rows,
        "states": by_state(cells, setting),
    }
    return _part(variant, numbers, seeds, request.quick)


def measured(cell: Cell, setting: GridSetting, seed: int, effort: Effort) -> Row:
    """One seed: everything that the claims are decided by."""
    data, truth, mean = GridData(setting, seed, effort.discounts), np.asarray(setting.truth), np.asarray(cell["mean"])
    goal = int(np.argmax(truth))
    training, expert = data.bank.demonstrations.states, data.expert.states
    return {
        "variant": setting.variant,
        "seed": seed,
        "arrival": arrival(data.world, mean, goal),
        "wrong_states": wrong_states(mean, truth),
        "goal_is_highest": bool(np.argmax(mean) == goal),
        "distance": float(expected_distance(np.asarray(cell["draws"]), truth).mean()),
        "training_states": effective_states(training),
        "expert_states": effective_states(expert),
        "training_visited": len(np.unique(training)),
        "expert_visited": len(np.unique(expert)),
        "rank": cell["rank"],
        "r_hat": cell["r_hat"],
    }


def by_state(cells: Sequence[Cell], setting: GridSetting) -> list[Row]:
    """A row for each seed and state."""
    return [
        {"variant": setting.variant, "seed": seed, "state": state, "truth": true, "mean": mean, "sd": sd}
        for seed, cell in enumerate(cells)
        for state, (true, mean, sd) in enumerate(zip(setting.truth, cell["mean"], cell["sd"], strict=True))
    ]


def occupancy(states: np.ndarray, setting: GridSetting) -> list[float]:
    """The share of rows in each cell."""
    return (np.bincount(states, minlength=setting.size**2) / len(states)).tolist()


def claims(variant: str, rows: Sequence[Row], identifiability: str, quick: bool) -> list[Claim]:
    """One ledger row for each claim, from one row a seed."""
    column = {name: np.array([row[name] for row in rows], dtype=float) for name in rows[0] if name != "variant"}
    informed = f"; {identifiability.rstrip('.')}" if "keep" in identifiability else ""
    highest = f"the goal is the highest cell for {int(column['goal_is_highest'].sum())} of {len(rows)} seeds"
    effective, visited = (
        [column[f"{rows}_{kind}"].mean() for rows in ("training", "expert")] for kind in ("states", "visited")
    )
    covered = (
        f"{effective[0]:.1f} effective states of training rows, {effective[1]:.1f} of the expert's; "
        f"visited at all: {visited[0]:.1f} and {visited[1]:.1f}"
    )
    distance = f"mean over states of E|R_s - R*_s| is {column['distance'].mean():.3f}"
    return [
        ARRIVES.decide(NAME, variant, column["arrival"], highest + informed, quick),
        WRONG.decide(NAME, variant, column["wrong_states"], distance + informed, quick),
        COVER.decide(NAME, variant, column["training_states"] - column["expert_states"], covered, quick),
    ]


def _part(variant: str, numbers: dict[str, Any], seeds: int, quick: bool) -> Part:

    name = f"{NAME}-{variant}"
    maps = {title: np.asarray(values) for title, values in numbers["maps"].items()}
    caption = (
        f"Figure 3, {variant}: the 5x5 grid with reward in the upper right cell: R*, KD-BIRL's posterior mean, and the "
        f"occupancy of the training and of the expert rows (seed {numbers['shown_seed']}, of median distance from R*). "
        f"{numbers['identifiability']}"
    )
    found = claims(variant, numbers["rows"], numbers["identifiability"], quick)
    tables = {name: numbers["rows"], f"{name}-states": numbers["states"]}
    return Part(name, numbers, seeds, found, {name: plot_cell_maps(maps)}, tables, {name: caption})


EXPERIMENT = Experiment(
    NAME,
    "Figure 3: the 5x5 grid, one reward a state",
    {variant: partial(measure, variant) for variant in FIG3},
)


# Figure 3 of the paper: maps of a grid side by side; the darkest cell is the highest.

TITLES = {
    "truth": "true reward $R^\\star$",
    "mean": "posterior mean",
    "training": "training rows",
    "expert": "expert rows",
}
REWARDS = ("truth", "mean")  # on one scale, from 0 to 1; occupancies have their own
COLOURS = {"truth": "Blues", "mean": "Blues", "training": "Greys", "expert": "Greys"}


def plot_cell_maps(maps: Mapping[str, Float[np.ndarray, " cells"]]) -> Figure:
    """One panel for each map of `TITLES` that is given, as the paper has them: rewards, then occupancies."""
    figure = Figure(figsize=(1.95 * len(maps) + 0.3, 2.25), layout="constrained")
    panels = figure.subplots(1, len(maps), squeeze=False)[0]
    most = max(float(values.max()) for name, values in maps.items() if name not in REWARDS)
    for panel, (name, values) in zip(panels, maps.items(), strict=True):
        top = 1.0 if name in REWARDS else most
        _map(figure, panel, values, TITLES[name], COLOURS[name], top, "reward" if name in REWARDS else "share of rows")
    return figure


def _map(
    figure: Figure, panel: Axes, values: Float[np.ndarray, " cells"], title: str, colours: str, top: float, unit: str
) -> None:
    """One grid, cell (0, 0) at the lower left, with the values written in the cells."""
    side = round(len(values) ** 0.5)
    image = panel.imshow(values.reshape(side, side), origin="lower", cmap=colours, vmin=0.0, vmax=top)
    for cell, value in enumerate(values):
        ink = "white" if value > 0.6 * top else INK
        shown = f"{value:.2f}".removeprefix("0") if 0 < value < 0.995 else f"{value:.0f}"
        panel.text(cell % side, cell // side, shown, ha="center", va="center", fontsize=5.6, color=ink)
    panel.set_title(title, fontsize=NORMAL, color=INK, loc="left")
    panel.set_xticks(range(side))
    panel.set_yticks(range(side))
    panel.tick_params(labelsize=SMALL, length=0, labelcolor=INK)
    for spine in panel.spines.values():
        spine.set_color("#888888")
    bar = figure.colorbar(image, ax=panel, orientation="horizontal", shrink=0.85, pad=0.02, aspect=18)
    bar.ax.tick_params(labelsize=SMALL, length=2, labelcolor=INK)
    bar.ax.locator_params(nbins=3)
    bar.set_label(unit, fontsize=SMALL, color=INK)
    bar.outline.set_visible(False)  # type: ignore[operator]
