"""Figures 4 and 5 of the paper: sepsis, EVD against the expert's rows, and the marginals of the weights."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import NullLocator

from kdbirl.report.panels import INK, NORMAL, clean
from kdbirl.report.paper_marginals import LOOKS

METHODS = ("kdbirl", "avril", "avril-prior")
TITLES = {"sepsis": "SepsisSim", "icu-sepsis": "ICUSepsis"}
GREY = "#888888"
MARGIN = 1.35  # factor of n, left and right
SHIFT = {"kdbirl": 0.94, "avril": 1.0, "avril-prior": 1.06}  # of n: bars of three methods side by side
Rows = Sequence[dict[str, Any]]


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
