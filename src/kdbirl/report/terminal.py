"""A posterior as text for a terminal of 80 columns."""

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path

from kdbirl.methods.posteriors import Posteriors
from kdbirl.posterior.result import Posterior
from kdbirl.report.choices import how_it_was_made, question

WIDTH = 80
LONGEST_NAME = 22
MOST_ROWS = 30
TASKS_NAMED = 3
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


def tasks_text(posteriors: Posteriors) -> str:
    """The choices, which are those of the first task where tasks have their own, and how the tasks fare."""
    from kdbirl.report.tasks_directory import tasks_diagnosis

    found, first = tasks_diagnosis(posteriors.table().to_dicts()), next(iter(posteriors.lean.values()))
    colours = {
        part: ", ".join(
            _counted(found.get(colour, {}).get(part, ()), colour, counts[colour]) for colour in sorted(counts)
        )
        for part, counts in found["colours"].items()
    }
    alike = len({(one.h, one.h_reward, one.power) for one in posteriors.lean.values()}) == 1
    parts = [
        f"The rewards of {found['test_tasks']} test tasks." + ("" if alike else " Of the first of them:"),
        _pairs({name: text for name, text in how_it_was_made(first).items() if name != "sampler"}),
        f"Can they be trusted?\n{_pairs(colours, indent='  ')}",
    ]
    return "\n\n".join(parts)


def _counted(names: Sequence[str], colour: str, count: int) -> str:
    """How many tasks have a colour, and some of their names where it is a bad one."""
    some = ", ".join(_shortened(name) for name in names[:TASKS_NAMED]) + (", ..." if count > TASKS_NAMED else "")
    return f"{count} {colour}" + (f" ({some})" if names else "")


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
