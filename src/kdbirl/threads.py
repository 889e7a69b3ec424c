"""Work on all cores of this machine, for what runs outside of Python's lock: compiled programs, and reading files."""

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def cores() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def on_all_cores(work: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
    """work(item) of each, in order, on a thread a core."""
    with ThreadPoolExecutor(cores()) as pool:
        return list(pool.map(work, items))
