"""The page of a comparison: its figure, its summary, and what was compared. It looks as reports do."""

from collections.abc import Mapping, Sequence
from typing import Any

from kdbirl.evaluation.comparison_table import SHOWN
from kdbirl.report.page import elements
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
    choices = {name: _in_words(value) for name, value in configuration.items() if value is not None}
    sections = [
        Section(
            "figure",
            "What came of it",
            elements.picture(figure, f"All methods in {env}: the measures of the table below."),
        ),
        Section("numbers", "Numbers", elements.table(head, lines, f"Means over {over} ± standard errors")),
        Section("made", "How it was made", elements.words(choices, "configuration")),
    ]
    methods = len({row["method"] for row in table})
    lead = f"{methods} methods on the same demonstrations, judged by rewards that they did not see."
    return page(f"kdbirl compare: {env}", sections, lead)


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
