"""A posterior as text for a terminal of 80 columns."""

import textwrap

from kdbirl.posterior.result import Posterior
from kdbirl.report.html import how_it_was_made, question

WIDTH = 80
MOST_ROWS = 30


def posterior_text(posterior: Posterior) -> str:
    """What was asked, every choice that was made, the summary and the report card."""
    choices = (f"{name}: {'; '.join(v) if isinstance(v, list) else v}" for name, v in how_it_was_made(posterior).items())
    cards = (f"{name}: {colour}. {sentence}" for name, (colour, sentence) in posterior.report_card().items())
    return "\n".join([_wrapped(question(posterior)), "", *map(_wrapped, choices), "", _table(posterior), "", *map(_wrapped, cards)])


def _wrapped(text: str) -> str:
    return textwrap.fill(text, WIDTH, subsequent_indent="  ")


def _table(posterior: Posterior) -> str:
    rows = posterior.summary().to_dicts()
    width = min(max(len("parameter"), *(len(str(row["parameter"])) for row in rows)), 24)
    columns = ("mean", "sd", "q05", "median", "q95")
    head = f"{'parameter':{width}}" + "".join(f"{name:>9}" for name in columns) + f"{'R-hat':>8}"
    lines = [head]
    for row in rows[:MOST_ROWS]:
        numbers = "".join(f"{row[name]:>9.4g}" for name in columns)
        lines.append(f"{str(row['parameter'])[:width]:{width}}{numbers}{row['r_hat']:>8.3f}")
    if len(rows) > MOST_ROWS:
        lines.append(f"... and {len(rows) - MOST_ROWS} more in summary.csv")
    return "\n".join(lines)
