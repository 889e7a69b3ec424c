"""The figure of the `limits` experiment: one panel for each limitation or question, with intervals over seeds."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, StrMethodFormatter
from scipy import stats

from kdbirl.report.panels import INK, NORMAL, POSTERIOR, SMALL, clean

Rows = Sequence[Mapping[str, Any]]


def plot_limits(tables: Mapping[str, Rows]) -> Figure:
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


def _at_middle(rows: Rows, along: str, fixed: str) -> list[Mapping[str, Any]]:
    sizes = {value: len({row[along] for row in rows if row[fixed] == value}) for value in [r[fixed] for r in rows]}
    return [row for row in rows if row[fixed] == max(sizes, key=lambda value: sizes[value])]


def _means(rows: Rows, level: Any, label: Callable[[Mapping[str, Any]], Any], name: str) -> np.ndarray:
    """One number a seed; none where a seed has none."""
    seeds = sorted({row["seed"] for row in rows})
    own = [[row[name] for row in rows if row["seed"] == seed and label(row) == level] for seed in seeds]
    return np.array([np.mean(values) for values in own if None not in values])


def _half(values: np.ndarray) -> float:
    """Half of the 95 % interval of the mean."""
    if len(values) < 2:
        return 0.0
    return float(stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values)))


def _curve(panel: Axes, rows: Rows, label: str, name: str, x: str, y: str) -> None:
    levels = sorted({row[label] for row in rows})
    columns = [_means(rows, level, lambda row: row[label], name) for level in levels]
    for seed in range(min(map(len, columns))):
        panel.plot(levels, [column[seed] for column in columns], color=POSTERIOR, lw=0.6, alpha=0.3)
    heights = [column.mean() for column in columns]
    panel.errorbar(levels, heights, [_half(c) for c in columns], color=POSTERIOR, lw=1.6, marker="o", ms=4, capsize=2.5)
    _words(panel, x, y)


def _bars(panel: Axes, rows: Rows, label: Callable[[Mapping[str, Any]], str], x: str) -> None:
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
