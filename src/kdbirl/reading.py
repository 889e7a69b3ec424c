"""Files are opened for reading here: regular ones alone, of a size within the limits; JSON and arrays, and no code.

A pipe or a device would hold the process for ever, or fill its memory. An npz file may claim any shape: the claim is
compared with the bytes that are there before anything is made of it. Nothing is ever unpickled.
"""

import json
import math
import os
import stat
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from kdbirl.errors import FileProblem, InputError
from kdbirl.limits import ARRAYS, FILE_BYTES, JSON_BYTES, MEMORY_BYTES, Limit

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
