"""Theorem 4.2 by experiment: exact posteriors of a known world as n and m grow along several paths.

    mass(n) = P_m^n( { R : || p(.|R) - p(.|R*) ||_1 < epsilon } )

The ball is about the whole equivalence class of R*: its distances are those of behaviour, known in closed form. Each
seed draws a test reward from p(R), which is also the prior, and rows from p(s, a | R*); draws are exact (`Grid`).
"""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from kdbirl.errors import InputError
from kdbirl.experiments.cell_store import Cell
from kdbirl.experiments.known_density import TwoTargets
from kdbirl.experiments.training_banks import EXPERT, BankPath, bank_of, reward_quantiles
from kdbirl.posterior.grid import Grid
from kdbirl.posterior.sampler import Problem
from kdbirl.posterior.target import Target
from kdbirl.progress import Silent

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


PATHS = (
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
