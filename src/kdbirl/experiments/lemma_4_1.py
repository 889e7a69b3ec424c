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

from kdbirl.experiments.cell_store import Cell
from kdbirl.experiments.known_density import TwoTargets
from kdbirl.experiments.training_banks import BankPath, TrainedBank, bank_of, reward_quantiles
from kdbirl.likelihood.ckde import CKDELikelihood
from kdbirl.likelihood.distinct import distinct_rows
from kdbirl.precision import float64

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
