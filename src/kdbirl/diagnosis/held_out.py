"""log L(R | rows of task k) with task k left out of the bank: at its own reward, and at points of the prior.

For each candidate h the kernel sums of all played rows are computed once (`ckde.tables`), never m x m; leaving task k
out masks its column. For each h' one matrix product per play gives the likelihood at every point.
"""

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from kdbirl.diagnosis.plays import Plays
from kdbirl.likelihood.ckde import CKDE
from kdbirl.likelihood.kernel_sums import padded_size
from kdbirl.likelihood.reward_weights import log_reward_kernel
from kdbirl.precision import float64
from kdbirl.random_streams import stream


@dataclass(frozen=True)
class HeldOutTasks:
    """Plays of tasks whose reward is known, each against the bank without the tasks that share its reward.

    tasks (p,): the task of each play; truths (p, q): its reward. rows (u, d): distinct played rows; index (p, w),
    counts (p, w): which of them a play shows and how often, padded with count zero. kept (p, K): the tasks that
    remain. points (P, q): the prior.
    """

    ckde: CKDE
    tasks: Int[np.ndarray, " p"]
    truths: Float[np.ndarray, "p q"]
    rows: Float[np.ndarray, "u d"]
    index: Int[np.ndarray, "p w"]
    counts: Float[np.ndarray, "p w"]
    kept: Float[np.ndarray, "p K"]
    points: Float[np.ndarray, "P q"]

    @classmethod
    def of(
        cls,
        ckde: CKDE,
        plays: Plays,
        tasks: Int[np.ndarray, " t"],
        n: int,
        most_plays: int,
        points: Float[np.ndarray, "P q"],
    ) -> "HeldOutTasks":
        """Plays of n rows of each of these tasks."""
        chosen = [(task, play) for task in tasks for play in plays.of_task(int(task), n, most_plays)]
        of_play = np.array([task for task, _ in chosen], dtype=np.int64)
        truths = ckde.task_rewards[of_play]
        same = (truths[:, None] == ckde.task_rewards[None]).all(axis=2)
        return cls.shown(
            ckde, of_play, truths, plays.rows, [play for _, play in chosen], np.where(same, 0.0, 1.0), points
        )

    @classmethod
    def shown(
        cls,
        ckde: CKDE,
        tasks: Int[np.ndarray, " p"],
        truths: Float[np.ndarray, "p q"],
        rows: Float[np.ndarray, "r d"],
        plays: list[np.ndarray],
        kept: Float[np.ndarray, "p K"],
        points: Float[np.ndarray, "P q"],
    ) -> "HeldOutTasks":
        """Any plays: play i shows `rows[plays[i]]`, its reward is `truths[i]`."""
        used, index = np.unique(np.concatenate(plays), return_inverse=True)
        ends = np.cumsum([len(play) for play in plays])
        collapsed = [np.unique(part, return_counts=True) for part in np.split(index, ends[:-1])]
        width = padded_size(max(len(values) for values, _ in collapsed))
        places = np.stack([_filled(values, width) for values, _ in collapsed]).astype(np.int64)
        counts = np.stack([_filled(count, width) for _, count in collapsed]).astype(np.float64)
        return cls(ckde, tasks, truths, rows[used], places, counts, kept, points)

    def thinned(self, others: int, seed: int) -> "HeldOutTasks":
        """Each play against so many of its other tasks, drawn at random."""
        rng = np.random.default_rng(stream(seed, "other tasks"))
        order = np.argsort(np.where(self.kept > 0, rng.random(self.kept.shape), np.inf), axis=1)
        chosen = np.zeros_like(self.kept)
        np.put_along_axis(chosen, order[:, :others], 1.0, axis=1)
        return replace(self, kept=chosen * self.kept)

    def part(self, plays: slice) -> "HeldOutTasks":
        """Some of the plays, with the rows that they show."""
        used, index = np.unique(self.index[plays], return_inverse=True)
        own = {name: getattr(self, name)[plays] for name in ("tasks", "truths", "counts", "kept")}
        return replace(self, rows=self.rows[used], index=index.reshape(self.index[plays].shape), **own)

    def reward_kernels(self, h_rewards: Float[np.ndarray, " c"]) -> list[tuple[np.ndarray, np.ndarray]]:
        """For each h': log K' of the points (P, K) and of the truths (p, K) with every task."""
        kernel, rewards = self.ckde.reward_kernel, self.ckde.task_rewards
        at_points = log_reward_kernel(kernel, self.points, rewards, h_rewards)
        at_truths = log_reward_kernel(kernel, self.truths, rewards, h_rewards)
        return list(zip(at_points, at_truths, strict=True))

    @float64
    def log_likelihoods(
        self, h: Float[np.ndarray, " parts"], reward_kernels: list[tuple[np.ndarray, np.ndarray]]
    ) -> tuple[Float[np.ndarray, "c p P"], Float[np.ndarray, "c p"]]:
        """For one h and every h': log L of each play at the points and at its truth."""
        numerator, denominator = (jnp.asarray(table) for table in self.ckde.tables(self.rows, h))
        fixed = numerator, denominator, jnp.asarray(self.index), jnp.asarray(self.counts), jnp.asarray(self.kept)
        results = [_all_plays(*fixed, jnp.asarray(b), jnp.asarray(own)) for b, own in reward_kernels]
        return np.stack([np.asarray(at) for at, _ in results]), np.stack([np.asarray(truth) for _, truth in results])


def _filled(values: np.ndarray, width: int) -> np.ndarray:
    return np.concatenate([values, np.zeros(width - len(values), values.dtype)])


@jax.jit
def _all_plays(
    numerator: Float[Array, "u K"],
    denominator: Float[Array, "v K"],
    index: Int[Array, "p w"],
    counts: Float[Array, "p w"],
    kept: Float[Array, "p K"],
    at_points: Float[Array, "P K"],
    at_truths: Float[Array, "p K"],
) -> tuple[Float[Array, "p P"], Float[Array, " p"]]:
    shared = denominator.shape[0] == 1

    def one(play: tuple[Array, Array, Array, Array]) -> tuple[Array, Array]:
        rows, count, keep, own = play
        rewards = jnp.concatenate([at_points, own[None]]) + jnp.log(keep)[None]  # a task left out has log weight -inf
        scale = jnp.max(rewards, axis=1, keepdims=True)
        weights = jnp.exp(rewards - jnp.where(jnp.isfinite(scale), scale, 0.0)).T
        above = count @ _log_mixture(numerator[rows], keep, weights, count)
        bottom, weight = (denominator, jnp.sum(count)[None]) if shared else (denominator[rows], count)
        below = weight @ _log_mixture(bottom, keep, weights, weight)
        inside = jnp.isfinite(above) & jnp.isfinite(below)
        logs = jnp.where(inside, above - jnp.where(inside, below, 0.0), -jnp.inf)
        return logs[:-1], logs[-1]

    points, truths = jax.lax.map(one, (index, counts, kept, at_truths))
    return points, truths


def _log_mixture(
    logs: Float[Array, "w K"], keep: Float[Array, " K"], weights: Float[Array, "K P"], count: Float[Array, " w"]
) -> Float[Array, "w P"]:
    """log sum_k exp(logs[i, k]) weights[k, p]; -inf where the sum is zero, 0 for padding (0 * -inf would be NaN)."""
    masked = jnp.where(keep[None] > 0, logs, -jnp.inf)
    largest = jnp.max(masked, axis=1, keepdims=True)
    largest = jnp.where(jnp.isfinite(largest), largest, 0.0)
    total = jnp.exp(masked - largest) @ weights
    positive = total > 0
    result = jnp.where(positive, jnp.log(jnp.where(positive, total, 1.0)) + largest, -jnp.inf)
    return jnp.where(count[:, None] > 0, result, 0.0)


@float64
def log_mean_and_effective(
    logs: Float[np.ndarray, "b p P"], power: float
) -> tuple[Float[np.ndarray, "b p"], Float[np.ndarray, "b p"]]:
    """log mean_P L^power, and the effective number of points (sum w)^2 / sum w^2 with w = L^power."""
    mean, effective = _log_mean_and_effective(jnp.asarray(logs), jnp.asarray(power))
    return np.asarray(mean), np.asarray(effective)


@jax.jit
def _log_mean_and_effective(
    logs: Float[Array, "b p P"], power: Float[Array, ""]
) -> tuple[Float[Array, "b p"], Float[Array, "b p"]]:
    largest = jnp.max(logs, axis=-1, keepdims=True)
    largest = jnp.where(jnp.isfinite(largest), largest, 0.0)
    weights = jnp.exp(power * (logs - largest))
    total, squares = jnp.sum(weights, axis=-1), jnp.sum(weights**2, axis=-1)
    reached = total > 0
    mean = jnp.log(jnp.where(reached, total, 1.0) / logs.shape[-1]) + power * largest[..., 0]
    return jnp.where(reached, mean, -jnp.inf), jnp.where(reached, total**2 / jnp.where(reached, squares, 1.0), 0.0)
