"""Figures of a posterior: marginals, intervals, pairs and trace. One function each; a Matplotlib figure comes back.

A figure is made without pyplot, so nothing global changes and nothing has to be closed; save it with `figure.savefig`.
Give `axes` to draw into a figure of your own. With many parameters each function shows those that matter most to it,
and says so on the figure; `parameters=[...]` chooses others.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from kdbirl.errors import InputError, did_you_mean
from kdbirl.posterior.convergence import is_independent
from kdbirl.posterior.result import Posterior
from kdbirl.report import panels
from kdbirl.report.panels import CHAINS, INK, NORMAL, POSTERIOR, PRIOR, SMALL, TRUE

MOST_MARGINALS, MOST_PAIRS, MOST_TRACES, MOST_INTERVALS = 24, 6, 8, 120

TrueValues = Any  # q numbers, or a mapping from name to number; what is not known is NaN or left out
Index = Int[np.ndarray, " shown"]


def plot_marginals(
    posterior: Posterior,
    true: TrueValues = None,
    prior: bool = True,
    parameters: Sequence[str] | None = None,
    axes: Any = None,
) -> Figure:
    """One histogram for each parameter, the prior's behind it, with the central 90 %, the median and the true value."""
    index, note = _choose(posterior, parameters, MOST_MARGINALS, _narrowing, "those that the data narrowed most")
    truth = _true_values(posterior, true)
    columns = len(index) if len(index) <= 4 else min(6, math.ceil(math.sqrt(len(index))))
    shape = (math.ceil(len(index) / columns), columns)
    figure, panes, own = _panes(axes, shape, len(index), (min(3.6, max(2.0, 7.2 / columns)), 1.55))
    for axis, j in zip(panes, index, strict=False):
        values, before = posterior.flat[:, j], _prior_of(posterior, int(j), prior)
        if before.size:
            panels.distribution(axis, before, PRIOR, outlined=False, front=1.0)
        panels.distribution(axis, values, POSTERIOR)
        panels.interval_below(axis, values)
        panels.true_line(axis, truth[j])
        axis.set_xlim(panels.limits_of(values, before, _known(truth, int(j))))
        axis.set_ylim(0, None)
        panels.clean(axis)
        panels.plain(axis.set_title(panels.shortened(posterior.names[j]), loc="left"))
    _legend(figure, panes, own, _handles(prior and posterior.prior_draws.size > 0, true is not None), note)
    return figure


def plot_intervals(
    posterior: Posterior,
    true: TrueValues = None,
    prior: bool = True,
    parameters: Sequence[str] | None = None,
    axes: Any = None,
) -> Figure:
    """All parameters, however many, on one scale: median, central 50 % and 90 %, and the prior's 90 % behind."""
    index, note = _choose(posterior, parameters, MOST_INTERVALS, _narrowing, "those that the data narrowed most")
    truth = _true_values(posterior, true)
    figure, panes, own = _panes(axes, (1, 1), 1, (5.4, 0.8 + (0.2 if len(index) <= 40 else 0.14) * len(index)))
    axis, places = panes[0], np.arange(len(index))
    spread = np.quantile(posterior.flat[:, index], [0.05, 0.25, 0.5, 0.75, 0.95], axis=0)
    if prior and posterior.prior_draws.size:
        low, high = np.quantile(posterior.prior_draws[:, index], [0.05, 0.95], axis=0)
        axis.hlines(places, low, high, color=PRIOR, linewidth=7, alpha=0.5, zorder=1)
    axis.hlines(places, spread[0], spread[4], color=POSTERIOR, linewidth=1.2, zorder=2)
    axis.hlines(places, spread[1], spread[3], color=POSTERIOR, linewidth=3.5, zorder=3)
    axis.plot(spread[2], places, "o", color="white", markeredgecolor=POSTERIOR, ms=4, zorder=4)
    axis.plot(truth[index], places, "D", color=TRUE, ms=3.5, zorder=5)
    panels.clean(axis, y_axis=True)
    axis.set_yticks(places, [panels.shortened(posterior.names[j]) for j in index])
    for label in axis.get_yticklabels():
        panels.plain(label, SMALL)
    axis.set_ylim(len(index) - 0.4, -0.6)
    axis.set_xlabel("reward parameter", fontsize=NORMAL, color=INK)
    _legend(figure, panes, own, _handles(prior and posterior.prior_draws.size > 0, true is not None, bar=True), note)
    return figure


def plot_pairs(
    posterior: Posterior, true: TrueValues = None, parameters: Sequence[str] | None = None, axes: Any = None
) -> Figure:
    """Each parameter against each other one, with the 50 % and 90 % regions; divergent draws are marked."""
    index, note = _choose(posterior, parameters, MOST_PAIRS, _narrowing, "those that the data narrowed most")
    truth, k = _true_values(posterior, true), len(index)
    figure, panes, own = _panes(axes, (k, k), k * k, (max(1.25, min(2.4, 7.2 / k)),) * 2)
    diverged = np.asarray(posterior.sample_stats.get("diverging", np.zeros(1)), dtype=bool).ravel()
    for row, column in np.ndindex(k, k):
        axis = panes[row * k + column]
        if column > row:
            axis.set_axis_off()
            continue
        _pair(axis, posterior, truth, int(index[row]), int(index[column]), diverged)
        _outer_labels(axis, row, column, k, posterior.names[index[row]], posterior.names[index[column]])
    _legend(figure, panes, own, _pair_handles(k > 1, true is not None, bool(diverged.any())), note)
    return figure


def _pair(
    axis: Axes, posterior: Posterior, truth: Float[np.ndarray, " q"], i: int, j: int, diverged: Bool[np.ndarray, " _"]
) -> None:
    """Parameter i (up) against parameter j (across), or the distribution of one of them."""
    x, y = posterior.flat[:, j], posterior.flat[:, i]
    if i == j:
        panels.distribution(axis, x, POSTERIOR)
    else:
        panels.cloud(axis, x, y)
        if diverged.any():
            axis.plot(x[diverged], y[diverged], "x", color=TRUE, ms=4, mew=0.8, zorder=6)
        panels.true_line(axis, truth[i], horizontal=True)
        axis.set_ylim(panels.limits_of(y, _known(truth, i)))
    panels.true_line(axis, truth[j])
    axis.set_xlim(panels.limits_of(x, _known(truth, j)))
    panels.clean(axis, y_axis=i != j, ticks=3)


def plot_trace(
    posterior: Posterior, true: TrueValues = None, parameters: Sequence[str] | None = None, axes: Any = None
) -> Figure:
    """The draws of each chain in their order, and each chain's distribution beside them; divergent draws are ticked."""
    index, note = _choose(posterior, parameters, MOST_TRACES, _disagreement, "those with the highest R-hat")
    truth = _true_values(posterior, true)
    figure, panes, own = _panes(axes, (len(index), 2), 2 * len(index), (3.6, 1.25), widths=(4.0, 1.0))
    diverged = np.asarray(posterior.sample_stats.get("diverging", np.zeros((1, 1))), dtype=bool)
    for left, right, j in zip(panes[::2], panes[1::2], index, strict=True):
        _trace_row(left, right, posterior, truth, int(j))
        ticks = np.flatnonzero(diverged.any(axis=0))
        left.plot(ticks, np.zeros(len(ticks)), "|", color=INK, ms=7, transform=left.get_xaxis_transform(), zorder=5)
        left.tick_params(labelbottom=left is panes[-2])
    panes[-2].set_xlabel("draw", fontsize=NORMAL, color=INK)
    _legend(figure, panes, own, _trace_handles(len(posterior.draws), true is not None, bool(diverged.any())), note)
    return figure


def _trace_row(left: Axes, right: Axes, posterior: Posterior, truth: Float[np.ndarray, " q"], j: int) -> None:
    """The trace of parameter j, titled with what was found about it, and each chain's distribution at its side."""
    chains, checks = posterior.draws[:, :, j], posterior.convergence
    panels.trace(left, chains, joined=not is_independent(posterior.sampler))
    for c, values in enumerate(chains):
        panels.distribution(right, values, CHAINS[c % len(CHAINS)], filled=False, horizontal=True)
    for axis in (left, right):
        panels.true_line(axis, truth[j], horizontal=True)
        axis.set_ylim(panels.limits_of(chains.ravel(), _known(truth, j), central=1.0))
        panels.clean(axis, y_axis=True)
    right.set_axis_off()
    least = np.fmin(checks.ess_bulk[j], checks.ess_tail[j])
    found = "" if np.isnan(least) else f"    R-hat {checks.r_hat[j]:.3f}, effective draws {least:.0f}"
    panels.plain(left.set_title(panels.shortened(posterior.names[j]) + found, loc="left"))


def _panes(
    axes: Any, shape: tuple[int, int], used: int, size: tuple[float, float], widths: Sequence[float] | None = None
) -> tuple[Figure, list[Axes], bool]:
    """The panels, row by row: the user's own axes, or those of a new figure (whose spare panels are switched off)."""
    if axes is not None:
        given = list(np.atleast_1d(np.asarray(axes, dtype=object)).ravel())
        if len(given) < used or not all(isinstance(axis, Axes) for axis in given):
            raise InputError(
                f"axes: this figure needs {used} axes, an array of {shape[0]} x {shape[1]}; got {len(given)}."
            )
        figure = given[0].get_figure(root=True)
        return figure, given[:used], False
    figure = Figure(figsize=(size[0] * shape[1], size[1] * shape[0] + 0.45), dpi=150, layout="constrained")
    panes = list(figure.subplots(*shape, squeeze=False, width_ratios=widths).ravel())
    for spare in panes[used:]:
        spare.set_axis_off()
    return figure, panes[:used], True


def _choose(
    posterior: Posterior,
    parameters: Sequence[str] | None,
    most: int,
    importance: Callable[[Posterior], Float[np.ndarray, " q"]],
    reason: str,
) -> tuple[Index, str]:
    """Positions of the parameters to show, and a note if not all of them are."""
    q = len(posterior.names)
    if parameters is None:
        if q <= most:
            return np.arange(q), ""
        return np.sort(np.argsort(-importance(posterior), kind="stable")[:most]), f"{most} of {q} parameters: {reason}"
    places = {name: j for j, name in enumerate(posterior.names)}
    for name in parameters:
        if name not in places:
            raise InputError(f"parameters: there is no reward parameter {name!r}.{did_you_mean(name, places)}")
    if not parameters:
        raise InputError("parameters: the list is empty; name at least one, or leave it out.")
    return np.array([places[name] for name in parameters]), ""


def _narrowing(posterior: Posterior) -> Float[np.ndarray, " q"]:
    """How much narrower than the prior the posterior is (prior sd / posterior sd); all equal without prior draws."""
    if not len(posterior.prior_draws):
        return np.zeros(len(posterior.names))
    return posterior.prior_draws.std(axis=0) / np.maximum(posterior.flat.std(axis=0), 1e-300)


def _disagreement(posterior: Posterior) -> Float[np.ndarray, " q"]:
    """R-hat; a parameter that never moves comes first."""
    return np.nan_to_num(posterior.convergence.r_hat, nan=np.inf, posinf=np.inf)


def _true_values(posterior: Posterior, true: TrueValues) -> Float[np.ndarray, " q"]:
    """One value for each parameter, NaN where it is not known."""
    q = len(posterior.names)
    if true is None:
        return np.full(q, np.nan)
    if isinstance(true, Mapping):
        for name in true:
            if name not in posterior.names:
                raise InputError(f"true: there is no reward parameter {name!r}.{did_you_mean(name, posterior.names)}")
        return np.array([float(true.get(name, np.nan)) for name in posterior.names])
    values = np.asarray(true, dtype=np.float64)
    if values.shape != (q,):
        raise InputError(f"true: expected {q} values, one for each parameter, got shape {values.shape}.")
    return values


def _known(truth: Float[np.ndarray, " q"], j: int) -> Float[np.ndarray, " known"]:
    return truth[[j]][np.isfinite(truth[[j]])]


def _prior_of(posterior: Posterior, j: int, prior: bool) -> Float[np.ndarray, " p"]:
    return posterior.prior_draws[:, j] if prior else np.zeros(0)


def _outer_labels(axis: Axes, row: int, column: int, k: int, y_name: str, x_name: str) -> None:
    """Names and numbers only along the left and the lower edge."""
    if row == k - 1:
        panels.plain(axis.set_xlabel(panels.shortened(x_name, 16)))
    else:
        axis.tick_params(labelbottom=False)
    if column == 0 and row > 0:
        panels.plain(axis.set_ylabel(panels.shortened(y_name, 16)))
    elif row != column:
        axis.tick_params(labelleft=False)


def _handles(prior: bool, true: bool, bar: bool = False) -> list[Any]:
    inner = "median, 50 % and 90 %" if bar else "median and 90 %"
    shown: list[Any] = [] if bar else [Patch(color=POSTERIOR, alpha=0.4, label="posterior")]
    shown.append(Line2D([], [], color=POSTERIOR, lw=3, marker="o", mfc="white", ms=4, label=inner))
    if prior:
        shown.append(Patch(color=PRIOR, alpha=0.5, label="prior, 90 %" if bar else "prior"))
    marker: dict[str, Any] = {"ls": "", "marker": "D", "ms": 3.5} if bar else {"ls": (0, (4, 2)), "lw": 1.2}
    return [*shown, Line2D([], [], color=TRUE, label="true value", **marker)] if true else shown


def _pair_handles(pairs: bool, true: bool, diverged: bool) -> list[Any]:
    shown = [Line2D([], [], color=INK, lw=0.8, label="50 % and 90 % regions")] if pairs else []
    if diverged and pairs:
        shown.append(Line2D([], [], color=TRUE, ls="", marker="x", ms=4, label="divergent draw"))
    return [*shown, Line2D([], [], color=TRUE, ls=(0, (4, 2)), lw=1.2, label="true value")] if true else shown


def _trace_handles(chains: int, true: bool, diverged: bool) -> list[Any]:
    numbers = range(min(chains, len(CHAINS))) if chains > 1 else ()
    shown = [Line2D([], [], color=CHAINS[c], lw=1.2, label=f"chain {c + 1}") for c in numbers]
    if diverged:
        shown.append(Line2D([], [], color=INK, ls="", marker="|", ms=7, label="divergent draw"))
    return [*shown, Line2D([], [], color=TRUE, ls=(0, (4, 2)), lw=1.2, label="true value")] if true else shown


def _legend(figure: Figure, panes: list[Axes], own: bool, handles: list[Any], note: str) -> None:
    """One legend for all panels, above them; in the first panel where the figure is the user's."""
    style: dict[str, Any] = {"fontsize": SMALL, "frameon": False, "labelcolor": INK, "handlelength": 1.8}
    if own and handles:
        figure.legend(handles=handles, loc="outside upper left", ncols=min(len(handles), 8), **style)
    elif handles:
        panes[0].legend(handles=handles, loc="best", **style)
    if note and own:
        figure.supxlabel(note, fontsize=SMALL, color=INK, x=0.01, ha="left")
