"""A posterior as text for a terminal of 80 columns."""

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from kdbirl.evaluation.diagnose import Diagnosis
from kdbirl.evaluation.evd import ExpectedValueDifference
from kdbirl.evaluation.judgement import Judgement
from kdbirl.methods.posteriors import Posteriors
from kdbirl.posterior.result import Posterior
from kdbirl.report.choices import how_it_was_made, question

if TYPE_CHECKING:
    from rich.table import Table

WIDTH = 80
LONGEST_NAME = 22
MOST_ROWS = 30
TASKS_NAMED = 3
COLUMNS = ("mean", "sd", "q05", "median", "q95")


def posterior_text(posterior: Posterior, colour: bool = False) -> str:
    """What was asked, every choice that was made, the summary and the report card."""

    parts = [
        textwrap.fill(question(posterior), WIDTH),
        _pairs(how_it_was_made(posterior)),
        _table(posterior),
        f"Can it be trusted?\n{card_text(posterior.report_card(), colour)}",
    ]
    return "\n\n".join(parts)


def tasks_text(posteriors: Posteriors) -> str:
    """The choices, which are those of the first task where tasks have their own, and how the tasks fare."""
    from kdbirl.report.tasks import tasks_diagnosis

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


# The report card for a terminal: a table of 80 columns; a word for each colour, so that no colour is needed.

STYLES = {"green": "bold green", "amber": "bold yellow", "red": "bold red", "not assessed": "dim"}
WORDS = {"green": "GREEN", "amber": "AMBER", "red": "RED", "not assessed": "not assessed"}


def card_table(card: Mapping[str, tuple[str, str]]) -> "Table":
    """The card as a table of Rich: part, colour in words and in colour, sentence."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE, width=WIDTH, pad_edge=False, show_header=False, padding=(0, 2, 1, 0))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(ratio=1)
    for name, (colour, sentence) in card.items():
        # Text, not markup: a user's parameter may be called "[red]"
        table.add_row(Text(name), Text(WORDS[colour], style=STYLES[colour]), Text(sentence))
    return table


def card_text(card: Mapping[str, tuple[str, str]], colour: bool = False) -> str:
    """The card as text of at most 80 columns, with or without terminal colours."""
    from io import StringIO

    from rich.console import Console

    stream = StringIO()
    console = Console(
        file=stream,
        width=WIDTH,
        force_terminal=colour,
        no_color=not colour,
        color_system="standard" if colour else None,
    )
    console.print(card_table(card))
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines()).strip("\n")


# A diagnosis as text for a terminal of 80 columns.


def diagnosis_text(diagnosis: Diagnosis, colour: bool = False) -> str:
    """The report card, then what is behind each part of it."""
    posterior = diagnosis.posterior
    sections = {
        "What the training tasks can say": diagnosis.identifiability.describe_with(
            posterior.flat, posterior.prior_draws
        ),
        "Size and direction": [diagnosis.scale.sentence],
        "Where the expert goes": diagnosis.support.describe(),
        "What the posterior predicts": _sentences(diagnosis.predictive),
        "Leaving out single episodes": _sentences(diagnosis.left_out),
        "Tasks with known rewards": [] if diagnosis.calibration is None else diagnosis.calibration.describe(),
        "Other choices": [] if diagnosis.sensitivity is None else diagnosis.sensitivity.describe(),
        "Policies that the draws lead to": [] if diagnosis.policies is None else diagnosis.policies.describe(),
        "More tasks, or more rows?": [] if diagnosis.plan is None else diagnosis.plan.describe(),
    }
    parts = [card_text(posterior.report_card(), colour)]
    parts += [f"{title}\n{_wrapped(lines)}" for title, lines in sections.items() if lines]
    return "\n\n".join(parts)


def _sentences(finding: object) -> list[str]:
    return [] if finding is None else [str(getattr(finding, "sentence"))]  # noqa: B009  (any finding has one)


def _wrapped(lines: list[str]) -> str:
    """Sentences are wrapped; the rows of tables, which fit, stay as they are."""
    return "\n".join(
        line if len(line) <= WIDTH else textwrap.fill(line, WIDTH, subsequent_indent="  ") for line in lines
    )


# An evaluation as text for a terminal of 80 columns.

LABELS = 36  # columns for what a row is
CELL = 21


def evaluation_text(judgement: Judgement, env: str, discount: float) -> str:
    """What an agent loses under the true reward, posterior beside prior, and the bound that needs no truth."""
    found = judgement.posterior
    heading = (
        f"Expected value difference in {env} (discount {discount:g}): what an agent loses under the true reward by "
        f"acting on a draw. The optimal agent earns {_shown_number(found.best)}, "
        f"a random one {_shown_number(found.random)}."
    )
    parts = [heading, _judgement_table(found, judgement.prior), _risk(judgement), *judgement.notes]
    return "\n\n".join(part if "\n" in part else textwrap.fill(part, WIDTH) for part in parts)


def _judgement_table(posterior: ExpectedValueDifference, prior: ExpectedValueDifference | None) -> str:
    columns = [_cells(posterior)] + ([] if prior is None else [_cells(prior)])
    heads = ["posterior", "prior"][: len(columns)]
    lines = [f"{'':{LABELS}}" + "".join(f"{head:>{CELL}}" for head in heads)]
    for name in columns[0]:
        lines.append(f"{name:{LABELS}}" + "".join(f"{column[name]:>{CELL}}" for column in columns))
    return "\n".join(lines)


def _cells(found: ExpectedValueDifference) -> dict[str, str]:
    quantiles = found.quantile([0.05, 0.5, 0.95])
    return {
        "mean EVD": _shown_number(found.mean),
        "  its standard error": _shown_number(found.standard_error),
        "  its 95 % interval": _range(*found.interval),
        "  as a share of (optimal - random)": _percent(found.regret),
        "draws: median": _shown_number(quantiles[1]),
        "draws: 5 % to 95 %": _range(quantiles[0], quantiles[2]),
        "EVD of the mean reward": _shown_number(found.of_mean),
        "EVD of the most probable draw": "-" if found.of_map is None else _shown_number(found.of_map),
        "number of draws": f"{len(found.per_draw)}",
        "  that count as independent": f"{found.effective_size:.0f}",
    }


def _risk(judgement: Judgement) -> str:
    risk, relative = judgement.risk, judgement.relative_risk
    confidence, share = 100 * (1 - risk.delta), 100 * risk.alpha
    if not np.isfinite(risk.bound):
        return (
            f"Value at risk cannot be bounded: {confidence:g} % confidence in what is lost with posterior probability "
            f"{share:g} % needs at least {risk.needed} independent draws, and these count as {risk.effective_size:.0f}."
        )
    return (
        f"Value at risk, which needs no true reward: with {confidence:g} % confidence, the policy of the posterior "
        f"mean loses less than {_shown_number(risk.bound)} with posterior probability {share:g} % "
        f"({_percent(relative.bound)} of what lies between the optimal and the random agent)."
    )


def _shown_number(value: float) -> str:
    return "0" if abs(value) < 1e-12 else f"{value:.4g}"


def _range(low: float, high: float) -> str:
    return f"{_shown_number(low)} to {_shown_number(high)}"


def _percent(share: float) -> str:
    return "-" if not np.isfinite(share) else f"{100 * share:.3g} %"
