"""Figure 1 of the paper: the marginal posterior of each state's reward, one line for each method."""

from collections.abc import Mapping

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from kdbirl.report.panels import INK, NORMAL, SMALL, clean

# The paper's four methods: colour (Okabe and Ito), line, label.
LOOKS = {
    "kdbirl": ("#0072b2", "-", "KD-BIRL"),
    "birl": ("#e69f00", (0, (5, 1)), "BIRL"),
    "avril": ("#009e73", (0, (3, 1, 1, 1)), "AVRIL"),
    "avril-prior": ("#cc79a7", (0, (1, 1)), "AVRIL with prior"),
}
LOW, HIGH = -0.6, 1.6  # AVRIL's normal posteriors leave the unit interval
POINTS = 600
LOWEST = 2e-3
NARROWEST = 0.012  # a kernel's sd: no posterior is drawn narrower
UNIT = ("kdbirl", "birl")  # methods whose prior is the unit interval: no mass is drawn outside it


def plot_state_marginals(
    draws: Mapping[str, Float[np.ndarray, "n states"]], truth: Float[np.ndarray, " states"]
) -> Figure:
    """A panel for each state, laid out as the grid is (state 0 at the lower left), the truth dashed.

    Densities are scaled by their square root upwards: a concentrated posterior is many times as high as a uniform one.
    """
    side = round(len(truth) ** 0.5)
    figure = Figure(figsize=(3.1 * side + 0.2, 2.05 * side + 0.7), layout="constrained")
    axes = figure.subplots(side, side, squeeze=False, sharex=True, sharey=True)
    for state, true in enumerate(truth):
        panel = axes[side - 1 - state // side, state % side]
        for method, values in draws.items():
            _density(panel, values[:, state], method)
        panel.axvline(float(true), color=INK, lw=1.1, ls=(0, (4, 2)), zorder=1)
        panel.set_title(f"state [{state % side}, {state // side}]", fontsize=NORMAL, color=INK, loc="left")
        _finish(panel)
    for panel in axes[-1]:
        panel.set_xlabel("reward", fontsize=NORMAL, color=INK)
    for panel in axes[:, 0]:
        panel.set_ylabel("density (root scale)", fontsize=NORMAL, color=INK)
    _legend(figure, list(draws))
    return figure


def density(values: Float[np.ndarray, " n"], grid: Float[np.ndarray, " g"], unit: bool) -> Float[np.ndarray, " g"]:
    """A Gaussian kernel density; with `unit`, reflected at 0 and 1, so that no mass leaves the prior's box."""
    width = max(
        0.9 * min(values.std(), np.subtract(*np.quantile(values, [0.75, 0.25])) / 1.34) * len(values) ** -0.2, NARROWEST
    )
    parts = (values, -values, 2 - values) if unit else (values,)
    total = sum(np.exp(-0.5 * ((grid[:, None] - part[None]) / width) ** 2).sum(axis=1) for part in parts)
    found = np.asarray(total) / (len(values) * width * np.sqrt(2 * np.pi))
    return np.where((grid < 0) | (grid > 1), 0.0, found) if unit else found


def _density(panel: Axes, values: Float[np.ndarray, " n"], method: str) -> None:
    colour, line, _ = LOOKS[method]
    unit = method in UNIT
    grid = np.linspace(0.0, 1.0, POINTS) if unit else np.linspace(LOW, HIGH, POINTS)
    height = density(values, grid, unit)
    front = 4.0 if method == "kdbirl" else 3.0
    height = np.where(height < LOWEST, np.nan, height)  # no line along the axis where there is no mass
    panel.plot(grid, height, color=colour, ls=line, lw=1.9 if method == "kdbirl" else 1.4, zorder=front)
    panel.fill_between(
        grid, 0.0, height, color=colour, alpha=0.22 if method == "kdbirl" else 0.06, lw=0, zorder=front - 1
    )


def _finish(panel: Axes) -> None:
    panel.set_yscale("function", functions=(lambda y: np.sqrt(np.maximum(y, 0.0)), lambda y: np.square(y)))
    panel.set_xlim(LOW, HIGH)
    panel.set_ylim(0, None)
    clean(panel, y_axis=False)
    panel.set_yticks([1, 5, 10, 20, 40])
    panel.spines["left"].set_visible(True)
    panel.set_xticks([-0.5, 0, 0.5, 1, 1.5], ["$-$0.5", "0", "0.5", "1", "1.5"])
    panel.tick_params(labelsize=SMALL)


def _legend(figure: Figure, methods: list[str]) -> None:
    handles = [Line2D([], [], color=LOOKS[m][0], ls=LOOKS[m][1], lw=1.8, label=LOOKS[m][2]) for m in methods]
    handles.append(Line2D([], [], color=INK, ls=(0, (4, 2)), lw=1.1, label="true reward"))
    figure.legend(
        handles=handles, loc="outside upper center", ncols=len(handles), frameon=False, fontsize=NORMAL, labelcolor=INK
    )
