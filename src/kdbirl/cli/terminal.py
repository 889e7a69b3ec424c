"""Text for a terminal: names come from files, and a name may hold codes that clear the screen or turn text around."""

import contextlib
import os
import re
import warnings
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from kdbirl.errors import FileProblem
from kdbirl.installation import cache_home, is_writable

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


# What `--help` looks like: no type beside a flag, which takes none; examples that can be copied line by line.


class Verb(TyperCommand):
    """A verb of ours."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _without_types(super().get_params(ctx))


class Verbs(TyperGroup):
    """All of them."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _without_types(super().get_params(ctx))


def _without_types(parameters: Sequence[Any]) -> list[Any]:
    for parameter in parameters:
        if getattr(parameter, "is_flag", False):
            parameter.metavar = ""
    return list(parameters)


def example(*lines: str) -> str:
    """A command for the end of a help text; its lines, each within 80 columns, stay as they are for a shell."""
    return "\n\n".join(["Example:", " \\\n\n".join(lines)])


# Open a page in the user's browser, where there is one.


def in_browser(address: str) -> bool:
    """Whether a browser was asked to open it; that there is none is no failure."""
    import webbrowser

    try:
        return webbrowser.open(address)
    except (webbrowser.Error, OSError):
        return False


# Compiled programs kept on disk between runs of the command line.
#
# JAX reads these settings from the environment when it is first imported, so switching the cache on costs nothing for
# commands that never import it, and is inherited by worker processes. Only `kdbirl.cli.main` calls this: a library may
# not configure JAX for its user. What the user has set already is left alone.

_LARGEST = 512 * 2**20  # bytes; a fit leaves about 1 MB
_SETTINGS = {
    # Every program, not only those that take JAX's default of a second to compile: a fit has dozens of small ones.
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
}


def cache_directory() -> Path:
    """Where compiled programs go: JAX's own setting, else KDBIRL_CACHE_DIR, XDG_CACHE_HOME or ~/.cache."""
    if chosen := os.environ.get("JAX_COMPILATION_CACHE_DIR"):
        return Path(chosen)
    return cache_home() / "jax" / _processor()


def switch_on() -> None:
    """Use the cache if its directory can be written; never fail, and never speak, if it cannot."""
    directory = cache_directory()
    if "JAX_COMPILATION_CACHE_DIR" in os.environ or not is_writable(directory):
        return
    os.environ["JAX_COMPILATION_CACHE_DIR"] = str(directory)
    for name, value in _SETTINGS.items():
        os.environ.setdefault(name, value)
    # An entry that another process is still writing, or that a kill cut short, is compiled anew: nothing to read.
    warnings.filterwarnings("ignore", message="Error (reading|writing) persistent compilation cache entry")
    with contextlib.suppress(OSError):
        prune(directory, _LARGEST)


def prune(directory: Path, largest: int) -> None:
    """Delete the oldest entries until half of `largest` bytes remain, once more than `largest` are there."""
    entries = sorted((entry.stat().st_mtime, entry.stat().st_size, entry) for entry in directory.glob("*-cache"))
    total = sum(size for _, size, _ in entries)
    if total <= largest:
        return
    for _, size, entry in entries:
        if total <= largest // 2:
            return
        entry.unlink(missing_ok=True)
        total -= size


def _processor() -> str:
    """A name for this kind of processor: programs compiled for another must not be loaded from a shared home."""
    import platform

    description = platform.machine()
    with contextlib.suppress(OSError, StopIteration):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        description += next(line for line in lines if line.startswith(("flags", "Features")))
    return sha256(description.encode()).hexdigest()[:12]
