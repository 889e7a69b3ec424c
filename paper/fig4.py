"""Figure 4: sepsis, the EVD of KD-BIRL, AVRIL and AVRIL with prior against the expert's rows, for four w*."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import NullLocator

from kdbirl.evaluation.cells import Cell, CellStore
from kdbirl.progress import Progress
from kdbirl.report.panels import INK, NORMAL, clean
from kdbirl.worlds import icu_sepsis
from paper.claims import Statement
from paper.experiment import Experiment, Part, Request
from paper.fig1 import LOOKS
from paper.ledger import Claim
from paper.patient_cells import ROWS, Effort, Study
from paper.patient_worlds import FULL, QUICK, SETTINGS, WORLDS, patient_world

# The claims of the paper about Figure 4, and ours about its prior; one row of the ledger for each world.

WHERE = "Section 6.4 (Feature-based reward function), Figure 4 and its text"
LOW_DATA = 1000  # the claim is about fewer rows
COMPARABLE = 0.05  # of (best - random): an EVD this little above another's is comparable
QUARTER_AT = 100  # rows at which KD-BIRL's EVD is compared with a quarter of its prior's
LABELS = {"avril": "AVRIL", "avril-prior": "AVRIL with prior"}
Rows = Sequence[dict[str, Any]]
PerSeed = Float[np.ndarray, " seeds"]


def statements(world: str) -> dict[str, Statement]:
    """All claims, for one world, by name."""
    found = [
        *(
            Statement(
                f"{world}-evd-against-{other}",
                f"in sepsis KD-BIRL's EVD is lower than or comparable to that of {label} for n < 1000, for all four w*",
                WHERE,
                f"EVD / (best - random), KD-BIRL's minus that of {label}: mean over n < 1000, the worst w*",
                below=COMPARABLE,
            )
            for other, label in LABELS.items()
        ),
        Statement(
            f"{world}-less-spread",
            "in sepsis the standard error of KD-BIRL's EVD is lower than that of AVRIL with prior",
            WHERE,
            "mean over w* and n < 1000 of |EVD - its mean over seeds|: KD-BIRL's minus that of AVRIL with prior",
            below=0.0,
        ),
        Statement(
            f"{world}-prior-causes-spread",
            "the informative prior's variance causes the variance of AVRIL's EVD",
            WHERE,
            "mean over w* and n < 1000 of |EVD - its mean over seeds|: AVRIL's with prior minus AVRIL's without",
            above=0.0,
        ),
        Statement(
            f"{world}-contracts",
            "KD-BIRL's EVD falls with the number of expert rows",
            WHERE,
            "EVD at the largest n minus EVD at the smallest, mean over w*",
            below=0.0,
        ),
        Statement(
            f"{world}-quarter-of-prior",
            f"at n = {QUARTER_AT} the EVD of KD-BIRL's posterior is below a quarter of its prior's (not of the paper)",
            "none: a check of ours",
            f"EVD of the posterior minus a quarter of the prior's at n = {QUARTER_AT}, mean over w*",
            below=0.0,
        ),
    ]
    return {statement.name.removeprefix(f"{world}-"): statement for statement in found}


def claims(variant: str, rows: Rows, quick: bool) -> list[Claim]:
    """One ledger row for each claim and world."""
    return [
        claim
        for world in dict.fromkeys(row["world"] for row in rows)
        for claim in _of_world(world, variant, rows, quick)
    ]


def _of_world(world: str, variant: str, rows: Rows, quick: bool) -> list[Claim]:
    evd = {method: array(rows, world, method, "evd") for method in ("kdbirl", *LABELS)}
    prior, sizes = array(rows, world, "kdbirl", "prior_evd"), row_counts(rows)
    shared = min(len(values) for values in evd.values())  # methods are compared over the seeds that all of them have
    few = {method: values[:shared][:, :, sizes < LOW_DATA] for method, values in evd.items()}
    nearest = int(np.argmin(np.abs(sizes - QUARTER_AT)))
    found: dict[str, PerSeed] = {f"evd-against-{other}": worst_star(few["kdbirl"] - few[other]) for other in LABELS}
    found["less-spread"] = spread(few["kdbirl"]) - spread(few["avril-prior"])
    found["prior-causes-spread"] = spread(few["avril-prior"]) - spread(few["avril"])
    found["contracts"] = (evd["kdbirl"][:, :, -1] - evd["kdbirl"][:, :, 0]).mean(axis=1)
    found["quarter-of-prior"] = (evd["kdbirl"] - 0.25 * prior)[:, :, nearest].mean(axis=1)
    why = _why(few, evd["kdbirl"], prior, nearest)
    return [s.decide(NAME, variant, found[name], why(name), quick) for name, s in statements(world).items()]


def array(rows: Rows, world: str, method: str, measure: str) -> Float[np.ndarray, "seeds stars sizes"]:
    """One measure of one method in one world."""
    own = [row for row in rows if row["world"] == world and row["method"] == method]
    axes = [sorted({row[name] for row in own}) for name in ("seed", "star", "n")]
    found = np.full([len(axis) for axis in axes], np.nan)
    for row in own:
        found[tuple(axis.index(row[name]) for axis, name in zip(axes, ("seed", "star", "n"), strict=True))] = row[
            measure
        ]
    return found


def row_counts(rows: Rows) -> Float[np.ndarray, " sizes"]:
    return np.array(sorted({row["n"] for row in rows}), dtype=float)


def worst_star(difference: Float[np.ndarray, "seeds stars sizes"]) -> PerSeed:
    """The mean over n of the w* whose mean over seeds is highest: where it holds, it holds in all settings."""
    by_star = difference.mean(axis=2)
    return np.asarray(by_star[:, int(np.argmax(by_star.mean(axis=0)))])


def spread(values: Float[np.ndarray, "seeds stars sizes"]) -> PerSeed:
    """How far each seed is from the mean of all, in the mean over w* and n."""
    return np.asarray(np.abs(values - values.mean(axis=0)).mean(axis=(1, 2)))


def _why(few: dict[str, np.ndarray], evd: np.ndarray, prior: np.ndarray, nearest: int) -> Callable[[str], str]:
    means = {method: f"{values.mean():.3f}" for method, values in few.items()}
    spreads = {method: f"{values.std(axis=0, ddof=1).mean():.3f}" for method, values in few.items()}

    def why(name: str) -> str:
        if name.startswith("evd-against"):
            return "mean EVD " + ", ".join(f"{method} {value}" for method, value in means.items())
        if "spread" in name:
            return "sd of the EVD over seeds " + ", ".join(f"{method} {value}" for method, value in spreads.items())
        if name == "contracts":
            return f"mean EVD {evd[:, :, 0].mean():.3f} at the fewest rows, {evd[:, :, -1].mean():.3f} at the most"
        return f"mean EVD {evd[:, :, nearest].mean():.3f} against the prior's {prior[:, :, nearest].mean():.3f}"

    return why


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

    name = f"{NAME}-{variant}"
    caption = (
        f"Figure 4, {variant}: the value lost by acting on what was learnt, as a share of (best - random), against the "
        f"expert's rows, for four w* (columns) in two worlds (rows of panels). Bars: standard errors over {seeds} "
        f"seeds ({min(seeds, AVRIL_SEEDS)} for AVRIL). Grey: draws from the prior."
    )
    stars = numbers["configuration"]["stars"][: numbers["configuration"]["effort"]["stars"]]
    figures = {name: plot_evd_against_rows(numbers["rows"], stars)}
    found = claims(variant, numbers["rows"], quick)
    return Part(name, numbers, seeds, found, figures, {name: numbers["rows"]}, {name: caption})


EXPERIMENT = Experiment(
    NAME,
    "Figure 4: sepsis, EVD against the number of expert rows",
    {variant: partial(measure, variant) for variant in SETTINGS},
    needs=(icu_sepsis.assets,),
)


# Figures 4 and 5 of the paper: sepsis, EVD against the expert's rows, and the marginals of the weights.

METHODS = ("kdbirl", "avril", "avril-prior")
TITLES = {"sepsis": "SepsisSim", "icu-sepsis": "ICUSepsis"}
GREY = "#888888"
MARGIN = 1.35  # factor of n, left and right
SHIFT = {"kdbirl": 0.94, "avril": 1.0, "avril-prior": 1.06}  # of n: bars of three methods side by side


def plot_evd_against_rows(rows: Rows, stars: Sequence[Sequence[float]]) -> Figure:
    """A row of panels for each world, a column for each w*: mean EVD with standard errors over seeds."""
    worlds = list(dict.fromkeys(row["world"] for row in rows))
    figure = Figure(figsize=(2.3 * len(stars) + 0.5, 2.1 * len(worlds) + 0.7), layout="constrained")
    axes = figure.subplots(len(worlds), len(stars), squeeze=False, sharex=True, sharey="row")
    for i, world in enumerate(worlds):
        for star, weights in enumerate(stars):
            own = [row for row in rows if row["world"] == world and row["star"] == star]
            _panel(axes[i, star], own)
            if not i:
                title = "$w^\\star$ = [" + ", ".join(_signed(value) for value in weights) + "]"
                axes[i, star].set_title(title, fontsize=NORMAL, color=INK, loc="left")
        axes[i, 0].set_ylabel(f"{TITLES.get(world, world)}\nEVD / (best - random)", fontsize=NORMAL, color=INK)
    for panel in axes[-1]:
        panel.set_xlabel("expert rows n", fontsize=NORMAL, color=INK)
    _legend(figure)
    return figure


def _panel(panel: Axes, rows: Rows) -> None:
    prior = [row["prior_evd"] for row in rows if row["method"] == "kdbirl"]
    panel.axhline(float(np.mean(prior)), color=GREY, lw=1.0, ls=(0, (2, 2)), zorder=1)
    panel.axhline(0.0, color=INK, lw=0.6, zorder=1)
    for method in METHODS:
        sizes = sorted({row["n"] for row in rows if row["method"] == method})
        values = [[row["evd"] for row in rows if row["method"] == method and row["n"] == n] for n in sizes]
        mean = [float(np.mean(v)) for v in values]
        error = [float(np.std(v, ddof=1) / np.sqrt(len(v))) if len(v) > 1 else 0.0 for v in values]
        colour, line, _ = LOOKS[method]
        where = np.array(sizes) * SHIFT[method]
        panel.errorbar(where, mean, error, color=colour, ls=line, lw=1.4, marker="o", ms=3, elinewidth=1.0, capsize=1.5)
    panel.set_xscale("log")
    clean(panel, y_axis=True)
    sizes = sorted({row["n"] for row in rows})
    panel.set_xlim(sizes[0] / MARGIN, sizes[-1] * MARGIN)
    panel.set_xticks(sizes, [f"{n:,}" for n in sizes])
    panel.xaxis.set_minor_locator(NullLocator())  # n was measured at these sizes, and nowhere between them


def _signed(value: float) -> str:
    return f"{value:.2f}".replace("-", "\u2212")


def _legend(figure: Figure) -> None:
    lines = [Line2D([], [], color=LOOKS[m][0], ls=LOOKS[m][1], lw=1.6, marker="o", ms=3) for m in METHODS]
    labels = [LOOKS[method][2] for method in METHODS]
    lines.append(Line2D([], [], color=GREY, lw=1.0, ls=(0, (2, 2))))
    figure.legend(lines, [*labels, "prior alone"], loc="outside lower center", ncols=4, frameon=False, fontsize=NORMAL)


def plot_weight_marginals(
    panels: Mapping[str, Sequence[Mapping[str, Sequence[float]]]], truth: Sequence[float], names: Sequence[str]
) -> Figure:
    """A row for each world, a panel for each weight: the posterior (filled) and the prior (dotted), the truth dashed.

    panels: by world, for each weight the `edges` of cells and the densities `posterior` and `prior` in them.
    """
    figure = Figure(figsize=(2.5 * len(names) + 0.4, 1.9 * len(panels) + 0.8), layout="constrained")
    axes = figure.subplots(len(panels), len(names), squeeze=False, sharey="row", sharex=True)
    for i, (world, weights) in enumerate(panels.items()):
        for panel, marginal, true, name in zip(axes[i], weights, truth, names, strict=True):
            _marginal(panel, marginal, true)
            if not i:
                panel.set_title(name, fontsize=NORMAL, color=INK, loc="left")
        axes[i, 0].set_ylabel(f"{TITLES.get(world, world)}\ndensity", fontsize=NORMAL, color=INK)
    for panel in axes[-1]:
        panel.set_xlabel("weight", fontsize=NORMAL, color=INK)
    shown = [
        (Patch(facecolor=(*to_rgb(LOOKS["kdbirl"][0]), 0.35), edgecolor=LOOKS["kdbirl"][0]), "KD-BIRL's posterior"),
        (Line2D([], [], color=GREY, lw=1.0, ls=(0, (1, 1.5))), "prior"),
        (Line2D([], [], color=INK, lw=1.1, ls=(0, (4, 2))), "$w^\\star$"),
    ]
    figure.legend(*zip(*shown, strict=True), loc="outside lower center", ncols=3, frameon=False, fontsize=NORMAL)
    return figure


def _marginal(panel: Axes, marginal: Mapping[str, Sequence[float]], truth: float) -> None:
    colour = LOOKS["kdbirl"][0]
    panel.stairs(marginal["posterior"], marginal["edges"], color=colour, fill=True, alpha=0.35)
    panel.stairs(marginal["posterior"], marginal["edges"], color=colour, lw=1.2)
    panel.stairs(marginal["prior"], marginal["edges"], color=GREY, lw=1.0, ls=(0, (1, 1.5)))
    panel.axvline(truth, color=INK, lw=1.1, ls=(0, (4, 2)))
    clean(panel, y_axis=True)
