"""Figure 2 of the paper: for each w*, the reward on the grid, the posterior mean's, and the joint density of w."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from kdbirl.posterior.priors import parse_prior
from kdbirl.report.panels import INK, NORMAL, SMALL, TRUE

CELLS = 60  # a side of the density's grid on [-1, 1]^2
SHARES = (0.9, 0.5)  # of the mass, inside contours


def plot_weights(shown: Sequence[Mapping[str, Any]]) -> Figure:
    """A row for each w*: truth on the grid, posterior mean on the grid, joint density with its prior."""
    figure = Figure(figsize=(6.9, 2.25 * len(shown) + 0.35), layout="constrained")
    axes = figure.subplots(len(shown), 3, squeeze=False)
    for line, part in zip(axes, shown, strict=True):
        largest = float(np.abs(part["truth_map"]).max())
        words = f"$w^\\star = [{part['truth'][0]:g}, {part['truth'][1]:g}]$"
        _map(figure, line[0], np.asarray(part["truth_map"]), words, largest)
        _map(figure, line[1], np.asarray(part["mean_map"]), "posterior mean", largest)
        _joint(line[2], np.asarray(part["draws"]), part["truth"], part["prior"])
    handles = [
        Line2D([], [], color="#0072b2", lw=1.2, label="posterior, 50 % and 90 %"),
        Line2D([], [], color="#777777", lw=1.0, ls=":", label="prior, 50 % and 90 %"),
        Line2D([], [], color=TRUE, marker="X", ls="", ms=7, mec="white", label="$w^\\star$"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False, fontsize=NORMAL, labelcolor=INK)
    return figure


def _map(figure: Figure, panel: Axes, values: Float[np.ndarray, " cells"], title: str, largest: float) -> None:
    side = round(len(values) ** 0.5)
    image = panel.imshow(values.reshape(side, side), origin="lower", cmap="RdBu_r", vmin=-largest, vmax=largest)
    panel.set_title(title, fontsize=NORMAL, color=INK, loc="left")
    panel.set_xticks([0, 3, 6, 9])
    panel.set_yticks([0, 3, 6, 9])
    panel.set_xlabel("x", fontsize=SMALL, color=INK)
    panel.set_ylabel("y", fontsize=SMALL, color=INK)
    panel.tick_params(labelsize=SMALL, length=0, labelcolor=INK)
    for spine in panel.spines.values():
        spine.set_color("#888888")
    bar = figure.colorbar(image, ax=panel, shrink=0.85, pad=0.03)
    bar.ax.tick_params(labelsize=SMALL, length=2, labelcolor=INK)
    bar.set_label("reward", fontsize=SMALL, color=INK)
    bar.outline.set_visible(False)  # type: ignore[operator]


def _joint(panel: Axes, draws: Float[np.ndarray, "n 2"], truth: Sequence[float], prior: str) -> None:
    """The density of the draws on [-1, 1]^2, without mass over the edge; contours of posterior and prior."""
    edges = np.linspace(-1, 1, CELLS + 1)
    centres, smooth = (edges[:-1] + edges[1:]) / 2, _smooth(draws, edges)
    panel.pcolormesh(edges, edges, smooth.T, cmap="Blues", rasterized=True, vmax=1.15 * smooth.max())
    panel.contour(centres, centres, smooth.T, levels=levels_of(smooth), colors="#0072b2", linewidths=1.1)
    before = _prior_density(prior, centres)
    panel.contour(
        centres, centres, before.T, levels=levels_of(before), colors="#777777", linewidths=0.9, linestyles=":"
    )
    panel.plot(*truth, marker="X", color=TRUE, ms=8, mec="white", mew=0.8, clip_on=False, zorder=6)
    panel.set(xlim=(-1, 1), ylim=(-1, 1), aspect="equal")
    panel.set_xticks([-1, 0, 1])
    panel.set_yticks([-1, 0, 1])
    panel.tick_params(labelsize=SMALL, length=2, labelcolor=INK)
    panel.axhline(0, color="#cccccc", lw=0.6, zorder=1)
    panel.axvline(0, color="#cccccc", lw=0.6, zorder=1)
    panel.set_title("joint posterior", fontsize=NORMAL, color=INK, loc="left")
    panel.set_xlabel("$w_1$", fontsize=NORMAL, color=INK)
    panel.set_ylabel("$w_2$", fontsize=NORMAL, color=INK, rotation=0, labelpad=6)


def _smooth(draws: Float[np.ndarray, "n 2"], edges: Float[np.ndarray, " e"]) -> Float[np.ndarray, "c c"]:
    """A histogram smoothed by a kernel that is reflected at the edges: no mass leaves the box."""
    from scipy.ndimage import gaussian_filter

    counts = np.histogram2d(draws[:, 0], draws[:, 1], bins=[edges, edges])[0]
    width = max(float(draws.std(axis=0).min()) * len(draws) ** (-1 / 6) * CELLS / 2, 0.8)
    return np.asarray(gaussian_filter(counts, width, mode="reflect"))


def _prior_density(prior: str, centres: Float[np.ndarray, " c"]) -> Float[np.ndarray, "c c"]:
    """The product of both marginals, each the slope of the inverse of its quantiles."""
    levels = np.linspace(0.0005, 0.9995, 1000)
    quantiles = parse_prior(prior).for_parameters(2).quantiles(np.stack([levels, levels], axis=1))
    assert quantiles is not None  # every family that has a text has them
    slopes = [np.interp(centres, values, np.gradient(levels, values)) for values in quantiles.T]
    return np.asarray(slopes[0][:, None] * slopes[1][None])


def levels_of(values: Float[np.ndarray, "a b"]) -> list[float]:
    """Heights whose contours hold `SHARES` of the mass."""
    ordered = np.sort(values.ravel())[::-1]
    inside = np.cumsum(ordered) / ordered.sum()
    return sorted({float(ordered[min(int(np.searchsorted(inside, share)), len(ordered) - 1)]) for share in SHARES})
