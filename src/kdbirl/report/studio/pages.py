"""Pages of the studio: the list of runs, and two posteriors side by side."""

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import numpy as np

from kdbirl.errors import ENTRIES, FileProblem
from kdbirl.posterior.result import Posterior
from kdbirl.report import panels
from kdbirl.report.choices import how_it_was_made
from kdbirl.report.page import elements
from kdbirl.report.page.charts import CHOSEN, POSTERIOR, Chart, content_of, quantity, values
from kdbirl.report.page.shell import Section, command_of, page
from kdbirl.report.run_files import Run, card_of, read_object
from kdbirl.report.tasks import FILE as MANY

# Which runs there are: directories with a posterior, by the name under which the studio shows and finds them.

DEPTH = 3  # directories below the one that was given
MOST = 1000
_NONE: tuple[str, ...] = ()


@dataclass(frozen=True)
class Listed:
    """A run as the list shows it, from its small files alone."""

    name: str
    place: Path
    written: str
    method: str
    colours: tuple[str, ...]
    many: bool = False


def runs_under(root: Path) -> dict[str, Path]:
    """Every run below a directory (or itself), by its path from there. What is not in here is not served."""
    if (root / "posterior.nc").is_file():
        return {root.name: root} if _stays_inside(root, root) else {}
    found = sorted(place for place in _walk(root, DEPTH) if _stays_inside(place, root))
    if (root / MANY).is_file() and _stays_inside(root, root):
        return {root.name: root} | {f"{root.name}/tasks/{task.name}": task for task in found}
    return {place.relative_to(root).as_posix(): place for place in found[:MOST]}


def _stays_inside(run: Path, root: Path) -> bool:
    """Whether no file of a run is a link to somewhere outside the directory that is served."""
    files = [*run.iterdir(), *(place / "findings.json" for place in run.glob("diagnosis*"))]
    return all(file.resolve().is_relative_to(root.resolve()) for file in files if file.is_symlink())


def _walk(directory: Path, depth: int) -> Iterator[Path]:
    """Directories with a posterior; links are not followed, and hidden ones are unfinished."""
    try:
        entries = list(islice(os.scandir(directory), ENTRIES.value))
    except OSError:  # a directory of somebody else's
        return
    for entry in entries:
        if entry.name.startswith(".") or not entry.is_dir(follow_symlinks=False):
            continue
        place = Path(entry.path)
        if (place / "posterior.nc").is_file() or (place / MANY).is_file():
            yield place
        if not (place / "posterior.nc").is_file() and depth > 1:
            yield from _walk(place, depth - 1)


def listed(name: str, place: Path) -> Listed:
    """What the small files of a run say."""
    manifest = _quietly(place / "manifest.json")
    file = place / (MANY if (place / MANY).is_file() else "posterior.nc")
    changed = datetime.fromtimestamp(file.stat().st_mtime, UTC).isoformat(timespec="seconds")
    choices, colours = manifest.get("choices"), _NONE
    method = str(choices.get("method", "")) if isinstance(choices, dict) else ""
    many = manifest.get("test_tasks")
    method = f"{method}, {many} test tasks" if isinstance(many, int) else method
    with contextlib.suppress(FileProblem):
        colours = tuple(colour for colour, _ in card_of(place).values())
    return Listed(
        name, place, str(manifest.get("written") or changed)[:16].replace("T", " "), method, colours, file.name == MANY
    )


def _quietly(path: Path) -> dict[str, Any]:
    """A list shows what can be read."""
    try:
        return read_object(path)
    except FileProblem:
        return {}


MOST_SHARED = 24  # parameters that are drawn
BINS = 40
ALL_RUNS = '<p class="back"><a href="/">← All runs</a></p>'


def list_page(root: str, runs: Sequence[Listed]) -> str:
    """Every run with a link to its report, and two choices to compare."""
    if not runs:
        text = (
            f"There is no run in {root} yet. `kdbirl fit ... --out {root}/first` makes one; then load this page again."
        )
        return page("kdbirl studio", [Section("runs", "Runs", elements.paragraph(text))])
    head = "".join(
        f'<th scope="col">{name}</th>' for name in ("run", "one", "other", "report card", "written", "method")
    )
    body = "".join(_line(run, i) for i, run in enumerate(runs))
    table = f"<table><caption class='hidden'>Runs</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    button = '<div class="controls"><button type="submit">Compare the two</button></div>' if len(runs) > 1 else ""
    form = f'<form action="/compare" method="get">{elements.scrolled(table, "Runs")}{button}</form>'
    lead = f"{len(runs)} runs in {root}. Open a report, or choose two runs to compare."
    return page("kdbirl studio", [Section("runs", "Runs", form)], lead, forms=True)


def _line(run: Listed, place: int) -> str:
    name = elements.escaped(run.name)
    link = f'<a href="/report?{elements.escaped(urlencode({"run": run.name}))}">{elements.isolated(run.name)}</a>'
    if run.many:
        tasks = f'<a href="/tasks?{elements.escaped(urlencode({"run": run.name}))}">its tasks</a>'
        words = (run.written, run.method, _counted(run.colours))
        cells = "".join(f"<td>{elements.isolated(text)}</td>" for text in words)
        return f'<tr><th scope="row">{link}</th>{cells}<td colspan="2">{tasks}</td></tr>'
    choices = "".join(
        f'<td><input type="radio" name="{side}" value="{name}" aria-label="{words}: {name}"{checked}></td>'
        for side, words, checked in (
            ("one", "compare", " checked" * (place == 0)),
            ("other", "with", " checked" * (place == 1)),
        )
    )
    cells = "".join(f"<td>{elements.isolated(text)}</td>" for text in (_counted(run.colours), run.written, run.method))
    return f'<tr><th scope="row">{link}</th>{choices}{cells}</tr>'


def tasks_list_page(run: str, tasks: Sequence[str]) -> str:
    """The test tasks of a run, each with a link to its report."""
    links = "".join(
        f'<li><a href="/report?{elements.escaped(urlencode({"run": run, "task": task}))}">'
        f"{elements.isolated(task)}</a></li>"
        for task in tasks
    )
    body = f"<ul>{links}</ul>" if tasks else elements.paragraph("This run has one task only: its report is all.")
    lead = f"{len(tasks)} test tasks of {run}. A page is made when it is asked for, without the expert's rows."
    return page(f"{run}: test tasks", [Section("tasks", "Test tasks", body)], lead)


def _counted(colours: Sequence[str]) -> str:
    counts = {colour: colours.count(colour) for colour in elements.COLOURS}
    return ", ".join(f"{count} {colour}" for colour, count in counts.items() if count)


def comparison_page(one: Run, other: Run) -> str:
    """Two posteriors side by side: report cards, marginals on one scale, numbers, and the choices that differ."""
    shared = [name for name in one.posterior.names if name in other.posterior.names]
    charts = [_marginals(i, name, one, other) for i, name in enumerate(shared[:MOST_SHARED])]
    legend = (
        f'<ul class="legend"><li class="posterior">{elements.isolated(one.name)}</li>'
        f'<li class="chosen">{elements.isolated(other.name)}</li></ul>'
    )
    figures = "".join(chart.figure(heading=name) for chart, name in zip(charts, shared, strict=False))
    drawn = f'{legend}<div class="small-charts">{figures}</div>{_numbers(shared, one, other)}'
    nothing = elements.paragraph("The two have no reward parameter of the same name.")
    sections = [
        Section("posteriors", "Posteriors", drawn if shared else nothing),
        Section("cards", "Report cards", f'<div class="beside">{_card(one, "one")}{_card(other, "other")}</div>'),
        Section("choices", "Choices", _choices(one, other)),
    ]
    content = {"charts": content_of(charts)}
    return page(f"{one.name} and {other.name}", sections, _lead(shared, one, other), content, above=ALL_RUNS)


def _lead(shared: Sequence[str], one: Run, other: Run) -> str:
    same = np.array_equal(one.posterior.expert_features, other.posterior.expert_features)
    rows = "the same expert rows" if same else "different expert rows, or features of them"
    return f"Two posteriors with {len(shared)} reward parameters in common, from {rows}."


def _of(posterior: Posterior, name: str) -> Any:
    return posterior.flat[:, posterior.names.index(name)]


def _marginals(number: int, name: str, one: Run, other: Run) -> Chart:
    """Histograms of one parameter in both, on one scale."""
    samples = [_of(run.posterior, name) for run in (one, other)]
    (low, high), both = panels.limits_of(*samples), np.concatenate(samples)
    edges = np.linspace(max(low, both.min()), min(high, both.max()), BINS + 1)  # no bin where there can be no draw
    tables = [np.histogram(sample, bins=edges, density=True)[0] for sample in samples]
    bins = [{"a": a, "b": b, "one": o, "other": t} for a, b, o, t in zip(edges[:-1], edges[1:], *tables, strict=True)]
    x = quantity("a", scale={"domain": [edges[0], edges[-1]], "nice": False}, axis={"tickCount": 4}, bin="binned")
    layers = [
        {
            "mark": {"type": "bar", "color": colour, "opacity": 0.5, "binSpacing": 0},
            "encoding": {"x": x, "x2": {"field": "b"}, "y": {"field": side, "type": "quantitative", "axis": None}},
        }
        for side, colour in (("one", POSTERIOR), ("other", CHOSEN))
    ]
    means = [
        f"{run.name} {elements.shown(float(sample.mean()))}" for run, sample in zip((one, other), samples, strict=True)
    ]
    text = f"{name}: mean of {means[0]}, of {means[1]}."
    return Chart(f"shared-{number}", {"height": 90, "data": values(bins), "layer": layers}, text)


def _numbers(shared: Sequence[str], one: Run, other: Run) -> str:
    lines = []
    for name in shared:
        a, b = _of(one.posterior, name), _of(other.posterior, name)
        spread = float(np.sqrt((a.var() + b.var()) / 2)) or float("nan")
        cells = (float(a.mean()), float(a.std()), float(b.mean()), float(b.std()), float(b.mean() - a.mean()) / spread)
        lines.append((name, *cells))
    head = ["parameter", f"mean, {one.name}", "sd", f"mean, {other.name}", "sd", "difference / sd"]
    return elements.table(head, lines, "Means and standard deviations")


def _card(run: Run, side: str) -> str:
    return f'<div><h3 class="of-{side}">{elements.isolated(run.name)}</h3>{elements.cards(run.card)}</div>'


def _choices(one: Run, other: Run) -> str:
    mine, theirs = how_it_was_made(one.posterior), how_it_was_made(other.posterior)
    names = list(dict.fromkeys([*mine, *theirs]))
    lines = [(n, mine.get(n, elements.MISSING), theirs.get(n, elements.MISSING)) for n in names]
    differing = [line for line in lines if line[1] != line[2]]
    if differing:
        text = elements.table(["choice", one.name, other.name], differing, "Where the two were made differently")
    else:
        text = elements.paragraph("Every choice on record is the same.")
    return text + _command(one) + _command(other)


def _command(run: Run) -> str:
    """Folded: how to repeat the run, if its record says."""
    configuration = run.manifest.get("configuration", {})
    return elements.folded(f"To repeat {run.name}", elements.code(command_of(configuration))) if configuration else ""
