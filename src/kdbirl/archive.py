"""Files are written whole or not at all."""

import json
import math
import os
import secrets
import shutil
import stat
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from kdbirl.errors import ARRAYS, FILE_BYTES, JSON_BYTES, MEMORY_BYTES, FileProblem, InputError, Limit

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


# Files are opened for reading here: regular ones alone, of a size within the limits; JSON and arrays, and no code.
#
# A pipe or a device would hold the process for ever, or fill its memory. An npz file may claim any shape: the claim is
# compared with the bytes that are there before anything is made of it. Nothing is ever unpickled.

LONGEST_HEADER = 10_000  # bytes that describe an array; ours have 128


@contextmanager
def opened(path: Path, expected: str, limit: Limit = FILE_BYTES) -> Iterator[BinaryIO]:
    """A regular file, open for reading. `expected` ends the sentence where there is none: "expected a world.json"."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe without a writer does not block
    except FileNotFoundError as problem:
        raise FileProblem(f"{path}: there is no such file; {expected}.") from problem
    except (OSError, ValueError) as problem:  # ValueError: a NUL in the name
        raise FileProblem(f"{path}: cannot be read ({_reason(problem)}); {expected}.") from problem
    about = os.fstat(descriptor)
    if not stat.S_ISREG(about.st_mode):
        os.close(descriptor)
        what = "a directory" if stat.S_ISDIR(about.st_mode) else "a pipe or a device"
        raise FileProblem(f"{path} is {what}, not a file; {expected}.")
    with os.fdopen(descriptor, "rb") as stream:
        limit.check(about.st_size, f"{path} is too large")
        yield stream


def read_json(path: Path, expected: str) -> dict[str, Any]:
    """The object in a JSON file."""
    with opened(path, expected, JSON_BYTES) as stream:
        try:
            content = json.loads(stream.read().decode("utf-8"))
        except (OSError, ValueError) as problem:  # neither UTF-8 nor JSON
            raise FileProblem(f"{path} cannot be read as JSON ({_reason(problem)}); {expected}.") from problem
        except RecursionError as problem:
            raise FileProblem(f"{path} cannot be read as JSON (nested too deeply); {expected}.") from problem
    if not isinstance(content, dict):
        raise FileProblem(f"{path} holds no JSON object; {expected}.")
    return content


def read_arrays(path: Path, expected: str) -> dict[str, np.ndarray[Any, np.dtype[Any]]]:
    """The arrays of an npz file by name, all in memory."""
    with opened(path, expected) as stream:
        try:
            with zipfile.ZipFile(stream) as archive:
                _check_sizes(archive, path)
                return {name.removesuffix(".npy"): _array(archive, name) for name in archive.namelist()}
        except InputError:
            raise
        except Exception as problem:  # zipfile, zlib and NumPy raise whatever they stumble over in a damaged file
            raise FileProblem(f"{path} cannot be read as an npz file ({_reason(problem)}); {expected}.") from problem


def _check_sizes(archive: zipfile.ZipFile, path: Path) -> None:
    """What the archive says that it unpacks to; `zipfile` then gives no byte more than that."""
    entries = archive.infolist()
    ARRAYS.check(len(entries), f"{path} has too many arrays")
    MEMORY_BYTES.check(sum(entry.file_size for entry in entries), f"{path} unpacks to too much")
    if any(entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) for entry in entries):
        raise ValueError("packed in a way that npz files are not")


def _array(archive: zipfile.ZipFile, name: str) -> np.ndarray[Any, np.dtype[Any]]:
    """One array, once its shape is known to agree with its bytes."""
    with archive.open(name) as stream:
        version = np.lib.format.read_magic(stream)
        read_header = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
        shape, _, dtype = read_header[version](stream, max_header_size=LONGEST_HEADER)
        if dtype.hasobject:
            raise ValueError("it holds Python objects, which are never read")
        left = archive.getinfo(name).file_size - stream.tell()
        if any(length < 0 for length in shape) or math.prod(shape) * dtype.itemsize != left:
            raise ValueError(f"an array of shape {str(shape)[:80]} has {left} bytes")
    with archive.open(name) as stream:
        array: np.ndarray[Any, np.dtype[Any]] = np.lib.format.read_array(
            stream, allow_pickle=False, max_header_size=LONGEST_HEADER
        )
    return array


def _reason(problem: Exception) -> str:
    """What another library said, on one line and not at length."""
    said = getattr(problem, "strerror", None) or str(problem) or type(problem).__name__
    return " ".join(str(said).split()).rstrip(".")[:200]


# HDF5 files as attributes and arrays, within limits. Links that lead out of the file are not followed.

DEEPEST, MOST_OBJECTS = 32, 100_000
LARGEST_RATIO, SMALL = 2000, 2**27  # bytes that a byte of a file unpacks to (zlib reaches 1032), and that any file may
Attributes = dict[str, dict[str, Any]]
Arrays = dict[str, np.ndarray[Any, np.dtype[Any]]]


def read_hdf5(path: Path, expected: str, kind: str = "HDF5", arrays_too: bool = True) -> tuple[Attributes, Arrays]:
    """(attributes by the path of their object, "" is the root; arrays of numbers by path). `kind`: in the sentence.

    `arrays_too=False` checks sizes and structure alone, for a library that reads the file again.
    """
    import h5py

    with opened(path, expected) as stream:
        most = min(MEMORY_BYTES.value, max(LARGEST_RATIO * stream.seek(0, 2), SMALL))
    attributes: Attributes = {}
    arrays: Arrays = {}
    size = 0
    try:
        with h5py.File(path, "r") as file:
            for name, item in _walk(file, h5py, links=arrays_too):
                attributes[name] = _attributes(item)
                if isinstance(item, h5py.Dataset) and item.dtype.kind in "biuf":
                    size += _size(item)
                    MEMORY_BYTES.check(size, f"{path} unpacks to too much")
                    if size > most:
                        raise ValueError("it asks for more memory than a file of its size can need")
                    if arrays_too:
                        values = item[()]
                        arrays[name] = values.astype(values.dtype.newbyteorder("<"), copy=False)
    except FileProblem:
        raise
    except Exception as problem:  # h5py raises whatever it stumbles over
        reason = " ".join(str(problem).split())[:200] or type(problem).__name__
        raise FileProblem(
            f"{path} cannot be read as {kind}: it is damaged, cut short, or another kind of file ({reason}); "
            f"{expected}."
        ) from problem
    return attributes, arrays


def _walk(root: Any, h5py: Any, links: bool) -> Iterator[tuple[str, Any]]:
    """Every object once, by path; neither soft nor external links, nor data that another file holds.

    `links=False` refuses links to other files instead of passing them over: whoever opens the file itself follows them.
    """
    seen: set[Any] = set()
    queue: list[tuple[str, Any]] = [("", root)]
    while queue:
        name, item = queue.pop()
        about = h5py.h5o.get_info(item.id)
        if (about.fileno, about.addr) in seen:
            continue
        seen.add((about.fileno, about.addr))
        if len(seen) > MOST_OBJECTS or name.count("/") > DEEPEST:
            raise ValueError("it has too many objects, or too deep ones")
        yield name.lstrip("/"), item
        if isinstance(item, h5py.Group):
            kinds = {inner: type(item.get(inner, getlink=True)) for inner in item}
            if not links and h5py.ExternalLink in kinds.values():
                raise ValueError("it has a link to another file")
            inside = [inner for inner, kind in kinds.items() if kind is h5py.HardLink]
            queue += [(f"{name}/{inner}", item[inner]) for inner in reversed(inside)]


def _size(item: Any) -> int:
    if item.external is not None or item.is_virtual:
        raise ValueError("its data are in another file")
    if item.shape is None:
        return 0
    return math.prod(item.shape) * int(item.dtype.itemsize)


def _attributes(item: Any) -> dict[str, Any]:
    """Text and numbers; what is neither (references, the scales of dimensions) nobody asks for."""
    names = [name for name in item.attrs if name not in ("DIMENSION_LIST", "REFERENCE_LIST")]
    found = {str(name): _plain(item.attrs[name]) for name in names}
    return {name: value for name, value in found.items() if value is not None}


def _plain(value: Any) -> Any:
    value = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return value if isinstance(value, str | int | float | bool) else None
