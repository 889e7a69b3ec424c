"""Figure 3 of the paper: maps of a grid side by side; the darkest cell is the highest."""

from collections.abc import Mapping

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from kdbirl.report.panels import INK, NORMAL, SMALL

TITLES = {
    "truth": "true reward $R^\\star$",
    "mean": "posterior mean",
    "training": "training rows",
    "expert": "expert rows",
}
REWARDS = ("truth", "mean")  # on one scale, from 0 to 1; occupancies have their own
COLOURS = {"truth": "Blues", "mean": "Blues", "training": "Greys", "expert": "Greys"}


def plot_cell_maps(maps: Mapping[str, Float[np.ndarray, " cells"]]) -> Figure:
    """One panel for each map of `TITLES` that is given, as the paper has them: rewards, then occupancies."""
    figure = Figure(figsize=(1.95 * len(maps) + 0.3, 2.25), layout="constrained")
    panels = figure.subplots(1, len(maps), squeeze=False)[0]
    most = max(float(values.max()) for name, values in maps.items() if name not in REWARDS)
    for panel, (name, values) in zip(panels, maps.items(), strict=True):
        top = 1.0 if name in REWARDS else most
        _map(figure, panel, values, TITLES[name], COLOURS[name], top, "reward" if name in REWARDS else "share of rows")
    return figure


def _map(
    figure: Figure, panel: Axes, values: Float[np.ndarray, " cells"], title: str, colours: str, top: float, unit: str
) -> None:
    """One grid, cell (0, 0) at the lower left, with the values written in the cells."""
    side = round(len(values) ** 0.5)
    image = panel.imshow(values.reshape(side, side), origin="lower", cmap=colours, vmin=0.0, vmax=top)
    for cell, value in enumerate(values):
        ink = "white" if value > 0.6 * top else INK
        shown = f"{value:.2f}".removeprefix("0") if 0 < value < 0.995 else f"{value:.0f}"
        panel.text(cell % side, cell // side, shown, ha="center", va="center", fontsize=5.6, color=ink)
    panel.set_title(title, fontsize=NORMAL, color=INK, loc="left")
    panel.set_xticks(range(side))
    panel.set_yticks(range(side))
    panel.tick_params(labelsize=SMALL, length=0, labelcolor=INK)
    for spine in panel.spines.values():
        spine.set_color("#888888")
    bar = figure.colorbar(image, ax=panel, orientation="horizontal", shrink=0.85, pad=0.02, aspect=18)
    bar.ax.tick_params(labelsize=SMALL, length=2, labelcolor=INK)
    bar.ax.locator_params(nbins=3)
    bar.set_label(unit, fontsize=SMALL, color=INK)
    bar.outline.set_visible(False)  # type: ignore[operator]
