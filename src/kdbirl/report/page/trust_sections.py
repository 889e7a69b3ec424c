"""Sections of a report on how far it can be trusted: what is informed, coverage and sensitivity, what drives it."""

import shlex

import numpy as np

from kdbirl.report.influence import Influence, influence_of_rows, influence_of_tasks
from kdbirl.report.page import elements
from kdbirl.report.page.charts import Part, in_own_units
from kdbirl.report.page.shell import Section
from kdbirl.report.page.trust_charts import MOST_ITEMS, coverage, directions, influence, sensitivity
from kdbirl.report.run_files import Run

MOST_FEATURES = 8  # columns of the table of expert rows


def informed_section(run: Run) -> Part:
    """Which directions of the reward the training tasks speak about."""
    found, support = run.findings.get("identifiability", {}), run.findings.get("support", {})
    lines = [found.get("sentence"), (found.get("next_task") or {}).get("sentence"), support.get("sentence")]
    lines.append(run.findings.get("scale", {}).get("sentence"))
    body = elements.bullets(str(line) for line in lines if line)
    chart = directions(run.posterior, found)
    body += chart.figure() if chart else ""
    if not body:
        body = elements.paragraph("Not assessed: this run has no record of it.")
    return Part(Section("informed", "What is and is not informed", body), (chart,) if chart else ())


def trust_section(run: Run) -> Part:
    """Coverage on tasks with known rewards, and other choices; how to get them where they are missing."""
    held, moved = run.findings.get("calibration"), run.findings.get("sensitivity")
    charts, body = [], ""
    for title, found, draw, option in (
        ("Coverage", held, coverage, "--calibrate"),
        ("Sensitivity", moved, sensitivity, "--sensitivity"),
    ):
        body += f"<div><h3>{title}</h3>"
        if found:
            chart = draw(found)
            charts.append(chart)
            body += elements.paragraph(str(found.get("sentence", ""))) + chart.figure()
        else:
            command = f"kdbirl diagnose {shlex.quote(run.name)} {option}"
            body += elements.paragraph(f"Not assessed. `{command}` finds out, and writes this page again.")
        body += "</div>"
    others = [run.findings.get(name, {}).get("sentence") for name in ("predictive", "left_out")]
    body = f'<div class="beside">{body}</div>' + elements.bullets(str(line) for line in others if line)
    return Part(Section("trust", "Coverage and sensitivity", body), tuple(charts))


def drivers_section(run: Run, rows: bool) -> Part:
    """Which training tasks and which expert rows drive the answer; without rows, only how much one of them can do."""
    posterior = run.posterior
    fitted = None if run.model is None else run.model.fitted
    of_tasks = None if fitted is None else influence_of_tasks(posterior, fitted.ckde)
    of_rows = influence_of_rows(posterior)
    charts, body = [], ""
    if of_tasks is not None:
        chart = influence("task-influence", of_tasks, posterior.task_names, posterior.names, "training tasks")
        charts.append(chart)
        body += f"<div><h3>Training tasks</h3>{chart.figure()}</div>"
    if of_rows is not None and rows:
        labels = [f"row {np.flatnonzero(posterior.expert_index == u)[0] + 1}" for u in range(len(of_rows.shift))]
        chart = influence("row-influence", of_rows, labels, posterior.names, "expert rows")
        charts.append(chart)
        body += f"<div><h3>Expert rows</h3>{chart.figure()}</div>"
    body = f'<div class="beside">{body}</div>' if body else ""
    if of_rows is not None:
        body += _rows_in_words(of_rows, rows) + (_row_table(run, of_rows) if rows else "")
    if not body:
        body = elements.paragraph("Not assessed: this run has no record of the likelihood of each row.")
    else:
        body += elements.paragraph(_HOW, "note")
    return Part(Section("drivers", "What drives the answer", body), tuple(charts))


_HOW = (
    "A shift is how far the mean of the parameter that moves most would go if the task, or one copy of the row, were "
    "left out, in posterior standard deviations; found by weighting the draws. 'Or more': so decisive that weighting "
    "cannot tell, and only a new fit without it would."
)


def _rows_in_words(found: Influence, rows: bool) -> str:
    largest = float(found.shift.max())
    count = int(found.beyond.sum())
    text = f"No single expert row moves a mean by more than {largest:.2g} sd"
    text += f"; {count} of them decide more than weighting can tell." if count else "."
    return elements.paragraph(text if rows else f"{text} The rows themselves were left out of this page (--no-rows).")


def _row_table(run: Run, found: Influence) -> str:
    """The most decisive rows as they are: features, episode, how often."""
    posterior, (table, units) = run.posterior, in_own_units(run)
    names = posterior.feature_names[:MOST_FEATURES]
    lines = []
    for u in found.order[:MOST_ITEMS]:
        places = np.flatnonzero(posterior.expert_index == u)
        features = (float(v) for v in table[places[0], : len(names)])
        lines.append(
            (
                f"row {places[0] + 1}",
                int(posterior.expert_episodes[places[0]]),
                len(places),
                float(found.shift[u]),
                *features,
            )
        )
    caption = "The most decisive expert rows" + (f", {units}" if units else "")
    return elements.folded(caption, elements.table(["row", "episode", "times", "shift / sd", *names], lines, caption))
