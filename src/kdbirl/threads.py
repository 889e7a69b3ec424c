"""Work on all cores of this machine, for what runs outside of Python's lock: compiled programs, and reading files."""

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

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
