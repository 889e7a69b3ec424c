"""HDF5 files, read in a process of their own: whatever a file does to the C library, this process only hears of it.

A damaged file can make HDF5 loop for ever or crash. `hdf5_child` reads it within a limit of processor time (not of
time on the clock: a slow disk or a stopped machine is no fault of the file's) and of memory. It takes a quarter of a
second, which is less than xarray takes to be imported.
"""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from kdbirl import hdf5_child
from kdbirl.errors import FileProblem
from kdbirl.limits import HDF5_SECONDS, MEMORY_BYTES
from kdbirl.reading import opened

SECOND = 2**24  # bytes that are allowed another second
Attributes = dict[str, dict[str, Any]]
Arrays = dict[str, np.ndarray[Any, np.dtype[Any]]]


def read_hdf5(path: Path, expected: str, kind: str = "HDF5", arrays_too: bool = True) -> tuple[Attributes, Arrays]:
    """(attributes by the path of their object, "" is the root; arrays of numbers by path). `kind`: in the sentence.

    `arrays_too=False` reads the arrays as well, but does not keep them: for a library that reads the file again.
    """
    with opened(path, expected) as stream:
        seconds = HDF5_SECONDS.value + stream.seek(0, os.SEEK_END) // SECOND
    done = _answer(path, seconds, arrays_too)
    head, _, data = done.stdout.partition(b"\n")
    if done.returncode != 0 or not head:
        raise FileProblem(f"{path} {_ended(done.returncode, seconds)}; {expected}.")
    said = json.loads(head)
    if "memory" in said:
        MEMORY_BYTES.check(MEMORY_BYTES.value + 1, f"{path} unpacks to too much")
    if "problem" in said:
        raise FileProblem(
            f"{path} cannot be read as {kind}: it is damaged, cut short, or another kind of file "
            f"({said['problem']}); {expected}."
        )
    return said["attributes"], _arrays(said["arrays"], data)


def _answer(path: Path, seconds: int, arrays_too: bool) -> "subprocess.CompletedProcess[bytes]":
    """What the child wrote. It finds packages where this process does, and loads no plug-ins of HDF5."""
    here = {"PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry), "HDF5_PLUGIN_PRELOAD": "::"}
    few = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}  # threads that only take address space
    child = [sys.executable, "-P", hdf5_child.__file__, os.path.abspath(path)]  # noqa: PTH100 (links stay as they are)
    words = [str(seconds), str(MEMORY_BYTES.value), "arrays" if arrays_too else "look"]
    return subprocess.run(
        [*child, *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL, check=False,
        env={**os.environ, **here, **few},
    )  # fmt: skip


def _ended(code: int, seconds: int) -> str:
    if code in (-signal.SIGXCPU, -signal.SIGKILL):
        return (
            f"is damaged: reading it was given up after {seconds} seconds of the processor "
            f"({HDF5_SECONDS.variable} allows more)"
        )
    return f"is damaged: HDF5 broke down over it (exit code {code})"


def _arrays(listed: list[list[Any]], data: bytes) -> Arrays:
    """Views of the bytes, in the order of the list."""
    found, place = {}, 0
    for name, kind, shape in listed:
        dtype = np.dtype(kind)
        count = int(np.prod(shape, dtype=object))
        found[name] = np.frombuffer(data, dtype, count, place).reshape(shape)
        place += count * dtype.itemsize
    return found
