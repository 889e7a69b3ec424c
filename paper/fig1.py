"""Figure 1: the 2x2 grid, the marginal posterior of each state's reward by KD-BIRL, BIRL, AVRIL, AVRIL with prior."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from kdbirl.evaluation.cells import Cell, CellStore
from kdbirl.progress import Progress
from kdbirl.report.panels import INK, NORMAL, SMALL, clean
from paper.claims import Statement
from paper.experiment import Experiment, Part, Request, sized
from paper.grid_posteriors import FULL, QUICK, avril_cells, birl_cell, kdbirl_cell
from paper.grid_settings import CONCENTRATED, FIG1, NEAR, GridSetting, expected_distance, mass_near
from paper.ledger import Claim

# The claims of the paper about Figure 1, and what the measured rows say about them.

WHERE = "Section 6.3 (Original reward function parameterization), Figure 1 and the paragraph after it"
LABELS = {"kdbirl": "KD-BIRL", "birl": "BIRL", "avril": "AVRIL", "avril-prior": "AVRIL with prior"}
DISTANCE = "mean over states of E|R_s - R*_s|"
WORST = f"posterior mass within {NEAR:g} of R*_s in the worst state"
NAMED_STATES = (1, 2)  # the text's state [0, 1] may be either of the two cells beside the start's corner
CONTRASTS = {
    other: Statement(
        f"concentrated-against-{other}",
        f"KD-BIRL's marginals in the 2x2 grid are more concentrated at R* than those of {LABELS[other]}",
        WHERE,
        f"{DISTANCE}: KD-BIRL's minus that of {LABELS[other]}, paired over seeds",
        below=0.0,
    )
    for other in ("birl", "avril", "avril-prior")
}
NOT_ALL = {
    method: Statement(
        f"{method}-not-in-all-states",
        f"{LABELS[method]} is not concentrated in all states",
        WHERE,
        WORST,
        below=CONCENTRATED,
    )
    for method in ("avril", "avril-prior")
}
STATE_01 = {
    method: Statement(
        f"{method}-state-01",
        f"in state [0, 1] the posterior of {LABELS[method]} is not concentrated at zero (mostly uniform)",
        WHERE,
        f"posterior mass within {NEAR:g} of 0, mean of the two cells that may be meant",
        below=CONCENTRATED,
    )
    for method in ("avril", "avril-prior")
}
PRIOR = Statement(
    "informative-prior-not-enough",
    "an informative prior from the training tasks is not enough to use their information; the CKDE uses it",
    WHERE,
    f"{WORST}: KD-BIRL's minus that of AVRIL with prior, paired over seeds",
    above=0.0,
)
CLOSE = Statement("birl-close", "BIRL is close to the true reward", WHERE, f"{DISTANCE} of BIRL", below=NEAR)
WIDER = Statement(
    "birl-wider",
    "BIRL's marginals are wider than KD-BIRL's",
    WHERE,
    "mean over states of the posterior sd: BIRL's minus KD-BIRL's, paired over seeds",
    above=0.0,
)
STATEMENTS = (*CONTRASTS.values(), *NOT_ALL.values(), *STATE_01.values(), PRIOR, CLOSE, WIDER)


def claims(variant: str, rows: Sequence[dict[str, Any]], identifiability: str, quick: bool) -> list[Claim]:
    """One ledger row for each claim, from the tidy rows of one variant."""
    tables = {name: {m: _by_seed(rows, m, name) for m in LABELS} for name in ("distance", "mass_near", "sd")}
    distance = {method: values.mean(axis=1) for method, values in tables["distance"].items()}
    worst = {method: values.min(axis=1) for method, values in tables["mass_near"].items()}
    named = {m: values[:, list(NAMED_STATES)].mean(axis=1) for m, values in tables["mass_near"].items()}
    width = {method: values.mean(axis=1) for method, values in tables["sd"].items()}
    noted = _notes(rows, identifiability)

    def decided(
        statement: Statement, values: Float[np.ndarray, " seeds"], means: dict[str, Any], of: Sequence[str]
    ) -> Claim:
        why = ", ".join(f"{LABELS[m]} {np.mean(means[m]):.3f}" for m in of) + " in the mean over seeds" + noted(of)
        return statement.decide(NAME, variant, values, why, quick)

    return [
        *(decided(s, distance["kdbirl"] - distance[m], distance, ("kdbirl", m)) for m, s in CONTRASTS.items()),
        *(decided(s, worst[m], worst, (m,)) for m, s in NOT_ALL.items()),
        *(decided(s, named[m], named, (m,)) for m, s in STATE_01.items()),
        decided(PRIOR, worst["kdbirl"] - worst["avril-prior"], worst, ("kdbirl", "avril-prior")),
        decided(CLOSE, distance["birl"], distance, ("birl",)),
        decided(WIDER, width["birl"] - width["kdbirl"], width, ("birl", "kdbirl")),
    ]


def _by_seed(rows: Sequence[dict[str, Any]], method: str, name: str) -> Float[np.ndarray, "seeds states"]:
    """One measure of one method, seeds by states."""
    own = [row for row in rows if row["method"] == method]
    shape = len({row["seed"] for row in own}), len({row["state"] for row in own})
    found = np.empty(shape)
    for row in own:
        found[row["seed"], row["state"]] = row[name]
    return found


def _notes(rows: Sequence[dict[str, Any]], identifiability: str) -> Any:
    """What a reader must know besides: what the training tasks cannot inform, and what did not converge."""

    def noted(methods: Sequence[str]) -> str:
        found = ""
        if "kdbirl" in methods and "keep" in identifiability:
            found += f"; this setting cannot support the claim in all states: {identifiability.rstrip('.')}"
        worst = max((row["r_hat"] or np.inf for row in rows if row["method"] in methods), default=1.0)
        return found + (f"; largest R-hat {worst:.2f}" if worst > 1.05 else "")

    return noted


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

    name = f"{NAME}-{variant}"
    draws = {method: np.asarray(values) for method, values in numbers["shown"].items()}
    caption = (
        f"Figure 1, {variant}: marginal posteriors of the four state rewards of the 2x2 grid (seed "
        f"{numbers['shown_seed']}, of median distance from R*). Dashed: the true reward. {numbers['identifiability']}"
    )
    figures = {name: plot_state_marginals(draws, np.asarray(numbers["truth"]))}
    found = claims(variant, numbers["rows"], numbers["identifiability"], quick)
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


# Figure 1 of the paper: the marginal posterior of each state's reward, one line for each method.

# The paper's four methods: colour (Okabe and Ito), line, label.
LOOKS = {
    "kdbirl": ("#0072b2", "-", "KD-BIRL"),
    "birl": ("#e69f00", (0, (5, 1)), "BIRL"),
    "avril": ("#009e73", (0, (3, 1, 1, 1)), "AVRIL"),
    "avril-prior": ("#cc79a7", (0, (1, 1)), "AVRIL with prior"),
}
LOW, HIGH = -0.6, 1.6  # AVRIL's normal posteriors leave the unit interval
POINTS = 600
LOWEST = 2e-3
NARROWEST = 0.012  # a kernel's sd: no posterior is drawn narrower
UNIT = ("kdbirl", "birl")  # methods whose prior is the unit interval: no mass is drawn outside it


def plot_state_marginals(
    draws: Mapping[str, Float[np.ndarray, "n states"]], truth: Float[np.ndarray, " states"]
) -> Figure:
    """A panel for each state, laid out as the grid is (state 0 at the lower left), the truth dashed.

    Densities are scaled by their square root upwards: a concentrated posterior is many times as high as a uniform one.
    """
    side = round(len(truth) ** 0.5)
    figure = Figure(figsize=(3.1 * side + 0.2, 2.05 * side + 0.7), layout="constrained")
    axes = figure.subplots(side, side, squeeze=False, sharex=True, sharey=True)
    for state, true in enumerate(truth):
        panel = axes[side - 1 - state // side, state % side]
        for method, values in draws.items():
            _density(panel, values[:, state], method)
        panel.axvline(float(true), color=INK, lw=1.1, ls=(0, (4, 2)), zorder=1)
        panel.set_title(f"state [{state % side}, {state // side}]", fontsize=NORMAL, color=INK, loc="left")
        _finish(panel)
    for panel in axes[-1]:
        panel.set_xlabel("reward", fontsize=NORMAL, color=INK)
    for panel in axes[:, 0]:
        panel.set_ylabel("density (root scale)", fontsize=NORMAL, color=INK)
    _legend(figure, list(draws))
    return figure


def density(values: Float[np.ndarray, " n"], grid: Float[np.ndarray, " g"], unit: bool) -> Float[np.ndarray, " g"]:
    """A Gaussian kernel density; with `unit`, reflected at 0 and 1, so that no mass leaves the prior's box."""
    width = max(
        0.9 * min(values.std(), np.subtract(*np.quantile(values, [0.75, 0.25])) / 1.34) * len(values) ** -0.2, NARROWEST
    )
    parts = (values, -values, 2 - values) if unit else (values,)
    total = sum(np.exp(-0.5 * ((grid[:, None] - part[None]) / width) ** 2).sum(axis=1) for part in parts)
    found = np.asarray(total) / (len(values) * width * np.sqrt(2 * np.pi))
    return np.where((grid < 0) | (grid > 1), 0.0, found) if unit else found


def _density(panel: Axes, values: Float[np.ndarray, " n"], method: str) -> None:
    colour, line, _ = LOOKS[method]
    unit = method in UNIT
    grid = np.linspace(0.0, 1.0, POINTS) if unit else np.linspace(LOW, HIGH, POINTS)
    height = density(values, grid, unit)
    front = 4.0 if method == "kdbirl" else 3.0
    height = np.where(height < LOWEST, np.nan, height)  # no line along the axis where there is no mass
    panel.plot(grid, height, color=colour, ls=line, lw=1.9 if method == "kdbirl" else 1.4, zorder=front)
    panel.fill_between(
        grid, 0.0, height, color=colour, alpha=0.22 if method == "kdbirl" else 0.06, lw=0, zorder=front - 1
    )


def _finish(panel: Axes) -> None:
    panel.set_yscale("function", functions=(lambda y: np.sqrt(np.maximum(y, 0.0)), lambda y: np.square(y)))
    panel.set_xlim(LOW, HIGH)
    panel.set_ylim(0, None)
    clean(panel, y_axis=False)
    panel.set_yticks([1, 5, 10, 20, 40])
    panel.spines["left"].set_visible(True)
    panel.set_xticks([-0.5, 0, 0.5, 1, 1.5], ["$-$0.5", "0", "0.5", "1", "1.5"])
    panel.tick_params(labelsize=SMALL)


def _legend(figure: Figure, methods: list[str]) -> None:
    handles = [Line2D([], [], color=LOOKS[m][0], ls=LOOKS[m][1], lw=1.8, label=LOOKS[m][2]) for m in methods]
    handles.append(Line2D([], [], color=INK, ls=(0, (4, 2)), lw=1.1, label="true reward"))
    figure.legend(
        handles=handles, loc="outside upper center", ncols=len(handles), frameon=False, fontsize=NORMAL, labelcolor=INK
    )
