"""One sampler on many data sets of one model: rewards from the prior, data from each, and thinned posterior draws.

Markov chains run all data sets at once, one chain each, in the package's own compiled block under `vmap`; a test
compares that with `sample`. Independence has `sample_many`; the other samplers go from one data set to the next.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from kdbirl._jax import float64
from kdbirl.posterior import mcmc
from kdbirl.posterior.independence import Independence
from kdbirl.posterior.mcmc import Chain
from kdbirl.posterior.target import Sampler, Starts, Target, starting_points
from kdbirl.progress import Silent

from .generative import EXPERT_ROWS, Model


def _as_it_is(target: Target) -> Target:
    return target


@dataclass(frozen=True, eq=False)
class Replicates:
    """Rewards (T, q) from the prior, and the targets of data drawn from each: their arrays, below each other.

    `believed` is what a sampler is given instead of the true target: itself, unless a test wants a wrong one.
    """

    model: Model
    truths: np.ndarray
    arrays: tuple[jax.Array, ...]
    form: Any
    believed: Callable[[Target], Target] = _as_it_is

    @classmethod
    @float64
    def of(cls, model: Model, count: int, seed: int) -> "Replicates":
        """Draw them."""
        truths = model.prior.sample(np.random.default_rng(seed), count)
        keys = jax.random.split(jax.random.key(seed), count)

        def arrays(key: jax.Array, truth: jax.Array) -> tuple[jax.Array, ...]:
            return tuple(jax.tree.leaves(model.target(model.simulated(key, truth))))

        form = jax.tree.structure(model.target(np.zeros((EXPERT_ROWS, model.rows.shape[1]))))
        return cls(model, truths, jax.jit(jax.vmap(arrays))(keys, truths), form)

    def first(self, count: int) -> "Replicates":
        """Only so many of them."""
        return replace(self, truths=self.truths[:count], arrays=tuple(part[:count] for part in self.arrays))

    def target(self, arrays: tuple[Any, ...]) -> Target:
        """What a sampler is given for one data set."""
        return self.believed(jax.tree.unflatten(self.form, arrays))

    @float64
    def each(self) -> list[Target]:
        """The targets one by one."""
        arrays = [np.asarray(part) for part in self.arrays]
        return [self.target(tuple(jnp.asarray(part[t]) for part in arrays)) for t in range(len(self.truths))]

    @float64
    def log_likelihoods(self, draws: np.ndarray) -> np.ndarray:
        """log p(x_t | R) of draws (T, L, q) by the true model, whatever the sampler believed."""

        def of_one(arrays: tuple[jax.Array, ...], own: jax.Array) -> jax.Array:
            true: Target = jax.tree.unflatten(self.form, arrays)
            return jax.vmap(true.likelihood)(own)

        return np.asarray(jax.jit(jax.vmap(of_one))(self.arrays, jnp.asarray(draws)))


def posterior_draws(sampler: Sampler, replicates: Replicates) -> np.ndarray:
    """Draws (T, L, q) of a sampler that is set up for one chain; the seed of data set t is t."""
    if isinstance(sampler, Chain):
        return chains_together(sampler, replicates)
    model, targets = replicates.model, replicates.each()
    if isinstance(sampler, Independence):
        generators = [np.random.default_rng(t) for t in range(len(targets))]
        return np.stack([found.draws[0] for found in sampler.sample_many(targets, model.prior, generators)])
    drawn = (sampler.sample(model.problem(target), t, Silent()) for t, target in enumerate(targets))
    return np.stack([found.draws[0] for found in drawn])


@float64
def chains_together(sampler: Chain, replicates: Replicates) -> np.ndarray:
    """What `run_chains` does, for one chain on each data set."""
    prior, count = replicates.model.prior, len(replicates.truths)
    found = [starting_points(own, prior, 1, t, sampler.needs_gradient) for t, own in enumerate(replicates.each())]
    starts = Starts(*(np.stack(parts) for parts in zip(*found, strict=True)))
    beginning = mcmc._first_adaptation(sampler, replicates.truths.shape[1])
    state, adaptation = sampler.start(starts), jax.tree.map(lambda part: np.repeat(part[None], count, 0), beginning)
    keys = jnp.stack([mcmc.chain_keys(t, [0]) for t in range(count)])
    kernel = replace(sampler, warmup=0, draws=1, thin=1)  # type: ignore[type-var]

    @jax.jit
    @partial(jax.vmap, in_axes=(0, 0, 0, 0, None))
    def block(arrays: Any, state: Any, adaptation: Any, key: jax.Array, part: Any) -> Any:
        return mcmc._block(kernel, replicates.target(arrays), state, adaptation, key, *part)

    schedule = mcmc._Schedule.build(sampler.warmup, sampler.draws, sampler.thin)
    rewards = []
    for first in range(0, len(schedule.iterations), mcmc.BLOCK):
        part = tuple(column[first : first + mcmc.BLOCK] for column in schedule)
        state, adaptation, drawn, _ = block(replicates.arrays, state, adaptation, keys, part)
        rewards.append(np.asarray(drawn)[:, :, 0])
    kept = np.concatenate(rewards, axis=1)[:, sampler.warmup : sampler.warmup + sampler.draws * sampler.thin]
    return kept[:, sampler.thin - 1 :: sampler.thin]
