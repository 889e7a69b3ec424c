"""What stands in one panel of a figure: a distribution, a cloud of pairs, a trace; drawn on the axes given."""

import math
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.text import Text

# Colours that differ in lightness and for the colour-blind (Okabe and Ito); the same thing has one colour everywhere.
POSTERIOR, PRIOR, TRUE, INK = "#0072b2", "#b8b8b8", "#d55e00", "#333333"
CHAINS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#8c6d1f", "#555555")
SMALL, NORMAL = 7.0, 8.5  # points
MOST_POINTS = 2000  # in a cloud: more only hide each other

Values = Float[np.ndarray, " _"]
Limits = tuple[float, float]
EVERYWHERE = (-math.inf, math.inf)


def plain(text: Text, size: float = NORMAL) -> None:
    """Show a user's name as it is: `$` starts no formula, whatever the user's Matplotlib is set to."""
    text.set(parse_math=False, usetex=False, fontsize=size, color=INK)


def shortened(name: str, length: int = 26) -> str:
    """Long names lose their middle: both ends tell parameters apart."""
    shown = " ".join(name.split())
    return shown if len(shown) <= length else f"{shown[: length // 2]}…{shown[-(length // 2 - 1) :]}"


def is_constant(values: Values) -> bool:
    """No spread that a histogram could show."""
    return values.size == 0 or bool(np.ptp(values) <= 1e-9 * np.abs(values).max())


def limits_of(*samples: Values, central: float = 0.998) -> Limits:
    """A range with the central part of every sample, and a margin; never empty."""
    tails = [(1 - central) / 2, (1 + central) / 2]
    ends = np.array([np.quantile(sample, tails) for sample in samples if sample.size])
    low, high = float(ends.min()), float(ends.max())
    margin = 0.04 * (high - low) or 0.05 * max(abs(low), 1e-3)
    return low - margin, high + margin


def clean(axes: Axes, y_axis: bool = False, ticks: int = 4) -> None:
    """No frame, few ticks (a logarithmic axis keeps its decades)."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color("#888888")
    axes.tick_params(labelsize=SMALL, color="#888888", labelcolor=INK, length=3)
    if axes.get_xscale() == "linear":
        axes.locator_params(axis="x", nbins=ticks)
    if y_axis and axes.get_yscale() == "linear":
        axes.locator_params(axis="y", nbins=ticks)
    if not y_axis:
        axes.spines["left"].set_visible(False)
        axes.set_yticks([])


def distribution(
    axes: Axes,
    values: Values,
    colour: str,
    *,
    filled: bool = True,
    outlined: bool = True,
    horizontal: bool = False,
    front: float = 2.0,
) -> None:
    """A histogram by density (a kernel estimate would smear mass over the edge of a bounded prior)."""
    if is_constant(values):
        line = axes.axhline if horizontal else axes.axvline
        line(float(values[0]), color=colour, linewidth=2, zorder=front)
        return
    # Rice's rule; half as many where nothing but the height matters
    bins = min(60, max(8, math.ceil((2 if outlined else 1) * len(values) ** (1 / 3))))
    density, edges = np.histogram(values, bins=bins, density=True)
    orientation: Any = "horizontal" if horizontal else "vertical"
    if filled:
        axes.stairs(density, edges, fill=True, color=colour, alpha=0.3, zorder=front, orientation=orientation)
    if outlined:
        axes.stairs(density, edges, color=colour, linewidth=1.0, zorder=front + 0.1, orientation=orientation)


def interval_below(axes: Axes, values: Values) -> None:
    """The central 90 % as a bar on the axis, and the median as a point."""
    low, median, high = np.quantile(values, [0.05, 0.5, 0.95])
    below = axes.get_xaxis_transform()
    axes.plot([low, high], [0, 0], color=POSTERIOR, linewidth=3, transform=below, clip_on=False, zorder=5)
    axes.plot(
        [median], [0], "o", color="white", markeredgecolor=POSTERIOR, transform=below, clip_on=False, zorder=6, ms=4
    )


def true_line(axes: Axes, value: float, horizontal: bool = False) -> None:
    """The true value, where it is known."""
    if np.isfinite(value):
        (axes.axhline if horizontal else axes.axvline)(
            value, color=TRUE, linewidth=1.2, linestyle=(0, (4, 2)), zorder=7
        )


def cloud(axes: Axes, x: Values, y: Values) -> None:
    """Draws as points, with the smallest regions that hold 50 % and 90 % of them."""
    step = max(1, math.ceil(len(x) / MOST_POINTS))
    axes.plot(x[::step], y[::step], ".", ms=2, color=POSTERIOR, alpha=0.25, mew=0, rasterized=True, zorder=2)
    if is_constant(x) or is_constant(y) or len(x) < 50:
        return
    from scipy.ndimage import gaussian_filter

    counts, x_edges, y_edges = np.histogram2d(x, y, bins=40)
    smooth = gaussian_filter(counts, 1.5, mode="reflect")  # no mass leaks over the edge of a bounded prior
    ordered = np.sort(smooth.ravel())[::-1]
    inside = np.cumsum(ordered) / ordered.sum()
    levels = sorted({float(ordered[np.searchsorted(inside, share)]) for share in (0.9, 0.5)})
    centres = [(edges[:-1] + edges[1:]) / 2 for edges in (x_edges, y_edges)]
    axes.contour(*centres, smooth.T, levels=levels, colors=[INK], linewidths=0.8, zorder=3)


def trace(axes: Axes, chains: Float[np.ndarray, "chain draw"], joined: bool) -> None:
    """The draws in the order in which they came, one colour for each chain; independent draws are not joined."""
    many = chains.size > 20_000
    for c, values in enumerate(chains):
        look: dict[str, Any] = {"linewidth": 0.5} if joined else {"linestyle": "", "marker": ".", "ms": 2, "mew": 0}
        axes.plot(values, color=CHAINS[c % len(CHAINS)], alpha=0.75, rasterized=many, zorder=2, **look)
    axes.set_xlim(-0.01 * chains.shape[1], 1.01 * chains.shape[1])
