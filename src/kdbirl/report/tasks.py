"""A run directory of many test tasks, and in it, on demand, the run directory of one of them.

RUN/report.html, tasks.csv, summary.csv, posteriors.nc, diagnosis.json, model.npz, manifest.json
RUN/tasks/NAME/...      what a run of one task holds; made when a verb is called with --task NAME
"""

import hashlib
import os
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
from matplotlib.figure import Figure

from kdbirl.archive import directory_whole_or_not_at_all, write_text
from kdbirl.data.csv_text import guarded_frame
from kdbirl.errors import FileProblem, did_you_mean
from kdbirl.methods.kdbirl import KDBIRL, load_model
from kdbirl.methods.posteriors import Posteriors, StoredPosteriors, load_posteriors
from kdbirl.report.choices import how_it_was_made
from kdbirl.report.html import report_page
from kdbirl.report.page import elements
from kdbirl.report.page.shell import Section, page
from kdbirl.report.panels import INK, POSTERIOR, clean, plain
from kdbirl.report.run import as_json, manifest_of, refuse_existing, write_parts
from kdbirl.report.run_files import Run, read_object, sha256
from kdbirl.store import refuse_link

# The page of a run over many test tasks: how the tasks fare, each in a line, and how to open one.

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


FILE = "posteriors.nc"
FILES = {
    "report.html": "the page to look at: all test tasks, a line each",
    "tasks.csv": "rows, sampler, convergence and report card of each task",
    "summary.csv": "mean, sd, quantiles and diagnostics of each task and parameter",
    "posteriors.nc": "the draws of all tasks",
    "diagnosis.json": "how many tasks have which colour",
    "model.npz": "the fitted model, for kb.load_model",
    "manifest.json": "versions, seed, configuration, hashes, timings",
}
LONGEST_NAME = 120


def write_tasks_run(
    directory: Path,
    posteriors: Posteriors,
    model: KDBIRL,
    inputs: Sequence[str | Path],
    configuration: Mapping[str, Any],
    timings: Mapping[str, float],
) -> None:
    """Write all files under a temporary name, then give the directory its own."""
    refuse_existing(directory)
    lines = posteriors.table().to_dicts()
    with directory_whole_or_not_at_all(directory) as unfinished:
        posteriors.save(unfinished / FILE)
        write_text(unfinished / "tasks.csv", guarded_frame(posteriors.table()).write_csv())
        write_text(unfinished / "summary.csv", guarded_frame(posteriors.summary()).write_csv())
        write_text(unfinished / "diagnosis.json", as_json(tasks_diagnosis(lines)))
        model.save(unfinished / "model.npz")
        first = next(iter(posteriors.lean.values()))
        manifest = manifest_of(unfinished, first, inputs, configuration, timings)
        write_text(unfinished / "manifest.json", as_json({**manifest, "test_tasks": len(posteriors)}))
        write_text(unfinished / "report.html", tasks_page(posteriors, directory.absolute().name, lines))


def tasks_diagnosis(lines: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """How many tasks have which colour, and which are worst."""
    colours = ("green", "amber", "red", "not assessed")
    parts = [name for name, value in lines[0].items() if value in colours]
    named = {
        colour: {part: [line["task"] for line in lines if line[part] == colour] for part in parts}
        for colour in ("amber", "red")
    }
    return {
        "test_tasks": len(lines),
        "colours": {part: dict(Counter(str(line[part]) for line in lines)) for part in parts},
        **{colour: {part: names for part, names in of_part.items() if names} for colour, of_part in named.items()},
    }


def tasks_json(posteriors: Posteriors, directory: Path) -> str:
    """What `kdbirl fit --expert-task ... --json` prints."""
    files = {name: str(directory / name) for name in FILES}
    lines = posteriors.table().to_dicts()
    choices = how_it_was_made(next(iter(posteriors.lean.values())))
    found = {**tasks_diagnosis(lines), "choices": choices, "tasks": lines}
    return as_json({"out": str(directory), "files": files, **found})


def is_tasks_run(directory: Path) -> bool:
    """Whether this is a run of many test tasks."""
    return (directory / FILE).is_file()


def run_of(directory: Path, task: str | None) -> Path:
    """The run directory that a verb is about: `directory` itself, or that of one of its tasks, made if need be."""
    if not is_tasks_run(directory):
        if task is not None:
            raise FileProblem(f"{directory} is no run of many test tasks: leave --task out.")
        return directory
    stored = StoredPosteriors(directory / FILE)
    if task is None:
        some = ", ".join(list(stored)[:3])
        raise FileProblem(f"{directory} holds {len(stored)} test tasks; choose one with --task, for example {some}.")
    if task not in stored:
        raise FileProblem(f"There is no test task {task!r} in {directory}.{did_you_mean(task, list(stored))}")
    place = directory / "tasks" / file_name(task)
    if not (place / "posterior.nc").is_file():
        refuse_link(place.parent)
        place.parent.mkdir(exist_ok=True)
        _write_task(directory, task, place)
    return place


def file_name(task: str) -> str:
    """The task's name as the name of a directory: letters, digits and what a path cannot misread."""
    text = quote(task, safe=" =+,@")
    text = f"%2E{text[1:]}" if text.startswith(".") else text
    return text if len(text) <= LONGEST_NAME else f"{text[:80]}-{hashlib.sha256(task.encode()).hexdigest()[:16]}"


def task_run(directory: Path, task: str) -> Run:
    """One task as a run, without writing anything."""
    model = load_model(directory / "model.npz")
    posterior = load_posteriors(directory / FILE, model)[task]
    return Run.of(posterior, f"{directory.absolute().name}: {task}", model, read_object(directory / "manifest.json"))


def _write_task(directory: Path, task: str, place: Path) -> None:
    run = task_run(directory, task)
    assert run.model is not None
    with directory_whole_or_not_at_all(place) as unfinished:
        write_parts(unfinished, run.posterior)
        _linked(directory / "model.npz", unfinished / "model.npz")
        outputs = {path.name: sha256(path) for path in sorted(unfinished.iterdir())}
        write_text(unfinished / "manifest.json", as_json({**run.manifest, "outputs": outputs, "test_task": task}))
        rows = not run.manifest.get("configuration", {}).get("no_rows")
        write_text(unfinished / "report.html", report_page(run, rows))


def _linked(source: Path, target: Path) -> None:
    """The same file under a second name, or a copy where the file system has no links."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def write_tasks_report(directory: Path, target: Path | None = None) -> Path:
    """The page of all tasks, written again."""
    place = target or directory / "report.html"
    posteriors = load_posteriors(directory / FILE, load_model(directory / "model.npz"))
    write_text(place, tasks_page(posteriors, directory.absolute().name, posteriors.table().to_dicts()))
    return place
