"""A pytest plugin for `scripts/mutants.py`: which functions of the mutated folders each test calls, in what time.

Written to $MUTANT_MAP as a JSON line for each test. Compiled programs are forgotten before each test, or only the first
of them would be seen to call what is compiled. What tests share (results under `functools.cache`, fixtures of a module)
is computed for the first of them alone: its calls count for each test that takes it, its seconds are listed apart.
"""

import functools
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import hypothesis
import pytest

FOLDERS = tuple(f"{os.sep}kdbirl{os.sep}{name}{os.sep}" for name in ("likelihood", "posterior"))
Calls = set[tuple[str, int]]

# a found fault is enough: no search for its smallest example; and the same examples for every mutant
hypothesis.settings.register_profile(
    "mutants",
    deadline=None,
    derandomize=True,
    database=None,
    max_examples=int(os.environ.get("MUTANT_EXAMPLES", "25")),
    phases=[hypothesis.Phase.explicit, hypothesis.Phase.generate],
    suppress_health_check=list(hypothesis.HealthCheck),
)


failed: set[str] = set()
open_notes: list[Calls] = []  # of the test, and of the shared things that are being computed for it
shared: dict[str, tuple[Calls, float]] = {}
taken: set[str] = set()  # the shared things of this test


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.failed:
        failed.add(report.nodeid)


def note(frame: FrameType, event: str, _: Any) -> None:
    code = frame.f_code
    if event == "call" and any(part in code.co_filename for part in FOLDERS):
        for calls in open_notes:
            calls.add((code.co_filename, code.co_firstlineno))


@contextmanager
def sharing(name: str) -> Iterator[None]:
    """Something that is computed once: what it calls, and for how long, without other shared things inside."""
    calls: Calls = set()
    known, began = set(shared), time.process_time()
    open_notes.append(calls)
    try:
        yield
    finally:
        open_notes.pop()
        inside = sum(shared[other][1] for other in set(shared) - known)
        shared[name] = (calls, round(time.process_time() - began - inside, 3))


def noted_cache(function: Callable[..., Any]) -> Callable[..., Any]:
    """`functools.cache`, which knows what the results that it hands out have called."""
    cached = genuine_cache(function)

    @functools.wraps(function)
    def wrapper(*arguments: Any, **named: Any) -> Any:
        name = f"{function.__module__}.{function.__qualname__}{arguments}{named}"
        taken.add(name)
        if name in shared:
            return cached(*arguments, **named)
        with sharing(name):
            return cached(*arguments, **named)

    return wrapper


genuine_cache = functools.cache


def cache(function: Callable[..., Any]) -> Callable[..., Any]:
    return (noted_cache if f"{os.sep}tests{os.sep}" in function.__code__.co_filename else genuine_cache)(function)


if "MUTANT_MAP" in os.environ:
    functools.cache = cache  # type: ignore[assignment]


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: Any, request: Any) -> Iterator[None]:
    if "MUTANT_MAP" not in os.environ or fixturedef.scope == "function":
        return (yield)
    with sharing(f"fixture {fixturedef.baseid}::{fixturedef.argname}"):
        return (yield)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests of $MUTANT_KNOWN: their calls are known."""
    if place := os.environ.get("MUTANT_KNOWN"):
        known = set(json.loads(Path(place).read_text()))
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid in known])
        items[:] = [item for item in items if item.nodeid not in known]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    place = os.environ.get("MUTANT_MAP")
    if place is None:
        return (yield)
    import jax

    jax.clear_caches()
    seen: Calls = set()
    taken.clear()
    open_notes.append(seen)
    known = set(shared)
    began = time.process_time()
    threading.setprofile(note)  # kernel sums by boxes run in threads of their own
    sys.setprofile(note)
    try:
        result = yield
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
        open_notes.pop()
        for name, definitions in item._fixtureinfo.name2fixturedefs.items():  # type: ignore[attr-defined]
            taken.update({f"fixture {one.baseid}::{name}" for one in definitions} & set(shared))
        taken.intersection_update(shared)
        everything = seen.union(*(shared[name][0] for name in taken))
        own = time.process_time() - began - sum(shared[name][1] for name in set(shared) - known)
        calls = sorted([f"{Path(file).parent.name}/{Path(file).name}", line] for file, line in everything)
        entry = {"test": item.nodeid, "seconds": round(own, 3), "calls": calls}
        entry["shared"] = {name: shared[name][1] for name in sorted(taken)}
        if item.nodeid in failed:  # tests that count how often JAX traces a function do fail under this look
            entry |= {"calls": [], "failed": True}
        with Path(place).open("a") as stream:
            stream.write(json.dumps(entry) + "\n")
    return result
