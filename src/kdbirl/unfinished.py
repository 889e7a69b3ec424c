"""Work on a directory: by one process at a time, and again after an interruption.

`DIR.unfinished` is a directory in the making: what was asked for (`asked.json`) and the checkpoints of its long loops.
The result gets its own name in one step when it is whole, and then the unfinished directory is removed. Started again
with the same request, the work goes on from there; with another one it is refused, since what is there belongs to
somebody's hours of computing.
"""

import errno
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kdbirl.checkpoints import keep_checkpoints
from kdbirl.errors import FileProblem, Interrupted, KDBIRLError
from kdbirl.files import write_text

ASKED = "asked.json"
PRESENTATION = ("as_json", "quiet", "show")


def _nobody(text: str) -> None:
    """Hears it."""


@contextmanager
def resumable(directory: Path, asked: Mapping[str, Any], tell: Callable[[str], None] = _nobody) -> Iterator[None]:
    """Make `directory`, or whatever has that name when it is done, with checkpoints in `DIR.unfinished`.

    tell: how to say that work goes on.
    """
    place = directory.absolute().with_name(f"{directory.absolute().name}.unfinished")
    shown = directory.with_name(place.name)
    _make(place, shown)
    with sole_user(place, shown):
        try:
            for left in place.parent.glob(f".{_literal(directory.absolute().name)}.*.unfinished"):
                _remove(left)  # what a killed process was writing: we alone are at it now
            _same_request(place / ASKED, json.loads(json.dumps(dict(asked), default=str)), shown)
            if _has_checkpoints(place):
                tell(f"Going on from {shown}.")
            with keep_checkpoints(place):
                yield
        except KeyboardInterrupt as stop:
            raise Interrupted(_stopped(str(shown) if _has_checkpoints(place) else None)) from stop
        except KDBIRLError as problem:
            if not isinstance(problem, FileProblem):  # it would end like this again
                shutil.rmtree(place, ignore_errors=True)
            raise
        else:
            shutil.rmtree(place, ignore_errors=True)
        finally:
            if place.is_dir() and not _has_checkpoints(place):
                shutil.rmtree(place, ignore_errors=True)  # nothing is lost


@contextmanager
def sole_user(directory: Path, shown: Path | None = None, *, below: bool = False) -> Iterator[None]:
    """Refuse a second process on the same directory. The lock is the kernel's: it ends with the process, however.

    Where a file system has no locks, there is none. below: the subdirectories are this process's alone, too. A link to
    another directory in it is refused: a directory may be somebody else's, and does not choose where we write.
    """
    import fcntl  # POSIX

    try:
        handle = os.open(directory, os.O_RDONLY)
    except OSError as problem:
        raise FileProblem(f"{shown or directory} cannot be opened: {problem.strerror}.") from problem
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as problem:
            if problem.errno in (errno.EWOULDBLOCK, errno.EACCES):
                raise FileProblem(
                    f"{shown or directory} is in use: another process is writing there; wait for it, or choose "
                    "another directory."
                ) from problem
        for place, folders, _ in os.walk(directory):
            for name in folders:
                refuse_link(Path(place) / name)
            if not below:
                break
        for left in list((directory.rglob if below else directory.glob)(".*.unfinished")):
            _remove(left)  # what a killed process was writing
        yield
    finally:
        os.close(handle)


def refuse_link(place: Path) -> None:
    """A directory to write in is a directory itself, not a link that leads out of the one that the user named."""
    if place.is_symlink():
        raise FileProblem(
            f"{place} is a link to {place.resolve()}, where files would be written; remove the link, or move that "
            "directory here."
        )


@contextmanager
def interruptible(kept: str) -> Iterator[None]:
    """Ctrl-C becomes one sentence on how to go on. kept: where what was done is."""
    try:
        yield
    except KeyboardInterrupt as stop:
        raise Interrupted(_stopped(kept)) from stop


def _stopped(kept: str | None) -> str:
    if kept is None:
        return "Stopped early: the same command does it again."
    return f"Stopped. What was done is in {kept}: the same command goes on from there."


def request_of(options: Mapping[str, Any]) -> dict[str, Any]:
    """What of a command's options decides its result: not how it is shown."""
    return {name: value for name, value in options.items() if name not in PRESENTATION}


def _make(place: Path, shown: Path) -> None:
    refuse_link(place)
    try:
        place.mkdir(exist_ok=True)
    except OSError as problem:
        raise FileProblem(f"{shown} cannot be made: {problem.strerror}; choose another place.") from problem


def _same_request(path: Path, asked: dict[str, Any], shown: Path) -> None:
    """Write the request, or compare it with the one that is there."""
    if not path.is_file():
        write_text(path, json.dumps(asked, indent=2, sort_keys=True) + "\n")
        return
    try:
        before = json.loads(path.read_text(encoding="utf-8"))
        other = [name for name in sorted({*before, *asked}) if before.get(name) != asked.get(name)]
    except (OSError, ValueError, TypeError):
        raise FileProblem(f"{shown / ASKED} is damaged; remove {shown} to start again.") from None
    if other:
        then, now = ("not given" if given.get(other[0]) is None else repr(given[other[0]]) for given in (before, asked))
        raise FileProblem(
            f"{shown} holds unfinished work that was asked for otherwise: {other[0]} was {then}, and now is {now}. "
            f"Give the same options to go on ({ASKED} in it has them all), choose another directory, or remove it."
        )


def _has_checkpoints(place: Path) -> bool:
    return any(place.glob("*.checkpoint"))


def _literal(name: str) -> str:
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in name)


def _remove(left: Path) -> None:
    if left.is_dir():
        shutil.rmtree(left, ignore_errors=True)
    else:
        left.unlink(missing_ok=True)
