"""Geweke's joint test (2004, JASA 99:799) of the Markov kernels, with what is learnt in warm-up held fixed.

Two ways to simulate (R, x): R ~ prior and x ~ p(x | R), or in turn x ~ p(x | R) and R by some steps of a kernel that
leaves p(R | x) as it is. If the kernel does, both have the same moments; and an error too small to see in one posterior
adds up, because R and x keep moving together. No kernel has to converge.

Many joint chains run side by side, each from a joint draw. A moment's standard error is the spread of the chains' own
averages, so autocorrelation within a chain is in it whatever its form. The largest |z| of all moments is compared
with the normal quantile that a right kernel exceeds in one comparison of 10,000 (Bonferroni); the seeds are fixed.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from blackjax.mcmc import random_walk
from scipy import stats

from kdbirl._jax import float64
from kdbirl.posterior import mcmc, smc
from kdbirl.posterior.mcmc import HMC, NUTS, Adaptation, Chain, Metropolis
from kdbirl.posterior.target import Starts, Target

from .generative import EXPERT_ROWS, MODELS, Model

FALSE_FAILURES = 1e-4
STEPS = 3  # of the kernel between two data sets

Kernel = Callable[[jax.Array, jax.Array, Target], jax.Array]  # key, z, target -> z


def of_chain(sampler: Chain, step_size: float) -> Kernel:
    """Transitions of a chain sampler, as the driver calls them."""

    def kernel(key: jax.Array, z: jax.Array, target: Target) -> jax.Array:
        first = mcmc._unadapted(replace(sampler, chains=1), z.shape[0])  # type: ignore[type-var]
        adaptation = first._replace(step_size=jnp.asarray(step_size, float))
        state = sampler.start(Starts(z, *jax.value_and_grad(target.on_whole_space)(z)))
        for step in jax.random.split(key, STEPS):
            state, _ = sampler.transition(step, state, target, adaptation)
        position: jax.Array = state.position
        return position

    return kernel


def of_particles(inner: str, scale: float) -> Kernel:
    """The moves of SMC's particles at the last temperature."""

    def kernel(key: jax.Array, z: jax.Array, target: Target) -> jax.Array:
        one, shape = jnp.asarray(1.0, float), 0.8 * jnp.eye(len(z))
        arguments = (key[None], jnp.asarray(0), target, z[None], one, shape, scale * one, inner, STEPS, 1)
        return smc._swept(*arguments)[0][0]

    return kernel


@dataclass(frozen=True)
class Drifting(Metropolis):
    """Wrong on purpose: a proposal that leans to one side, accepted as if it did not."""

    def transition(self, key: jax.Array, state: Any, target: Target, adaptation: Adaptation) -> tuple[Any, Any]:
        def random_step(step_key: jax.Array, position: jax.Array) -> jax.Array:
            return adaptation.step_size * (0.3 + jax.random.normal(step_key, position.shape, position.dtype))

        return random_walk.build_additive_step()(key, state, target.on_whole_space, random_step)


def moments(reward: jax.Array, rows: jax.Array, target: Target) -> jax.Array:
    """Functions of (R, x): R, its products, the mean row and its squares, log p(x | R)."""
    products = (reward[:, None] * reward[None])[np.triu_indices(len(reward))]
    seen = jnp.concatenate([rows.mean(axis=0), (rows**2).mean(axis=0)])
    return jnp.concatenate([reward, products, seen, target.likelihood(reward)[None]])


@float64
def z_scores(model: Model, kernel: Kernel, chains: int, rounds: int, wrong: Any = None) -> np.ndarray:
    """How far the moments of the two simulators are apart, in standard errors."""
    rng, empty = np.random.default_rng(0), model.target(np.zeros((EXPERT_ROWS, model.rows.shape[1])))

    def drawn(key: jax.Array, reward: jax.Array) -> jax.Array:
        rows = model.simulated(key, reward)
        return moments(reward, rows, model.target(rows))

    def joint(key: jax.Array, reward: jax.Array) -> jax.Array:
        def turn(z: jax.Array, key: jax.Array) -> tuple[jax.Array, jax.Array]:
            data_key, step_key = jax.random.split(key)
            reward = empty.constrain(z)[0]
            rows = model.simulated(data_key, reward)
            target = model.target(rows)
            return kernel(step_key, z, wrong(target) if wrong else target), moments(reward, rows, target)

        start = empty.unconstrain(reward)
        return jnp.mean(jax.lax.scan(turn, start, jax.random.split(key, rounds))[1][rounds // 2 :], axis=0)

    found = []
    for simulator, count, seed in ((drawn, 20 * chains, 0), (joint, chains, 1)):
        keys = jax.random.split(jax.random.key(seed), count)
        values = np.asarray(jax.jit(jax.vmap(simulator))(keys, model.prior.sample(rng, count)))
        found.append((values.mean(axis=0), values.var(axis=0, ddof=1) / count))
    (expected, error), (mean, spread) = found
    return np.asarray((mean - expected) / np.sqrt(error + spread))


def blamed(scores: np.ndarray) -> bool:
    """Whether a right kernel would do so in fewer than one comparison of 10,000."""
    return bool(np.abs(scores).max() > stats.norm.isf(FALSE_FAILURES / 2 / len(scores)))


KERNELS: dict[str, Kernel] = {
    "nuts": of_chain(NUTS(max_depth=5), 0.7),
    "hmc": of_chain(HMC(steps=5), 0.5),
    "metropolis": of_chain(Metropolis(), 1.0),
    "smc": of_particles("random-walk", 1.0),
    "smc by gradients": of_particles("hmc", 0.8),
}


@pytest.mark.parametrize("kernel", ["hmc", "metropolis", "smc"])
def test_both_simulators_agree(kernel: str) -> None:
    scores = z_scores(MODELS["mixed"](), KERNELS[kernel], chains=256, rounds=100)
    assert not blamed(scores), np.round(scores, 2)


@pytest.mark.long
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("kernel", KERNELS)
def test_both_simulators_agree_for_long(kernel: str, model: str) -> None:
    scores = z_scores(MODELS[model](), KERNELS[kernel], chains=1024, rounds=1000)
    print(f"{kernel} on {model}: largest |z| {np.abs(scores).max():.2f} of {len(scores)}")
    assert not blamed(scores), np.round(scores, 2)


def too_sure(target: Target) -> Target:
    """The likelihood counted twice. At this size 1.5 times is just not seen: |z| 4.37, the limit is 4.42."""
    return replace(target, power=2.0 * target.power)


@pytest.mark.parametrize(
    ("kernel", "wrong"),
    [(of_chain(Drifting(), 1.0), None), (KERNELS["metropolis"], too_sure)],
    ids=["kernel", "target"],
)
def test_the_judge_blames_a_wrong_kernel_and_a_wrong_target(kernel: Kernel, wrong: Any) -> None:
    assert blamed(z_scores(MODELS["mixed"](), kernel, chains=256, rounds=100, wrong=wrong))
