"""The paper's limitations and open questions, measured: expert quality, features, kernel and distance, cost.

All but the cost on the 10x10 grid of Figure 2, the two w* in turn from seed to seed, each variant with its own bank,
experts and bandwidths.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, StrMethodFormatter
from scipy import stats

from kdbirl.evaluation.cells import Cell, CellStore
from kdbirl.progress import Progress
from kdbirl.report.panels import INK, NORMAL, POSTERIOR, SMALL, clean
from paper.claims import Statement
from paper.experiment import Experiment, Part, Request, sized
from paper.grid_posteriors import FULL, QUICK, Effort
from paper.grid_settings import FIG2, GridSetting
from paper.ledger import Claim
from paper.limit_cells import choice_cell, cost_cell, feature_cell, quality_cell

# The claims that the paper makes about its limitations and cost, and what the measured tables say about them.

LIMITATIONS = "Section 7 (Discussion), Limitations"
COST = "Section 4.2 (Feature-based reward function), first paragraph"
QUALITY = Statement(
    "suboptimal-training",
    "training demonstrations that are not optimal for their reward make the likelihood less accurate",
    LIMITATIONS,
    "slope of the mean log density of an expert row at w*, in nats per unit of random actions",
    below=0.0,
)
QUALITY_POSTERIOR = Statement(
    "suboptimal-training-posterior",
    "and so they make the posterior less accurate",
    LIMITATIONS,
    "slope of E|w - w*| in the share of random actions",
    above=0.0,
)
FEATURISING = Statement(
    "poorer-features",
    "features that do not capture the information in (s, a) make the posterior less accurate",
    LIMITATIONS,
    "E|w - w*| with phi = x alone minus phi = [x, y], paired over seeds",
    above=0.0,
)
CHOICE = Statement(
    "kernel-and-distance",
    "the choice of kernel and distance matters for the quality of the posterior",
    "Section 7 (Discussion), Future Work; Section 4.1",
    "largest minus smallest E|w - w*| over the choices, as a share of that with the Gaussian kernel and Euclidean d",
    above=0.25,
)
PARAMETERS = Statement(
    "cost-parameters",
    "the cost of the CKDE grows with the number of reward parameters",
    COST,
    "slope of log operations per effective draw in log q, at a fixed number of rows",
    above=0.0,
)
SAMPLES = Statement(
    "cost-samples",
    "the cost of the CKDE grows with the number of behaviour samples",
    COST,
    "slope of log operations per effective draw in log n, n = m, at a fixed number of parameters",
    above=0.1,
)
STATEMENTS = (QUALITY, QUALITY_POSTERIOR, FEATURISING, CHOICE, PARAMETERS, SAMPLES)
ClaimRows = Sequence[dict[str, Any]]


def claims(variant: str, tables: dict[str, Any], quick: bool) -> list[Claim]:
    """One ledger row for each claim."""
    made = [
        (QUALITY, *_slope(tables["quality"], "noise", "log_likelihood")),
        (QUALITY_POSTERIOR, *_slope(tables["quality"], "noise", "distance")),
        (FEATURISING, *_features(tables["features"])),
        (CHOICE, *_choices(tables["choices"])),
        (PARAMETERS, *_growth(tables["cost"], "parameters", "n")),
        (SAMPLES, *_growth(tables["cost"], "n", "parameters")),
    ]
    return [statement.decide(NAME, variant, values, why, quick) for statement, values, why in made]


def by_seed(rows: ClaimRows, label: Any, name: str) -> tuple[list[Any], Float[np.ndarray, "seeds levels"]]:
    """Levels of a label, and a measure for each seed and level; NaN where there is none."""
    levels, seeds = list(dict.fromkeys(label(row) for row in rows)), sorted({row["seed"] for row in rows})
    found = np.empty((len(seeds), len(levels)))
    for i, seed in enumerate(seeds):
        for j, level in enumerate(levels):
            own = [row[name] for row in rows if row["seed"] == seed and label(row) == level]
            found[i, j] = np.mean([np.nan if value is None else value for value in own])
    return levels, found


def _slope(rows: ClaimRows, label: str, name: str) -> tuple[Float[np.ndarray, " seeds"], str]:
    levels, found = by_seed(rows, lambda row: row[label], name)
    x = np.asarray(levels) - np.mean(levels)
    means = ", ".join(f"{value:.3f} at {level:g}" for level, value in zip(levels, found.mean(axis=0), strict=True))
    return found @ x / (x @ x), f"{name.replace('_', ' ')} {means} of random actions"


def _features(rows: ClaimRows) -> tuple[Float[np.ndarray, " seeds"], str]:
    levels, found = by_seed(rows, lambda row: row["features"], "distance")
    means = ", ".join(f"{value:.3f} with {level}" for level, value in zip(levels, found.mean(axis=0), strict=True))
    return found[:, levels.index("x only")] - found[:, levels.index("x, y")], f"E|w - w*| is {means}"


def _choices(rows: ClaimRows) -> tuple[Float[np.ndarray, " seeds"], str]:
    """Choices that cannot be used on some rows are told, and left out."""
    levels, found = by_seed(rows, lambda row: (row["kernel"], row["distance_measure"]), "distance")
    usable = np.isfinite(found).all(axis=0)
    means = [
        f"{' '.join(level)} "
        + (f"{value:.3f}" if ok else f"refused for {int(np.isnan(column).sum())} of {len(column)}")
        for level, value, ok, column in zip(levels, found.mean(axis=0), usable, found.T, strict=True)
    ]
    kept = found[:, usable]
    reference = found[:, levels.index(("gaussian", "euclidean"))]
    worst, best = int(np.argmax(kept.mean(axis=0))), int(np.argmin(kept.mean(axis=0)))
    return (kept[:, worst] - kept[:, best]) / reference, f"E|w - w*|: {', '.join(means)}"


def _growth(rows: ClaimRows, along: str, fixed: str) -> tuple[Float[np.ndarray, " seeds"], str]:
    """The slope along one size, the other at its middle: the value that has most rows."""
    values = [row[fixed] for row in rows]
    middle = max(dict.fromkeys(values), key=lambda value: len({row[along] for row in rows if row[fixed] == value}))
    own = [row for row in rows if row[fixed] == middle]
    levels, found = by_seed(own, lambda row: row[along], "operations")
    x = np.log(levels) - np.log(levels).mean()
    means = ", ".join(f"{value:.3g} at {level}" for level, value in zip(levels, found.mean(axis=0), strict=True))
    return np.log(found) @ x / (x @ x), f"operations an effective draw: {means} {along} ({fixed} = {middle})"


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

    name = f"{NAME}-{variant}"
    caption = (
        f"Limitations and open questions, {variant}: quality of the training demonstrations, poorer features, kernel "
        "and distance (10x10 grid, the two w* in turn), and the cost of an effective draw. "
        "Bars: 95 % intervals over seeds."
    )
    found = claims(variant, tables, quick)
    files = {f"{name}-{table}": rows for table, rows in tables.items()}
    return Part(name, numbers, seeds, found, {name: plot_limits(tables)}, files, {name: caption})


EXPERIMENT = Experiment(
    NAME,
    "Limitations and open questions, measured",
    {variant: partial(measure, variant) for variant in ("printed", "released", "ours")},
)


# The figure of the `limits` experiment: one panel for each limitation or question, with intervals over seeds.

PlotRows = Sequence[Mapping[str, Any]]


def plot_limits(tables: Mapping[str, PlotRows]) -> Figure:
    """Log density and distance against noise; distance by features, and by kernel; operations by q and by n."""
    figure = Figure(figsize=(7.2, 4.7), layout="constrained")
    panels = figure.subplots(2, 3).ravel()
    _curve(
        panels[0],
        tables["quality"],
        "noise",
        "log_likelihood",
        "share of random actions",
        "log density of a row at $w^\\star$",
    )
    _curve(panels[1], tables["quality"], "noise", "distance", "share of random actions", "$E\\,|w - w^\\star|$")
    _bars(panels[2], tables["features"], lambda row: row["features"], "features φ of the density")
    _bars(panels[3], tables["choices"], lambda row: f"{row['kernel']}, {row['distance_measure']}", "kernel, distance")
    for panel, along, fixed, words in (
        (panels[4], "parameters", "n", "reward parameters q"),
        (panels[5], "n", "parameters", "rows n = m"),
    ):
        own = _at_middle(tables["cost"], along, fixed)
        _curve(panel, own, along, "operations", words, "operations an effective draw")
        panel.set(xscale="log", yscale="log")
        levels = sorted({row[along] for row in own})
        panel.set_xticks(levels, [f"{level:,}" for level in levels])
        panel.minorticks_off()
        panel.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))  # less than a decade may be shown
        panel.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    return figure


def _at_middle(rows: PlotRows, along: str, fixed: str) -> list[Mapping[str, Any]]:
    sizes = {value: len({row[along] for row in rows if row[fixed] == value}) for value in [r[fixed] for r in rows]}
    return [row for row in rows if row[fixed] == max(sizes, key=lambda value: sizes[value])]


def _means(rows: PlotRows, level: Any, label: Callable[[Mapping[str, Any]], Any], name: str) -> np.ndarray:
    """One number a seed; none where a seed has none."""
    seeds = sorted({row["seed"] for row in rows})
    own = [[row[name] for row in rows if row["seed"] == seed and label(row) == level] for seed in seeds]
    return np.array([np.mean(values) for values in own if None not in values])


def _half(values: np.ndarray) -> float:
    """Half of the 95 % interval of the mean."""
    if len(values) < 2:
        return 0.0
    return float(stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values)))


def _curve(panel: Axes, rows: PlotRows, label: str, name: str, x: str, y: str) -> None:
    levels = sorted({row[label] for row in rows})
    columns = [_means(rows, level, lambda row: row[label], name) for level in levels]
    for seed in range(min(map(len, columns))):
        panel.plot(levels, [column[seed] for column in columns], color=POSTERIOR, lw=0.6, alpha=0.3)
    heights = [column.mean() for column in columns]
    panel.errorbar(levels, heights, [_half(c) for c in columns], color=POSTERIOR, lw=1.6, marker="o", ms=4, capsize=2.5)
    _words(panel, x, y)


def _bars(panel: Axes, rows: PlotRows, label: Callable[[Mapping[str, Any]], str], x: str) -> None:
    levels = list(dict.fromkeys(label(row) for row in rows))
    for place, level in enumerate(levels):
        values = _means(rows, level, label, "distance")
        if not len(values):
            panel.text(place, 0.02, "refused", rotation=90, ha="center", va="bottom", fontsize=SMALL, color=INK)
            continue
        panel.bar(place, values.mean(), 0.62, color=POSTERIOR, alpha=0.3, yerr=_half(values), capsize=2.5, ecolor=INK)
        panel.plot(np.full(len(values), place), values, ".", ms=3, color=POSTERIOR, alpha=0.7, mew=0)
    _words(panel, x, "$E\\,|w - w^\\star|$")
    slanted: dict[str, Any] = {"rotation": 30, "ha": "right", "rotation_mode": "anchor"} if len(levels) > 3 else {}
    panel.set_xticks(range(len(levels)), levels, fontsize=SMALL, **slanted)
    panel.set_ylim(0, None)


def _words(panel: Axes, x: str, y: str) -> None:
    clean(panel, y_axis=True)
    panel.set_xlabel(x, fontsize=NORMAL, color=INK)
    panel.set_ylabel(y, fontsize=NORMAL, color=INK)
