"""Run the benchmarks: `python -m benchmarks [PART ...] [--quick] [--out F]`, of which `--help` lists the parts.

A part that was run replaces that part of the results file; the others stay, each with its own date, machine, versions.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks import (
    avril,
    birl,
    cluster,
    evaluation_cost,
    kernel_sums,
    many_tasks,
    planning,
    results,
    sepsis,
    stan_comparison,
    streaming,
    weights,
)
from benchmarks.measuring import load_average, machine, now, versions

HERE = Path(__file__).resolve().parent
PARTS: dict[str, tuple[Callable[[bool, int], dict[str, Any]], int]] = {  # what to call, and repeats
    "avril": (avril.compare, 5),
    "birl": (birl.compare, 3),
    "cluster": (cluster.compare, 5),
    "evaluation": (evaluation_cost.compare, 15),
    "kernel-sums": (kernel_sums.compare, 7),
    "many-tasks": (many_tasks.compare, 2),
    "planning": (planning.compare, 3),
    "sepsis": (sepsis.compare, 5),
    "stan": (stan_comparison.compare, 3),
    "streaming": (streaming.compare, 3),
    "weights": (weights.compare, 2),
}
BUSY = 0.5  # load average above which timings deserve no trust


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when every target that was measured is met, or none is asked for (--quick); else 1."""
    given = _parser().parse_args(arguments)
    out = given.out or HERE / ("results-quick.json" if given.quick else "results.json")
    chosen = given.parts or list(PARTS)
    found = results.read(out)
    for name in chosen:
        print(f"{name} ...", flush=True)
        found[name] = _measured(name, given.quick, given.repeats)
        results.write(found, out)  # after each: a run that is ended keeps what it measured
    print(f"Written to {out}.")
    return _judge(found, chosen, given.quick)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure kdbirl against its competitors.")
    parser.add_argument("parts", nargs="*", metavar="PART", choices=PARTS, help=f"of {', '.join(PARTS)} (default: all)")
    parser.add_argument("--quick", action="store_true", help="small problems, a rehearsal: to another file, not judged")
    parser.add_argument("--repeats", type=int, help="repeats of every measurement (default: by part)")
    parser.add_argument("--out", type=Path, help="results file (default: benchmarks/results.json)")
    return parser


def _measured(name: str, quick: bool, repeats: int | None) -> dict[str, Any]:
    """One part's record, with what it was measured on."""
    compare, usual = PARTS[name]
    before = load_average()
    if before > BUSY:
        print(f"  The machine is busy (load average {before}): timings will be off.", flush=True)
    started = now()
    found = compare(quick, repeats or (1 if quick else usual))
    stamp = {"date": started, "quick": quick, "machine": machine(), "versions": versions(), "load_before": before}
    return stamp | found


def _judge(found: dict[str, Any], chosen: Sequence[str], quick: bool) -> int:
    verdicts = list(results.judged({name: found[name] for name in chosen}))
    for name, sentence, met in verdicts:
        print(f"  {'not judged' if quick else 'met' if met else 'MISSED'}: {name}: {sentence}")
    compared = found["stan"]["agreement"].values() if "stan" in chosen else ()
    agree = all(of_sampler["agree"] for of_sampler in compared)
    if not agree:
        print("  MISSED: kdbirl's posterior and Stan's differ by more than Monte-Carlo error.")
    return int(not quick and not (agree and all(met for _, _, met in verdicts)))


if __name__ == "__main__":
    sys.exit(main())
