"""The density that samplers see: prior times likelihood to a power, on the reward's box or on the whole space.

Prior and likelihood stay separate until here. A parameter with bounds low < R < high is sampled as z with
R = low + (high - low) / (1 + e^-z); one with a single bound as R = low + e^z or high - e^z.
"""

import math
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from kdbirl._jax import float64
from kdbirl.errors import MEMORY_BYTES, InputError, SamplingError
from kdbirl.posterior.priors import LogDensity, Parameters, Prior
from kdbirl.progress import Progress
from kdbirl.random_streams import stream

Bounds = Literal["box", "none", "mixed"]
FIRST_TRIES, MORE_TRIES = 64, 4032  # prior draws at which the density is looked at before sampling


@runtime_checkable
class Likelihood(Protocol):
    """log p(expert | R): the seam between a conditional density estimate and the samplers. Must be a JAX pytree."""

    def __call__(self, reward: Float[Array, " q"]) -> Float[Array, ""]: ...

    def pointwise(self, reward: Float[Array, " q"]) -> Float[Array, " u"]: ...


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Target:
    """log p(R) + power * log p(expert | R)."""

    likelihood: Likelihood
    power: Float[Array, ""]
    prior_parameters: Parameters
    low: Float[Array, " q"]
    high: Float[Array, " q"]
    prior_density: LogDensity = field(metadata={"static": True})
    bounds: Bounds = field(metadata={"static": True})  # static: each case has a smaller graph than the general one

    @classmethod
    @float64
    def build(cls, prior: Prior, likelihood: Likelihood, power: float = 1.0) -> "Target":
        """Put a prior and a likelihood together."""
        low, high = prior.support
        numbers = jax.tree.map(lambda value: jnp.asarray(value, dtype=float), prior.parameters)
        finite = np.isfinite([low, high])
        bounds: Bounds = "box" if finite.all() else "mixed" if finite.any() else "none"
        weight, sides = jnp.asarray(power, dtype=float), (jnp.asarray(low, dtype=float), jnp.asarray(high, dtype=float))
        return cls(likelihood, weight, numbers, *sides, prior.log_density, bounds)

    @property
    def size(self) -> int:
        """q."""
        return int(self.low.shape[0])

    def log_prior(self, reward: Float[Array, " q"]) -> Float[Array, ""]:
        """log p(R)."""
        return self.prior_density(self.prior_parameters, reward)

    def log_posterior(self, reward: Float[Array, " q"]) -> Float[Array, ""]:
        """log p(R) + power * log p(expert | R), up to a constant."""
        return self.log_prior(reward) + self.power * self.likelihood(reward)

    def on_whole_space(self, z: Float[Array, " q"]) -> Float[Array, ""]:
        """The log posterior density of the unconstrained z."""
        reward, log_slope = self.constrain(z)
        return self.log_posterior(reward) + log_slope

    def constrain(self, z: Float[Array, " q"]) -> tuple[Float[Array, " q"], Float[Array, ""]]:
        """R(z) and the log of its slope, sum_j log dR_j/dz_j."""
        if self.bounds == "none":
            return z, jnp.zeros((), z.dtype)
        if self.bounds == "box":
            return self.low + (self.high - self.low) * jax.nn.sigmoid(z), jnp.sum(_log_slope(self.high - self.low, z))
        below, above = jnp.isfinite(self.low), jnp.isfinite(self.high)
        both, one = below & above, below ^ above
        low, high = jnp.where(below, self.low, 0.0), jnp.where(above, self.high, 0.0)
        width = jnp.where(both, high - low, 1.0)
        growth = jnp.exp(jnp.where(one, z, 0.0))
        reward = jnp.where(both, low + width * jax.nn.sigmoid(z), z)
        reward = jnp.where(one, jnp.where(below, low + growth, high - growth), reward)
        slope = jnp.where(both, _log_slope(width, z), jnp.where(one, z, 0.0))
        return reward, jnp.sum(slope)

    def unconstrain(self, reward: Float[Array, " q"]) -> Float[Array, " q"]:
        """z(R), for R strictly inside the bounds."""
        below, above = jnp.isfinite(self.low), jnp.isfinite(self.high)
        both = below & above
        low, high = jnp.where(below, self.low, 0.0), jnp.where(above, self.high, 0.0)
        share = jnp.clip((reward - low) / jnp.where(both, high - low, 1.0), 1e-12, 1 - 1e-12)
        half = jnp.log(jnp.maximum(jnp.where(below, reward - low, high - reward), 1e-300))
        return jnp.where(both, jnp.log(share) - jnp.log1p(-share), jnp.where(below ^ above, half, reward))


def _log_slope(width: Float[Array, " q"], z: Float[Array, " q"]) -> Float[Array, " q"]:
    """log of width * s(z) * s(-z) for the logistic s; log s(-z) = log s(z) - z saves half of the work."""
    return jnp.log(width) + 2.0 * jax.nn.log_sigmoid(z) - z


@partial(jax.jit, static_argnames="with_gradient")
def _evaluated(target: Target, rewards: Array, with_gradient: bool) -> tuple[Array, Array, Array]:
    """One point after the other: the log-sum-exp form of a large likelihood would not fit in memory many times."""
    positions = jax.vmap(target.unconstrain)(rewards)
    if with_gradient:
        return positions, *jax.lax.map(jax.value_and_grad(target.on_whole_space), positions)
    return positions, jax.lax.map(target.on_whole_space, positions), jnp.zeros_like(positions)


@partial(jax.jit, static_argnames="batch")
def _log_posteriors(target: Target, rewards: Array, batch: int) -> Array:
    return jax.lax.map(target.log_posterior, rewards, batch_size=batch)


def log_posteriors(target: Target, rewards: Float[np.ndarray, "r q"], batch: int = 64) -> Float[np.ndarray, " r"]:
    """The log posterior of many rewards; the last batch is padded, so that few programs are compiled."""
    size = max(batch, 2 ** int(np.ceil(np.log2(max(len(rewards), 1)))))
    padded = np.concatenate([rewards, np.repeat(rewards[-1:], size - len(rewards), axis=0)])
    return np.asarray(_log_posteriors(target, jnp.asarray(padded), batch))[: len(rewards)]


class Starts(NamedTuple):
    """Unconstrained points, with the log density there and its gradient (zeros where it was not asked for)."""

    positions: Float[np.ndarray, "points q"]
    values: Float[np.ndarray, " points"]
    gradients: Float[np.ndarray, "points q"]


@float64
def starting_points(target: Target, prior: Prior, count: int, seed: int, differentiable: bool) -> Starts:
    """Prior draws where the density, and its gradient if it is needed, are finite: the density's health check.

    Many more draws are looked at when the first few find nothing: a compact kernel may reach a small part of the
    prior only. Raises if there are none, saying what was seen.
    """
    rng = np.random.default_rng(stream(seed, "starting points"))
    usable, positive = _usable(target, prior.sample(rng, FIRST_TRIES), differentiable)
    if len(usable.values) < count:
        more, also = _usable(target, prior.sample(rng, MORE_TRIES), differentiable)
        usable = Starts(*(np.concatenate(pair) for pair in zip(usable, more, strict=True)))
        positive = positive or also
    if not len(usable.values):
        raise density_problem("without a gradient" if positive else "zero", FIRST_TRIES + MORE_TRIES)
    return Starts(*(part[np.arange(count) % len(usable.values)] for part in usable))


def _usable(target: Target, candidates: Float[np.ndarray, "c q"], differentiable: bool) -> tuple[Starts, bool]:
    """The candidates that a chain can start from, and whether the density is positive at any."""
    blocks = np.split(candidates, range(FIRST_TRIES, len(candidates), FIRST_TRIES))
    found = [_evaluated(target, jnp.asarray(block), differentiable) for block in blocks]
    points = Starts(*(np.concatenate(parts) for parts in zip(*found, strict=True)))
    require_numbers(candidates, points.values)
    finite = np.isfinite(points.values)
    chosen = finite & np.isfinite(points.gradients).all(axis=1)
    return Starts(*(part[chosen] for part in points)), bool(finite.any())


def require_numbers(rewards: Float[np.ndarray, "r q"], log_densities: Float[np.ndarray, " r"]) -> None:
    """Refuse a density that is not a number somewhere."""
    if np.isnan(log_densities).any():
        worst = rewards[np.flatnonzero(np.isnan(log_densities))[0]]
        raise SamplingError(
            f"The posterior density is not a number at R = {np.round(worst, 4).tolist()}: check the prior and any "
            "kernel or distance of your own."
        )


def density_problem(what: str, tried: int) -> SamplingError:
    """What to say of a density that gives a sampler nothing to start from."""
    return SamplingError(
        f"The posterior density is {what} at each of {tried} draws from the prior. Usually the prior lies far from "
        "every training reward, or a compact kernel's bandwidth is too small."
    )


# What every sampler takes and gives.


@dataclass(frozen=True)
class Problem:
    """What is to be sampled: the density, the prior it was built from, and the directions the likelihood can see.

    `informed (rank, q)` has orthonormal rows; None where they are not known.
    """

    target: Target
    prior: Prior
    informed: Float[np.ndarray, "rank q"] | None = None
    differentiable: bool = True


@dataclass(frozen=True)
class Draws:
    """Draws from the posterior and what the sampler has to say about them."""

    draws: Float[np.ndarray, "chain draw q"]
    stats: dict[str, np.ndarray] = field(default_factory=dict)
    sampler: str = ""
    notes: tuple[str, ...] = ()
    facts: dict[str, Any] = field(default_factory=dict)


@runtime_checkable
class Sampler(Protocol):
    """A frozen configuration that draws from a problem. The same seed gives the same draws."""

    name: ClassVar[str]

    def sample(self, problem: Problem, seed: int, progress: Progress) -> Draws: ...


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class NoLikelihood:
    """The likelihood of no data: samplers then draw from the prior."""

    def __call__(self, reward: Float[Array, " q"]) -> Float[Array, ""]:
        return jnp.zeros((), reward.dtype)

    def pointwise(self, reward: Float[Array, " q"]) -> Float[Array, " u"]:
        return jnp.zeros((0,), reward.dtype)


def require_counts(sampler: str, **counts: Any) -> None:
    """Refuse counts below one where the sampler is configured."""
    for name, value in counts.items():
        whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
        if not whole or value < 1:
            raise InputError(f"{sampler}({name}={value!r}): a whole number of at least 1 was expected.")
    kept = [int(counts[name]) for name in ("chains", "draws", "particles", "runs") if name in counts]
    MEMORY_BYTES.check(8 * math.prod(kept), f"{sampler}: so many draws do not fit")
