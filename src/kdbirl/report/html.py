"""The report: one self-contained HTML page for a run. It opens from disk, without a network."""

from pathlib import Path
from typing import Any

from kdbirl.archive import write_text
from kdbirl.report.page.charts import Part, content_of, packed, thinned
from kdbirl.report.page.posterior_sections import card_section, posterior_section, question_section, weights_section
from kdbirl.report.page.record_sections import repeat_section, sampler_section, world_section
from kdbirl.report.page.shell import page
from kdbirl.report.page.trust_sections import drivers_section, informed_section, trust_section
from kdbirl.report.run_files import Run, read_run, recorded

NAME = "report.html"
NO_ROWS = '<meta name="kdbirl-rows" content="left out">'


def report_page(run: Run, rows: bool = True) -> str:
    """The page as text. Everything that came from the user's files is escaped; `rows=False` shows no expert row."""
    draws = thinned(run.posterior)
    posterior, pair = posterior_section(run, len(draws))
    parts: list[Part | None] = [
        card_section(run),
        question_section(run, rows),
        posterior,
        weights_section(run),
        informed_section(run),
        trust_section(run),
        drivers_section(run, rows),
        world_section(run),
        sampler_section(run),
        repeat_section(run),
    ]
    there = [part for part in parts if part is not None]
    content: dict[str, Any] = {
        "charts": content_of(chart for part in there for chart in part.charts),
        "draws": {"names": list(run.posterior.names), "columns": packed(draws), "pair": list(pair)},
    }
    marks = {} if rows else {"kdbirl-rows": "left out"}
    return page(f"kdbirl: {run.name}", [part.section for part in there], _lead(run), content, marks)


def _lead(run: Run) -> str:
    posterior, written = run.posterior, str(run.manifest.get("written", ""))[:10]
    chains, draws, q = posterior.draws.shape
    made = f"{posterior.method} with {posterior.sampler}, seed {posterior.seed}"
    return f"{made}: {chains * draws:,} draws of {q} reward parameters{f', {written}' if written else ''}."


def write_report(directory: Path, rows: bool | None = None, target: Path | None = None) -> tuple[Path, bool]:
    """Write the page of a run directory, over the one that is there, or to another file; where, and with rows or not.

    rows: None: rows that were left out once, by the fit or from the page that is there, stay left out.
    """
    run = read_run(directory)
    shown = not _left_out(run, directory / NAME) if rows is None else rows
    place = target or directory / NAME
    text = report_page(run, shown)
    with recorded(directory, [place] if target is None else []):
        write_text(place, text)
    return place, shown


def _left_out(run: Run, page_there: Path) -> bool:
    """By the record of the run, or by the mark of its page."""
    if run.manifest.get("configuration", {}).get("no_rows"):
        return True
    return page_there.is_file() and NO_ROWS in page_there.read_text(encoding="utf-8", errors="replace")
