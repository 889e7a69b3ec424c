"""Variational inference: the normal distribution that is closest to the posterior, in the unconstrained space.

It maximises ELBO = E_q[log p(z) - log q(z)] over normal q with a diagonal (mean-field) or full covariance, by Adam on
the stick-the-landing gradient (BlackJAX's `meanfield_vi` and `fullrank_vi`). It is fast and biased: how far the draws
can be trusted is told by Pareto k-hat of the weights p/q (Yao et al. 2018); above 0.7 they cannot.

The coordinates are scaled by the prior's mean and standard deviation, so that one learning rate suits every reward.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from blackjax.vi import fullrank_vi, meanfield_vi
from jaxtyping import Array, Float

from kdbirl._jax import float64
from kdbirl.errors import InputError, SamplingError
from kdbirl.posterior.convergence import FEWEST_WEIGHTS, PARETO_K_LIMIT
from kdbirl.posterior.mcmc import chain_keys
from kdbirl.posterior.target import Draws, Problem, Target, require_counts, starting_points
from kdbirl.progress import Progress
from kdbirl.random_streams import stream

FAMILIES = ("full-rank", "mean-field")

BLOCK = 500  # steps per compiled call
EQUAL = 1e-9  # log ratios within this are one
SCALING_DRAWS = 1000  # prior draws for the scale of the coordinates
FIRST_LOG_SD = -2.0  # q starts narrower than the prior, at the best of the health check's points


class Scaled(NamedTuple):
    """z = centre + scale * v: the coordinates v in which q is fitted."""

    centre: Float[np.ndarray, " q"]
    scale: Float[np.ndarray, " q"]


@dataclass(frozen=True)
class VI:
    """A normal approximation in the unconstrained space. `samples` points per step estimate the gradient."""

    family: str = "full-rank"
    steps: int = 5000
    draws: int = 4000
    samples: int = 16
    learning_rate: float = 0.05
    name: ClassVar[str] = "VI"

    def __post_init__(self) -> None:
        require_counts(self.name, steps=self.steps, draws=self.draws, samples=self.samples)
        if self.family not in FAMILIES:
            raise InputError(f"VI(family={self.family!r}) must be {' or '.join(FAMILIES)}.")
        if not self.learning_rate > 0:
            raise InputError(f"VI(learning_rate={self.learning_rate}) must be positive.")

    @float64
    def sample(self, problem: Problem, seed: int, progress: Progress) -> Draws:
        """Fit q and draw from it: one chain of independent draws."""
        if not problem.differentiable:
            raise SamplingError("VI needs a gradient, and the uniform kernel has none; use Grid, SMC or Metropolis.")
        with jax.numpy_rank_promotion("allow"):  # BlackJAX adds a vector to a matrix; a user may have forbidden that
            state, scaled, elbo = _fitted(self, problem, seed, progress)
            drawn = _drawn(self, problem.target, scaled, state, chain_keys(seed, [1]))
        rewards, log_density, log_ratios = (np.asarray(part) for part in drawn)
        k_hat = _pareto_k(log_ratios)
        facts = {"elbo": elbo, "pareto_k": k_hat, "family": self.family}
        return Draws(rewards[None], {"log_density": log_density[None]}, self.name, _notes(k_hat), facts)

    @property
    def _optimizer(self) -> Any:
        return optax.adam(optax.cosine_decay_schedule(self.learning_rate, self.steps))


def _fitted(sampler: VI, problem: Problem, seed: int, progress: Progress) -> tuple[Any, Scaled, float]:
    """The best q, its coordinates, and the mean ELBO of the last block."""
    target, rng = problem.target, np.random.default_rng(stream(seed, "prior's scale"))
    points = starting_points(target, problem.prior, 16, seed, differentiable=True)
    prior = np.asarray(_positions(target, jnp.asarray(problem.prior.sample(rng, SCALING_DRAWS))))
    scaled = Scaled(prior.mean(axis=0), np.maximum(prior.std(axis=0), 1e-12))
    best = points.positions[np.argmax(points.values)]
    state = _first_state(sampler, jnp.asarray((best - scaled.centre) / scaled.scale))
    for first in range(0, sampler.steps, BLOCK):  # steps beyond the last have a learning rate of zero
        state, elbos = _block(sampler, target, scaled, state, chain_keys(seed, [0]), first)
        elbo = float(np.mean(elbos))
        if not np.isfinite(elbo):
            raise SamplingError(
                "VI failed: the density is zero, or not a number, where the normal approximation reaches. A compact "
                "kernel needs Grid, SMC or Metropolis; otherwise try a smaller learning_rate."
            )
        done = min(first + BLOCK, sampler.steps)
        progress.update("VI", done, sampler.steps, f"ELBO {elbo:.4g}")
    return state, scaled, elbo


@jax.jit
def _positions(target: Target, rewards: Float[Array, "p q"]) -> Float[Array, "p q"]:
    return jax.vmap(target.unconstrain)(rewards)


def _log_density(target: Target, scaled: Scaled, v: Float[Array, " q"]) -> Float[Array, ""]:
    return target.on_whole_space(scaled.centre + scaled.scale * v) + jnp.sum(jnp.log(scaled.scale))


@partial(jax.jit, static_argnames="sampler")
def _first_state(sampler: VI, mean: Float[Array, " q"]) -> Any:
    if sampler.family == "mean-field":
        state = meanfield_vi.init(mean, sampler._optimizer)
        return state._replace(mu=mean, rho=jnp.full_like(mean, FIRST_LOG_SD))
    state = fullrank_vi.init(mean, sampler._optimizer)
    return state._replace(mu=mean, chol_params=state.chol_params.at[: mean.shape[0]].set(FIRST_LOG_SD))


@partial(jax.jit, static_argnames="sampler")
def _block(sampler: VI, target: Target, scaled: Scaled, state: Any, key: Array, first: Array) -> tuple[Any, Array]:
    """A block of steps and their ELBOs."""
    vi = meanfield_vi if sampler.family == "mean-field" else fullrank_vi
    log_density, optimizer = partial(_log_density, target, scaled), sampler._optimizer

    def step(state: Any, number: Array) -> tuple[Any, Array]:
        state, info = vi.step(jax.random.fold_in(key[0], number), state, log_density, optimizer, sampler.samples)
        return state, -info.elbo  # BlackJAX calls the loss by that name

    return jax.lax.scan(step, state, first + jnp.arange(BLOCK))


@partial(jax.jit, static_argnames="sampler")
def _drawn(sampler: VI, target: Target, scaled: Scaled, state: Any, key: Array) -> tuple[Array, Array, Array]:
    """Rewards (draws, q), the log density of z, and log p - log q."""
    if sampler.family == "mean-field":
        v = meanfield_vi.sample(key[0], state, sampler.draws)
        log_q = jax.vmap(meanfield_vi.generate_meanfield_logdensity(state.mu, state.rho))(v)
    else:
        v = fullrank_vi.sample(key[0], state, sampler.draws)
        log_q = jax.vmap(fullrank_vi.generate_fullrank_logdensity(state.mu, state.chol_params))(v)
    log_p = jax.lax.map(partial(_log_density, target, scaled), v, batch_size=min(sampler.draws, 256))
    rewards = jax.vmap(lambda point: target.constrain(scaled.centre + scaled.scale * point)[0])(v)
    return rewards, log_p - jnp.sum(jnp.log(scaled.scale)), log_p - log_q


def _pareto_k(log_ratios: Float[np.ndarray, " draws"]) -> float:
    """k-hat of the importance weights p/q; infinite where the approximation misses all of the posterior."""
    from arviz_stats.base.array import array_stats  # slow to import

    finite = log_ratios[np.isfinite(log_ratios)]
    if len(finite) < FEWEST_WEIGHTS:
        return float("inf")
    if np.ptp(finite) < EQUAL:
        return 0.0  # no tail to fit: where the family holds the posterior exactly, ratios differ by rounding alone
    _, k_hat = array_stats.psislw(-finite)  # type: ignore[no-untyped-call]  # it negates its argument
    return float(k_hat)


def _notes(k_hat: float) -> tuple[str, ...]:
    if k_hat <= PARETO_K_LIMIT:
        return ()
    return (f"VI is biased here (Pareto k-hat {k_hat:.2f}, above {PARETO_K_LIMIT}); use NUTS",)
