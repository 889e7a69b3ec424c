"""How a bank of training tasks grows with its m rows: how many tasks they come from, and which bandwidths go with them.

`shrinking` is the path of Lemma 4.1: with p = dim(s, a, R),  h = c s_x m^(-1/(p+4)),  h' = c s_R m^(-1/(p+4)),
c = (4/(p+2))^(1/(p+4)) (the normal reference), s_x and s_R the known spreads of (s, a) given R and of R. In the paper's
terms, where h is a variance, m h^(p/2) = m^(4/(p+4)) goes to infinity, as the lemma asks. `paper` is the rule that the
paper prints, the variance of the pairwise distances.
"""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float
from scipy.special import betaincinv

from kdbirl.errors import InputError
from kdbirl.experiments.known_density import BETA, TwoTargets
from kdbirl.likelihood.bandwidths import Bandwidths, by_rule
from kdbirl.likelihood.ckde import CKDE
from kdbirl.likelihood.kernels import RadialKernel, on_columns

P = 4  # dim(s, a, R) of TwoTargets
L1_RATE = -2 / (P + 4)  # log error against log m at the best: bias h^2, variance 1 / (m h^p)
REWARDS, ROWS, EXPERT = 1, 2, 3  # streams of random numbers of one seed


@dataclass(frozen=True)
class BankPath:
    """One way of growing: `tasks` is a fixed number K, "rows" (K = m) or "root" (K = sqrt(m))."""

    name: str
    label: str
    tasks: int | Literal["rows", "root"]
    rule: Literal["shrinking", "paper"] = "shrinking"

    def __post_init__(self) -> None:
        if self.tasks not in ("rows", "root") and not (isinstance(self.tasks, int) and self.tasks >= 2):
            raise InputError(f'tasks={self.tasks!r} should be "rows", "root" or a number from 2.')

    def n_tasks(self, m: int) -> int:
        """K for m rows."""
        if isinstance(self.tasks, int):
            return min(self.tasks, m)
        return m if self.tasks == "rows" else math.isqrt(m - 1) + 1


@dataclass(frozen=True)
class TrainedBank:
    """The estimator of a bank, with its bandwidths."""

    ckde: CKDE
    bandwidths: Bandwidths


def bank_of(world: TwoTargets, path: BankPath, m: int, seed: int) -> TrainedBank:
    """m rows of K tasks. The first rewards of a seed are the same for every m: tasks are added, not replaced."""
    tasks = np.sort(np.arange(m) % path.n_tasks(m))
    rewards = task_rewards(world, path.n_tasks(m), seed)
    rows = world.draw(rewards[tasks], np.random.default_rng([seed, ROWS, m, path.n_tasks(m)]))
    ckde = CKDE.from_rows(rows, tasks, rewards, on_columns(RadialKernel(), ("s", "a"), {}), RadialKernel())
    return TrainedBank(ckde, by_rule("paper", ckde, seed) if path.rule == "paper" else shrinking(world, m))


def task_rewards(world: TwoTargets, count: int, seed: int) -> Float[np.ndarray, "count 2"]:
    """Rewards of training tasks, from p(R); those of a smaller count come first."""
    u = np.random.default_rng([seed, REWARDS]).random((count, 2))
    return reward_quantiles(world, u)


def reward_quantiles(world: TwoTargets, u: Float[np.ndarray, "r 2"]) -> Float[np.ndarray, "r 2"]:
    """Rewards whose parameters lie at these quantiles of p(R)."""
    return world.low + (world.high - world.low) * betaincinv(BETA, BETA, u)


def shrinking(world: TwoTargets, m: int) -> Bandwidths:
    """The bandwidths of Lemma 4.1 for m rows."""
    factor = (4 / (P + 2) / m) ** (1 / (P + 4))
    spread = float(np.sqrt(np.mean(world.spreads**2)))
    return Bandwidths(np.array([factor * spread]), factor * world.reward_spread, "shrinking")
