"""`kdbirl doctor`: is everything here that a fit needs, and does it work?"""

import json
from typing import Annotated

import typer

from kdbirl.cli.terminal import cache_directory, say
from kdbirl.installation import Installation, inspect_installation

_MARKS = {"ok": "ok     ", "note": "note   ", "problem": "PROBLEM"}


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of lines.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but problems.")] = False,
) -> None:
    """Check Python, packages, JAX device, float64, memory and extras. Exit code 1 if something needed is missing."""
    installation = inspect_installation(cache_directory())
    if not quiet:
        say(json.dumps(installation.to_dict(), indent=2) if as_json else _lines(installation))
    if not installation.ok:
        say(f"kdbirl: {installation.sentence}", err=True)
        raise typer.Exit(1)


def _lines(installation: Installation) -> str:
    width = max(len(check.name) for check in installation.checks)
    lines = [f"{_MARKS[check.status]} {check.name:{width}}  {check.detail}" for check in installation.checks]
    closing = [installation.sentence] if installation.ok else []
    return "\n".join([f"kdbirl {installation.version}", *lines, *closing])
