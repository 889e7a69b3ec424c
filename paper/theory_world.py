"""A control problem whose p(s, a | R) is known in closed form, with rewards that behaviour cannot tell apart.

On a line with targets at +1 and -1 the reward of being at s is  -R_1 (s - 1)^2 - R_2 (s + 1)^2.  An action says where
to go next, and noise of two kinds comes on top (of the hand, of the world):

    a = g(R) + hand,   next s = a + world,   g(R) = (R_1 - R_2) / (R_1 + R_2)

g(R) is the optimum of the expected reward. In the steady state s ~ N(g, hand^2 + world^2) and a ~ N(g, hand^2),
independently. Behaviour depends on R through the ratio R_1 : R_2 only, so the equivalence class of a reward is a ray:
the positive scale of R is not identified. Rewards come from scaled Beta(4, 4) densities, which are twice continuously
differentiable on the whole line: Lemma 4.1 asks for that.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.special import betaincinv, ndtr

from kdbirl._jax import float64
from kdbirl.data.demonstrations import Demonstrations
from kdbirl.errors import InputError
from kdbirl.likelihood.bandwidths import Bandwidths, by_rule
from kdbirl.likelihood.ckde import CKDE, CKDELikelihood
from kdbirl.likelihood.kernels import RadialKernel, on_columns
from kdbirl.likelihood.sums import distinct_rows
from kdbirl.methods.kdbirl import KDBIRL
from kdbirl.posterior.priors import Beta, Prior

BETA = 4.0  # the smallest whole exponent whose density has a continuous second derivative at the ends of the box


@dataclass(frozen=True)
class TwoTargets:
    """The world; lengths in units of half the distance between the targets."""

    hand_noise: float = 0.25
    world_noise: float = 0.15
    low: float = 0.1  # of both reward parameters; positive, as the targets must attract
    high: float = 1.0

    def __post_init__(self) -> None:
        if not (self.hand_noise > 0 and self.world_noise >= 0):
            raise InputError(f"The noise must be positive, not {self.hand_noise:g} and {self.world_noise:g}.")
        if not 0 < self.low < self.high:
            raise InputError(f"The rewards need 0 < low < high, not {self.low:g} and {self.high:g}.")

    @property
    def spreads(self) -> Float[np.ndarray, " 2"]:
        """Standard deviations of s and a given R."""
        return np.array([np.hypot(self.hand_noise, self.world_noise), self.hand_noise])

    @property
    def prior(self) -> Prior:
        """p(R): where training and test rewards come from."""
        return Beta(BETA, BETA, self.low, self.high).for_parameters(2, ("R_1", "R_2"))

    @property
    def reward_spread(self) -> float:
        """Standard deviation of each reward parameter."""
        return float((self.high - self.low) / (2 * np.sqrt(2 * BETA + 1)))

    def targets(self, rewards: Float[np.ndarray, "r 2"]) -> Float[np.ndarray, " r"]:
        """g(R)."""
        return (rewards[:, 0] - rewards[:, 1]) / (rewards[:, 0] + rewards[:, 1])

    def draw(self, rewards: Float[np.ndarray, "r 2"], rng: np.random.Generator) -> Float[np.ndarray, "r 2"]:
        """One row (s, a) for each reward, from p(s, a | R)."""
        return self.targets(rewards)[:, None] + self.spreads * rng.standard_normal((len(rewards), 2))

    def density(self, rows: Float[np.ndarray, "n 2"], rewards: Float[np.ndarray, "r 2"]) -> Float[np.ndarray, "r n"]:
        """p(s, a | R) of every row under every reward."""
        z = (rows[None] - self.targets(rewards)[:, None, None]) / self.spreads
        return np.exp(-0.5 * np.sum(z**2, axis=2)) / (2 * np.pi * np.prod(self.spreads))

    def l1_distances(
        self, rewards: Float[np.ndarray, "r 2"], truth: Float[np.ndarray, " 2"]
    ) -> Float[np.ndarray, " r"]:
        """||p(.|R) - p(.|R*)||_1 = 2 (2 Phi(D / 2) - 1), where D is the distance of the means in standard deviations.

        It is zero on the whole ray of R*: the metric of Theorem 4.2 on equivalence classes.
        """
        apart = np.abs(self.targets(rewards) - self.targets(truth[None])) * np.sqrt(np.sum(self.spreads**-2.0))
        return 2 * (2 * ndtr(apart / 2) - 1)


# How a bank of training tasks grows with its m rows: how many tasks they come from, and which bandwidths go with them.
#
# `shrinking` is the path of Lemma 4.1: with p = dim(s, a, R),  h = c s_x m^(-1/(p+4)),  h' = c s_R m^(-1/(p+4)), c =
# (4/(p+2))^(1/(p+4)) (the normal reference), s_x and s_R the known spreads of (s, a) given R and of R. In the paper's
# terms, where h is a variance, m h^(p/2) = m^(4/(p+4)) goes to infinity, as the lemma asks. `paper` is the rule that
# the paper prints, the variance of the pairwise distances.

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


# KD-BIRL's posterior over given points, for the first n rows of an expert and many n, from one table of kernel sums.
#
# The log likelihood is a sum over rows: with u distinct rows, of which row x occurs c_x(n) times among the first n,
#
#     log p(first n rows | R) = sum_x c_x(n) log p(x | R)
#
# so that all n share the u terms. The bandwidths must be the same for all n, as those of every rule but `loto` are.

AT_ONCE = 64  # points


@float64
def posteriors_of_first_rows(
    model: KDBIRL, expert: Demonstrations, sizes: Sequence[int], points: Float[np.ndarray, "P q"]
) -> tuple[Float[np.ndarray, "sizes P"], dict[str, Any]]:
    """Posterior weights of equally weighted points of the prior for each n, and what the model chose."""
    fitted = model.fitted
    if fitted is None or fitted.choices.searches:
        raise InputError("The posteriors of first rows need a fitted model whose bandwidths do not depend on n.")
    choice = fitted.choices.for_rows(max(sizes))
    rows, widths = fitted.features(expert), choice.bandwidths
    _, index, counts = distinct_rows(rows)
    likelihood = fitted.ckde.likelihood(rows, widths.h, widths.h_reward, fitted.prior.box, matrix_form=False)
    each = np.asarray(_pointwise(likelihood, jnp.asarray(points)))[:, : len(counts)]
    among = np.stack([np.bincount(index[:n], minlength=len(counts)) for n in sizes])
    log = choice.power * np.stack([each[:, own > 0] @ own[own > 0] for own in among])  # 0 * -inf is no number
    weights = np.exp(log - log.max(axis=1, keepdims=True))
    record = {"h": float(np.mean(widths.h)), "h_reward": widths.h_reward, "power": choice.power, "rule": widths.rule}
    return weights / weights.sum(axis=1, keepdims=True), record


@jax.jit
def _pointwise(likelihood: CKDELikelihood, points: Float[Array, "P q"]) -> Float[Array, "P u"]:
    return jax.lax.map(likelihood.pointwise, points, batch_size=AT_ONCE)
