"""Figures of Lemma 4.1 and Theorem 4.2 by experiment, from the numbers in `contraction.json`. One function a figure."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Polygon
from matplotlib.ticker import NullLocator

from kdbirl.errors import InputError
from kdbirl.report.panels import INK, NORMAL, SMALL, TRUE

# One colour and one marker for a path wherever it is drawn: blue converges, the others do not all.
LOOKS = {
    "every-row": ("#0072b2", "o"),
    "growing": ("#0072b2", "o"),
    "root": ("#009e73", "s"),
    "few-tasks": ("#cc79a7", "^"),
    "fixed-64": ("#cc79a7", "^"),
    "fixed-1024": ("#e69f00", "v"),
    "paper-rule": ("#666666", "D"),
}
Numbers = Mapping[str, Any]


def plot_ckde_convergence(lemma: Numbers, axes: Any = None) -> Figure:
    """Lemma 4.1: the L1 error of the CKDE against m on each path, and the slopes beside the theory's."""
    figure, (errors, rates), own = _panes(axes, 2, (7.2, 3.2), (1.7, 1.0))
    m = np.asarray(lemma["m"], dtype=float)
    for name, path in lemma["paths"].items():
        _band(errors, m, np.asarray(path["error"]), path["mean"], name)
    _theory_line(errors, m, lemma)
    errors.set(xscale="log", yscale="log")
    _label(errors, "training rows m", "L1 error of the estimated p(s, a | R)")
    _size_ticks(errors, m)
    _plain_log_ticks(errors, np.concatenate([np.ravel(path["error"]) for path in lemma["paths"].values()]))
    _slopes(rates, lemma)
    theory = Line2D([], [], color=INK, ls=(0, (4, 2)), lw=1.0, label=_theory(lemma))
    _legend(figure, errors, own, lemma["paths"], [theory])
    _note(figure, own, "bands and bars: 95 % intervals of the mean over seeds; thin lines: single seeds")
    return figure


def _theory(lemma: Numbers) -> str:
    return f"theory, slope {_number(lemma['rate'])}"


def _number(value: float) -> str:
    return f"{value:.2f}".replace("-", "\u2212")


def _theory_line(axis: Axes, m: Float[np.ndarray, " sizes"], lemma: Numbers) -> None:
    """The theory's slope, through the mean of the first path that obeys it, a little below its points."""
    logs = np.log(next(iter(lemma["paths"].values()))["mean"]["number"])
    level = float(np.mean(logs - lemma["rate"] * np.log(m)))
    axis.plot(m, 0.82 * np.exp(level + lemma["rate"] * np.log(m)), color=INK, ls=(0, (4, 2)), lw=1.0, zorder=1)


def _plain_log_ticks(axis: Axes, values: Float[np.ndarray, " _"]) -> None:
    """Plain numbers, not powers of ten, on an axis that spans a decade or two."""
    low, high = values.min() / 1.35, values.max() * 1.2
    ticks = [tick for tick in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0) if low < tick < high]
    axis.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    axis.yaxis.set_minor_locator(NullLocator())
    axis.set_ylim(low, high)


def _size_ticks(axis: Axes, sizes: Float[np.ndarray, " sizes"], every: int = 1) -> None:
    """The sizes themselves, the last one always among them."""
    shown = sizes[::-1][::every]
    axis.set_xticks(shown, [f"{int(size):,}" for size in shown])
    axis.xaxis.set_minor_locator(NullLocator())


def _slopes(axis: Axes, lemma: Numbers) -> None:
    """The slope over all m (open) and over the largest m (filled) of each path, with intervals."""
    axis.axvline(lemma["rate"], color=INK, ls=(0, (4, 2)), lw=1.0, zorder=1)
    axis.axvline(0.0, color="#bbbbbb", lw=0.8, zorder=0)
    for place, (name, path) in enumerate(lemma["paths"].items()):
        colour, marker = LOOKS[name]
        for shift, found, fill in ((-0.14, path["slope"], "white"), (0.14, path["tail_slope"], colour)):
            axis.hlines(place + shift, found["low"], found["high"], color=colour, lw=1.4, zorder=2)
            axis.plot(found["number"], place + shift, marker, color=colour, mfc=fill, ms=5, zorder=3)
    axis.set_ylim(len(lemma["paths"]) - 0.5, -0.5)
    axis.set_yticks([])
    _label(axis, "slope of log error in log m", "")
    axis.spines["left"].set_visible(False)
    handles = [
        Line2D([], [], color=INK, marker="o", mfc="white", ls="", ms=5, label="all m"),
        Line2D([], [], color=INK, marker="o", ls="", ms=5, label="largest m"),
    ]
    axis.legend(handles=handles, loc="lower center", fontsize=SMALL, frameon=False, labelcolor=INK, handletextpad=0.3)


def plot_posterior_contraction(theorem: Numbers, axes: Any = None) -> Figure:
    """Theorem 4.2: mass in the smallest ball, mean L1 distance from the truth, and coverage of 90 % intervals, by n."""
    figure, (mass, distance, coverage), own = _panes(axes, 3, (7.2, 3.0), (1.0, 1.0, 1.0))
    n = np.asarray(theorem["n"], dtype=float)
    for place, (name, path) in enumerate(theorem["paths"].items()):
        apart = n * 1.12 ** (place - (len(theorem["paths"]) - 1) / 2)  # beside each other, not on top
        _bars(mass, apart, np.asarray(path["mass"])[:, :, 0], path["mean_mass"][0], name, (0.0, 1.0))
        _bars(distance, apart, np.asarray(path["distance"]), path["mean_distance"], name)
        coverage.plot(n, path["coverage"], marker=LOOKS[name][1], color=LOOKS[name][0], ms=4, lw=1.4)
    coverage.axhline(0.9, color=INK, ls=(0, (4, 2)), lw=1.0)
    _label(mass, "expert rows n", f"mass in the L1 ball of radius {theorem['radii'][0]:g}")
    _label(distance, "expert rows n", "mean L1 distance from the truth")
    _label(coverage, "expert rows n", "coverage of 90 % intervals")
    for axis in (mass, distance, coverage):
        axis.set_xscale("log")
        _size_ticks(axis, n, every=2)
    for axis in (mass, coverage):
        axis.set_ylim(-0.03, 1.03)
    distance.set_yscale("log")
    _plain_log_ticks(distance, np.concatenate([np.ravel(path["distance"]) for path in theorem["paths"].values()]))
    _legend(figure, mass, own, theorem["paths"], [], columns=2)
    _note(figure, own, "bars: 95 % intervals of the mean over seeds; dots: single seeds; dashed: 0.90, as it should be")
    return figure


def plot_contraction_draws(
    theorem: Numbers, world: Mapping[str, float], paths: Sequence[str] = ("growing", "fixed-64"), axes: Any = None
) -> Figure:
    """Exact posterior draws of one seed in the plane of the two reward parameters, as n grows along each path.

    The line is the equivalence class of the truth, the wedge the ball about it: behaviour knows only the ratio.
    """
    n = theorem["n"]
    figure, panes, own = _panes(axes, len(paths) * len(n), (1.25 * len(n), 1.55 * len(paths) + 0.35), rows=len(paths))
    for row, name in enumerate(paths):
        path = theorem["paths"][name]
        for column, size in enumerate(n):
            axis = panes[row * len(n) + column]
            _box(axis, world, theorem["shown_truth"], theorem["radii"][0])
            draws = np.asarray(path["draws"][column])
            axis.plot(draws[:, 0], draws[:, 1], ".", ms=2.2, mew=0, alpha=0.6, color=LOOKS[name][0], zorder=3)
            axis.set_title(f"n = {size:,}\nm = {path['m'][column]:,}", fontsize=SMALL, color=INK)
            axis.tick_params(labelleft=column == 0, labelbottom=row == len(paths) - 1)
        panes[row * len(n)].set_ylabel("R₂", fontsize=NORMAL, color=INK)
    for axis in panes[-len(n) :]:
        axis.set_xlabel("R₁", fontsize=NORMAL, color=INK)
    class_line = Line2D([], [], color=TRUE, lw=1.2, label="equivalence class of the truth")
    ball = Patch(color=TRUE, alpha=0.25, lw=0, label=f"L1 ball of radius {theorem['radii'][0]:g} about it")
    _legend(
        figure,
        panes[0],
        own,
        {name: theorem["paths"][name] for name in paths},
        [class_line, ball],
        columns=4,
        lines=False,
    )
    return figure


def _box(axis: Axes, world: Mapping[str, float], truth: Sequence[float], radius: float) -> None:
    """The box of rewards, the truth, its ray and the wedge of rewards that behave nearly as it does."""
    from scipy.special import ndtri

    low, high = world["low"], world["high"]
    hand, state = world["hand_noise"], np.hypot(world["hand_noise"], world["world_noise"])
    reach = 2 * ndtri((radius / 2 + 1) / 2) / np.sqrt(hand**-2 + state**-2)  # |g - g*| at that L1 distance
    target = (truth[0] - truth[1]) / (truth[0] + truth[1])
    far = 3 * high
    edges = [far * np.array([1 + g, 1 - g]) / 2 for g in (target - reach, target + reach)]
    axis.add_patch(Polygon(np.stack([np.zeros(2), *edges]), color=TRUE, alpha=0.25, lw=0, zorder=1))
    axis.plot([0, far * (1 + target) / 2], [0, far * (1 - target) / 2], color=TRUE, lw=0.9, zorder=2)
    axis.plot(*truth, "*", color=TRUE, mec="white", mew=0.6, ms=9, zorder=4)
    axis.set(xlim=(low, high), ylim=(low, high), aspect="equal", xticks=(0.2, 0.5, 0.8), yticks=(0.2, 0.5, 0.8))
    axis.tick_params(labelsize=SMALL, color="#888888", labelcolor=INK, length=2)
    for spine in axis.spines.values():
        spine.set_color("#888888")


def _band(
    axis: Axes, sizes: Float[np.ndarray, " sizes"], seeds: Float[np.ndarray, "seeds sizes"], mean: Numbers, name: str
) -> None:
    """Each seed as a thin line, the mean over seeds with its 95 % interval as a band."""
    colour, marker = LOOKS[name]
    axis.plot(sizes, seeds.T, color=colour, lw=0.4, alpha=0.25, zorder=2)
    axis.fill_between(sizes, mean["low"], mean["high"], color=colour, alpha=0.18, lw=0, zorder=2)
    axis.plot(sizes, mean["number"], marker=marker, color=colour, ms=4, lw=1.4, zorder=3)


def _bars(
    axis: Axes,
    sizes: Float[np.ndarray, " sizes"],
    seeds: Float[np.ndarray, "seeds sizes"],
    mean: Numbers,
    name: str,
    limits: tuple[float, float] = (1e-3, np.inf),
) -> None:
    """Each seed as a dot, the mean over seeds with its 95 % interval as a bar."""
    colour, marker = LOOKS[name]
    axis.plot(np.broadcast_to(sizes, seeds.shape).ravel(), seeds.ravel(), ".", color=colour, ms=2.5, mew=0, alpha=0.45)
    axis.vlines(sizes, np.clip(mean["low"], *limits), np.clip(mean["high"], *limits), color=colour, lw=1.2, zorder=2)
    axis.plot(sizes, mean["number"], marker=marker, color=colour, ms=4, lw=1.2, zorder=3)


def _label(axis: Axes, x: str, y: str) -> None:
    axis.set_xlabel(x, fontsize=NORMAL, color=INK)
    axis.set_ylabel(y, fontsize=NORMAL, color=INK)
    axis.spines[["top", "right"]].set_visible(False)
    axis.spines[["left", "bottom"]].set_color("#888888")
    axis.tick_params(labelsize=SMALL, color="#888888", labelcolor=INK, length=3)


def _panes(
    axes: Any, count: int, size: tuple[float, float], widths: Sequence[float] | None = None, rows: int = 1
) -> tuple[Figure, list[Axes], bool]:
    """The user's axes, or those of a new figure."""
    if axes is None:
        figure = Figure(figsize=size, dpi=150, layout="constrained")
        return figure, list(figure.subplots(rows, count // rows, squeeze=False, width_ratios=widths).ravel()), True
    given = list(np.atleast_1d(np.asarray(axes, dtype=object)).ravel())
    if len(given) < count or not all(isinstance(axis, Axes) for axis in given):
        raise InputError(f"axes: {count} Matplotlib axes are needed, {len(given)} were given.")
    return given[0].get_figure(root=True), given[:count], False


def _legend(
    figure: Figure, axis: Axes, own: bool, paths: Numbers, more: list[Any], columns: int = 3, lines: bool = True
) -> None:
    """The paths by name, above the panels."""
    look: dict[str, Any] = {"lw": 1.4, "ms": 4} if lines else {"ls": "", "ms": 6}
    marker = {name: LOOKS[name][1] if lines else "." for name in paths}
    handles = [
        Line2D([], [], color=LOOKS[name][0], marker=marker[name], label=path["label"], **look)
        for name, path in paths.items()
    ]
    style: dict[str, Any] = {"fontsize": SMALL, "frameon": False, "labelcolor": INK}
    if own:
        figure.legend(handles=[*handles, *more], loc="outside upper left", ncols=columns, **style)
    else:
        axis.legend(handles=[*handles, *more], **style)


def _note(figure: Figure, own: bool, text: str) -> None:
    if own:
        figure.supxlabel(text, fontsize=SMALL, color=INK, x=0.01, ha="left")
