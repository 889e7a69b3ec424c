"""Text for a terminal: names come from files, and a name may hold codes that clear the screen or turn text around."""

import re
from collections.abc import Callable
from pathlib import Path

import typer

from kdbirl.errors import FileProblem

# Control characters, and those that change the direction of text; colours (escape, bracket, numbers, m) are our own.
_CODES = re.compile("[\x00-\x08\x0b-\x1a\x1c-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]|\x1b(?!\\[[0-9;]*m)")


def printable(text: str) -> str:
    """The text with such characters written out, as `\\u001b`."""
    return _CODES.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def say(text: str, nl: bool = True, err: bool = False) -> None:
    """Print to the standard output, or to that of errors."""
    typer.echo(printable(text), nl=nl, err=err)


def telling(quiet: bool) -> Callable[[str], None]:
    """How to say what stands beside a result: on the output of errors, or not at all."""

    def tell(text: str) -> None:
        if not quiet:
            say(f"kdbirl: {text}", err=True)

    return tell


def at_home(path: Path) -> Path:
    """The path with `~` written out."""
    try:
        return path.expanduser()
    except RuntimeError as problem:
        raise FileProblem(f"{path}: there is no such user on this machine; write the directory out.") from problem
