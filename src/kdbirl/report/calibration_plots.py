"""Figures of posterior checks: calibration, sensitivity and predicted occupancy. One function each.

As in `plots`: made without pyplot, drawn into `axes` where they are given.
"""

import math
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from scipy.stats import binom

from kdbirl.diagnosis.calibration import Calibration, rank_counts
from kdbirl.diagnosis.predictive import Occupancy, Predictive
from kdbirl.diagnosis.sensitivity import MOVED, Sensitivity
from kdbirl.report import panels
from kdbirl.report.panels import POSTERIOR, PRIOR, SMALL, TRUE
from kdbirl.report.plots import _legend, _panes

MOST_RANKS, MOST_COLUMNS, MOST_FEATURES = 6, 8, 12


def plot_calibration(calibration: Calibration, axes: Any = None) -> Figure:
    """Coverage against what was promised, a rank histogram for each parameter, and z-scores against contraction.

    Ranks are flat where the posterior is calibrated, a U where it is too narrow, a hill where it is too wide, and a
    slope where it is shifted. With many parameters, those with the least uniform ranks are shown.
    """
    shown = np.sort(np.argsort(calibration.uniformity, kind="stable")[:MOST_RANKS])
    panels_wanted = len(shown) + 2
    columns = panels_wanted if panels_wanted <= 5 else math.ceil(panels_wanted / 2)
    shape = (math.ceil(panels_wanted / columns), columns)
    figure, panes, own = _panes(axes, shape, panels_wanted, (2.0, 1.9))
    _coverage(panes[0], calibration)
    for axis, j in zip(panes[1:-1], shown, strict=True):
        _ranks(axis, calibration, int(j))
    _z_scores(panes[-1], calibration)
    few = len(shown) < len(calibration.names)
    note = f"{len(shown)} of {len(calibration.names)} parameters: those with the least uniform ranks" if few else ""
    _legend(figure, panes, own, [], note)
    return figure


def _coverage(axis: Axes, found: Calibration) -> None:
    """Pooled coverage with its interval, each parameter as a small point, and the diagonal of what was promised."""
    axis.plot([0, 1], [0, 1], color=PRIOR, linewidth=1, zorder=1)
    for row, level in zip(found.coverage, found.levels, strict=True):
        axis.plot(np.full(len(row), level), row, "o", ms=2.5, color=POSTERIOR, alpha=0.35, mew=0, zorder=2)
    axis.vlines(found.levels, found.pooled_low, found.pooled_high, color=POSTERIOR, linewidth=1.5, zorder=3)
    axis.plot(found.levels, found.pooled, "o", color="white", markeredgecolor=POSTERIOR, ms=4.5, zorder=4)
    axis.set(xlim=(0.4, 1.02), ylim=(min(0.35, float(min(found.coverage.min(), found.pooled_low.min())) - 0.05), 1.03))
    panels.clean(axis, y_axis=True)
    panels.plain(axis.set_xlabel("promised"), SMALL)
    panels.plain(axis.set_ylabel("seen"), SMALL)
    panels.plain(axis.set_title("coverage", loc="left"))


def _ranks(axis: Axes, found: Calibration, j: int) -> None:
    """The rank histogram of one parameter; the band holds 99 % of counts in each bin where all is well."""
    counts = rank_counts(found.ranks[:, j])
    band = binom.ppf([0.005, 0.995], found.n_tasks, 1 / len(counts))
    axis.axhspan(*band, color=PRIOR, alpha=0.45, linewidth=0, zorder=1)
    axis.stairs(counts, np.linspace(0, 1, len(counts) + 1), fill=True, color=POSTERIOR, alpha=0.55, zorder=2)
    axis.set(xlim=(0, 1), ylim=(0, 1.1 * max(float(counts.max()), float(band[1]))))
    panels.clean(axis, y_axis=True, ticks=3)
    panels.plain(axis.set_xlabel(f"rank (p = {found.uniformity[j]:.2g})"), SMALL)
    panels.plain(axis.set_title(f"rank: {panels.shortened(found.names[j], 18)}", loc="left"))


def _z_scores(axis: Axes, found: Calibration) -> None:
    """Root mean square z-score against contraction, a point for each parameter, the worst by name.

    Without a prior there is no contraction, and they stand in their order.
    """
    known = np.isfinite(found.contraction).all()
    across = found.contraction if known else np.arange(len(found.names), dtype=float)
    axis.axhline(1, color=PRIOR, linewidth=1, zorder=1)
    axis.plot(across, found.z_spread, "o", ms=4, color=POSTERIOR, zorder=3)
    worst = int(np.argmax(np.abs(np.log(np.maximum(found.z_spread, 1e-12)))))
    place = (float(across[worst]), float(found.z_spread[worst]))
    side = "right" if known and place[0] > 0.5 else "left"
    note = axis.annotate(
        panels.shortened(found.names[worst], 18), place, xytext=(0, 5), textcoords="offset points", ha=side
    )
    panels.plain(note, SMALL)
    axis.set_ylim(0, max(2.0, 1.2 * float(found.z_spread.max())))
    axis.set_xlim((min(-0.02, float(across.min()) - 0.05), 1.05) if known else (-0.5, len(across) - 0.5))
    panels.clean(axis, y_axis=True)
    panels.plain(axis.set_xlabel("contraction" if known else "parameter"), SMALL)
    panels.plain(axis.set_title("typical error / sd", loc="left"))


def plot_sensitivity(sensitivity: Sensitivity, axes: Any = None) -> Figure:
    """One column for each parameter, one row for each setting: mean and 90 % interval; the fitted ones in grey behind.

    With many parameters, those that move most are shown.
    """
    shown = np.sort(np.argsort(-np.abs(sensitivity.shift).max(axis=0), kind="stable")[:MOST_COLUMNS])
    rows = len(sensitivity.means)
    size = (max(1.4, 7.2 / (len(shown) + 1)), 0.5 + 0.24 * rows)
    figure, panes, own = _panes(axes, (1, len(shown)), len(shown), size)
    for axis, j in zip(panes, shown, strict=True):
        _forest(axis, sensitivity, int(j))
    panes[0].set_yticks(np.arange(rows), ["as fitted", *sensitivity.changes])
    for label in panes[0].get_yticklabels():
        panels.plain(label, SMALL)
    few = len(shown) < len(sensitivity.names)
    note = f"{len(shown)} of {len(sensitivity.names)} parameters: those that move most" if few else ""
    look: dict[str, Any] = {"lw": 1.5, "marker": "o", "mfc": "white", "ms": 4}
    handles = [Line2D([], [], color=POSTERIOR, label="mean and 90 %", **look)]
    if sensitivity.decisive.any():
        handles.append(Line2D([], [], color=TRUE, label=f"moved by {MOVED:g} sd or more", **look))
    _legend(figure, panes, own, handles, note)
    return figure


def _forest(axis: Axes, found: Sensitivity, j: int) -> None:
    rows = np.arange(len(found.means))
    axis.axvspan(found.low[0, j], found.high[0, j], color=PRIOR, alpha=0.35, linewidth=0, zorder=1)
    axis.axvline(found.means[0, j], color="#888888", linewidth=0.8, zorder=1.5)
    moved = [False, *(found.decisive[:, j])]
    for row, changed in zip(rows, moved, strict=True):
        colour = TRUE if changed else POSTERIOR
        axis.hlines(row, found.low[row, j], found.high[row, j], color=colour, linewidth=1.5, zorder=2)
        axis.plot([found.means[row, j]], [row], "o", color="white", markeredgecolor=colour, ms=4, zorder=3)
    axis.set_ylim(len(rows) - 0.5, -0.6)
    panels.clean(axis, y_axis=True, ticks=3)
    axis.set_yticks(rows, [""] * len(rows))
    axis.tick_params(axis="y", length=0)
    panels.plain(axis.set_title(panels.shortened(found.names[j], 16), loc="left"))


def plot_predictive(predictive: Predictive, axes: Any = None) -> Figure:
    """For each feature, the expert's share of rows in each bin, with a 90 % interval, and the predicted share.

    The interval comes from resampled episodes. With many features, those that fit worst are shown.
    """
    order = np.argsort([-feature.distance for feature in predictive.features], kind="stable")
    shown = [predictive.features[i] for i in np.sort(order[:MOST_FEATURES])]
    columns = min(4, len(shown))
    figure, panes, own = _panes(axes, (math.ceil(len(shown) / columns), columns), len(shown), (2.3, 1.7))
    for axis, feature in zip(panes, shown, strict=True):
        _occupancy(axis, feature)
    few = len(shown) < len(predictive.features)
    note = f"{len(shown)} of {len(predictive.features)} features: those that fit worst" if few else ""
    handles = [
        Line2D([], [], color=POSTERIOR, ls="", marker="_", ms=8, mew=1.5, label="predicted"),
        Line2D([], [], color=TRUE, lw=1.5, marker="D", ms=3.5, label="expert, 90 % of resampled episodes"),
    ]
    _legend(figure, panes, own, handles, note)
    return figure


def _occupancy(axis: Axes, feature: Occupancy) -> None:
    bins = np.arange(len(feature.expert))
    axis.vlines(bins, feature.low, feature.high, color=TRUE, linewidth=4, alpha=0.35, zorder=1)
    axis.plot(bins, feature.predicted, "_", color=POSTERIOR, ms=8, mew=1.5, zorder=2)
    axis.plot(bins, feature.expert, "D", color=TRUE, ms=3.5, zorder=3)
    panels.clean(axis, y_axis=True, ticks=3)
    axis.set(xlim=(-0.6, len(bins) - 0.4), ylim=(0, None))
    places = bins[:: max(1, math.ceil(len(bins) / 5))]
    axis.set_xticks(places, [feature.labels[i] for i in places], fontsize=SMALL)
    panels.plain(axis.set_title(f"{panels.shortened(feature.name, 16)}  (apart: {feature.distance:.0%})", loc="left"))
