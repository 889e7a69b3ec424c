"""Which further training task would add most: a reward inside the prior's support.

While some directions keep the prior, the task that opens the strongest new one: with z = V (R - mean of the tasks'
rewards), V the uninformed directions and C the prior's covariance, a task at R informs V'z with a strength proportional
to sqrt(z' V C V' z). Once all directions are informed, the task that fills the largest gap: the one that most reduces
the mean distance from a prior draw to the nearest task, in units of h'.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from kdbirl._jax import float64
from kdbirl.likelihood.ckde import log_reward_kernel
from kdbirl.likelihood.distances import Distance
from kdbirl.likelihood.kernels import Categorical, RadialKernel, SimpleKernel
from kdbirl.posterior.priors import Prior
from kdbirl.trust.directions import axis_in_words, reward_in_words

USUAL = 0.9  # candidates are the more usual nine tenths of the prior's draws: no task at the end of a long tail
MOST_CANDIDATES = 512


@dataclass(frozen=True, eq=False)
class NextTask:
    """`reward (q,)` of the suggested task; `direction (q,)`, the new one that it informs (None: all are already).

    gain: for a new direction, the task's distance along it in prior standard deviations; otherwise the mean distance
    from a prior draw to the nearest task, in units of h', that it saves.
    """

    reward: Float[np.ndarray, " q"]
    direction: Float[np.ndarray, " q"] | None
    gain: float
    sentence: str

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        direction = None if self.direction is None else self.direction.tolist()
        return {"reward": self.reward.tolist(), "direction": direction, "gain": self.gain, "sentence": self.sentence}


def suggest_task(
    task_rewards: Float[np.ndarray, "K q"],
    uninformed: Float[np.ndarray, "u q"],
    prior: Prior,
    prior_draws: Float[np.ndarray, "p q"],
    distance: Distance,
    h_reward: float,
    names: Sequence[str],
) -> NextTask:
    """The best of the prior's usual draws."""
    candidates = _usual(prior_draws)
    if len(uninformed):
        return _new_direction(task_rewards, uninformed, prior, candidates, prior_draws, names)
    return _largest_gap(task_rewards, prior, candidates, prior_draws, distance, h_reward, names)


def _usual(draws: Float[np.ndarray, "p q"]) -> Float[np.ndarray, "c q"]:
    spread = np.maximum(draws.std(axis=0), np.finfo(float).tiny)
    unusual = np.sum(((draws - draws.mean(axis=0)) / spread) ** 2, axis=1)
    return draws[unusual <= np.quantile(unusual, USUAL)][:MOST_CANDIDATES]


def _new_direction(
    task_rewards: np.ndarray,
    uninformed: np.ndarray,
    prior: Prior,
    candidates: np.ndarray,
    draws: np.ndarray,
    names: Sequence[str],
) -> NextTask:
    z = (candidates - task_rewards.mean(axis=0)) @ uninformed.T
    covariance = np.atleast_2d(np.cov(draws @ uninformed.T, rowvar=False))
    best = int(np.einsum("ci,ij,cj->c", z, covariance, z).argmax())
    reward = _rounded(candidates[best], prior)
    offset = (reward - task_rewards.mean(axis=0)) @ uninformed.T @ uninformed
    size = float(np.linalg.norm(offset))
    # a prior without spread there, or a task at its centre: no better than any other direction
    direction = offset / size if size > 0 else uninformed[0]
    spread = float((draws @ direction).std())
    left = len(uninformed) - 1
    rest = "every direction would then be informed" if not left else f"{left} would still keep the prior"
    sentence = (
        f"A training task with the reward {reward_in_words(reward, names)} would inform one direction more, "
        f"{axis_in_words(direction, names)}; {rest}."
    )
    return NextTask(reward, direction, size / spread if spread > 0 else 0.0, sentence)


def _largest_gap(
    task_rewards: np.ndarray,
    prior: Prior,
    candidates: np.ndarray,
    draws: np.ndarray,
    distance: Distance,
    h_reward: float,
    names: Sequence[str],
) -> NextTask:
    nearest = distances(draws, task_rewards, distance).min(axis=1)
    left = np.minimum(nearest[:, None], distances(draws, candidates, distance)).mean(axis=0)
    reward = _rounded(candidates[int(left.argmin())], prior)
    before, after = float(nearest.mean()) / h_reward, float(left.min()) / h_reward
    sentence = (
        f"A training task with the reward {reward_in_words(reward, names)} would fill the largest gap: a draw from the "
        f"prior is on average {before:.2g} h' from the nearest task, and would be {after:.2g} h'."
    )
    return NextTask(reward, None, before - after, sentence)


def _rounded(reward: Float[np.ndarray, " q"], prior: Prior) -> Float[np.ndarray, " q"]:
    """Three digits are enough for a suggestion, as long as they stay inside the support."""
    shorter = np.array([float(f"{value:.3g}") for value in reward])
    return shorter if prior.contains(shorter[None]).all() else reward.copy()


@float64
def distances(
    first: Float[np.ndarray, "r q"], second: Float[np.ndarray, "c q"], distance: Distance
) -> Float[np.ndarray, "r c"]:
    """d(x, y) of every pair."""
    return np.asarray(_table(jnp.asarray(first), jnp.asarray(second), distance))


@partial(jax.jit, static_argnames="distance")
def _table(first: Float[Array, "r q"], second: Float[Array, "c q"], distance: Distance) -> Float[Array, "r c"]:
    table: Array = jax.lax.map(lambda x: jax.vmap(distance, (None, 0))(x, second), first)
    return table


# How the tasks' weights move with the reward, for reward kernels without a closed form.
#
# The likelihood sees R only through b_k(R) - mean_l b_l(R), b_k = log K'(d(R, R_k) / h'), taken over the tasks within
# reach. Its gradients at many prior draws span every direction that it can see. Two things have no gradient:
#
# - the edge of a compact kernel: it is seen wherever it cuts the prior, so the gradients of d(R, R_k) are added there;
#   for the uniform kernel they are all there is;
# - a user's piecewise constant kernel, or labels: a parameter counts as seen when exchanging it alone, between prior
#   draws, changes b. That is coarser: it names single parameters only.

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
