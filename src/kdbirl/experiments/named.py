"""The experiments that `kdbirl reproduce` knows by name."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from kdbirl.errors import InputError, did_you_mean
from kdbirl.experiments import contraction
from kdbirl.experiments.contraction_claims import claims
from kdbirl.experiments.directory import Reproduction
from kdbirl.experiments.ledger import Claim
from kdbirl.progress import Progress
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


EXPERIMENTS: dict[str, Reproduce] = {contraction.NAME: reproduce_contraction}


def chosen(names: Sequence[str]) -> list[str]:
    """The experiments that were asked for, each once; `all` is every one."""
    for name in names:
        if name not in EXPERIMENTS and name != "all":
            raise InputError(f"There is no experiment called {name!r}.{did_you_mean(name, [*EXPERIMENTS, 'all'])}")
    return list(EXPERIMENTS) if "all" in names else list(dict.fromkeys(names))
