"""`python -m paper contraction`: Lemma 4.1 and Theorem 4.2 measured on a world whose p(s, a | R) is known.

`run` measures every cell (a path, a size, a seed) through a `CellStore` and gives plain numbers, the same on every run;
`claims` puts them into the ledger; the figures of `report.contraction_plots` are drawn from the same numbers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from kdbirl.errors import InputError
from kdbirl.evaluation.cells import CellStore
from kdbirl.progress import Progress, Silent
from paper import theory_lemma
from paper.claims import NEARLY_ONE, RATE_TOLERANCE, TAIL, Interval, converges, goes_to_one, has_rate, slope, tail_slope
from paper.ledger import Claim, Verdict, opposite, withheld
from paper.theory_lemma import RADII, LemmaCell, TheoremCell
from paper.theory_world import L1_RATE, TwoTargets

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
        for path in theory_lemma.PATHS
        for m in spec.rows
        for seed in range(spec.seeds)
    ]
    theorem = [
        (path.bank.name, TheoremCell(spec.world, path, n, seed))
        for path in theory_lemma.THEOREM_PATHS
        for n in spec.expert_rows
        for seed in range(spec.seeds)
    ]
    found = _measured([*lemma, *theorem], store, progress or Silent())
    return {
        "experiment": NAME,
        "configuration": asdict(spec),
        "lemma_4_1": _lemma_cells(spec, found[: len(lemma)]),
        "theorem_4_2": _theorem_cells(spec, found[len(lemma) :]),
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


def _lemma_cells(spec: Contraction, found: Sequence[Numbers]) -> Numbers:
    sizes = np.asarray(spec.rows, dtype=float)
    shape = len(theory_lemma.PATHS), len(spec.rows), spec.seeds
    tables = {name: _table(found, *shape, name) for name in ("l1", "squared", "tasks", "h", "h_reward")}
    paths = {}
    for i, path in enumerate(theory_lemma.PATHS):
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


def _theorem_cells(spec: Contraction, found: Sequence[Numbers]) -> Numbers:
    shape = len(theory_lemma.THEOREM_PATHS), len(spec.expert_rows), spec.seeds
    names = ("mass", "distance", "error", "sd", "scale_sd", "covered")
    tables = {name: _table(found, *shape, name) for name in names}
    shown = _typical_seed(tables["distance"][[path.rows is not None for path in theory_lemma.THEOREM_PATHS]])
    paths = {}
    for i, path in enumerate(theory_lemma.THEOREM_PATHS):
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


# The claims of the paper's section 4 and what the measured numbers say about them.

LEMMA, THEOREM = "Section 4, Lemma 4.1; proof in Appendix A", "Section 4, Theorem 4.2; proof in Appendix A"
CONVERGES = "the CKDE converges to the true p(s, a | R) as m grows"
CONTRACTS = "the posterior mass in an L1 ball about the equivalence class of R* goes to 1 as n and m grow"


def claims(numbers: Numbers) -> list[Claim]:
    """One row for each claim and variant; without a verdict where the run was quick or had too few seeds."""
    made = [*_lemma(numbers["lemma_4_1"]), *_theorem(numbers["theorem_4_2"])]
    return [withheld(claim, numbers["configuration"]["quick"]) for claim in made]


def _lemma(lemma: Numbers) -> list[Claim]:
    return [_convergence(lemma), _rate(lemma), _with_the_papers_rule(lemma), _root(lemma), _few_tasks(lemma)]


def _errors(lemma: Numbers, path: str) -> tuple[np.ndarray, np.ndarray, float]:
    return np.asarray(lemma["paths"][path]["error"]), np.asarray(lemma["m"], dtype=float), lemma["rate"]


def _from_to(lemma: Numbers, path: str) -> str:
    mean, m = lemma["paths"][path]["mean"]["number"], lemma["m"]
    return f"mean L1 error {mean[0]:.3f} at m = {m[0]:,} and {mean[-1]:.3f} at m = {m[-1]:,}"


def _tail(lemma: Numbers) -> str:
    return (
        f"slope of log L1 error in log m over the {min(TAIL, len(lemma['m']))} largest m, "
        f"below {lemma['rate'] / 2:g} (half of the theory's) for convergence"
    )


def _convergence(lemma: Numbers) -> Claim:
    found, verdict = converges(*_errors(lemma, "every-row"))
    why = f"a reward drawn anew for each row, h and h' ~ m^(-1/(p+4)): {_from_to(lemma, 'every-row')}"
    return _claim(
        "lemma-4.1", "ours", CONVERGES, LEMMA, _tail(lemma), found, _errors(lemma, "every-row")[0], verdict, why
    )


def _rate(lemma: Numbers) -> Claim:
    errors, sizes, rate = _errors(lemma, "every-row")
    found, verdict = has_rate(errors, sizes, rate)
    squared = lemma["paths"]["every-row"]["squared_error_slope"]
    why = (
        f"theory {rate:g}, which the interval {'covers' if found.low <= rate <= found.high else 'does not cover'}: the "
        f"verdict allows {RATE_TOLERANCE:g} for finite m; the integrated squared error has slope "
        f"{squared['number']:.3f} [{squared['low']:.3f}, {squared['high']:.3f}] against {2 * rate:g}"
    )
    claim = "with h ~ m^(-1/(p+4)) the error falls as m^(-2/(p+4)), the root of the MISE's rate; p = 4 here"
    where = "Appendix A, proof of Lemma 4.1 (MISE of Wand and Jones, of Chacon and Duong); the text states no rate"
    statistic = f"slope of log L1 error in log m over all m, within {RATE_TOLERANCE:g} of the theory's"
    return _claim("lemma-4.1-rate", "ours", claim, where, statistic, found, errors, verdict, why)


def _with_the_papers_rule(lemma: Numbers) -> Claim:
    errors, sizes, rate = _errors(lemma, "paper-rule")
    found, verdict = converges(errors, sizes, rate)
    h = lemma["paths"]["paper-rule"]["h"]
    why = (
        "with the printed bandwidth rule (variance of the pairwise distances) h does not shrink "
        f"(h = {h[0]:.3f} at the smallest m, {h[-1]:.3f} at the largest): it meets the lemma's printed conditions, but "
        f"not h -> 0, which only the appendix asks for; {_from_to(lemma, 'paper-rule')}"
    )
    return _claim("lemma-4.1", "printed", CONVERGES, LEMMA, _tail(lemma), found, errors, verdict, why)


def _root(lemma: Numbers) -> Claim:
    errors, sizes, rate = _errors(lemma, "root")
    found, verdict = converges(errors, sizes, rate)
    claim = "it converges too where rewards repeat, if the number of tasks grows (K = sqrt(m))"
    why = f"the proof takes the rewards of rows as independent; {_from_to(lemma, 'root')}"
    return _claim("lemma-4.1-repeated-rewards", "ours", claim, LEMMA, _tail(lemma), found, errors, verdict, why)


def _few_tasks(lemma: Numbers) -> Claim:
    errors, sizes, rate = _errors(lemma, "few-tasks")
    found, verdict = converges(errors, sizes, rate)
    claim = "the training rewards must sufficiently cover the reward space: with 4 tasks, more rows do not help"
    where = "Section 4, the sentence before Lemma 4.1"
    why = f"{_from_to(lemma, 'few-tasks')}; the largest m no longer lower it"
    return _claim("lemma-4.1-cover", "ours", claim, where, _tail(lemma), found, errors, opposite(verdict), why)


def _theorem(theorem: Numbers) -> list[Claim]:
    n = theorem["n"][-1]
    statistic = f"mean mass in the ball of radius {theorem['radii'][0]:g} at n = {n:,}, above {NEARLY_ONE:g} for 1"
    made = []
    for path, name, variant, claim, contrary in (
        ("growing", "theorem-4.2", "ours", CONTRACTS, False),
        ("paper-rule", "theorem-4.2", "printed", CONTRACTS, False),
        (
            "fixed-1024",
            "theorem-4.2-n-alone",
            "ours",
            "m must grow with n: at m = 1,024 the mass does not go to 1",
            True,
        ),
        ("fixed-64", "theorem-4.2-n-alone-64", "ours", "m must grow with n: at m = 64 the mass does not go to 1", True),
    ):
        mass = np.asarray(theorem["paths"][path]["mass"])[:, :, 0]
        found, verdict = goes_to_one(mass)
        shown = opposite(verdict) if contrary else verdict
        why = _about(theorem, path)
        made.append(_claim(name, variant, claim, THEOREM, statistic, found, mass, shown, why))
    return made


def _about(theorem: Numbers, path: str) -> str:
    """Where the posterior ended: its distance from the truth beside its own width, and what its intervals cover."""
    found, seeds = theorem["paths"][path], len(theorem["paths"][path]["mass"])
    error, sd, scale = (np.asarray(found[name])[:, -1] for name in ("error", "sd", "scale_sd"))
    covered = round(found["coverage"][-1] * seeds)
    mass = np.asarray(found["mass"])[:, :, 0].mean(axis=0)
    return (
        f"{found['label']}: at n = {theorem['n'][-1]:,} the posterior of g lies {np.mean(np.abs(error)):.3f} from the "
        f"truth in the mean, with sd {np.mean(sd):.3f} (median ratio {np.median(np.abs(error) / sd):.1f}; mean mass "
        f"{mass[-2]:.2f} at the n before, {mass[-1]:.2f} at the last); its 90 % intervals cover the truth for "
        f"{covered} of {seeds} seeds; the sd of R_1 + R_2, of which behaviour says nothing, fell from the prior's "
        f"{theorem['prior_scale_sd']:.2f} to {np.mean(scale):.3f}"
    )


def _claim(
    name: str,
    variant: str,
    claim: str,
    where: str,
    statistic: str,
    found: Interval,
    table: np.ndarray,
    verdict: Verdict,
    why: str,
) -> Claim:
    number, low, high = (round(value, 6) for value in (found.number, found.low, found.high))
    return Claim(NAME, name, variant, claim, where, statistic, number, low, high, len(table), verdict, why)
