"""Files are written whole or not at all."""

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from kdbirl.errors import FileProblem

DOTS_PER_INCH = 200


@contextmanager
def whole_or_not_at_all(path: Path) -> Iterator[Path]:
    """A temporary name in the same directory, put in place in one step when everything is on disk."""
    if not path.name:
        raise FileProblem(f"'{path}' is not the name of a file; give one.")
    unfinished = path.with_name(f".{path.name}.{secrets.token_hex(4)}.unfinished")
    try:
        os.close(os.open(unfinished, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))  # the user's own permissions
        yield unfinished
        with unfinished.open("rb+") as stream:
            os.fsync(stream.fileno())
        unfinished.replace(path)
        _flush_names(path.absolute().parent)
    except (OSError, RuntimeError) as error:  # HDF5 raises RuntimeError when the disk is full
        reason = getattr(error, "strerror", None) or error
        raise FileProblem(f"{path} cannot be written: {reason}; choose another place.") from error
    finally:
        unfinished.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a text file whole or not at all."""
    with whole_or_not_at_all(path) as unfinished:
        # a file name that is no text (any bytes are, on POSIX) is shown with backslashes rather than not at all
        unfinished.write_text(text, encoding="utf-8", errors="backslashreplace")


@contextmanager
def directory_whole_or_not_at_all(directory: Path) -> Iterator[Path]:
    """A temporary directory beside it, given its name in one step when everything is in it."""
    unfinished = directory.absolute().with_name(f".{directory.absolute().name}.{secrets.token_hex(4)}.unfinished")
    try:
        unfinished.mkdir()
        yield unfinished
        for file in unfinished.rglob("*"):
            _flush(file)
        unfinished.rename(directory)  # over an empty directory of that name too, never over a full one
        _flush_names(unfinished.parent)
    except FileProblem as problem:  # of one of the files: under the name that the user knows
        raise FileProblem(str(problem).replace(str(unfinished), str(directory))) from problem
    except OSError as error:
        raise FileProblem(f"{directory} cannot be written: {error.strerror or error}; choose another place.") from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _flush(path: Path) -> None:
    """Onto the disk, so that a file that has its name has its content too, even if the power fails."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _flush_names(directory: Path) -> None:
    """The new name too; some file systems cannot, and the file is whole all the same."""
    with suppress(OSError):
        _flush(directory)


def write_figure(figure: Any, place: Path) -> list[Path]:
    """A Matplotlib figure as png, svg and pdf; without dates and random names, so equal figures are equal files."""
    from matplotlib import rc_context

    written = []
    for kind, undated in (("png", {}), ("svg", {"Date": None}), ("pdf", {"CreationDate": None})):
        written.append(place.with_name(f"{place.name}.{kind}"))
        with whole_or_not_at_all(written[-1]) as unfinished, rc_context({"svg.hashsalt": "kdbirl"}):
            figure.savefig(unfinished, format=kind, dpi=DOTS_PER_INCH, metadata=undated)
    return written
