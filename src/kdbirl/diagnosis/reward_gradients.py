"""How the tasks' weights move with the reward, for reward kernels without a closed form.

The likelihood sees R only through b_k(R) - mean_l b_l(R), b_k = log K'(d(R, R_k) / h'), taken over the tasks within
reach. Its gradients at many prior draws span every direction that it can see. Two things have no gradient:

- the edge of a compact kernel: it is seen wherever it cuts the prior, so the gradients of d(R, R_k) are added there;
  for the uniform kernel they are all there is;
- a user's piecewise constant kernel, or labels: a parameter counts as seen when exchanging it alone, between prior
  draws, changes b. That is coarser: it names single parameters only.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from kdbirl.likelihood.kernels import Categorical, RadialKernel, SimpleKernel
from kdbirl.likelihood.reward_weights import log_reward_kernel
from kdbirl.precision import float64

MOST_CELLS = 4_000_000  # numbers in the stacked gradients: 32 MB
FEWEST_DRAWS = 16


class Gradients(NamedTuple):
    """Stacked gradients, `rows (s, q)`, and the size of what was subtracted from each other, for a tolerance."""

    rows: Float[np.ndarray, "s q"]
    scale: Float[np.ndarray, " q"]


def reward_gradients(
    kernel: SimpleKernel, task_rewards: Float[np.ndarray, "K q"], h_reward: float, draws: Float[np.ndarray, "p q"]
) -> Gradients:
    """Gradients of what the likelihood sees, at prior draws: as many as memory allows."""
    some = draws[: max(FEWEST_DRAWS, MOST_CELLS // max(task_rewards.size, 1))]
    b = log_reward_kernel(kernel, some, task_rewards, np.array([h_reward]))[0]
    slopes = np.nan_to_num(_slopes(kernel, some, task_rewards, h_reward), posinf=0.0, neginf=0.0)
    reached = np.isfinite(b)
    parts = [_centred(slopes, reached)]
    if isinstance(kernel, RadialKernel) and kernel.compact:
        cut = reached.any(axis=0) & ~reached.all(axis=0)
        parts.append(_distance_slopes(kernel, some, task_rewards, h_reward)[:, cut].reshape(-1, draws.shape[1]))
    elif not slopes.any() and not isinstance(kernel, Categorical):
        parts.append(_by_exchange(kernel, some, task_rewards, h_reward))
    rows = np.concatenate(parts)
    return Gradients(rows, np.sqrt(np.sum(slopes**2, axis=(0, 1)) + np.sum(rows**2, axis=0)))


def _centred(slopes: Float[np.ndarray, "p K q"], reached: np.ndarray) -> Float[np.ndarray, "rows q"]:
    """Each task's gradient minus the mean over the tasks within reach; nothing where a task is out of reach."""
    share = reached / np.maximum(reached.sum(axis=1, keepdims=True), 1)
    mean = np.einsum("pk,pkq->pq", share, slopes)
    return np.where(reached[:, :, None], slopes - mean[:, None], 0.0).reshape(-1, slopes.shape[2])


def _by_exchange(
    kernel: SimpleKernel, draws: Float[np.ndarray, "p q"], task_rewards: Float[np.ndarray, "K q"], h_reward: float
) -> Float[np.ndarray, "q q"]:
    """One row for each parameter: how much b moves when it alone is taken from another draw."""
    widths = np.array([h_reward])
    before = _levels(log_reward_kernel(kernel, draws, task_rewards, widths)[0])
    moved = np.zeros((draws.shape[1],) * 2)
    for j in range(draws.shape[1]):
        other = draws.copy()
        other[:, j] = np.roll(draws[:, j], 1)
        change = _levels(log_reward_kernel(kernel, other, task_rewards, widths)[0]) - before
        moved[j, j] = np.sqrt(np.mean(change**2)) / max(float(draws[:, j].std()), np.finfo(float).tiny)
    return moved


def _levels(b: Float[np.ndarray, "p K"]) -> Float[np.ndarray, "p K"]:
    """b minus its largest, with a floor in place of minus infinity: finite, and equal where the weights are equal."""
    largest = np.where(np.isfinite(b).any(axis=1), b.max(axis=1), 0.0)
    return np.maximum(b - largest[:, None], -50.0)


@float64
def _slopes(
    kernel: SimpleKernel, rewards: Float[np.ndarray, "p q"], task_rewards: Float[np.ndarray, "K q"], h: float
) -> Float[np.ndarray, "p K q"]:
    return np.asarray(_kernel_slopes(jnp.asarray(rewards), jnp.asarray(task_rewards), jnp.asarray(h, float), kernel))


@float64
def _distance_slopes(
    kernel: RadialKernel, rewards: Float[np.ndarray, "p q"], task_rewards: Float[np.ndarray, "K q"], h: float
) -> Float[np.ndarray, "p K q"]:
    """Gradients of d(R, R_k) / h'."""
    linear = RadialKernel("laplace", kernel.distance)  # log K = -d/h
    return -_slopes(linear, rewards, task_rewards, h)


@partial(jax.jit, static_argnames="kernel")
def _kernel_slopes(
    rewards: Float[Array, "p q"], task_rewards: Float[Array, "K q"], h: Float[Array, ""], kernel: SimpleKernel
) -> Float[Array, "p K q"]:
    of_pair = jax.vmap(jax.grad(kernel.log), (None, 0, None))
    table: Array = jax.lax.map(lambda reward: of_pair(reward, task_rewards, h), rewards)
    return table
