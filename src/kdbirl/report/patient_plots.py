"""A picture of one patient's stay under several policies: what the chart says, and what was given."""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from kdbirl.demos.data import Demonstrations
from kdbirl.envs.sepsis_covariates import LEVELS
from kdbirl.errors import InputError
from kdbirl.report import panels
from kdbirl.report.panels import CHAINS, INK, SMALL

COVARIATES = ("SOFA", "MeanBP", "lactate")
TREATMENTS = ("fluid level", "vasopressor level")  # of the action 5 * fluid + vasopressor
HOURS = 4  # of a step


def plot_patient(
    stays: Mapping[str, Demonstrations], covariates: Sequence[str] = COVARIATES, episode: int = 0, axes: Any = None
) -> Figure:
    """Lines over the hours of a stay, one for each policy: covariates above, levels of fluid and vasopressor below.

    stays: rows of a sepsis world by the policy's name; rollouts with one seed have the same patients, so that episode 0
    of each is one patient. episode: which, in the order of the rows.
    """
    shown = (*covariates, *TREATMENTS)
    figure, panes = _panes(axes, shown)
    for place, (name, rows) in enumerate(stays.items()):
        values = _stay(rows, name, covariates, episode)
        hours = HOURS * np.arange(len(values))
        for axis, column, title in zip(panes, values.T, shown, strict=True):
            colour = CHAINS[place % len(CHAINS)]
            if title in TREATMENTS:  # each lasts until the next
                axis.stairs(column, HOURS * np.arange(len(values) + 1), baseline=None, color=colour, linewidth=1.4)
            else:
                axis.plot(hours, column, color=colour, linewidth=1.4, label=name)
    for axis, title in zip(panes, shown, strict=True):
        _dress(axis, title)
    panes[-1].set_xlabel("hours", fontsize=SMALL, color=INK)
    legend = panes[0].legend(
        fontsize=SMALL, frameon=False, ncols=len(stays), loc="lower left", bbox_to_anchor=(0, 1.25)
    )
    for text in legend.get_texts():
        panels.plain(text, SMALL)
    return figure


def _panes(axes: Any, shown: Sequence[str]) -> tuple[Figure, list[Axes]]:
    if axes is not None:
        given = list(np.ravel(np.asarray(axes, dtype=object)))
        if len(given) != len(shown):
            raise InputError(f"plot_patient needs {len(shown)} axes, not {len(given)}.")
        return given[0].figure, given
    figure, panes = plt.subplots(
        len(shown), 1, figsize=(5.4, 1.0 + 1.1 * len(shown)), sharex=True, layout="constrained"
    )
    return figure, list(panes)


def _stay(rows: Demonstrations, name: str, covariates: Sequence[str], episode: int) -> np.ndarray:
    """(steps, covariates + 2) of one episode."""
    missing = [column for column in covariates if column not in rows.state_names]
    if missing or rows.actions is None or not rows.discrete_actions:
        wanted = f"the columns {', '.join(missing)}" if missing else "treatments as codes 5 * fluid + vasopressor"
        raise InputError(f"plot_patient needs {wanted}, which the rows of {name!r} do not have.")
    names = list(dict.fromkeys(rows.episodes.tolist()))
    if not 0 <= episode < len(names):
        raise InputError(f"episode={episode} should be from 0 to {len(names) - 1}: {name!r} has {len(names)} episodes.")
    one = rows.take(rows.episodes == names[episode])
    assert one.actions is not None
    chart = one.states[:, [rows.state_names.index(column) for column in covariates]]
    return np.column_stack([chart, *np.divmod(one.actions, LEVELS)])


def _dress(axis: Axes, title: str) -> None:
    panels.clean(axis, y_axis=True)
    panels.plain(axis.set_title(title, loc="left"))
    if title in TREATMENTS:
        axis.set_ylim(-0.3, LEVELS - 0.7)
        axis.set_yticks([0, 2, 4])
