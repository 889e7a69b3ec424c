"""A pytest plugin for `scripts/mutants.py`: which functions of the mutated folders each test calls, in what time.

Written to $MUTANT_MAP as a JSON line for each test. Compiled programs are forgotten before each test, or only the first
of them would be seen to call what is compiled.
"""

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import hypothesis
import pytest

FOLDERS = tuple(f"{os.sep}kdbirl{os.sep}{name}{os.sep}" for name in ("likelihood", "posterior"))

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


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.failed:
        failed.add(report.nodeid)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    place = os.environ.get("MUTANT_MAP")
    if place is None:
        return (yield)
    import jax

    jax.clear_caches()
    seen: set[tuple[str, int]] = set()

    def note(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and any(part in code.co_filename for part in FOLDERS):
            seen.add((code.co_filename, code.co_firstlineno))

    began = time.process_time()
    sys.setprofile(note)
    try:
        result = yield
    finally:
        sys.setprofile(None)
        calls = sorted([f"{Path(file).parent.name}/{Path(file).name}", line] for file, line in seen)
        entry = {"test": item.nodeid, "seconds": round(time.process_time() - began, 3), "calls": calls}
        if item.nodeid not in failed:  # tests that count how often JAX traces a function do fail under this look
            with Path(place).open("a") as stream:
                stream.write(json.dumps(entry) + "\n")
    return result
