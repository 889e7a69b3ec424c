"""The page of a comparison: its figure, its summary, and what was compared. It looks as reports do."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from kdbirl.evaluation.comparison_table import SHOWN
from kdbirl.evaluation.contenders import CONTENDERS
from kdbirl.report.page import elements
from kdbirl.report.page.shell import Section, command_of, page
from kdbirl.report.panels import CHAINS, INK, NORMAL, SMALL, plain

Row = Mapping[str, Any]


def comparison_page(
    figure: Any, table: Sequence[Row], labels: Mapping[str, str], configuration: Mapping[str, Any], seeds: int
) -> str:
    """figure: of Matplotlib. table: a row for each method and n: means over seeds, `<measure>_error` beside them."""
    env = str(configuration.get("env", ""))
    over = "1 seed" if seeds == 1 else f"{seeds} seeds"
    head = ["method", "rows", *SHOWN.values()]
    lines = [
        (labels.get(row["method"], row["method"]), row["n"], *(_cell(row, name) for name in SHOWN)) for row in table
    ]
    told = {name: value for name, value in configuration.items() if value is not None and name != "methods"}
    choices = {name.replace("_", " "): _in_words(value) for name, value in told.items()}
    sections = [
        Section(
            "figure",
            "What came of it",
            elements.picture(figure, f"All methods in {env}: the measures of the table below."),
        ),
        Section("numbers", "Numbers", elements.table(head, lines, f"Means over {over} ± standard errors")),
        Section("methods", "Methods", _methods(configuration.get("methods", {}))),
        Section("made", "How it was made", elements.words(choices, "configuration") + _again(configuration)),
    ]
    methods = len({row["method"] for row in table})
    lead = f"{methods} methods on the same demonstrations, judged by rewards that they did not see."
    return page(f"kdbirl compare: {env}", sections, lead)


OPTIONS = ("env", "discount", "prior", "training_tasks", "episodes", "horizon", "tasks", "seeds")


def _again(configuration: Mapping[str, Any]) -> str:
    """The command that repeats the comparison."""
    given = {name: configuration.get(name) for name in OPTIONS}
    lists = {name: ",".join(map(str, configuration.get(name, ()))) or None for name in ("methods", "rows")}
    budget = {name: configuration.get("budget", {}).get(name) for name in ("draws", "steps")}
    command = command_of(given | lists | budget, "kdbirl compare", "comparison-again")
    note = elements.paragraph("The same seeds give the same numbers, but for the times.", "note")
    return f"<h3>To repeat it</h3>{elements.code(command)}{note}"


def _methods(methods: Mapping[str, Mapping[str, Any]]) -> str:
    """What each method is, may see, and was told."""
    head = ["method", "gives", "sees", "settings"]
    lines = [[_in_words(one.get(key, "")) for key in ("label", "kind", "sees", "settings")] for one in methods.values()]
    return elements.table(head, lines, "Methods, what they give, and what they may see")


def _in_words(value: Any) -> str:
    """Settings inside settings, with their names."""
    if isinstance(value, Mapping):
        return "; ".join(f"{name}: {_in_words(part)}" for name, part in value.items())
    return ", ".join(map(_in_words, value)) if isinstance(value, list | tuple) else str(value)


def _cell(row: Row, name: str) -> str:
    value, error = row.get(name), row.get(f"{name}_error")
    if value is None:
        return elements.MISSING
    shown = f"{value:.3g}"
    return f"{shown} ± {error:.2g}" if isinstance(error, float) and error == error else shown


# Methods side by side: regret, log density at the truth, coverage and time against the expert's rows.

COLOURS = dict(zip(CONTENDERS, (*CHAINS, "#117733", "#999999"), strict=False))
MARKERS = dict(zip(CONTENDERS, "osD^v<>PX*", strict=False))
MEASURES = {
    "regret": "regret: share of (best - random) lost",
    "bounded": "log density at the truth (prior = 0)",
    "coverage": "90 % intervals that hold the truth",
    "seconds": "seconds for a posterior (median)",
}
APART = 0.035  # of a decade between neighbouring methods, so that their error bars do not hide each other


def plot_comparison(
    table: Sequence[Mapping[str, Any]], measures: Sequence[str] = tuple(MEASURES), title: str = ""
) -> Figure:
    """One panel for each measure; `table` is `evaluation.comparison_table.summary`. Bars are standard errors."""
    columns = min(len(measures), 2)
    lines = -(-len(measures) // columns)
    figure = Figure(figsize=(4.1 * columns, 2.9 * lines + 0.8), layout="constrained")
    axes = figure.subplots(lines, columns, squeeze=False).reshape(-1)
    for panel, measure in zip(axes, measures, strict=False):
        comparison_panel(panel, table, measure)
    for panel in axes[len(measures) :]:
        panel.set_visible(False)
    handles = {text: handle for panel in axes for handle, text in zip(*panel.get_legend_handles_labels(), strict=True)}
    columns = min(len(handles), 5) or 1
    figure.legend(
        list(handles.values()), list(handles), loc="outside upper center", ncols=columns, frameon=False, fontsize=NORMAL
    )
    if title:
        plain(figure.supxlabel(f"rows of the expert ({title})"))
    return figure


def comparison_panel(axes: Axes, table: Sequence[Mapping[str, Any]], measure: str) -> None:
    """One measure against n, a line for each method that has it."""
    methods = list(dict.fromkeys(row["method"] for row in table))
    for i, method in enumerate(methods):
        own = [row for row in table if row["method"] == method and row[measure] is not None]
        if own:
            _line(axes, method, own, measure, 10 ** (APART * (i - (len(methods) - 1) / 2)))
    _references(axes, measure)
    sizes = sorted({row["n"] for row in table})
    axes.set_xscale("log")
    axes.set_xticks(sizes, [str(size) for size in sizes])
    axes.minorticks_off()
    axes.tick_params(labelsize=SMALL)
    axes.grid(alpha=0.25)
    axes.set_title(MEASURES[measure], fontsize=NORMAL, color=INK)


def _line(axes: Axes, method: str, rows: Sequence[Mapping[str, Any]], measure: str, shift: float) -> None:
    ordered = sorted(rows, key=lambda row: row["n"])
    places = np.array([row["n"] for row in ordered], dtype=float) * shift
    errors = [row.get(f"{measure}_error") or 0.0 for row in ordered]
    bars = None if measure == "seconds" else errors
    known = method in CONTENDERS
    axes.errorbar(
        places,
        [row[measure] for row in ordered],
        bars,
        label=CONTENDERS[method].label if known else method,
        color=COLOURS.get(method, INK),
        marker=MARKERS.get(method, "o"),
        linestyle="--" if method == "prior" else "-",
        lw=2.2 if method == "kdbirl" else 1.1,
        ms=4.5,
        capsize=2,
        zorder=4 if method == "kdbirl" else 3,
    )


def _references(axes: Axes, measure: str) -> None:
    """What the numbers mean: chance, the prior, the nominal level."""
    level = {"regret": 1.0, "bounded": 0.0, "coverage": 0.9}.get(measure)
    if level is not None:
        axes.axhline(level, color="#444", lw=0.8, ls=":")
    if measure == "coverage":
        axes.set_ylim(-0.03, 1.05)
    if measure == "seconds":
        axes.set_yscale("log")
