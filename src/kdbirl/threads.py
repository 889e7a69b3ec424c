"""Work on all cores of this machine, for what runs outside of Python's lock: compiled programs, and reading files.

JAX and Polars keep threads of their own, which a process made by `os.fork` does not have: it would wait for them for
ever. Where we enter them we look whether this process is the one in which we did so first.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

from kdbirl.errors import KDBIRLError

Item = TypeVar("Item")
Result = TypeVar("Result")

_used_in: dict[str, int] = {}  # the process in which we first used a library with threads of its own
_alone: ContextVar[bool] = ContextVar("alone", default=False)


def cores() -> int:
    """How many the calling thread may use."""
    if _alone.get():
        return 1
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def one_core() -> Iterator[None]:
    """What runs in this block starts no threads: whoever runs it has others at work already."""
    before = _alone.set(True)
    try:
        yield
    finally:
        _alone.reset(before)


def on_all_cores(work: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
    """work(item) of each, in order, on a thread a core; what is called there starts no more threads."""
    items = list(items)
    if cores() == 1 or len(items) == 1:
        return [work(item) for item in items]
    with ThreadPoolExecutor(cores(), initializer=_alone.set, initargs=(True,)) as pool:
        return list(pool.map(work, items))


def refuse_fork(library: str) -> None:
    """Refuse to enter a library whose threads stayed in the process that this one is a fork of."""
    here = os.getpid()
    there = _used_in.setdefault(library, here)
    if there != here:
        raise KDBIRLError(
            f"This process is a fork of process {there}, where kdbirl has used {library}, whose threads no fork has: "
            'it would hang; start workers with the spawn method, multiprocessing.get_context("spawn").'
        )
