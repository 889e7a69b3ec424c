"""Pictures of what a posterior rests on: informed directions, support of the expert's rows, policies of the draws."""

from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from kdbirl.diagnosis.identifiability import (
    WEAK_CONTRACTION,
    Identifiability,
    contraction,
    kept_words,
    principal_contractions,
)
from kdbirl.diagnosis.support import FEWEST_ROWS, Support
from kdbirl.diagnosis.wording import axis_in_words, axis_sign
from kdbirl.errors import InputError
from kdbirl.evaluation.policy_classes import PolicyClasses
from kdbirl.posterior.result import Posterior
from kdbirl.report import panels
from kdbirl.report.panels import INK, NORMAL, POSTERIOR, PRIOR, SMALL, TRUE

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
    figure, (left, right) = _panes(axes, 2, (width + 2.4, height), (width, 2.2))
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
    figure, (left, right) = _panes(axes, 2, (7.4, 2.9), (1.2, 1.0))
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
    figure, (axis,) = _panes(axes, 1, (5.6, 0.36 * len(shares) + 1.0), None)
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


def _panes(
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
