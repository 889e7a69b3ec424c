"""`kdbirl report`: the page of a run, written again."""

from pathlib import Path
from typing import Annotated

import typer


def report(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The run directory that kdbirl fit made.")],
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Another file than report.html in the run directory.")
    ] = None,
    no_rows: Annotated[
        bool, typer.Option("--no-rows", help="Leave the expert's rows (patients) out of the page.")
    ] = False,
    show: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")] = False,
) -> None:
    """One page that opens from disk, without a network: the answer, and how far it can be trusted."""
    from kdbirl.report.html import write_report
    from kdbirl.report.run_directory import as_json as json_text

    target = write_report(run.expanduser(), rows=not no_rows, target=None if out is None else out.expanduser())
    if show:
        import webbrowser

        webbrowser.open(target.absolute().as_uri())
    if as_json and not quiet:
        typer.echo(json_text({"run": str(run), "file": str(target), "rows": not no_rows}), nl=False)
    elif not quiet:
        typer.echo(f"Open {target}")
