"""What an effective sample costs: KD-BIRL against BIRL as the states grow, against Stan as the training rows grow.

Seconds of a warm `posterior(...)` (compilation left out, for Stan too), over the smallest bulk effective sample size of
the parameters. Times are of this machine and this day: unlike all other numbers they differ from run to run, so a run
that is resumed keeps those it has. Where pystan is not installed, Stan is "not measured".
"""

import time
import warnings
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from kdbirl.demos.data import Demonstrations, TaskBank
from kdbirl.demos.rollouts import make_bank, rollout
from kdbirl.envs.gridworld import Gridworld
from kdbirl.errors import KDBIRLWarning
from kdbirl.experiments import timing_stan
from kdbirl.experiments.cell_store import Cell, CellStore
from kdbirl.experiments.experiment import Experiment, Part
from kdbirl.experiments.request import Request
from kdbirl.experiments.timing_claims import claims
from kdbirl.features import OneHot
from kdbirl.methods.birl import BIRL
from kdbirl.methods.kdbirl import KDBIRL
from kdbirl.planners.plan import plan
from kdbirl.posterior.convergence import assess
from kdbirl.posterior.mcmc import NUTS
from kdbirl.posterior.priors import Uniform
from kdbirl.progress import Progress

NAME = "timing"
ALPHA, DISCOUNT, STEPS = 1.0, 0.95, 10
WIDTHS = (0.7, 0.63)  # sigmas of the scripts' 2x2 grid: variances .5 and .4


@dataclass(frozen=True)
class TimingSpec:
    """sides: of grids; expert_rows: n in all; bank_rows: m of the comparison with Stan, on the smallest grid."""

    sides: tuple[int, ...] = (2, 4, 6)
    expert_rows: int = 50
    bank_rows: tuple[int, ...] = (100, 300, 1000)
    chains: int = 4
    warmup: int = 300
    draws: int = 300
    seeds: int = 10


FULL = TimingSpec()
QUICK = TimingSpec(sides=(2,), bank_rows=(80,), chains=2, warmup=50, draws=50, seeds=2)


@dataclass(frozen=True)
class GridProblem:
    """A grid with one task per cell and `rows` training rows in all; an expert who errs as BIRL's model has it."""

    side: int
    rows: int
    expert_rows: int

    @property
    def world(self) -> Gridworld:
        return Gridworld(self.side, discount=DISCOUNT)

    def bank(self) -> TaskBank:
        each = -(-self.rows // (self.side**2 * STEPS))
        return make_bank(self.world, np.eye(self.side**2), episodes=max(each, 1), horizon=STEPS, seed=0)

    def expert(self) -> Demonstrations:
        truth = np.eye(self.side**2)[-1]
        policy = plan(self.world, truth, temperature=1 / ALPHA)
        return rollout(self.world, policy, self.expert_rows // STEPS, STEPS, seed=0)


def measure(request: Request, store: CellStore, progress: Progress) -> Part:
    """All times."""
    spec = request.size(FULL, QUICK)
    spec = spec if request.seeds is None else replace(spec, seeds=request.seeds)
    jobs = [("states", method, side, 20 * side**2) for side in spec.sides for method in ("kdbirl", "birl")]
    stan = ("kdbirl", "stan") if timing_stan.installed() and not request.quick else ("kdbirl",)
    jobs += [("rows", method, spec.sides[0], rows) for rows in spec.bank_rows for method in stan]
    rows: list[dict[str, Any]] = []
    for done, (table, method, side, bank_rows) in enumerate(jobs):
        progress.update(NAME, done, len(jobs), f"{method}, {side**2} states")
        problem = GridProblem(side, bank_rows, spec.expert_rows)
        key = {"what": "timing", "method": method, "problem": asdict(problem), "spec": asdict(spec)}
        cell = store.get(key, partial(timed, method, problem, spec))
        labels = {"table": table, "method": method, "states": side**2, "m": problem.bank().n_rows}
        rows += [{**labels, **row} for row in cell["rows"]]
    progress.update(NAME, len(jobs), len(jobs))
    numbers = {"experiment": NAME, "configuration": {**asdict(spec), "quick": request.quick}, "rows": rows}
    return _part(numbers, spec.seeds, request.quick)


def timed(method: str, problem: GridProblem, spec: TimingSpec) -> Cell:
    """One row a seed; the first call, which compiles, is not counted."""
    run = {"kdbirl": _kdbirl, "birl": _birl, "stan": _stan}[method](problem, spec)
    run(spec.seeds)
    rows = []
    for seed in range(spec.seeds):
        draws, seconds = run(seed)
        names = [str(k) for k in range(draws.shape[2])]
        effective = float(np.nanmin(assess(draws, names, "NUTS").ess_bulk))
        rows.append({"seed": seed, "seconds": seconds, "effective": effective, "cost": seconds / effective})
    return {"rows": rows}


def _watched(model: Any, expert: Demonstrations, seed: int) -> tuple[np.ndarray, float]:
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", KDBIRLWarning)
        draws = model.posterior(expert, seed=seed).draws
    return draws, time.perf_counter() - start


def _kdbirl(problem: GridProblem, spec: TimingSpec) -> Any:
    sampler = NUTS(spec.chains, spec.warmup, spec.draws)
    model = KDBIRL(Uniform(0, 1), features=OneHot(), bandwidth=WIDTHS, sampler=sampler).fit(problem.bank())
    return partial(_watched, model, problem.expert())


def _birl(problem: GridProblem, spec: TimingSpec) -> Any:
    sampler = NUTS(spec.chains, spec.warmup, spec.draws)
    return partial(_watched, BIRL(problem.world, Uniform(0, 1), ALPHA, sampler=sampler), problem.expert())


def _stan(problem: GridProblem, spec: TimingSpec) -> Any:
    bank, phi = problem.bank(), OneHot()
    fitted = phi.fit(bank)
    features, expert = fitted(bank.demonstrations), fitted(problem.expert())
    rewards, lengths = bank.rewards[bank.tasks], (spec.chains, spec.warmup, spec.draws)
    return lambda seed: timing_stan.sampled(expert, features, rewards, WIDTHS, lengths, seed)


def _part(numbers: dict[str, Any], seeds: int, quick: bool) -> Part:
    from kdbirl.report.timing_plots import plot_timing

    rows = numbers["rows"]
    measured = any(row["method"] == "stan" for row in rows)
    note = "" if measured else " Stan was not measured: pystan is not installed, or the run was quick."
    caption = (
        "Timing: seconds per effective sample (smallest over the parameters), warm, medians and ranges over seeds. "
        f"Left: per-state rewards, as the states grow. Right: as the training rows grow.{note}"
    )
    found = claims(rows, seeds, quick)
    return Part(NAME, numbers, seeds, found, {NAME: plot_timing(rows)}, {NAME: rows}, {NAME: caption})


EXPERIMENT = Experiment(NAME, "Timing: what an effective sample costs", {"": measure})
