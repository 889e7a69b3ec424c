"""Values by simulation, for worlds that have no table: the same random numbers for every policy.

The difference of two policies' returns over the *same* episodes (common random numbers) has far less noise than the
difference of two separate estimates, and is zero where they act alike. It may come out slightly negative.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from kdbirl.envs.simulator import Simulator
from kdbirl.errors import InputError
from kdbirl.precision import float64

Act = Callable[[Float[Array, "n d"]], Int[Array, " n"]]  # observations of all episodes -> their actions, in jax.numpy


class _Walk(NamedTuple):
    """Where all episodes are, and what they have collected."""

    state: Any
    observation: Float[Array, "n d"]
    running: Bool[Array, " n"]
    weight: Float[Array, ""]
    collected: Float[Array, "n q"]


@float64
def collected_features(
    simulator: Simulator, policy: Any, episodes: int, horizon: int | None, seed: int
) -> Float[np.ndarray, "episodes q"]:
    """The discounted sum of phi(s, a) of each episode; episode i has the same random numbers whatever the policy."""
    steps = _steps(simulator, horizon)
    walk = _walked(simulator, policy, jax.random.key(seed), episodes, steps)
    return np.asarray(walk, dtype=np.float64)


def _steps(simulator: Simulator, horizon: int | None) -> int:
    known = [steps for steps in (horizon, simulator.horizon) if steps is not None]
    if not known:
        raise InputError("horizon: this simulator has no horizon of its own, so say how long episodes may be.")
    return min(known)


@partial(jax.jit, static_argnames=("simulator", "policy", "episodes", "steps"))
def _walked(simulator: Any, policy: Any, key: Array, episodes: int, steps: int) -> Float[Array, "episodes q"]:
    start, *later = jax.random.split(key, steps + 1)
    state, observation = simulator.reset(start, episodes)
    q = len(simulator.feature_names)
    first = _Walk(state, observation, jnp.ones(episodes, bool), jnp.ones(()), jnp.zeros((episodes, q)))

    def step(walk: _Walk, step_key: Array) -> tuple[_Walk, None]:
        outcome = simulator.step(walk.state, policy(walk.observation), step_key)
        earned = jnp.where(walk.running[:, None], walk.weight * outcome.features, 0.0)
        running = walk.running & ~(outcome.terminated | outcome.truncated)
        weight = walk.weight * simulator.discount
        return _Walk(outcome.state, outcome.observation, running, weight, walk.collected + earned), None

    return jax.lax.scan(step, first, jnp.stack(later))[0].collected
