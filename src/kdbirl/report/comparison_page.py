"""The page of a comparison: its figure, its summary, and what was compared. It looks as reports do."""

from collections.abc import Mapping, Sequence
from typing import Any

from kdbirl.evaluation.comparison_table import SHOWN
from kdbirl.report.page import elements
from kdbirl.report.page.command import command_of
from kdbirl.report.page.shell import Section, page

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
    command = command_of(given | lists | budget, "compare", "comparison-again")
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
