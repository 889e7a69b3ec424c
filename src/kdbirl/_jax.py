"""Double precision inside our own computations, and nowhere else.

JAX computes in single precision unless told otherwise, and the switch is global. A library may not flip it for its
user, so every public function that touches JAX runs inside `float64`, which is local to the call and the thread. Being
the door to all our computations, it is also where compiled programs are forgotten (`compiled_programs`), and where a
fork of a process that has computed is refused (`threads`).
"""

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from kdbirl.errors import InputError, KDBIRLError

# Compiled programs are forgotten before they use up the memory maps of a long process.
#
# JAX keeps every program that it has compiled, a new one for each new shape of its arguments. Each takes a handful of
# memory maps, of which Linux grants a process 65,530 (`vm.max_map_count`): about a hundred fits of different sizes. The
# process then dies, with a fault in the compiler or "cannot allocate memory", although there is plenty of memory. So we
# look now and then, and drop all programs when half of the maps are in use. Nothing changes but time: what is needed
# again is compiled again.

MAPS, LIMIT = Path("/proc/self/maps"), Path("/proc/sys/vm/max_map_count")
SHARE = 0.5  # of the limit: a single fit takes hundreds of maps, a whole comparison thousands
SECONDS = 2.0  # between two looks: counting 30,000 maps takes a hundredth of a second

_looked = -SECONDS


def forget_if_many(least_seconds: float = SECONDS) -> bool:
    """Drop JAX's compiled programs if they fill the process; whether it did. Programs that run go on running."""
    global _looked
    now = time.monotonic()
    if now - _looked < least_seconds or "jax" not in sys.modules:
        return False
    _looked = now
    if memory_maps() < SHARE * most_memory_maps():
        return False
    sys.modules["jax"].clear_caches()
    return True


def memory_maps() -> int:
    """How many memory maps this process has; 0 where the system does not tell, as outside Linux."""
    try:
        with MAPS.open("rb") as stream:
            return sum(1 for _ in stream)
    except OSError:
        return 0


@cache
def most_memory_maps() -> int:
    """How many a process may have."""
    try:
        return int(LIMIT.read_text())
    except (OSError, ValueError):
        return sys.maxsize


# Work on all cores of this machine, for what runs outside of Python's lock: compiled programs, and reading files.
#
# JAX and Polars keep threads of their own, which a process made by `os.fork` does not have: it would wait for them for
# ever. Where we enter them we look whether this process is the one in which we did so first.

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


P = ParamSpec("P")
T = TypeVar("T")

_inside: ContextVar[bool] = ContextVar("inside one of our computations", default=False)


def float64(function: Callable[P, T]) -> Callable[P, T]:
    """Run `function` with JAX's 64-bit types switched on for this call only."""

    @wraps(function)
    def in_float64(*args: P.args, **kwargs: P.kwargs) -> T:
        import jax  # here, so that importing the package does not import JAX

        if _inside.get():
            with jax.enable_x64(True):
                return function(*args, **kwargs)
        refuse_fork("JAX")
        if not is_traced([*args, *kwargs.values()]):
            forget_if_many()  # between two computations, never while one is being traced
        token = _inside.set(True)
        try:
            with jax.enable_x64(True):
                return function(*args, **kwargs)
        finally:
            _inside.reset(token)

    return in_float64


def single_precision(function: Callable[P, T]) -> Callable[P, T]:
    """Run `function` with JAX's 32-bit types, also for a user who has switched the others on: the same seed gives the
    same numbers either way."""

    @wraps(function)
    def in_float32(*args: P.args, **kwargs: P.kwargs) -> T:
        import jax

        refuse_fork("JAX")
        with jax.enable_x64(False):
            return function(*args, **kwargs)

    return in_float32


def is_traced(values: Any) -> bool:
    """Whether these, or some of a list of them, have no numbers yet: a user's jit, grad or vmap is looking at them."""
    if "jax" not in sys.modules:
        return False
    tracer = sys.modules["jax"].core.Tracer
    return isinstance(values, tracer) or (isinstance(values, list | tuple) and any(map(is_traced, values)))


def refuse_traced(values: Any, what: str) -> None:
    """For what is computed from numbers, in NumPy: JAX's own sentence would not name it."""
    if is_traced(values):
        raise InputError(
            f"{what}: traced by JAX (jit, grad or vmap), without numbers yet, and this is not computed in JAX; call it "
            "outside of them, or by jax.pure_callback."
        )
