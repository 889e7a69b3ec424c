"""The page of a run over many test tasks: how the tasks fare, each in a line, and how to open one."""

from collections import Counter
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from kdbirl.methods.posteriors import Posteriors
from kdbirl.report.choices import how_it_was_made
from kdbirl.report.page import elements
from kdbirl.report.page.shell import Section, page
from kdbirl.report.panels import INK, POSTERIOR, clean, plain

MOST_PARAMETERS = 6  # with a column, and a pane, of their own
MOST_LINES = 2000


def tasks_page(posteriors: Posteriors, name: str, lines: list[dict[str, Any]]) -> str:
    """The page as text; `lines` are the rows of `posteriors.table()`."""
    lean = list(posteriors.lean.values())
    sections = [
        Section("card", "Report card", _card(lines)),
        Section("posteriors", "Posteriors", elements.picture(plot_tasks(posteriors), _caption(len(lean)))),
        Section("tasks", "Test tasks", _tasks(posteriors, lines, name)),
        Section("choices", "How it was made", elements.words(how_it_was_made(lean[0]), "choices"), folded=True),
    ]
    rows = sum(len(posterior.expert_features) for posterior in lean)
    lead = (
        f"The rewards of {len(lean)} test tasks from {rows} expert rows, given {len(lean[0].task_names)} training "
        "tasks with known rewards."
    )
    return page(f"kdbirl: {name}", sections, lead)


def _card(lines: list[dict[str, Any]]) -> str:
    """How many tasks have each colour, part by part."""
    parts = [key for key, value in lines[0].items() if value in elements.COLOURS]
    counts = {part: Counter(str(line[part]) for line in lines) for part in parts}
    rows = [(part, *(counts[part].get(colour, 0) for colour in elements.COLOURS)) for part in parts]
    return elements.table(["part", *elements.COLOURS], rows, "Test tasks of each colour")


def _caption(tasks: int) -> str:
    return f"Posterior mean and central 90 % of each of {tasks} test tasks, in the order of the means."


def plot_tasks(posteriors: Posteriors) -> Figure:
    """For each parameter (the first six): the tasks' means in order, with their central 90 % intervals."""
    lean = list(posteriors.lean.values())
    names = lean[0].names[:MOST_PARAMETERS]
    figure = Figure(figsize=(7.2, 1.9 * -(-len(names) // 2)), layout="constrained")
    panes = figure.subplots(-(-len(names) // 2), min(2, len(names)), squeeze=False).ravel()
    low, high = np.stack([np.quantile(p.flat[:, : len(names)], [0.05, 0.95], axis=0) for p in lean], axis=1)
    means = np.stack([p.mean()[: len(names)] for p in lean])
    for j, (axis, name) in enumerate(zip(panes, names, strict=False)):
        order = np.argsort(means[:, j])
        axis.fill_between(np.arange(len(order)), low[order, j], high[order, j], color=POSTERIOR, alpha=0.35, lw=0)
        axis.plot(means[order, j], color=INK, lw=1)
        plain(axis.set_title(name, loc="left"))
        axis.set_xlabel("test task, by its mean")
    for axis in panes[len(names) :]:
        axis.remove()
    for axis in panes[: len(names)]:
        clean(axis)
        axis.yaxis.set_visible(True)
    return figure


def _tasks(posteriors: Posteriors, lines: list[dict[str, Any]], name: str) -> str:
    names = next(iter(posteriors.lean.values())).names[:MOST_PARAMETERS]
    head = ["test task", "rows", *(f"{text} ({what})" for text in names for what in ("mean", "sd"))]
    parts = [key for key, value in lines[0].items() if value in elements.COLOURS and value != "not assessed"]
    rows = []
    for line in lines[:MOST_LINES]:
        flat = posteriors.of(line["task"]).flat[:, : len(names)]
        numbers = np.stack([flat.mean(axis=0), flat.std(axis=0)], axis=1).ravel().tolist()
        rows.append((line["task"], line["rows"], *numbers, line["r_hat"], line["ess"], *(line[part] for part in parts)))
    table = elements.table([*head, "R-hat", "effective draws", *parts], rows, "Test tasks", "test-tasks")
    more = f"{len(lines) - MOST_LINES} more are in tasks.csv." if len(lines) > MOST_LINES else ""
    how = elements.paragraph("The page of one task, and everything else that a run has:")
    example = elements.code(f"kdbirl report {name} --task '{lines[0]['task']}'")
    return table + (elements.paragraph(more) if more else "") + how + example
