"""Lemma 4.1 by experiment: the error of the CKDE on a known density, as the bank grows along several paths.

    error(m) = mean over R of  int |p_m(s, a | R) - p(s, a | R)| d(s, a)

with the integral on a grid of (s, a) and the mean over rewards at the middle of equally likely cells of p(R). With
h ~ m^(-1/(p+4)) theory gives m^(-2/(p+4)) (the root of the MISE of the appendix's Theorem 1).
"""

from dataclasses import asdict, dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from kdbirl._jax import float64
from kdbirl.errors import InputError
from kdbirl.evaluation.cells import Cell
from kdbirl.likelihood.ckde import CKDELikelihood
from kdbirl.likelihood.sums import distinct_rows
from kdbirl.posterior.grid import Grid
from kdbirl.posterior.target import Problem, Target
from kdbirl.progress import Silent
from paper.theory_world import EXPERT, BankPath, TrainedBank, TwoTargets, bank_of, reward_quantiles

REACH, POINTS = 1.8, 21  # the grid of (s, a): from -REACH to REACH, POINTS along each axis
CELLS = 3  # equally likely cells of p(R) along each reward parameter
LARGEST_TABLE = 2**22  # entries of the table of kernel sums at once

PATHS = (
    BankPath("every-row", "a task for each row, K = m", "rows"),
    BankPath("root", "K = √m tasks", "root"),
    BankPath("few-tasks", "4 tasks, however many rows", 4),
    BankPath("paper-rule", "K = √m, the paper's bandwidth rule", "root", "paper"),
)


@dataclass(frozen=True)
class LemmaCell:
    """One error to measure."""

    world: TwoTargets
    path: BankPath
    m: int
    seed: int

    def key(self) -> dict[str, Any]:
        """Everything that decides the result."""
        return {"experiment": "lemma 4.1", "grid": [REACH, POINTS, CELLS], **asdict(self)}

    def run(self) -> Cell:
        """L1 error, integrated squared error, tasks and bandwidths."""
        rows, area = quadrature()
        rewards = held_out_rewards(self.world)
        bank = bank_of(self.world, self.path, self.m, self.seed)
        difference = estimated_density(bank, rows, rewards) - self.world.density(rows, rewards)
        return {
            "l1": float(np.abs(difference).sum(axis=1).mean() * area),
            "squared": float((difference**2).sum(axis=1).mean() * area),
            "tasks": bank.ckde.n_tasks,
            "h": float(bank.bandwidths.h[0]),
            "h_reward": float(bank.bandwidths.h_reward),
        }


def quadrature() -> tuple[Float[np.ndarray, "points 2"], float]:
    """A regular grid over (s, a), and the area that each point stands for."""
    axis = np.linspace(-REACH, REACH, POINTS)
    rows = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)
    return rows, float((axis[1] - axis[0]) ** 2)


def held_out_rewards(world: TwoTargets) -> Float[np.ndarray, "r 2"]:
    """The rewards at which the error is measured; none of them is a training reward."""
    middle = (np.arange(CELLS) + 0.5) / CELLS
    return reward_quantiles(world, np.stack(np.meshgrid(middle, middle, indexing="ij"), axis=-1).reshape(-1, 2))


@float64
def estimated_density(
    bank: TrainedBank, rows: Float[np.ndarray, "n 2"], rewards: Float[np.ndarray, "r 2"]
) -> Float[np.ndarray, "r n"]:
    """p_m(s, a | R) of Eq. 5, divided by the kernel's integral: the paper leaves that constant out."""
    ckde, widths = bank.ckde, bank.bandwidths
    box = rewards.min(axis=0), rewards.max(axis=0)
    constant = ckde.kernel.log_constant([float(h) for h in widths.h])
    assert constant is not None  # a Gaussian's is known
    parts = max(1, -(-len(rows) * ckde.n_tasks // LARGEST_TABLE))
    logs = []
    for block in np.array_split(rows, parts):
        likelihood = ckde.likelihood(block, widths.h, widths.h_reward, box)
        logs.append(np.asarray(_pointwise(likelihood, jnp.asarray(rewards)))[:, distinct_rows(block)[1]])
    return np.exp(np.concatenate(logs, axis=1) - constant)


@jax.jit
def _pointwise(likelihood: CKDELikelihood, rewards: Float[Array, "r 2"]) -> Float[Array, "r u"]:
    logs: Array = jax.lax.map(likelihood.pointwise, rewards)
    return logs


# Theorem 4.2 by experiment: exact posteriors of a known world as n and m grow along several paths.
#
#     mass(n) = P_m^n( { R : || p(.|R) - p(.|R*) ||_1 < epsilon } )
#
# The ball is about the whole equivalence class of R*: its distances are those of behaviour, known in closed form. Each
# seed draws a test reward from p(R), which is also the prior, and rows from p(s, a | R*); draws are exact (`Grid`).

RADII = (0.1, 0.2, 0.4)  # epsilon; two behaviours are at most 2 apart
DRAWS = 4000
SHOWN_DRAWS = 250  # kept for pictures
CENTRAL = 0.9  # of the intervals whose coverage is counted


@dataclass(frozen=True)
class SamplePath:
    """How the bank's m rows grow with the n expert rows: `factor` times n, or a fixed number of rows."""

    bank: BankPath
    factor: int | None = None
    rows: int | None = None

    def __post_init__(self) -> None:
        if (self.factor is None) == (self.rows is None):
            raise InputError(f"Give one of factor={self.factor} and rows={self.rows}.")

    def m(self, n: int) -> int:
        """Training rows beside n expert rows."""
        return self.rows if self.rows is not None else (self.factor or 0) * n


THEOREM_PATHS = (
    SamplePath(BankPath("growing", "m = 16 n, K = √m", "root"), factor=16),
    SamplePath(BankPath("fixed-1024", "m = 1,024 for ever, K = 32", "root"), rows=1024),
    SamplePath(BankPath("fixed-64", "m = 64 for ever, K = 8", "root"), rows=64),
    SamplePath(BankPath("paper-rule", "m = 16 n, the paper's bandwidth rule", "root", "paper"), factor=16),
)


@dataclass(frozen=True)
class TheoremCell:
    """One posterior to look at."""

    world: TwoTargets
    path: SamplePath
    n: int
    seed: int

    def key(self) -> dict[str, Any]:
        """Everything that decides the result."""
        return {"experiment": "theorem 4.2", "radii": list(RADII), "draws": DRAWS, **asdict(self)}

    def run(self) -> Cell:
        """Mass in each ball, distance of behaviour, where g lies in its posterior, and the sd of R_1 + R_2."""
        truth, rows = expert(self.world, self.n, self.seed)
        draws = posterior_draws(self.world, self.path.bank, self.path.m(self.n), rows, self.seed)
        distances = self.world.l1_distances(draws, truth)
        targets, true_target = self.world.targets(draws), float(self.world.targets(truth[None])[0])
        low, high = np.quantile(targets, [(1 - CENTRAL) / 2, (1 + CENTRAL) / 2])
        return {
            "mass": [float((distances < radius).mean()) for radius in RADII],
            "distance": float(distances.mean()),
            "error": float(targets.mean() - true_target),
            "sd": float(targets.std()),
            "scale_sd": float(draws.sum(axis=1).std()),
            "covered": bool(low <= true_target <= high),
            "truth": truth.tolist(),
            "draws": np.round(draws[:SHOWN_DRAWS], 4).tolist(),
        }


def expert(world: TwoTargets, n: int, seed: int) -> tuple[Float[np.ndarray, " 2"], Float[np.ndarray, "n 2"]]:
    """The test reward of a seed, and n rows of its expert; the first rows are the same for every n."""
    rng = np.random.default_rng([seed, EXPERT])
    truth = reward_quantiles(world, rng.random((1, 2)))
    return truth[0], world.draw(np.repeat(truth, n, axis=0), rng)


def posterior_draws(
    world: TwoTargets, path: BankPath, m: int, rows: Float[np.ndarray, "n 2"], seed: int
) -> Float[np.ndarray, "draws 2"]:
    """Exact independent draws from the KD-BIRL posterior (Eq. 6)."""
    bank, prior = bank_of(world, path, m, seed), world.prior
    likelihood = bank.ckde.likelihood(rows, bank.bandwidths.h, bank.bandwidths.h_reward, prior.box)
    problem = Problem(Target.build(prior, likelihood), prior, bank.ckde.informed_directions(), True)
    return Grid(draws=DRAWS, chains=1).sample(problem, seed, Silent()).draws[0]
