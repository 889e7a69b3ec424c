"""Pictures of a Gridworld: rewards, occupancies and policies on the grid, cell (0, 0) at the lower left."""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from kdbirl.data.demonstrations import Demonstrations
from kdbirl.errors import InputError
from kdbirl.posterior.result import Posterior
from kdbirl.report import panels
from kdbirl.report.panels import CHAINS, INK, SMALL
from kdbirl.worlds.gridworld import MOVES, Gridworld
from kdbirl.worlds.policy import Policy
from kdbirl.worlds.sepsis.covariates import LEVELS

SIDE = 2.3  # inches a panel
FEWEST_SHARE = 0.05  # actions less likely than this have no arrow
DIVERGING, SEQUENTIAL = "RdBu_r", "Blues"


def plot_reward_maps(posterior: Posterior, world: Gridworld, true: Any = None, axes: Any = None) -> Figure:
    """The reward of each cell: the truth (if given), the posterior mean and its standard deviation.

    With features phi the parameters are projected on the grid: R(s) = phi(s).w, the standard deviation that of R(s).
    """
    rewards = _of_cells(world, posterior.flat)
    maps = [("posterior mean", rewards.mean(axis=0), DIVERGING), ("posterior sd", rewards.std(axis=0), SEQUENTIAL)]
    if true is not None:
        maps.insert(0, ("truth", _of_cells(world, np.asarray(true, dtype=float)[None])[0], DIVERGING))
    figure, panels = _panels(axes, len(maps))
    largest = max(float(np.abs(values).max()) for _, values, colours in maps if colours == DIVERGING) or 1.0
    for panel, (title, values, colours) in zip(panels, maps, strict=True):
        limits = (-largest, largest) if colours == DIVERGING else (0.0, float(values.max()) or 1.0)
        _draw_map(figure, panel, world, values, title, colours, limits)
    return figure


def plot_occupancy(
    demonstrations: Demonstrations, world: Gridworld, title: str = "occupancy", axes: Any = None
) -> Figure:
    """The share of demonstration rows in each cell."""
    if not demonstrations.discrete_states:
        raise InputError("plot_occupancy needs demonstrations of discrete states: the cells of the grid.")
    counts = np.bincount(demonstrations.states, minlength=world.size**2)[: world.size**2]
    share = counts / counts.sum()
    figure, panels = _panels(axes, 1)
    _draw_map(figure, panels[0], world, share, title, SEQUENTIAL, (0.0, float(share.max())))
    return figure


def plot_policy(policy: Policy, world: Gridworld, reward: Any = None, axes: Any = None) -> Figure:
    """Arrows for the actions of each cell, as long as they are likely; a dot for staying. A reward may lie behind."""
    table = policy.at(0)[: world.size**2]
    figure, panels = _panels(axes, 1)
    values = np.zeros(world.size**2) if reward is None else _of_cells(world, np.asarray(reward, dtype=float)[None])[0]
    largest = float(np.abs(values).max()) or 1.0
    _draw_map(figure, panels[0], world, values, "policy", DIVERGING, (-largest, largest), bar=reward is not None)
    open_cells = np.setdiff1d(np.arange(world.size**2), world.walls)
    x, y = open_cells % world.size, open_cells // world.size
    for action, (right, up) in enumerate(MOVES):
        share = np.where(table[open_cells, action] >= FEWEST_SHARE, table[open_cells, action], 0.0)
        if right == up == 0:
            panels[0].scatter(x, y, s=30 * share, color=INK)
        else:
            arrow = 0.42 * right * share, 0.42 * up * share
            panels[0].quiver(x, y, *arrow, color=INK, angles="xy", scale_units="xy", scale=1, width=0.012)
    return figure


def _of_cells(world: Gridworld, rewards: Float[np.ndarray, "r q"]) -> Float[np.ndarray, "r cells"]:
    """R(s) of every cell, before any action matters: the mean over actions."""
    table = np.asarray(world.reward_table(rewards))
    return table[:, : world.size**2].mean(axis=2)


def _panels(axes: Any, count: int) -> tuple[Figure, list[Axes]]:
    if axes is not None:
        given = list(np.atleast_1d(np.asarray(axes, dtype=object)).ravel())
        if len(given) < count or not all(isinstance(axis, Axes) for axis in given):
            raise InputError(f"axes: {count} Matplotlib axes are needed, {len(given)} were given.")
        figure = given[0].get_figure(root=True)
        assert isinstance(figure, Figure)
        return figure, given[:count]
    figure = Figure(figsize=(SIDE * count + 0.4, SIDE + 0.2), layout="constrained")
    return figure, list(np.atleast_1d(figure.subplots(1, count)))


def _draw_map(
    figure: Figure,
    panel: Axes,
    world: Gridworld,
    values: Float[np.ndarray, " cells"],
    title: str,
    colours: str,
    limits: tuple[float, float],
    bar: bool = True,
) -> None:
    """One grid as an image, walls hatched, y upwards."""
    size = world.size
    image = panel.imshow(values.reshape(size, size), origin="lower", cmap=colours, vmin=limits[0], vmax=limits[1])
    for wall in world.walls:
        x, y = wall % size, wall // size
        panel.fill_between([x - 0.5, x + 0.5], y - 0.5, y + 0.5, color="#999999")
    panel.set_title(title, fontsize=8.5, color=INK, loc="left")
    ticks = np.arange(size) if size <= 6 else np.arange(0, size, max(1, size // 5))
    panel.set_xticks(ticks)
    panel.set_yticks(ticks)
    panel.tick_params(labelsize=SMALL, length=0, labelcolor=INK)
    for spine in panel.spines.values():
        spine.set_color("#888888")
    if bar:
        colour_bar = figure.colorbar(image, ax=panel, shrink=0.8)
        colour_bar.ax.tick_params(labelsize=SMALL, length=2, labelcolor=INK)
        colour_bar.outline.set_visible(False)  # type: ignore[operator]


# A picture of one patient's stay under several policies: what the chart says, and what was given.

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
