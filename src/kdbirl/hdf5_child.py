"""Run as a process of its own by `kdbirl.hdf5`: read an HDF5 file within limits, and write its content to stdout.

HDF5 is a large C library: a damaged file can send it round in circles or crash it. Here it may; the kernel ends this
process after so much processor time or memory, and whoever waits for it says a sentence. Imports nothing of kdbirl.

Output: a line of JSON, {"attributes": {path: {...}}, "arrays": [[path, dtype, shape], ...]} or {"problem": "..."}, and
then the bytes of the arrays, one after the other. Links that lead out of the file are not followed.
"""

import json
import math
import resource
import sys
from pathlib import Path
from typing import Any

DEEPEST, MOST_OBJECTS = 32, 100_000
SPARE = 2**29  # address space of Python, NumPy and HDF5 themselves
LARGEST_RATIO, SMALL = 2000, 2**27  # bytes that a byte of a file unpacks to (zlib reaches 1032), and that any file may


class TooLarge(Exception):
    """The arrays, as the file describes them, are more than is allowed."""


def limit_this_process(seconds: int, most_bytes: int, file_bytes: int) -> None:
    """Processor time and memory; no core dump of somebody's data."""
    memory = most_memory(most_bytes, file_bytes)
    for kind, soft, hard in ((resource.RLIMIT_CORE, 0, 0), (resource.RLIMIT_CPU, seconds, seconds + 1),
                             (resource.RLIMIT_AS, memory, memory)):  # fmt: skip
        most = resource.getrlimit(kind)[1]  # that the user has set
        limits = (soft, hard) if most == resource.RLIM_INFINITY else (min(soft, most), min(hard, most))
        resource.setrlimit(kind, limits)


def most_memory(most_bytes: int, file_bytes: int) -> int:
    """The address space that reading a file of this size may take."""
    return 3 * min(most_bytes, max(LARGEST_RATIO * file_bytes, SMALL)) + SPARE


def content(path: str, most_bytes: int, keep: bool) -> tuple[dict[str, dict[str, Any]], list[tuple[str, Any]]]:
    """Attributes by the path of their object, and the arrays of numbers; read, but not kept, with `keep=False`."""
    import h5py

    attributes: dict[str, dict[str, Any]] = {}
    found: list[tuple[str, Any]] = []
    with h5py.File(path, "r") as file:
        left = most_bytes
        for name, item in _walk(file, h5py, links=keep):
            attributes[name] = _attributes(item)
            if isinstance(item, h5py.Dataset) and item.dtype.kind in "biuf":
                left -= _size(item)
                if left < 0:
                    raise TooLarge
                array = item[()]
                left, kept = (left, [(name, array)]) if keep else (most_bytes, [])
                found += kept
    return attributes, found


def _walk(root: Any, h5py: Any, links: bool) -> Any:
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


def answer(path: str, most_bytes: int, stream: Any, arrays_too: bool = True) -> None:
    """Write the content, or the problem."""
    try:
        attributes, arrays = content(path, most_bytes, arrays_too)
    except TooLarge:
        stream.write(b'{"memory": true}\n')
        return
    except MemoryError:
        stream.write(b'{"problem": "it asks for more memory than a file of its size can need"}\n')
        return
    except Exception as problem:  # h5py raises whatever it stumbles over
        reason = " ".join(str(problem).split())[:200] or type(problem).__name__
        stream.write(json.dumps({"problem": reason}).encode() + b"\n")
        return
    listed = [(name, array.dtype.newbyteorder("<").str, list(array.shape)) for name, array in arrays]
    stream.write(json.dumps({"attributes": attributes, "arrays": listed}).encode() + b"\n")
    for _, array in arrays:
        stream.write(array.astype(array.dtype.newbyteorder("<"), copy=False).data)


if __name__ == "__main__":
    limit_this_process(int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[1]).stat().st_size)
    answer(sys.argv[1], int(sys.argv[3]), sys.stdout.buffer, arrays_too=sys.argv[4] == "arrays")
