"""A posterior as text for a terminal of 80 columns."""

import textwrap
from collections.abc import Mapping
from pathlib import Path

from kdbirl.posterior.result import Posterior
from kdbirl.report.choices import how_it_was_made, question

WIDTH = 80
LONGEST_NAME = 22
MOST_ROWS = 30
COLUMNS = ("mean", "sd", "q05", "median", "q95")


def posterior_text(posterior: Posterior, colour: bool = False) -> str:
    """What was asked, every choice that was made, the summary and the report card."""
    from kdbirl.report.card_text import card_text

    parts = [
        textwrap.fill(question(posterior), WIDTH),
        _pairs(how_it_was_made(posterior)),
        _table(posterior),
        f"Can it be trusted?\n{card_text(posterior.report_card(), colour)}",
    ]
    return "\n\n".join(parts)


def files_text(directory: Path, files: Mapping[str, str]) -> str:
    """The files of a run, and what each is for."""
    return f"Files in {directory}:\n{_pairs(files, indent='  ')}"


def _pairs(pairs: Mapping[str, str], indent: str = "") -> str:
    """Names on the left, text on the right, wrapped beside its name."""
    width = max(len(name) for name in pairs) + 2
    beside = indent + " " * width
    return "\n".join(
        textwrap.fill(text, WIDTH, initial_indent=f"{indent}{name:{width}}", subsequent_indent=beside)
        for name, text in pairs.items()
    )


def _table(posterior: Posterior) -> str:
    rows = posterior.summary().to_dicts()
    names = [_shortened(row["parameter"]) for row in rows[:MOST_ROWS]]
    width = max(len("parameter"), *map(len, names))
    lines = [f"{'parameter':{width}}" + "".join(f"{name:>10}" for name in COLUMNS) + f"{'R-hat':>8}"]
    for name, row in zip(names, rows, strict=False):
        numbers = "".join(f"{_number(row[column]):>10}" for column in COLUMNS)
        lines.append(f"{name:{width}}{numbers}{row['r_hat']:>8.3f}")
    if len(rows) > MOST_ROWS:
        lines.append(f"... and {len(rows) - MOST_ROWS} more parameters")
    return "\n".join(lines)


def _shortened(name: str) -> str:
    """Long names lose their middle: both ends tell parameters apart."""
    half = LONGEST_NAME // 2 - 1
    return name if len(name) <= LONGEST_NAME else f"{name[:half]}..{name[-half:]}"


def _number(value: float) -> str:
    """Four digits where they leave a space between columns, else fewer."""
    text = f"{value:.4g}"
    return text if len(text) < 10 else f"{value:.2g}"
