"""The density that samplers see: prior times likelihood to a power, on the reward's box or on the whole space.

Prior and likelihood stay separate until here. A parameter with bounds low < R < high is sampled as z with
R = low + (high - low) / (1 + e^-z); one with a single bound as R = low + e^z or high - e^z.
"""

from dataclasses import dataclass, field
from functools import partial
from typing import Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from kdbirl.errors import SamplingError
from kdbirl.posterior.priors import LogDensity, Parameters, Prior
from kdbirl.precision import float64


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

    @classmethod
    def build(cls, prior: Prior, likelihood: Likelihood, power: float = 1.0) -> "Target":
        """Put a prior and a likelihood together."""
        low, high = prior.support
        numbers = jax.tree.map(lambda value: jnp.asarray(value, dtype=float), prior.parameters)
        return cls(likelihood, jnp.asarray(power, dtype=float), numbers, jnp.asarray(low), jnp.asarray(high), prior.log_density)

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
        """R(z) and the log of its slope."""
        below, above = jnp.isfinite(self.low), jnp.isfinite(self.high)
        both, one = below & above, below ^ above
        low, high = jnp.where(below, self.low, 0.0), jnp.where(above, self.high, 0.0)
        width = jnp.where(both, high - low, 1.0)
        growth = jnp.exp(jnp.where(one, z, 0.0))
        reward = jnp.where(both, low + width * jax.nn.sigmoid(z), z)
        reward = jnp.where(one, jnp.where(below, low + growth, high - growth), reward)
        slope = jnp.where(both, jnp.log(width) + jax.nn.log_sigmoid(z) + jax.nn.log_sigmoid(-z), jnp.where(one, z, 0.0))
        return reward, jnp.sum(slope)

    def unconstrain(self, reward: Float[Array, " q"]) -> Float[Array, " q"]:
        """z(R), for R strictly inside the bounds."""
        below, above = jnp.isfinite(self.low), jnp.isfinite(self.high)
        both = below & above
        low, high = jnp.where(below, self.low, 0.0), jnp.where(above, self.high, 0.0)
        share = jnp.clip((reward - low) / jnp.where(both, high - low, 1.0), 1e-12, 1 - 1e-12)
        half = jnp.log(jnp.maximum(jnp.where(below, reward - low, high - reward), 1e-300))
        return jnp.where(both, jnp.log(share) - jnp.log1p(-share), jnp.where(below ^ above, half, reward))


@jax.jit
def _values_and_gradients(target: Target, rewards: Array) -> tuple[Array, Array]:
    z = jax.vmap(target.unconstrain)(rewards)
    return jax.lax.map(jax.value_and_grad(target.on_whole_space), z)


@partial(jax.jit, static_argnames="batch")
def _log_posteriors(target: Target, rewards: Array, batch: int) -> Array:
    return jax.lax.map(target.log_posterior, rewards, batch_size=batch)


def log_posteriors(target: Target, rewards: Float[np.ndarray, "r q"], batch: int = 64) -> Float[np.ndarray, " r"]:
    """The log posterior of many rewards; the last batch is padded, so that few programs are compiled."""
    size = max(batch, 2 ** int(np.ceil(np.log2(max(len(rewards), 1)))))
    padded = np.concatenate([rewards, np.repeat(rewards[-1:], size - len(rewards), axis=0)])
    return np.asarray(_log_posteriors(target, jnp.asarray(padded), batch))[: len(rewards)]


@float64
def starting_points(target: Target, prior: Prior, count: int, seed: int, differentiable: bool) -> np.ndarray:
    """Prior draws where the density, and its gradient if it is needed, are finite: the density's health check.

    Raises if there are none, saying what was seen.
    """
    candidates = prior.sample(np.random.default_rng(seed), max(64, 4 * count))
    values, gradients = (np.asarray(part) for part in _values_and_gradients(target, jnp.asarray(candidates)))
    if np.isnan(values).any():
        worst = candidates[np.flatnonzero(np.isnan(values))[0]]
        raise SamplingError(f"The posterior density is not a number at R = {np.round(worst, 4).tolist()}: check the prior "
                            "and any kernel or distance of your own.")
    usable = np.isfinite(values) & (np.isfinite(gradients).all(axis=1) | (not differentiable))
    if not usable.any():
        what = "zero" if not np.isfinite(values).any() else "without a gradient"
        raise SamplingError(
            f"The posterior density is {what} at each of {len(candidates)} draws from the prior. Usually the prior lies "
            "far from every training reward, or a compact kernel's bandwidth is too small."
        )
    good = candidates[usable]
    return good[np.arange(count) % len(good)]
