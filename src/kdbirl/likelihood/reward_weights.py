"""log K'(R, R_k) for many rewards at once."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from kdbirl.likelihood.kernels import SimpleKernel
from kdbirl.precision import float64


@float64
def log_reward_kernel(
    kernel: SimpleKernel, rewards: Float[np.ndarray, "r q"], task_rewards: Float[np.ndarray, "K q"], h: np.ndarray
) -> Float[np.ndarray, "candidates r K"]:
    """log K'(R, R_k) for each bandwidth, reward and task."""
    return np.asarray(_table(jnp.asarray(rewards), jnp.asarray(task_rewards), jnp.asarray(h), kernel))


@partial(jax.jit, static_argnames="kernel")
def _table(
    rewards: Float[Array, "r q"], task_rewards: Float[Array, "K q"], h: Float[Array, " c"], kernel: SimpleKernel
) -> Float[Array, "c r K"]:
    of_pair = jax.vmap(jax.vmap(kernel.log, (None, 0, None)), (0, None, None))
    table: Array = jax.lax.map(lambda width: of_pair(rewards, task_rewards, width), h)
    return table
