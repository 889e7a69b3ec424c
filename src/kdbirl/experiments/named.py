"""The experiments that `kdbirl reproduce` knows by name."""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from kdbirl.errors import InputError, did_you_mean
from kdbirl.experiments import bandwidth_claims, bandwidth_rules, contraction
from kdbirl.experiments.contraction_claims import claims
from kdbirl.experiments.directory import Reproduction
from kdbirl.experiments.ledger import Claim
from kdbirl.progress import Progress
from kdbirl.report.bandwidth_plots import plot_bandwidth_rules
from kdbirl.report.contraction_plots import plot_ckde_convergence, plot_contraction_draws, plot_posterior_contraction

Made = tuple[list[Claim], list[Path]]  # what was found, and the files
Reproduce = Callable[[Reproduction, bool, int | None, Progress], Made]


def reproduce_contraction(place: Reproduction, quick: bool, seeds: int | None, progress: Progress) -> Made:
    """Lemma 4.1 and Theorem 4.2: numbers, ledger rows, figures and the manifest."""
    spec = contraction.QUICK if quick else contraction.FULL
    spec = spec if seeds is None else replace(spec, seeds=seeds)
    start = time.perf_counter()
    numbers = contraction.run(spec, place.cells(contraction.NAME, contraction.MODULES), progress)
    measured = time.perf_counter()
    found = claims(numbers)
    figures = {
        "lemma-4.1": plot_ckde_convergence(numbers["lemma_4_1"]),
        "theorem-4.2": plot_posterior_contraction(numbers["theorem_4_2"]),
        "theorem-4.2-draws": plot_contraction_draws(numbers["theorem_4_2"], numbers["configuration"]["world"]),
    }
    timings = {"cells": measured - start, "figures": time.perf_counter() - measured}
    return found, place.write(contraction.NAME, numbers, found, figures, spec.seeds, timings)


def reproduce_bandwidths(place: Reproduction, quick: bool, seeds: int | None, progress: Progress) -> Made:
    """Every bandwidth rule on tasks with known rewards: coverage, log density at the truth, EVD."""
    study = bandwidth_rules.QUICK if quick else bandwidth_rules.FULL
    study = study if seeds is None else replace(study, banks=seeds)
    start = time.perf_counter()
    rows = study.run(place.cells(bandwidth_claims.NAME, bandwidth_rules.MODULES), progress)
    measured = time.perf_counter()
    table, found = bandwidth_claims.summary(rows), bandwidth_claims.claims(rows, quick)
    numbers = {"experiment": bandwidth_claims.NAME, "configuration": asdict(study), "summary": table, "rows": rows}
    figures = {name: plot_bandwidth_rules(table, name) for name in ("coverage", "bounded")}
    timings = {"cells": measured - start, "figures": time.perf_counter() - measured}
    return found, place.write(bandwidth_claims.NAME, numbers, found, figures, study.banks, timings)


EXPERIMENTS: dict[str, Reproduce] = {
    contraction.NAME: reproduce_contraction,
    bandwidth_claims.NAME: reproduce_bandwidths,
}


def chosen(names: Sequence[str]) -> list[str]:
    """The experiments that were asked for, each once; `all` is every one."""
    for name in names:
        if name not in EXPERIMENTS and name != "all":
            raise InputError(f"There is no experiment called {name!r}.{did_you_mean(name, [*EXPERIMENTS, 'all'])}")
    return list(EXPERIMENTS) if "all" in names else list(dict.fromkeys(names))
