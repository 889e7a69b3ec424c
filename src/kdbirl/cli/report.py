"""`kdbirl report`: the page of a run, written again."""

from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

from kdbirl.cli.terminal import at_home, say


def report(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The run directory that kdbirl fit made.")],
    task: Annotated[
        str | None, typer.Option(metavar="NAME", help="Of a run of many test tasks (fit --expert-task): this one.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Another file than report.html in the run directory.")
    ] = None,
    rows: Annotated[
        bool | None,
        typer.Option(
            "--rows/--no-rows",
            help="Show the expert's rows (patients), or leave them out. Not given: left out if they were before.",
            show_default=False,
        ),
    ] = None,
    show: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")] = False,
) -> None:
    """One page that opens from disk, without a network: the answer, and how far it can be trusted."""
    from kdbirl.cli.terminal import in_browser
    from kdbirl.report.html import write_report
    from kdbirl.report.run import as_json as json_text
    from kdbirl.report.run_files import require_intact
    from kdbirl.report.tasks import is_tasks_run, run_of, write_tasks_report
    from kdbirl.store import sole_user

    run, place = at_home(run), None if out is None else at_home(out)
    require_intact(run)
    with sole_user(run) if out is None and run.is_dir() else nullcontext():
        if task is None and is_tasks_run(run):
            target, shown = write_tasks_report(run, place), True
        else:
            target, shown = write_report(run_of(run, task), rows, place)
    opened = show and in_browser(target.absolute().as_uri())
    if as_json and not quiet:
        content = {"run": str(run), "file": str(target), "rows": shown} | ({"opened": opened} if show else {})
        say(json_text(content), nl=False)
    elif not quiet and show and not opened:
        say(f"There is no browser here. The page is {target.absolute()}: one file, to open anywhere.")
    elif not quiet:
        say(f"Opened {target}" if opened else f"Open {target}")
