"""What an effective sample costs: KD-BIRL against BIRL as the states grow, against Stan as the training rows grow.

Seconds of a warm `posterior(...)` (compilation left out, for Stan too), over the smallest bulk effective sample size of
the parameters. Times are of this machine and this day: unlike all other numbers they differ from run to run, so a run
that is resumed keeps those it has. Where pystan is not installed, Stan is "not measured".
"""

import time
import warnings
from collections.abc import Sequence
from contextlib import redirect_stderr
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib.util import find_spec
from io import StringIO
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from kdbirl.data.demonstrations import Demonstrations, TaskBank
from kdbirl.errors import KDBIRLWarning
from kdbirl.evaluation.cells import Cell, CellStore
from kdbirl.features import OneHot
from kdbirl.methods.birl import BIRL
from kdbirl.methods.kdbirl import KDBIRL
from kdbirl.posterior.convergence import assess
from kdbirl.posterior.mcmc import NUTS
from kdbirl.posterior.priors import Uniform
from kdbirl.progress import Progress
from kdbirl.report.panels import INK, NORMAL, SMALL, clean
from kdbirl.worlds.gridworld import Gridworld
from kdbirl.worlds.planning import plan
from kdbirl.worlds.rollouts import make_bank, rollout
from paper.claims import Statement, slopes
from paper.experiment import Experiment, Part, Request
from paper.fig1 import LOOKS
from paper.ledger import Claim, withheld

# Eq. 6 as a Stan user writes it down, to compare what a sample costs. Needs pystan, which `kdbirl[stan]` installs.
#
# The kernel of the features is tabulated once; that of the rewards is evaluated for every training row, so one
# evaluation of the density costs n*m terms. Nothing uses that rewards repeat within a task: that is our part.

PROGRAM = """
data {
  int<lower=1> n; int<lower=1> m; int<lower=1> q; int<lower=1> d;
  array[n] vector[d] expert; array[m] vector[d] features; array[m] vector[q] rewards;
  real<lower=0> h; real<lower=0> h_reward;
}
transformed data {
  array[n] vector[m] log_kernel;
  for (i in 1:n) for (j in 1:m) log_kernel[i][j] = -squared_distance(expert[i], features[j]) / (2 * square(h));
}
parameters { vector<lower=0, upper=1>[q] reward; }
model {
  vector[m] log_weight;
  for (j in 1:m) log_weight[j] = -squared_distance(reward, rewards[j]) / (2 * square(h_reward));
  for (i in 1:n) target += log_sum_exp(log_kernel[i] + log_weight);
  target += -n * log_sum_exp(log_weight);
}
"""


def installed() -> bool:
    """Whether pystan is there."""
    return find_spec("stan") is not None


def sampled(
    expert: Float[np.ndarray, "n d"],
    features: Float[np.ndarray, "m d"],
    rewards: Float[np.ndarray, "m q"],
    widths: tuple[float, float],
    lengths: tuple[int, int, int],
    seed: int,
) -> tuple[Float[np.ndarray, "chains draws q"], float]:
    """Draws and the seconds that sampling took; building the program is not counted. lengths: chains, warmup, draws."""
    import stan

    sizes: dict[str, Any] = {"n": len(expert), "m": len(features), "q": rewards.shape[1], "d": expert.shape[1]}
    tables = {"expert": expert, "features": features, "rewards": rewards, "h": widths[0], "h_reward": widths[1]}
    chains, warmup, draws = lengths
    with redirect_stderr(StringIO()):  # Stan's own progress, which would stand between the lines of ours
        built = stan.build(PROGRAM, data=sizes | tables, random_seed=seed + 1)
        start = time.perf_counter()
        fit = built.sample(num_chains=chains, num_warmup=warmup, num_samples=draws)
        seconds = time.perf_counter() - start
    return fit["reward"].T.reshape(draws, chains, -1).swapaxes(0, 1), seconds  # the chain index runs fastest


# The claims about cost, and what the times say about them. A ratio is of logarithms, so that a mean is a median.

CHEAPER = Statement(
    "cheaper-than-birl",
    "sampling from KD-BIRL's posterior is cheaper than from BIRL's, which plans for every reward",
    "Sections 1 and 3.2",
    "log10 of seconds per effective sample, KD-BIRL's minus BIRL's, mean over the grids",
    below=0.0,
)
GROWS = Statement(
    "birl-grows-faster",
    "BIRL's cost grows faster with the number of states than KD-BIRL's",
    "Sections 1 and 3.2",
    "slope of log seconds per effective sample in log states, KD-BIRL's minus BIRL's",
    below=0.0,
)
AGAINST_STAN = Statement(
    "cost-in-stan",
    "in Stan, as the paper ran it, the cost grows with the training rows; here it does not",
    "Appendix A (Code and Experiments); a check of ours",
    "slope of log seconds per effective sample in log m, KD-BIRL's here minus Stan's",
    below=0.0,
)
NOT_INSTALLED = "not measured: pystan is not installed (pip install 'kdbirl[stan]')"
NOT_IN_QUICK = "not measured: a quick run does not compile Stan's program"
Rows = Sequence[dict[str, Any]]


def claims(rows: Rows, seeds: int, quick: bool) -> list[Claim]:
    """Three rows of the ledger; all are about our own code, so the variant is `ours`."""
    sizes, ours = costs(rows, "states", "kdbirl", "states")
    _, birl = costs(rows, "states", "birl", "states")
    ratio = np.log10(ours) - np.log10(birl)
    means = ", ".join(
        f"{10**value:.3g} at {size:g} states" for size, value in zip(sizes, ratio.mean(axis=0), strict=True)
    )
    why = f"KD-BIRL's cost over BIRL's by NUTS: {means}; warm, on one machine"
    found = [
        CHEAPER.decide(NAME, "ours", ratio.mean(axis=1), why, quick),
        GROWS.decide(NAME, "ours", slope(ours, sizes) - slope(birl, sizes), why, quick),
    ]
    return [*found, _stan_claims(rows, seeds, quick)]


def _stan_claims(rows: Rows, seeds: int, quick: bool) -> Claim:
    if not any(row["method"] == "stan" for row in rows):
        nothing = (float("nan"),) * 3
        row = (
            NAME,
            AGAINST_STAN.name,
            "ours",
            AGAINST_STAN.claim,
            AGAINST_STAN.where,
            AGAINST_STAN.statistic,
            *nothing,
            seeds,
            "cannot be decided",
        )
        return replace(withheld(Claim(*row, ""), quick), why=NOT_IN_QUICK if quick else NOT_INSTALLED)
    sizes, ours = costs(rows, "rows", "kdbirl", "m")
    _, stan = costs(rows, "rows", "stan", "m")
    ratio = np.median(stan / ours, axis=0)
    why = ", ".join(
        f"Stan costs {value:.3g} times as much at m = {size:g}" for size, value in zip(sizes, ratio, strict=True)
    )
    return AGAINST_STAN.decide(NAME, "ours", slope(ours, sizes) - slope(stan, sizes), why, quick)


def costs(
    rows: Rows, table: str, method: str, by: str
) -> tuple[Float[np.ndarray, " sizes"], Float[np.ndarray, "seeds sizes"]]:
    """The sizes, and the cost of each seed and size."""
    own = [row for row in rows if row["table"] == table and row["method"] == method]
    sizes, seeds = sorted({row[by] for row in own}), sorted({row["seed"] for row in own})
    found = np.empty((len(seeds), len(sizes)))
    for row in own:
        found[seeds.index(row["seed"]), sizes.index(row[by])] = row["cost"]
    return np.array(sizes, dtype=float), found


def slope(values: Float[np.ndarray, "seeds sizes"], sizes: Float[np.ndarray, " sizes"]) -> Float[np.ndarray, " seeds"]:
    """Of log value in log size, for each seed; 0 where there is one size, as in a quick run."""
    return slopes(values, sizes) if len(sizes) > 1 else np.zeros(len(values))


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
    stan = ("kdbirl", "stan") if installed() and not request.quick else ("kdbirl",)
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
    return lambda seed: sampled(expert, features, rewards, WIDTHS, lengths, seed)


def _part(numbers: dict[str, Any], seeds: int, quick: bool) -> Part:

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


# What an effective sample costs, against the number of states and of training rows.

STAN = ("#555555", (0, (4, 2)), "the same density in Stan")
PANELS = (("states", "states", "states of the grid"), ("rows", "m", "training rows m"))


def plot_timing(rows: Rows) -> Figure:
    """Medians over seeds with their ranges, on logarithmic axes."""
    figure = Figure(figsize=(7.2, 2.9), layout="constrained")
    axes = figure.subplots(1, 2, sharey=True)
    for panel, (table, by, label) in zip(axes, PANELS, strict=True):
        _panel(panel, [row for row in rows if row["table"] == table], by)
        panel.set_xlabel(label, fontsize=NORMAL, color=INK)
    axes[0].set_ylabel("seconds per effective sample", fontsize=NORMAL, color=INK)
    return figure


def _panel(panel: Axes, rows: Rows, by: str) -> None:
    for method in dict.fromkeys(row["method"] for row in rows):
        colour, line, label = STAN if method == "stan" else LOOKS[method]
        sizes = sorted({row[by] for row in rows})
        costs = [[row["cost"] for row in rows if row["method"] == method and row[by] == size] for size in sizes]
        middle = [float(np.median(cost)) for cost in costs]
        panel.plot(sizes, middle, color=colour, ls=line, lw=1.5, marker="o", ms=3.5, label=label)
        panel.fill_between(sizes, [min(c) for c in costs], [max(c) for c in costs], color=colour, alpha=0.15, lw=0)
    panel.set_xscale("log")
    panel.set_yscale("log")
    clean(panel, y_axis=True)
    sizes = sorted({row[by] for row in rows})
    panel.set_xticks(sizes, [f"{size:,}" for size in sizes])
    panel.minorticks_off()
    panel.legend(frameon=False, fontsize=SMALL)
