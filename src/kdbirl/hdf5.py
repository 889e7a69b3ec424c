"""HDF5 files as attributes and arrays, within limits. Links that lead out of the file are not followed."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from kdbirl.errors import FileProblem
from kdbirl.limits import MEMORY_BYTES
from kdbirl.reading import opened

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
