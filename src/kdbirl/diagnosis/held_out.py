"""log L(R | rows of task k) with task k left out of the bank: at its own reward, and at points of the prior.

For each candidate h the kernel sums of all played rows are computed once (`ckde.tables`), never m x m; leaving task k
out masks its column. For each h' one matrix product per play gives the likelihood at every point.
"""

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from kdbirl.diagnosis.calibration import FEWEST_POINTS, Calibration, calibrate_weighted
from kdbirl.diagnosis.plays import Plays
from kdbirl.errors import InputError
from kdbirl.likelihood.bandwidths import Bandwidths
from kdbirl.likelihood.ckde import CKDE
from kdbirl.likelihood.kernel_sums import padded_size
from kdbirl.likelihood.reward_weights import log_reward_kernel
from kdbirl.posterior.prior_points import prior_points
from kdbirl.posterior.priors import Prior
from kdbirl.precision import float64
from kdbirl.progress import Progress, Silent
from kdbirl.random_streams import stream

FEWEST_REWARDS = 3  # distinct ones: with one task left out, two must remain
POINTS = 512, 4096  # that stand for the prior at first: the fewest, where rows are many, and the usual number
MORE_POINTS = 4  # times as many at each step, where posteriors are too narrow for them
LARGEST_WORK = 1e10  # kernel-mixture terms: seconds
LARGEST_TABLE = 2**23  # numbers in a table of points and tasks: 64 MB


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

    def calibration(self, widths: Bandwidths, power: float, names: tuple[str, ...]) -> Calibration:
        """Of the posteriors of the plays: a posterior where nothing explains the rows is the prior."""
        kernels = self.reward_kernels(np.array([widths.h_reward]))
        at_points, at_truths = (power * part[0] for part in self.log_likelihoods(widths.h, kernels))
        explained = np.isfinite(at_points).any(axis=1)
        logs, own = np.where(explained[:, None], at_points, 0.0), np.where(explained, at_truths, 0.0)
        even = np.zeros(len(self.points))
        return calibrate_weighted(self.truths, self.points, logs, even, names, log_weights_of_truths=own)


def calibrate_held_out(
    ckde: CKDE,
    plays: Plays,
    prior: Prior,
    widths: Bandwidths,
    power: float,
    n: int,
    names: tuple[str, ...],
    progress: Progress | None = None,
) -> Calibration:
    """Calibration of given bandwidths and power: each training task plays once, with n rows (or a typical task's).

    Narrow posteriors fall between the points that stand for the prior: ever more are taken, until nine tasks of ten
    have enough of them or the work is too large. The truth is one more point (`WeightedDraws.ranks`): posteriors that
    stay too narrow are judged fairly, too.
    """
    if len(np.unique(ckde.task_rewards, axis=0)) < FEWEST_REWARDS:
        raise InputError("Calibration leaves out one training task in turn, and needs at least three of them.")
    tasks = np.flatnonzero(prior.contains(ckde.task_rewards))
    played = int(min(n, np.median(plays.sizes[tasks])))
    work = len(tasks) * played * ckde.n_tasks
    largest = min(LARGEST_WORK / work, LARGEST_TABLE / ckde.n_tasks)
    count = int(np.clip(largest, *POINTS))
    while True:
        (progress or Silent()).update("calibrate", 0, 1, f"{count} points")
        held_out = HeldOutTasks.of(ckde, plays, tasks, played, 1, prior_points(prior, count))
        found = held_out.calibration(widths, power, names)
        if found.effective_draws >= FEWEST_POINTS or count * MORE_POINTS > largest:
            return found
        count *= MORE_POINTS


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
