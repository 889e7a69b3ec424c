"""A picture of learnt features: how learning went, which latents are used, what the action controls, what they mean."""

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from kdbirl.errors import InputError
from kdbirl.features.latent_diagnosis import LatentDiagnosis
from kdbirl.progress import BLOCK, Course
from kdbirl.report import panels
from kdbirl.report.panels import CHAINS, INK, POSTERIOR, SMALL, TRUE

MOST_INPUTS = 50  # whose names fit below a picture
DIVERGING = "RdBu_r"


def plot_latents(diagnosis: LatentDiagnosis, course: Course | None = None, axes: Any = None) -> Figure:
    """Top left, the course of learning (for a VAE); top right, the latents' variances and the action's share in them;
    below, their correlations with the inputs.

    axes: two, for the two right and lower panels, or three with a course first.
    """
    wanted = 2 if course is None else 3
    figure, panes = _panes(axes, wanted, len(diagnosis.input_names), len(diagnosis.names))
    if course is not None:
        _course(panes[0], course)
    _use(panes[-2], diagnosis)
    _correlations(panes[-1], diagnosis)
    return figure


def _panes(axes: Any, count: int, inputs: int, latents: int) -> tuple[Figure, list[Axes]]:
    if axes is not None:
        given = list(np.ravel(np.asarray(axes, dtype=object)))
        if len(given) != count:
            raise InputError(f"plot_latents needs {count} axes, not {len(given)}.")
        return given[0].figure, given
    width = max(6.4, min(10.0, 1.5 + 0.17 * inputs))
    figure = plt.figure(figsize=(width, 3.4 + 0.25 * latents), layout="constrained")
    halves: Any = figure.subfigures(2, 1, height_ratios=(2.2, 1.2 + 0.25 * latents))
    top, below = halves
    above = top.subplots(1, count - 1, squeeze=False)[0]
    return figure, [*above, below.subplots()]


def _course(axes: Axes, course: Course) -> None:
    steps = np.minimum(BLOCK * np.arange(1, len(course.loss) + 1), course.steps)
    axes.plot(steps, course.loss, color=CHAINS[1], linewidth=1.2, label="loss, of the batches")
    if course.held_out:
        label = f"squared error, {course.held_out_rows:,} rows held out"
        axes.plot([0, *steps][: len(course.held_out)], course.held_out, color=POSTERIOR, linewidth=1.2, label=label)
        axes.axvline(course.kept_step, color=TRUE, linewidth=1, linestyle=(0, (4, 2)), label="kept")
    panels.clean(axes, y_axis=True)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("steps", fontsize=SMALL, color=INK)
    axes.legend(fontsize=SMALL, frameon=False, labelcolor=INK)
    panels.plain(axes.set_title(f"Learning: {course.outcome}", loc="left"))


def _use(axes: Axes, diagnosis: LatentDiagnosis) -> None:
    """Variance of each latent, the part that the action controls in another colour."""
    place = np.arange(len(diagnosis.names))
    axes.bar(place, diagnosis.variance, width=0.6, color=POSTERIOR, alpha=0.8, label="variance of phi")
    if diagnosis.action_control is not None:
        part = np.clip(diagnosis.action_control, 0, 1) * diagnosis.variance
        axes.bar(place, part, width=0.6, color=TRUE, label="controlled by the action")
    for k in np.flatnonzero(~diagnosis.active):
        axes.text(float(k), 0, "collapsed", ha="center", va="bottom", fontsize=SMALL, color=INK)
    panels.clean(axes, y_axis=True)
    axes.set_xticks(place, _named(diagnosis), fontsize=SMALL)
    axes.set_ylim(0, 1.35 * max(float(diagnosis.variance.max()), 1e-12))
    axes.legend(fontsize=SMALL, frameon=False, labelcolor=INK, loc="upper right", ncols=2)
    title = f"{diagnosis.r_squared:.0%} of the inputs' variance kept"
    panels.plain(axes.set_title(title, loc="left"))


def _named(diagnosis: LatentDiagnosis) -> list[str]:
    if diagnosis.kl is None:
        return list(diagnosis.names)
    return [f"{name}\nKL {kl:.2f}" for name, kl in zip(diagnosis.names, diagnosis.kl, strict=True)]


def _correlations(axes: Axes, diagnosis: LatentDiagnosis) -> None:
    picture = axes.imshow(diagnosis.correlations, cmap=DIVERGING, vmin=-1, vmax=1, aspect="auto")
    axes.set_yticks(np.arange(len(diagnosis.names)), diagnosis.names)
    inputs = [panels.shortened(name, 16) for name in diagnosis.input_names]
    if len(inputs) <= MOST_INPUTS:
        axes.set_xticks(np.arange(len(inputs)), inputs, rotation=60, ha="right", rotation_mode="anchor")
    else:
        axes.set_xticks([])
        axes.set_xlabel(f"{len(inputs)} inputs", fontsize=SMALL, color=INK)
    for label in (*axes.get_yticklabels(), *axes.get_xticklabels()):
        panels.plain(label, SMALL)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    panels.plain(axes.set_title("Correlation with the inputs", loc="left"))
    bar = axes.figure.colorbar(picture, ax=axes, shrink=0.9, pad=0.01, ticks=[-1, 0, 1])
    bar.ax.tick_params(labelsize=SMALL, length=0)
    bar.ax.spines[:].set_visible(False)
