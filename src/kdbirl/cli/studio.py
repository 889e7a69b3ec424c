"""`kdbirl studio`: all runs in a browser, on this machine alone."""

from pathlib import Path
from typing import Annotated

import typer


def studio(
    runs: Annotated[Path, typer.Argument(metavar="RUNS", help="A directory with run directories in it.")],
    port: Annotated[
        int, typer.Option(metavar="N", min=0, max=65535, help="Port on 127.0.0.1; 0 takes a free one.")
    ] = 0,
    show: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the address as one JSON object.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")] = False,
) -> None:
    """List runs, open their reports, compare two posteriors: a page on this machine alone, until Ctrl-C."""
    from kdbirl.report.run_directory import as_json as json_text
    from kdbirl.report.studio.server import LOOPBACK, studio_server

    with studio_server(runs.expanduser(), port) as server:
        address = f"http://{LOOPBACK}:{server.server_port}/"
        if as_json and not quiet:
            typer.echo(json_text({"address": address, "runs": str(runs)}), nl=False)
        elif not quiet:
            typer.echo(f"Open {address}    (Ctrl-C ends it)")
        if show:
            import webbrowser

            webbrowser.open(address)
        server.serve_forever()
