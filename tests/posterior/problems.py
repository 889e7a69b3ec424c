"""Small posteriors whose exact answer is known by brute force: Eq. 6 as a double sum over rows, on a dense NumPy grid.

Nothing here uses the package's own grid, compression or kernels for the reference. Problems of one family have the same
shapes, so that a sampler is compiled once for all of them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats
from scipy.interpolate import PchipInterpolator

from kdbirl.likelihood.ckde import CKDE
from kdbirl.likelihood.kernels import PairKernel, Part, RadialKernel
from kdbirl.posterior.priors import Beta, Laplace, Normal, Prior, Uniform
from kdbirl.posterior.product_prior import CustomPrior, Product
from kdbirl.posterior.target import Problem, Target

LogPrior = Callable[[np.ndarray], np.ndarray]  # (points, q) -> (points,)


@dataclass(frozen=True)
class Exact:
    """A posterior on a grid of cells: the mass of each, and what follows from it, per parameter."""

    edges: tuple[np.ndarray, ...]
    mass: np.ndarray

    def marginal(self, j: int) -> np.ndarray:
        """Mass per cell of one axis."""
        return self.mass.sum(axis=tuple(i for i in range(self.mass.ndim) if i != j))

    def mean(self, j: int) -> float:
        """E[R_j], with each cell's mass at its centre."""
        return float(self.marginal(j) @ self.centres(j))

    def central_moment(self, j: int, order: int) -> float:
        """E[(R_j - mean)^order]."""
        return float(self.marginal(j) @ (self.centres(j) - self.mean(j)) ** order)

    def cdf(self, j: int, x: np.ndarray) -> np.ndarray:
        """P(R_j <= x), a monotone cubic within a cell."""
        cumulated = np.concatenate([[0.0], np.cumsum(self.marginal(j))])
        inside = np.clip(x, self.edges[j][0], self.edges[j][-1])
        return np.asarray(PchipInterpolator(self.edges[j], cumulated)(inside))

    def centres(self, j: int) -> np.ndarray:
        """Middles of the cells of one axis."""
        return (self.edges[j][1:] + self.edges[j][:-1]) / 2


@dataclass(frozen=True)
class Setting:
    """Training rows, expert rows and bandwidths, and the prior twice: as the package's, and written out in NumPy."""

    rows: np.ndarray
    tasks: np.ndarray
    rewards: np.ndarray
    expert: np.ndarray
    prior: Prior
    log_prior: LogPrior
    edges: tuple[np.ndarray, ...]
    h: float = 0.5
    h_reward: float = 0.3
    power: float = 1.0
    reward_profile: str = "gaussian"

    @property
    def problem(self) -> Problem:
        """As a sampler takes it."""
        columns = tuple(range(self.rows.shape[1]))
        kernel = PairKernel((Part("all", columns, RadialKernel()),))
        reward_kernel = RadialKernel(self.reward_profile)
        estimator = CKDE.from_rows(self.rows, self.tasks, self.rewards, kernel, reward_kernel)
        prior = self.prior.for_parameters(self.rewards.shape[1])
        likelihood = estimator.likelihood(self.expert, np.array([self.h]), self.h_reward, prior.box)
        target = Target.build(prior, likelihood, self.power)
        return Problem(target, prior, estimator.informed_directions(), reward_kernel.differentiable)

    @cached_property
    def exact(self) -> Exact:
        """The posterior by the midpoint rule."""
        centres = [(edge[1:] + edge[:-1]) / 2 for edge in self.edges]
        points = np.stack(np.meshgrid(*centres, indexing="ij"), axis=-1).reshape(-1, len(centres))
        log_density = np.concatenate([self.log_posterior(part) for part in np.array_split(points, 8)])
        volumes = np.ones(())
        for edge in self.edges:
            volumes = np.multiply.outer(volumes, np.diff(edge))
        mass = np.exp(log_density - log_density.max()).reshape(volumes.shape) * volumes
        return Exact(self.edges, mass / mass.sum())

    def log_posterior(self, points: np.ndarray) -> np.ndarray:
        """log p(R) + power * sum_i log( sum_j K(x_i, x_j) K'(R, R_j) / sum_j K'(R, R_j) ), over rows j."""
        near = np.exp(-0.5 * ((self.expert[:, None] - self.rows[None]) ** 2).sum(axis=2) / self.h**2)
        distance = np.sqrt(((points[:, None] - self.rewards[None]) ** 2).sum(axis=2)) / self.h_reward
        weight = np.exp(-0.5 * distance**2) if self.reward_profile == "gaussian" else (distance <= 1.0) * 1.0
        weight = weight[:, self.tasks]
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = (weight @ near.T) / weight.sum(axis=1, keepdims=True)
            log_likelihood = np.log(np.nan_to_num(ratio)).sum(axis=1)
        return self.log_prior(points) + self.power * log_likelihood


def _box(low: float, high: float, cells: int, q: int) -> tuple[np.ndarray, ...]:
    return (np.linspace(low, high, cells + 1),) * q


def _flat(points: np.ndarray) -> np.ndarray:
    return np.zeros(len(points))


def _rows(rng: np.random.Generator, centres: np.ndarray, per_task: int, spread: float) -> tuple[np.ndarray, np.ndarray]:
    """Rows around one centre per task."""
    tasks = np.repeat(np.arange(len(centres)), per_task)
    return centres[tasks] + spread * rng.normal(size=(len(tasks), centres.shape[1])), tasks


def _square(behaviour: np.ndarray, expert_centre: float, seed: int, **settings: float | str) -> Setting:
    """Six tasks on the unit square, a uniform prior, 10 expert rows: the family that shares its shapes."""
    rng = np.random.default_rng(seed)
    rewards = np.array([[0.2, 0.2], [0.8, 0.8], [0.5, 0.5], [0.2, 0.8], [0.8, 0.2], [0.5, 0.1]])
    rows, tasks = _rows(rng, behaviour[:, None], 8, 0.6)
    expert = expert_centre + 0.6 * rng.normal(size=(10, 1))
    edges = _box(0.0, 1.0, 400, 2)
    return Setting(rows, tasks, rewards, expert, Uniform(0, 1), _flat, edges, **settings)  # type: ignore[arg-type]


def _corner() -> Setting:
    """Mass against two edges of the square, where a transform or a boundary would be wrong."""
    return _square(np.array([0.0, 2.0, 1.0, 1.2, 1.0, 0.3]), -0.3, seed=1)


def _ridge() -> Setting:
    """Two parameters that depend on each other strongly, and a power below one."""
    return _square(np.array([-2.0, 2.0, 0.0, 0.1, 0.0, -1.0]), 0.1, seed=2, power=0.7)


def _bimodal() -> Setting:
    """Two modes of unequal mass around tasks that behave alike, with tasks of other behaviour between them."""
    return _square(np.array([0.0, 0.12, 2.2, 2.2, 2.2, 2.2]), 0.05, seed=3, h_reward=0.15)


def _compact() -> Setting:
    """A reward kernel with edges: the density has jumps and is zero out of reach of the tasks."""
    return _square(np.array([0.0, 1.0, 0.5, 0.4, 0.6, 0.2]), 0.2, seed=4, h_reward=0.3, reward_profile="uniform")


def _normal() -> Setting:
    """Three parameters with a normal prior."""
    rng = np.random.default_rng(5)
    rewards = rng.normal(size=(6, 3))
    rows, tasks = _rows(rng, rewards @ rng.normal(size=(3, 2)), 6, 0.5)
    prior = Normal([0.2, -0.1, 0.0], [0.8, 1.0, 0.6])
    mean, sd = np.array(prior.mean), np.array(prior.sd)
    edges = tuple(np.linspace(mean[j] - 5 * sd[j], mean[j] + 5 * sd[j], 101) for j in range(3))

    def log_prior(points: np.ndarray) -> np.ndarray:
        return np.asarray(stats.norm.logpdf(points, mean, sd).sum(axis=1))

    return Setting(rows, tasks, rewards, rows[tasks == 2] + 0.1, prior, log_prior, edges, h_reward=0.9)


class Traces:
    """How often the density has been traced."""

    count = 0


def counted_exponential(reward: jax.Array) -> jax.Array:
    """log density of the exponential distribution, which counts how often Python runs it."""
    Traces.count += 1
    return -jnp.sum(reward)


def mixed(seed: int = 6) -> Setting:
    """A bounded, an unbounded and a half-bounded parameter, one of them with the user's own density."""
    rng = np.random.default_rng(seed)
    rewards = np.stack([rng.uniform(0, 1, 6), rng.laplace(0, 0.5, 6), rng.exponential(1, 6)], axis=1)
    rows, tasks = _rows(rng, rewards @ rng.normal(size=(3, 2)), 6, 0.5)
    half_line = CustomPrior(counted_exponential, 0.0, np.inf, lambda rng, n: rng.exponential(size=(n, 1)))
    prior = Product([Beta(2, 3), Laplace(0.1, 0.5), half_line])

    def log_prior(points: np.ndarray) -> np.ndarray:
        first, second = stats.beta.logpdf(points[:, 0], 2, 3), stats.laplace.logpdf(points[:, 1], 0.1, 0.5)
        return np.asarray(first + second - points[:, 2])

    kinked = np.concatenate([np.linspace(-7.4, 0.1, 61), np.linspace(0.1, 7.6, 61)[1:]])  # an edge at Laplace's kink
    edges = (np.linspace(0, 1, 61), kinked, np.linspace(0, 12, 121))
    return Setting(rows, tasks, rewards, rows[tasks == 1] + 0.1, prior, log_prior, edges, h_reward=0.7)


MAKERS: dict[str, Callable[[], Setting]] = {
    "corner": _corner,
    "ridge": _ridge,
    "bimodal": _bimodal,
    "compact": _compact,
    "normal": _normal,
    "mixed": mixed,
}


@cache
def setting(name: str) -> Setting:
    """A problem by name; the quadrature runs once."""
    return MAKERS[name]()
