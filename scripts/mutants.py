"""Mutation testing of likelihood/ and posterior/: do the tests notice a small fault?

    python scripts/mutants.py map WORK                         once: which test calls which function, and for how long
    python scripts/mutants.py run WORK TABLE [SIZE [SEED]]     judge SIZE (320) mutants drawn at random; resumes
    python scripts/mutants.py again WORK TABLE [SIZE [SEED]]   ask the survivors more tests, and those that are new

Another SEED (0) is another sample: tests written because of one sample say nothing about its own score.

With MUTANT_SHARE=0/2 and 1/2 two processes share the work, each with a WORK and a TABLE of its own: copy the map files
of both into both before `run`.

MUTANT_SINCE=REVISION draws only from functions that have changed since then: with the mutants of the others in an
earlier sample they are a stratified sample. MUTANT_FILES="*_loops.py" draws from such files alone, and
MUTANT_SUITES="likelihood posterior" asks only those; loops that Numba compiles hide their calls from the map, and are
judged as plain Python: NUMBA_DISABLE_JIT=1.

A mutant (`scripts/mutate.py`) is killed when a test fails. Its tests are those that call the changed function, the
quickest first: `run` asks 20 seconds of them, `again` up to 120 seconds more. A test that a mutant has passed is not
asked again, whether or not it has been edited. Each mutant is judged in a fork of a process that has the packages
imported but no JAX backend started, with a cache of compiled programs, so that it costs seconds. WORK holds copies of
src and tests: the tree may be edited meanwhile. TABLE is CSV, a line for each mutant.
"""

import csv
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

sys.path.insert(0, str(Path(__file__).parent))
from mutate import Mutant, mutants, mutants_since, mutated

Item = TypeVar("Item")
ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("likelihood", "posterior")
SUITES = (
    *("likelihood", "posterior", "methods/test_kdbirl.py", "methods/test_model_file.py", "trust/test_support.py"),
    *("methods/test_many_tasks.py", "methods/test_streamed_bank.py", "test_checkpoints.py", "test_cluster.py"),
    "test_frozen_classes.py",
    *("trust/test_identifiability.py", "trust/test_loto.py", "trust/test_calibration.py"),
)
if "MUTANT_SUITES" in os.environ:
    SUITES = tuple(os.environ["MUTANT_SUITES"].split())
SECONDS, MORE_SECONDS = 20.0, 120.0  # of tests, as they were timed, for each mutant: at first, and for a survivor
SURVIVED, KILLED, ENDLESS = "survived", "killed", "killed (endless)"
WARM = (  # not BlackJAX, which starts JAX's threads, nor xarray, which starts one of its own: forks would hang
    *("jax", "jax.numpy", "equinox", "optax", "scipy.stats", "scipy.optimize", "scipy.special", "h5netcdf"),
    *("hypothesis.extra.numpy", "beartype", "jaxtyping", "pytest"),
)


def main() -> None:
    command, work = sys.argv[1], Path(sys.argv[2]).absolute()
    if command == "map":
        return measure(work)
    restore(work)
    table = Path(sys.argv[3]).absolute()
    size, seed = [*map(int, sys.argv[4:]), *(320, 0)[len(sys.argv[4:]) :]]
    chosen = drawn(work, size, seed)
    rows = list(csv.DictReader(table.open())) if table.is_file() else []
    seconds = SECONDS
    if command == "again":
        copy_tests(work)
        measure_new(work)
        judged_before = {row["mutant"] for row in rows}
        rows = [row for row in rows if row["outcome"] != SURVIVED]
        chosen, seconds = [one for one in chosen if one.name in judged_before], MORE_SECONDS
    judge(work, table, rows, [one for one in chosen if one.name not in {row["mutant"] for row in rows}], seconds)


def measure(work: Path) -> None:
    """Fresh copies, and a run of all tests that may be asked; those that fail are not. Goes on where it was."""
    if not (work / "commit").is_file():
        shutil.copytree(ROOT / "src", work / "source", ignore=shutil.ignore_patterns("__pycache__"))
        restore(work)
        copy_tests(work)
        head = subprocess.check_output(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, text=True)
        (work / "commit").write_text(head)
    restore(work)
    for suite in shared(SUITES):
        place = work / f"map-{suite.replace('/', '-')}.jsonl"
        if place.is_file():
            continue
        os.environ["MUTANT_MAP"] = str(place.with_suffix(".unfinished"))
        Path(os.environ["MUTANT_MAP"]).unlink(missing_ok=True)
        judged(work, [str(work / "tests" / suite)], work / "log", 7200, stop=False)
        print(f"{suite}: {(work / 'log').read_text().splitlines()[-1]}", flush=True)
        Path(os.environ["MUTANT_MAP"]).replace(place)


def measure_new(work: Path) -> None:
    """The tests of the suites that were written since."""
    place = work / f"map-new-{len(list(work.glob('map-new-*')))}.jsonl"
    os.environ |= {"MUTANT_MAP": str(place), "MUTANT_KNOWN": str(work / "known.json")}
    (work / "known.json").write_text(json.dumps([one["test"] for one in known_tests(work)]))
    judged(work, [str(work / "tests" / suite) for suite in SUITES], work / "log", 7200, stop=False)
    print(f"new tests: {(work / 'log').read_text().splitlines()[-1]}", flush=True)
    del os.environ["MUTANT_MAP"], os.environ["MUTANT_KNOWN"]


def restore(work: Path) -> None:
    """The source without faults: a run that was killed leaves its mutant in place."""
    for path in (work / "source").rglob("*"):
        copy = work / "src" / path.relative_to(work / "source")
        if path.is_file() and not (copy.is_file() and copy.read_bytes() == path.read_bytes()):
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, copy)


def copy_tests(work: Path) -> None:
    shutil.rmtree(work / "tests", ignore_errors=True)
    shutil.copytree(ROOT / "tests", work / "tests", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, work / name)


def drawn(work: Path, size: int, seed: int) -> list[Mutant]:
    """A random sample of all mutants; a larger one begins with a smaller one."""
    pattern = os.environ.get("MUTANT_FILES", "*.py")
    files = [file for folder in FOLDERS for file in sorted((work / "src/kdbirl" / folder).glob("*.py"))]
    everything = [mutant for file in files if file.match(pattern) for mutant in _mutants_of(file, work)]
    return shared(random.Random(seed).sample(everything, len(everything))[:size])


def _mutants_of(file: Path, work: Path) -> list[Mutant]:
    """All, or those since MUTANT_SINCE."""
    if "MUTANT_SINCE" not in os.environ:
        return mutants(file, work)
    place = f"{os.environ['MUTANT_SINCE']}:{file.relative_to(work)}"
    before = subprocess.run(["git", "show", place], cwd=ROOT, capture_output=True, text=True, check=False)
    return mutants_since(file, work, before.stdout)


def shared(everything: Sequence[Item]) -> list[Item]:
    """The share of this process, where several have one each."""
    number, processes = map(int, os.environ.get("MUTANT_SHARE", "0/1").split("/"))
    return list(everything[number::processes])


def judge(work: Path, table: Path, rows: list[dict[str, str]], left: list[Mutant], seconds: float) -> None:
    """One after the other; the table is written anew after each."""
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    for name in WARM:
        __import__(name)
    if len(list(Path("/proc/self/task").iterdir())) > 1:
        raise SystemExit("a package has started threads: its forks may hang; take it out of WARM")
    commit = (work / "commit").read_text().strip()
    for mutant in left:
        began, path = time.monotonic(), work / mutant.file
        source, (change, scope) = path.read_text(), mutated(work / mutant.file, mutant.number)
        asked_place = work / "asked" / mutant.name
        asked = asked_place.read_text().split("\n") if asked_place.is_file() else []
        tests = tests_of(work, mutant.file.removeprefix("src/kdbirl/"), scope, seconds, set(asked))
        try:
            path.write_text(change)
            code = judged(work, tests, work / "log", 300) if tests else 0
        finally:
            path.write_text(source)
        log = (work / "log").read_text() if tests else ""
        fault = next((line for line in log.splitlines() if line.startswith(("FAILED", "ERROR"))), "")
        if code > 2 and "ERROR collecting" not in log:  # neither a failed test nor a module that cannot be imported
            raise SystemExit(f"pytest ended with {code} for {mutant}:\n{log}")
        outcome = SURVIVED if code == 0 else ENDLESS if code < 0 else KILLED
        asked_place.parent.mkdir(exist_ok=True)
        asked_place.write_text("\n".join([*asked, *tests]))
        facts = {name: value for name, value in asdict(mutant).items() if name != "number"}
        rows.append(
            {
                "mutant": mutant.name,
                **facts,
                "outcome": outcome,
                "tests": len(asked) + len(tests),
                "by": short(fault, code),
            }
            | {"seconds": f"{time.monotonic() - began:.0f}", "commit": commit}
        )
        write(table, rows)
        lost = sum(row["outcome"] == SURVIVED for row in rows)
        print(f"{len(rows)}: {outcome} {mutant.file}:{mutant.line} {mutant.before} -> {mutant.after}", flush=True)
        print(f"    {1 - lost / len(rows):.1%} killed, {time.monotonic() - began:.0f} s", flush=True)


def known_tests(work: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for place in sorted(work.glob("map-*.jsonl")) for line in place.read_text().splitlines()]


def tests_of(work: Path, file: str, scope: int, seconds: float, asked: set[str]) -> list[str]:
    """Tests that call the changed function, the quickest first, of each one case.

    Outside functions: those that call anything in the file, and those that call nothing and look at the classes.
    """
    known = [one for one in known_tests(work) if not one.get("failed") and str(work / one["test"]) not in asked]
    calls = [one for one in known if any(f == file and (scope in (0, line)) for f, line in one["calls"])]
    calls += [one for one in known if scope == 0 and not one["calls"]]
    names, total, paid, cases = [], 0.0, set(), Counter()
    order = []  # the first case of each parametrised test, then the second of each
    for one in sorted(calls, key=lambda one: one["seconds"] + sum(one.get("shared", {}).values())):
        function = one["test"].split("[")[0]
        cases[function] += 1
        order.append((cases[function], len(order), one))
    for _, _, one in sorted(order, key=lambda item: item[:2]):
        total += one["seconds"] + sum(spent for name, spent in one.get("shared", {}).items() if name not in paid)
        paid.update(one.get("shared", {}))
        if total > seconds and names:
            break
        names.append(str(work / one["test"]))
    return names


def judged(work: Path, tests: list[str], log: Path, cpu: int, stop: bool = True) -> int:
    """Run the tests in a fork: pytest's exit code, or the signal that ended it as a negative number."""
    child = os.fork()
    if child == 0:
        _become_pytest(work, tests, log, cpu, stop)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


def _become_pytest(work: Path, tests: list[str], log: Path, cpu: int, stop: bool) -> None:
    os.setsid()
    resource.setrlimit(resource.RLIMIT_CPU, (cpu, cpu + 5))  # processor time: the machine may be busy, or stand still
    signal.signal(signal.SIGXCPU, signal.SIG_DFL)
    out = os.open(log, os.O_CREAT | os.O_TRUNC | os.O_WRONLY)
    os.dup2(out, 1)
    os.dup2(out, 2)
    os.chdir(work)
    os.environ |= {"CI": "1", "JAX_COMPILATION_CACHE_DIR": str(work / "compiled"), "JAX_PLATFORMS": "cpu"}
    import jax
    import pytest

    jax.config.update("jax_compilation_cache_dir", str(work / "compiled"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    sys.path.insert(0, str(work / "src"))
    options = ["-q", "--no-header", "--tb=line", "-p", "no:cacheprovider", "-p", "mutant_plugin"]
    options += ["--hypothesis-profile=mutants", f"--rootdir={work}", "-W", "ignore:Error (reading|writing) persistent"]
    options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # of plugins that are warm already
    code = 3
    try:
        code = int(pytest.main([*options, *(["-x"] if stop else []), *tests]))
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def short(fault: str, code: int) -> str:
    if code < 0:
        return f"signal {-code}"
    return fault.split(" - ")[0].split("/tests/")[-1].removeprefix("FAILED ").removeprefix("ERROR ")


def write(table: Path, rows: list[dict[str, str]]) -> None:
    unfinished = table.with_suffix(".unfinished")
    with unfinished.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    unfinished.replace(table)


if __name__ == "__main__":
    main()
