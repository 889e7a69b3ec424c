"""Figures of posterior checks: calibration, sensitivity and predicted occupancy. One function each.

As in `plots`: made without pyplot, drawn into `axes` where they are given.
"""

import math
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from scipy.stats import binom

from kdbirl.errors import InputError
from kdbirl.evaluation.policy_classes import PolicyClasses
from kdbirl.posterior.result import Posterior
from kdbirl.report import panels
from kdbirl.report.panels import INK, NORMAL, POSTERIOR, PRIOR, SMALL, TRUE
from kdbirl.report.plots import _legend, _panes
from kdbirl.trust.calibration import Calibration, rank_counts
from kdbirl.trust.directions import axis_in_words, axis_sign
from kdbirl.trust.identifiability import (
    WEAK_CONTRACTION,
    Identifiability,
    contraction,
    kept_words,
    principal_contractions,
)
from kdbirl.trust.predictive import Occupancy, Predictive
from kdbirl.trust.sensitivity import MOVED, Sensitivity
from kdbirl.trust.support import FEWEST_ROWS, Support

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


# Pictures of what a posterior rests on: informed directions, support of the expert's rows, policies of the draws.

MOST_DIRECTIONS = 24  # rows of the table of directions
MOST_NAMED = 30  # parameters or tasks whose names fit below a picture
DIVERGING = "RdBu_r"


def plot_identifiability(
    identifiability: Identifiability, posterior: Posterior | None = None, axes: Any = None
) -> Figure:
    """Left, the directions as combinations of the parameters; right, how much is learnt about each.

    Without a posterior the bars are the strengths. With one, the informed directions are turned to where it narrowed
    most, and the bars are the share of the prior's variance that is gone.
    """
    directions, values = _directions(identifiability, posterior)
    kept = identifiability.uninformed[: max(1, MOST_DIRECTIONS - len(directions))]
    table = np.concatenate([directions, kept])
    height = 0.24 * len(table) + 0.9
    width = min(8.0, 2.2 + 0.3 * len(identifiability.names))
    figure, (left, right) = _stacked_panes(axes, 2, (width + 2.4, height), (width, 2.2))
    _loadings(left, table, identifiability, len(directions))
    fallen = _fallen(identifiability, posterior, kept)
    bars = np.concatenate([values, fallen])
    right.barh(np.arange(len(table)), np.maximum(bars, 0), height=0.6, color=POSTERIOR, alpha=0.8)
    for place, share in enumerate(fallen, len(directions)):
        right.text(0, place, f" {kept_words(share)}", va="center", fontsize=SMALL, color=INK)
    if posterior is not None:
        right.set_xlim(0, 1)
        right.vlines(WEAK_CONTRACTION, -0.5, len(directions) - 0.5, color=TRUE, linewidth=1, linestyle=(0, (4, 2)))
    panels.clean(right)
    right.set_ylim(len(table) - 0.5, -0.5)
    label = "nats per prior sd" if posterior is None else "share of the prior's variance gone"
    right.set_xlabel(label, fontsize=SMALL, color=INK)
    return figure


def _directions(found: Identifiability, posterior: Posterior | None) -> tuple[np.ndarray, Float[np.ndarray, " r"]]:
    """The informed directions to show, the best learnt first, and the length of each bar."""
    if posterior is None or not found.rank or not len(posterior.prior_draws):
        return found.informed[:MOST_DIRECTIONS], found.strengths[:MOST_DIRECTIONS]
    values, directions = principal_contractions(posterior.flat, posterior.prior_draws, found.informed)
    return directions[:MOST_DIRECTIONS], values[:MOST_DIRECTIONS]


def _fallen(
    found: Identifiability, posterior: Posterior | None, kept: Float[np.ndarray, "k q"]
) -> Float[np.ndarray, " k"]:
    """The reduction in prior variance along uninformed directions: by the prior's shape alone, where it ties them."""
    if posterior is None or not found.coupled or not len(posterior.prior_draws):
        return np.zeros(len(kept))
    return np.where(found.tied[: len(kept)], contraction(posterior.flat, posterior.prior_draws, kept), 0.0)


def _loadings(axis: Axes, table: Float[np.ndarray, "r q"], found: Identifiability, informed: int) -> None:
    """Directions as rows of colours, blue and red for the signs; a line parts what keeps the prior."""
    signs = np.array([axis_sign(row) for row in table])  # as in the words beside them
    axis.imshow(table * signs[:, None], cmap=DIVERGING, vmin=-1, vmax=1, aspect="auto", interpolation="nearest")
    if informed < len(table):
        axis.axhline(informed - 0.5, color=INK, linewidth=1.2)
    axis.set_yticks(np.arange(len(table)), [panels.shortened(axis_in_words(row, found.names), 34) for row in table])
    named = len(found.names) <= MOST_NAMED
    axis.set_xticks(np.arange(len(found.names)) if named else [])
    if named:
        axis.set_xticklabels([panels.shortened(name, 14) for name in found.names], rotation=60, ha="right")
    else:
        axis.set_xlabel(f"{len(found.names)} parameters", fontsize=SMALL, color=INK)
    for label in (*axis.get_yticklabels(), *axis.get_xticklabels()):
        panels.plain(label, SMALL)
    axis.tick_params(length=0)
    axis.spines[:].set_visible(False)
    hidden = len(found.names) - len(table)
    title = f"{found.rank} of {len(found.names)} directions informed" + (f"; {hidden} not shown" if hidden else "")
    panels.plain(axis.set_title(title, loc="left"))


def plot_support(support: Support, axes: Any = None) -> Figure:
    """Left, each expert row: its density against the training rows behind it; right, the rows of each task."""
    figure, (left, right) = _stacked_panes(axes, 2, (7.4, 2.9), (1.2, 1.0))
    _rows_of_expert(left, support)
    _rows_of_tasks(right, support)
    return figure


def _rows_of_expert(axis: Axes, support: Support) -> None:
    finite = np.isfinite(support.relative_density)
    lowest = float(support.relative_density[finite].min()) - 1 if finite.any() else 0.0
    density = np.where(finite, support.relative_density, lowest)
    effective = np.maximum(support.effective_rows, 0.1)  # nothing within reach still has a place on the axis
    for rows, colour, label in ((~support.outside, POSTERIOR, "inside"), (support.outside, TRUE, "outside")):
        if rows.any():
            name = f"{int(rows.sum())} {label}"
            axis.plot(effective[rows], density[rows], "o", ms=4, mew=0, alpha=0.6, color=colour, label=name)
    axis.set_xscale("log")
    axis.axvline(FEWEST_ROWS, color=INK, linewidth=0.8, linestyle=(0, (4, 2)))
    axis.spines[["top", "right"]].set_visible(False)
    axis.spines[["left", "bottom"]].set_color("#888888")
    axis.tick_params(labelsize=SMALL, color="#888888", labelcolor=INK, length=3)
    axis.set_xlabel("effective training rows behind an expert row", fontsize=SMALL, color=INK)
    axis.set_ylabel("log density, median training row = 0", fontsize=SMALL, color=INK)
    axis.legend(fontsize=SMALL, frameon=False, labelcolor=INK, loc="best", handletextpad=0.2)
    panels.plain(axis.set_title(f"expert rows: {support.share_outside:.0%} outside", loc="left"))


def _rows_of_tasks(axis: Axes, support: Support) -> None:
    order = np.argsort(-support.task_rows, kind="stable")
    small = support.task_rows[order] < support.fewest_in_task
    axis.bar(np.arange(len(order)), support.task_rows[order], color=np.where(small, TRUE, POSTERIOR), alpha=0.8)
    axis.axhline(support.fewest_in_task, color=INK, linewidth=0.8, linestyle=(0, (4, 2)))
    panels.clean(axis, y_axis=True)
    named = len(order) <= MOST_NAMED
    axis.set_xticks(np.arange(len(order)) if named else [])
    if named:
        axis.set_xticklabels([panels.shortened(support.task_names[k], 14) for k in order], rotation=60, ha="right")
    else:
        axis.set_xlabel(f"{len(order)} tasks", fontsize=SMALL, color=INK)
    for label in axis.get_xticklabels():
        panels.plain(label, SMALL)
    panels.plain(axis.set_title("rows of each task", loc="left"))


def plot_policy_classes(classes: PolicyClasses, axes: Any = None) -> Figure:
    """The share of the posterior in each of the largest classes of policies, with what their policies collect."""
    rest = 1 - float(classes.shares.sum())
    shares = [*classes.shares, *([rest] if classes.n_classes > len(classes.shares) else [])]
    figure, (axis,) = _stacked_panes(axes, 1, (5.6, 0.36 * len(shares) + 1.0), None)
    places = np.arange(len(shares))
    colours = [POSTERIOR if i < len(classes.shares) else PRIOR for i in places]
    axis.barh(places, shares, height=0.6, color=colours, alpha=0.8)
    labels = [_collected(classes, i) for i in range(len(classes.shares))]
    if len(shares) > len(classes.shares):
        labels.append(f"{classes.n_classes - len(classes.shares)} other kinds")
    for place, share in enumerate(shares):
        axis.text(share, place, f" {share:.0%}", va="center", fontsize=SMALL, color=INK)
    panels.clean(axis)
    axis.set_yticks(places, labels)
    for label in axis.get_yticklabels():
        panels.plain(label, SMALL)
    axis.tick_params(axis="y", length=0)
    axis.set_xlim(0, 1.08)
    axis.set_ylim(len(shares) - 0.5, -0.5)
    axis.set_xlabel("share of the posterior", fontsize=NORMAL, color=INK)
    panels.plain(axis.set_title("what each kind of policy collects", loc="left"))
    return figure


def _collected(classes: PolicyClasses, i: int, most: int = 3) -> str:
    """The largest feature expectations of a class."""
    values = classes.feature_expectations[i]
    largest = np.sort(np.argsort(-np.abs(values), kind="stable")[:most])
    return ", ".join(f"{panels.shortened(classes.names[j], 12)} {values[j]:.2g}" for j in largest)


def _stacked_panes(
    axes: Any, count: int, size: tuple[float, float], widths: tuple[float, ...] | None
) -> tuple[Figure, list[Axes]]:
    """The user's own axes, or those of a new figure, side by side."""
    if axes is None:
        figure = Figure(figsize=size, dpi=150, layout="constrained")
        return figure, list(figure.subplots(1, count, squeeze=False, width_ratios=widths).ravel())
    given = list(np.atleast_1d(np.asarray(axes, dtype=object)).ravel())
    if len(given) < count or not all(isinstance(axis, Axes) for axis in given):
        raise InputError(f"axes: this figure needs {count} Matplotlib axes; got {len(given)}.")
    found = given[0].get_figure(root=True)
    return found, given[:count]
