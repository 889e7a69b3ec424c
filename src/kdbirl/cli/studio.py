"""`kdbirl studio`: all runs in a browser, on this machine alone."""

from pathlib import Path
from typing import Annotated

import typer

from kdbirl.cli.terminal import at_home, say


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
    from kdbirl.cli.terminal import in_browser
    from kdbirl.report.run import as_json as json_text
    from kdbirl.report.studio.server import LOOPBACK, studio_server

    with studio_server(at_home(runs), port) as server:
        address = f"http://{LOOPBACK}:{server.server_port}/"
        if as_json and not quiet:
            say(json_text({"address": address, "runs": str(runs)}), nl=False)
        elif not quiet:
            say(f"Open {address}    (Ctrl-C ends it)")
        if show and not in_browser(address) and not quiet:
            say("There is no browser here: open that address in one on this machine.", err=True)
        server.serve_forever()
