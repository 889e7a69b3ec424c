"""Bandwidth rules side by side: coverage and log density at the truth against the expert's rows."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

COLOURS = {"loto": "#1b6ca8", "paper": "#b3261e", "silverman": "#b26a00", "median": "#5f6b6d", "cv": "#7b3fa0"}
MARKERS = {"loto": "o", "paper": "s", "silverman": "^", "median": "D", "cv": "v"}
MEASURES = {"coverage": "90 % intervals that hold the truth", "bounded": "log density at the truth (prior = 0)"}
TITLES = {"grid": "10x10 grid", "icu-sepsis": "ICUSepsis"}


def plot_bandwidth_rules(table: Sequence[dict[str, Any]], measure: str = "coverage") -> Figure:
    """One panel for each world (rows) and number of tasks (columns); means over banks, with standard errors."""
    worlds, tasks = (list(dict.fromkeys(row[name] for row in table)) for name in ("world", "K"))
    figure = Figure(figsize=(2.9 * len(tasks) + 0.6, 2.6 * len(worlds) + 0.7), layout="constrained")
    axes = figure.subplots(len(worlds), len(tasks), squeeze=False, sharex=True, sharey=True)
    for i, world in enumerate(worlds):
        for j, count in enumerate(tasks):
            own = [row for row in table if row["world"] == world and row["K"] == count]
            _panel(axes[i, j], own, measure)
            axes[i, j].set_title(f"{TITLES.get(world, world)}, {count} tasks", fontsize=10)
    figure.supxlabel("rows of the expert", fontsize=10)
    figure.supylabel(MEASURES[measure], fontsize=10)
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(labels), frameon=False, fontsize=9)
    return figure


def _panel(axis: Axes, rows: Sequence[dict[str, Any]], measure: str) -> None:
    if measure == "coverage":
        axis.axhspan(0.85, 0.97, color="#1b6ca8", alpha=0.1, lw=0)
        axis.axhline(0.9, color="#444", lw=0.8, ls="--")
        axis.set_ylim(0, 1.02)
    else:
        axis.axhline(0, color="#444", lw=0.8, ls="--")
    sizes = sorted({row["n"] for row in rows})
    for rule in dict.fromkeys(row["rule"] for row in rows):
        own = sorted((row for row in rows if row["rule"] == rule), key=lambda row: row["n"])
        errors = [row[f"{measure}_error"] or 0.0 for row in own]
        place = np.array([row["n"] for row in own], dtype=float)
        width = 2.2 if rule == "loto" else 1.2
        style: dict[str, Any] = {"color": COLOURS[rule], "marker": MARKERS[rule], "ms": 5, "lw": width}
        axis.errorbar(place, [row[measure] for row in own], errors, label=rule, capsize=2, **style)
    axis.set_xscale("log")
    axis.set_xticks(sizes, [str(size) for size in sizes])
    axis.minorticks_off()
    axis.grid(alpha=0.25)
