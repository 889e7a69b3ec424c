"""`kdbirl reproduce contraction`: Lemma 4.1 and Theorem 4.2 measured on a world whose p(s, a | R) is known.

`run` measures every cell (a path, a size, a seed) through a `CellStore` and gives plain numbers, the same on every run;
`claims` puts them into the ledger; the figures of `report.contraction_plots` are drawn from the same numbers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from kdbirl.errors import InputError
from kdbirl.experiments import lemma_4_1, theorem_4_2
from kdbirl.experiments.cell_store import CellStore
from kdbirl.experiments.known_density import TwoTargets
from kdbirl.experiments.lemma_4_1 import LemmaCell
from kdbirl.experiments.statistics import Interval, slope, tail_slope
from kdbirl.experiments.theorem_4_2 import RADII, TheoremCell
from kdbirl.experiments.training_banks import L1_RATE
from kdbirl.progress import Progress, Silent

NAME = "contraction"
Numbers = dict[str, Any]


@dataclass(frozen=True)
class Contraction:
    """What is run: the sizes of the bank (Lemma 4.1), of the expert (Theorem 4.2), and how many seeds."""

    rows: tuple[int, ...] = (256, 1024, 4096, 16384, 65536)
    expert_rows: tuple[int, ...] = (4, 16, 64, 256, 1024, 4096)
    seeds: int = 12
    quick: bool = False
    world: TwoTargets = field(default_factory=TwoTargets)

    def __post_init__(self) -> None:
        if self.seeds < 2:
            raise InputError(f"seeds={self.seeds} should be at least 2: an interval needs a spread.")
        for name in ("rows", "expert_rows"):
            sizes = getattr(self, name)
            if len(sizes) < 2 or any(b <= a for a, b in pairwise(sizes)) or sizes[0] < 2:
                raise InputError(f"{name}={sizes} should be two or more growing sizes, from 2.")


FULL = Contraction()
QUICK = Contraction(rows=(256, 1024, 4096), expert_rows=(4, 16, 64), seeds=3, quick=True)


def run(spec: Contraction, store: CellStore, progress: Progress | None = None) -> Numbers:
    """All numbers of the experiment; cells that the store has are not computed again."""
    lemma = [
        (path.name, LemmaCell(spec.world, path, m, seed))
        for path in lemma_4_1.PATHS
        for m in spec.rows
        for seed in range(spec.seeds)
    ]
    theorem = [
        (path.bank.name, TheoremCell(spec.world, path, n, seed))
        for path in theorem_4_2.PATHS
        for n in spec.expert_rows
        for seed in range(spec.seeds)
    ]
    found = _measured([*lemma, *theorem], store, progress or Silent())
    return {
        "experiment": NAME,
        "configuration": asdict(spec),
        "lemma_4_1": _lemma(spec, found[: len(lemma)]),
        "theorem_4_2": _theorem(spec, found[len(lemma) :]),
    }


def _measured(
    cells: Sequence[tuple[str, LemmaCell | TheoremCell]], store: CellStore, progress: Progress
) -> list[Numbers]:
    """The result of each cell, in order."""
    found = []
    for done, (path, cell) in enumerate(cells):
        size = f"m = {cell.m:,}" if isinstance(cell, LemmaCell) else f"n = {cell.n:,}"
        what = "Lemma 4.1" if isinstance(cell, LemmaCell) else "Theorem 4.2"
        progress.update(NAME, done, len(cells), f"{what}: {path}, {size}")
        found.append(store.get(cell.key(), cell.run))
    progress.update(NAME, len(cells), len(cells), "cells measured")
    return found


def _table(found: Sequence[Numbers], paths: int, sizes: int, seeds: int, name: str) -> np.ndarray:
    """One measured number as (paths, seeds, sizes, ...)."""
    values = np.asarray([cell[name] for cell in found])
    return np.swapaxes(values.reshape(paths, sizes, seeds, *values.shape[1:]), 1, 2)


def _lemma(spec: Contraction, found: Sequence[Numbers]) -> Numbers:
    sizes = np.asarray(spec.rows, dtype=float)
    shape = len(lemma_4_1.PATHS), len(spec.rows), spec.seeds
    tables = {name: _table(found, *shape, name) for name in ("l1", "squared", "tasks", "h", "h_reward")}
    paths = {}
    for i, path in enumerate(lemma_4_1.PATHS):
        errors, squared = tables["l1"][i], tables["squared"][i]
        paths[path.name] = {
            "label": path.label,
            "tasks": tables["tasks"][i][0].tolist(),
            "h": tables["h"][i].mean(axis=0).tolist(),
            "h_reward": tables["h_reward"][i].mean(axis=0).tolist(),
            "error": errors.tolist(),
            "mean": _means(errors),
            "slope": asdict(slope(errors, sizes)),
            "tail_slope": asdict(tail_slope(errors, sizes)),
            "squared_error": squared.tolist(),
            "squared_error_slope": asdict(slope(squared, sizes)),
        }
    return {"m": list(spec.rows), "rate": L1_RATE, "paths": paths}


def _theorem(spec: Contraction, found: Sequence[Numbers]) -> Numbers:
    shape = len(theorem_4_2.PATHS), len(spec.expert_rows), spec.seeds
    names = ("mass", "distance", "error", "sd", "scale_sd", "covered")
    tables = {name: _table(found, *shape, name) for name in names}
    shown = _typical_seed(tables["distance"][[path.rows is not None for path in theorem_4_2.PATHS]])
    paths = {}
    for i, path in enumerate(theorem_4_2.PATHS):
        of_shown = found[i * shape[1] * shape[2] : (i + 1) * shape[1] * shape[2]][shown :: shape[2]]
        paths[path.bank.name] = {
            "label": path.bank.label,
            "m": [path.m(n) for n in spec.expert_rows],
            "tasks": [path.bank.n_tasks(path.m(n)) for n in spec.expert_rows],
            **{name: tables[name][i].tolist() for name in names},
            "mean_mass": [_means(tables["mass"][i][:, :, r]) for r in range(len(RADII))],
            "mean_distance": _means(tables["distance"][i]),
            "coverage": tables["covered"][i].mean(axis=0).tolist(),
            "draws": [cell["draws"] for cell in of_shown],
        }
    return {
        "n": list(spec.expert_rows),
        "radii": list(RADII),
        "prior_scale_sd": spec.world.reward_spread * 2**0.5,
        "shown_seed": shown,
        "shown_truth": found[shown]["truth"],
        "paths": paths,
    }


def _typical_seed(distances: np.ndarray) -> int:
    """The seed to draw: of median distance from the truth at the end of the paths (paths, seeds, sizes) of fixed m."""
    order = np.argsort(distances[:, :, -1].mean(axis=0), kind="stable")
    return int(order[(len(order) - 1) // 2])


def _means(values: np.ndarray) -> Mapping[str, list[float]]:
    """Mean over seeds and its interval, at each size."""
    columns = [Interval.of(column) for column in values.T]
    return {name: [getattr(column, name) for column in columns] for name in ("number", "low", "high")}
