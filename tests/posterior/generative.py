"""Models whose data can be drawn from their own likelihood: the kernel density estimate taken at its word.

p(x | R) is a mixture: task k with probability n_k K'(R, R_k) / sum, one of its rows, and normal noise of width h around
it. All here is a pure function of (key, R) and of the expert's rows x, so that thousands of data sets run together. The
table of kernel sums is written out from its formula; a test compares it with the package's.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import jax
import jax.numpy as jnp
import numpy as np

from kdbirl._jax import float64
from kdbirl.likelihood.ckde import CKDE, CKDELikelihood, TaskMixture
from kdbirl.likelihood.kernels import PairKernel, Part, RadialKernel
from kdbirl.posterior.priors import Beta, Laplace, Normal, Prior, Uniform
from kdbirl.posterior.product_prior import Product
from kdbirl.posterior.target import Problem, Target

EXPERT_ROWS = 8
REWARD_KERNEL = RadialKernel()


@dataclass(frozen=True, eq=False)
class Model:
    """Training rows (m, d) of tasks, their rewards (K, q), bandwidths, and a prior spelled out for q parameters."""

    rows: np.ndarray
    tasks: np.ndarray
    rewards: np.ndarray
    prior: Prior
    h: float = 0.5
    h_reward: float = 0.6

    @cached_property
    def estimator(self) -> CKDE:
        """The package's estimator of the same rows."""
        kernel = PairKernel((Part("all", tuple(range(self.rows.shape[1])), RadialKernel()),))
        return CKDE.from_rows(self.rows, self.tasks, self.rewards, kernel, REWARD_KERNEL)

    @cached_property
    def _empty(self) -> Target:
        return Target.build(self.prior, self.likelihood(np.zeros((EXPERT_ROWS, self.rows.shape[1]))))

    def simulated(self, key: jax.Array, reward: jax.Array) -> jax.Array:
        """The expert's rows x ~ p(x | R)."""
        choice, noise = jax.random.split(key)
        log_weights = -0.5 * jnp.sum((reward[None] - self.rewards) ** 2, axis=1) / self.h_reward**2
        chosen = jax.random.categorical(choice, log_weights[self.tasks], shape=(EXPERT_ROWS,))
        around = jnp.asarray(self.rows)[chosen]
        return around + self.h * jax.random.normal(noise, around.shape, float)

    @float64
    def likelihood(self, expert: jax.Array) -> CKDELikelihood:
        """The package's likelihood of rows x, with S[i, k] = log sum_{j in k} exp(-|x_i - x_j|^2 / 2 h^2)."""
        squares = jnp.sum((expert[:, None] - jnp.asarray(self.rows)[None]) ** 2, axis=2)
        own = np.where(self.tasks[None] == np.arange(len(self.rewards))[:, None], 0.0, -np.inf)
        table = jax.nn.logsumexp((-0.5 * squares / self.h**2)[:, None] + jnp.asarray(own)[None], axis=2)
        largest = jnp.max(table, axis=1)
        counts = np.bincount(self.tasks)[None].astype(float)
        return CKDELikelihood(
            TaskMixture(jnp.exp(table - largest[:, None]), largest, True),
            TaskMixture(jnp.asarray(counts), jnp.zeros(1), True),
            jnp.ones(len(table)),
            jnp.asarray(self.rewards),
            jnp.asarray(self.h_reward, dtype=float),
            REWARD_KERNEL,
        )

    def target(self, expert: jax.Array) -> Target:
        """The posterior's density given rows x."""
        empty = self._empty
        return Target(
            self.likelihood(expert),
            empty.power,
            empty.prior_parameters,
            empty.low,
            empty.high,
            empty.prior_density,
            empty.bounds,
        )

    def problem(self, target: Target) -> Problem:
        """As a sampler takes it."""
        return Problem(target, self.prior, self.estimator.informed_directions())


def _model(prior: Prior, rewards: np.ndarray, seed: int, **widths: float) -> Model:
    """Six tasks of unequal size, whose rows in the plane depend on their reward."""
    rng = np.random.default_rng(seed)
    q = rewards.shape[1]
    tasks = np.repeat(np.arange(len(rewards)), np.arange(len(rewards)) % 3 + 2)
    scale = rewards.std(axis=0) + (rewards.std(axis=0) == 0)
    centres = (rewards - rewards.mean(axis=0)) / scale @ rng.normal(size=(q, 2)) / np.sqrt(q) * 2
    rows = centres[tasks] + 0.4 * rng.normal(size=(len(tasks), 2))
    return Model(rows, tasks, rewards, prior.for_parameters(q), **widths)


def bounded() -> Model:
    """A box: two parameters with a uniform prior."""
    rewards = np.array([[0.1, 0.2], [0.9, 0.8], [0.5, 0.5], [0.1, 0.9], [0.9, 0.1], [0.6, 0.2]])
    return _model(Uniform(0, 1), rewards, seed=1, h_reward=0.3)


def mixed() -> Model:
    """A bounded parameter and an unbounded one, from different families."""
    rng = np.random.default_rng(2)
    prior = Product([Beta(2, 3, -1, 1), Laplace(0.1, 0.5)])
    return _model(prior, prior.for_parameters(2).sample(rng, 6), seed=2, h_reward=0.4)


def _in_a_plane(seed: int) -> np.ndarray:
    """Six rewards of five parameters that differ in two directions only."""
    rng = np.random.default_rng(seed)
    return 0.5 + rng.uniform(-0.4, 0.4, (6, 2)) @ np.linalg.qr(rng.normal(size=(5, 2)))[0].T


def normal_complement() -> Model:
    """Five parameters of which the data see two directions, with a normal prior."""
    return _model(Normal(0.5, [0.3, 0.5, 0.4, 0.3, 0.6]), _in_a_plane(3), seed=3, h_reward=0.3)


def uniform_complement() -> Model:
    """The same with a uniform prior: draws from the prior are accepted or not."""
    return _model(Uniform(-0.2, 1.2), _in_a_plane(4), seed=4, h_reward=0.3)


MODELS: dict[str, Callable[[], Model]] = {
    "bounded": bounded,
    "mixed": mixed,
    "normal complement": normal_complement,
    "uniform complement": uniform_complement,
}
