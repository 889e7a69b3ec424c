"""What an effective sample costs, against the number of states and of training rows."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from kdbirl.report.panels import INK, NORMAL, SMALL, clean
from kdbirl.report.paper_marginals import LOOKS

STAN = ("#555555", (0, (4, 2)), "the same density in Stan")
PANELS = (("states", "states", "states of the grid"), ("rows", "m", "training rows m"))
Rows = Sequence[dict[str, Any]]


def plot_timing(rows: Rows) -> Figure:
    """Medians over seeds with their ranges, on logarithmic axes."""
    figure = Figure(figsize=(7.2, 2.9), layout="constrained")
    axes = figure.subplots(1, 2, sharey=True)
    for panel, (table, by, label) in zip(axes, PANELS, strict=True):
        _panel(panel, [row for row in rows if row["table"] == table], by)
        panel.set_xlabel(label, fontsize=NORMAL, color=INK)
    axes[0].set_ylabel("seconds per effective sample", fontsize=NORMAL, color=INK)
    return figure


def _panel(panel: Axes, rows: Rows, by: str) -> None:
    for method in dict.fromkeys(row["method"] for row in rows):
        colour, line, label = STAN if method == "stan" else LOOKS[method]
        sizes = sorted({row[by] for row in rows})
        costs = [[row["cost"] for row in rows if row["method"] == method and row[by] == size] for size in sizes]
        middle = [float(np.median(cost)) for cost in costs]
        panel.plot(sizes, middle, color=colour, ls=line, lw=1.5, marker="o", ms=3.5, label=label)
        panel.fill_between(sizes, [min(c) for c in costs], [max(c) for c in costs], color=colour, alpha=0.15, lw=0)
    panel.set_xscale("log")
    panel.set_yscale("log")
    clean(panel, y_axis=True)
    sizes = sorted({row[by] for row in rows})
    panel.set_xticks(sizes, [f"{size:,}" for size in sizes])
    panel.minorticks_off()
    panel.legend(frameon=False, fontsize=SMALL)
