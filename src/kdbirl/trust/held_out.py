"""log L(R | rows of task k) with task k left out of the bank: at its own reward, and at points of the prior.

For each candidate h the kernel sums of all played rows are computed once (`ckde.tables`), never m x m; leaving task k
out masks its column. For each h' one matrix product per task, shared by its plays, gives the likelihood at every point.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, UInt64
from scipy.optimize import nnls
from scipy.spatial.distance import pdist

from kdbirl._jax import float64
from kdbirl.data.demonstrations import Demonstrations, TaskBank
from kdbirl.data.large_samples import keys
from kdbirl.errors import InputError
from kdbirl.features import FeatureMap
from kdbirl.likelihood.bandwidths import Bandwidths
from kdbirl.likelihood.ckde import CKDE, log_reward_kernel
from kdbirl.likelihood.sums import padded_size
from kdbirl.posterior.priors import Prior, prior_points
from kdbirl.progress import Progress, Silent
from kdbirl.random_streams import stream
from kdbirl.trust.calibration import FEWEST_POINTS, Calibration, calibrate_weighted

# Training tasks that play the test task: n rows of each, in whole episodes, as an expert would have shown them.

ROWS_KEPT = 200_000  # over all tasks: what is kept of a large bank to play with


@dataclass(frozen=True)
class Plays:
    """Feature rows of every task, its episodes in random order.

    rows: distinct feature rows; `index (r,)` finds row j of the plays among them; `first (K + 1,)` says where each
    task's rows begin. Episodes stay whole and in their order. A task of a single episode starts at a random row, and
    goes on from its first row after its last.
    """

    rows: Float[np.ndarray, "u d"]
    index: Int[np.ndarray, " r"]
    first: Int[np.ndarray, " tasks_and_end"]

    @classmethod
    def from_bank(cls, bank: TaskBank, features: FeatureMap, seed: int) -> "Plays":
        """Shuffle each task's episodes, and keep whole episodes up to a task's share of `ROWS_KEPT`.

        The order follows from the seed and from what is in the episodes: not from names, nor from the order of tasks
        and episodes in the bank.
        """
        key, episode = episode_keys(bank, seed), bank.episode_index
        order = np.lexsort((episode, key[episode], bank.tasks))
        share, chosen = max(ROWS_KEPT // bank.n_tasks, 1), []
        for own in np.split(order, np.cumsum(bank.rows_per_task)[:-1]):
            if episode[own[0]] == episode[own[-1]]:  # perhaps no episodes are known: neighbours stay neighbours
                own = np.roll(own, -int(key[episode[own[0]]] % np.uint64(len(own))))
            chosen.append(own[:share])
        rows, index = features.distinct(bank.demonstrations.take(np.concatenate(chosen)))
        return cls(rows, index.astype(np.int64), np.concatenate([[0], np.cumsum([len(c) for c in chosen])]))

    @property
    def sizes(self) -> Int[np.ndarray, " K"]:
        """Rows of each task."""
        return np.diff(self.first)

    def of_task(self, task: int, n: int, count: int) -> list[Int[np.ndarray, " _"]]:
        """So many plays of n rows of one task: disjoint ones, or, of too few rows, ones that begin evenly apart.

        The first row follows the last one. A play of a task with fewer rows than n has them all.
        """
        own = self.index[self.first[task] : self.first[task + 1]]
        apart, rows = min(n, len(own) / count), np.arange(min(n, len(own)))
        return [own[(int(i * apart) + rows) % len(own)] for i in range(count)]


def episode_keys(bank: TaskBank, seed: int) -> UInt64[np.ndarray, " episodes"]:
    """Hashes of each episode's rows in their order, its task's reward, and the seed.

    Rows are raw states and actions: features round differently where the tasks stand in another order.
    """
    episode = bank.episode_index
    by_episode = np.argsort(episode, kind="stable")
    starts = np.flatnonzero(np.diff(episode[by_episode], prepend=-1))
    step = np.arange(len(episode)) - np.repeat(starts, np.diff(starts, append=len(episode)))
    content = np.add.reduceat(keys(_row_keys(bank.demonstrations)[by_episode] ^ keys(step, 1)), starts)
    reward = _folded(bank.rewards.T)[bank.tasks[by_episode[starts]]]
    return keys(content ^ keys(reward, 2), seed)


def _row_keys(rows: Demonstrations) -> UInt64[np.ndarray, " rows"]:
    """A hash of each row's state and action, by their labels where they have any."""
    variables = [(rows.states, rows.state_labels)]
    if rows.actions is not None:
        variables.append((rows.actions, rows.action_labels))
    columns: list[np.ndarray] = []
    for values, labels in variables:
        if labels is None:
            columns += list(np.atleast_2d(values.T))
        else:
            digests = [int.from_bytes(sha256(label.encode(errors="surrogatepass")).digest()[:6]) for label in labels]
            columns.append(np.array(digests)[values])
    return _folded(columns)


def _folded(columns: "list[np.ndarray] | np.ndarray") -> UInt64[np.ndarray, " rows"]:
    """One hash of the numbers in each row of these columns; 1 and 1.0 are one number, and so are 0 and -0."""
    found = np.zeros(len(columns[0]), dtype=np.uint64)
    for column in columns:
        found = keys(found ^ (np.asarray(column, dtype=np.float64) + 0.0).view(np.uint64))
    return found


FEWEST_REWARDS = 3  # distinct ones: with one task left out, two must remain
POINTS = 512, 4096  # that stand for the prior at first: the fewest, where rows are many, and the usual number
MORE_POINTS = 4  # times as many at each step, where posteriors are too narrow for them
LARGEST_WORK = 1e10  # kernel-mixture terms: seconds
LARGEST_TABLE = 2**23  # numbers in a table of points and tasks: 64 MB

LARGEST_GAP = 600.0  # nats that leaving out a task may take off the largest weight: exp(-708) is still a number
MOST_FACTORS = 1000  # numbers below 2 of which the product is below 2^1000
SMALLEST = float(np.finfo(np.float64).tiny)  # what is smaller counts as zero
ZERO = 2.0**40  # minus the exponent, or logarithm, that stands for that of zero
MANTISSA, ONE = 0x000FFFFFFFFFFFFF, 0x3FF0000000000000  # of a double: the bits of its mantissa, and 1.0


class RewardKernel(NamedTuple):
    """log K' of every task, for one h'; near: leaving any of the tasks out leaves weights far from underflow."""

    at_points: Float[np.ndarray, "P K"]
    at_truths: Float[np.ndarray, "t K"]
    near: bool


@dataclass(frozen=True)
class HeldOutTasks:
    """Plays of tasks whose reward is known, each against the bank without the tasks that share its reward.

    tasks (t,), truths (t, q): the tasks and their rewards. rows (u, d): distinct played rows; index (t, w): those of
    each task; counts (t, p, w): how often each of its p plays shows them, padded with count zero. kept (t, K): the
    tasks that remain. points (P, q): the prior.
    """

    ckde: CKDE
    tasks: Int[np.ndarray, " t"]
    truths: Float[np.ndarray, "t q"]
    rows: Float[np.ndarray, "u d"]
    index: Int[np.ndarray, "t w"]
    counts: Int[np.ndarray, "t p w"]
    kept: Float[np.ndarray, "t K"]
    points: Float[np.ndarray, "P q"]

    @classmethod
    def of(
        cls,
        ckde: CKDE,
        plays: Plays,
        tasks: Int[np.ndarray, " t"],
        n: int,
        count: int,
        points: Float[np.ndarray, "P q"],
    ) -> "HeldOutTasks":
        """So many plays of n rows of each of these tasks."""
        truths = ckde.task_rewards[tasks]
        same = (truths[:, None] == ckde.task_rewards[None]).all(axis=2)
        shown = [plays.of_task(int(task), n, count) for task in tasks]
        return cls.shown(ckde, tasks, truths, plays.rows, shown, np.where(same, 0.0, 1.0), points)

    @classmethod
    def shown(
        cls,
        ckde: CKDE,
        tasks: Int[np.ndarray, " t"],
        truths: Float[np.ndarray, "t q"],
        rows: Float[np.ndarray, "r d"],
        plays: list[list[np.ndarray]],
        kept: Float[np.ndarray, "t K"],
        points: Float[np.ndarray, "P q"],
    ) -> "HeldOutTasks":
        """Any plays, equally many of each task: play j of task i shows `rows[plays[i][j]]`."""
        used = np.unique(np.concatenate([play for own in plays for play in own]))
        distinct = [np.unique(np.concatenate(own)) for own in plays]
        width = padded_size(max(map(len, distinct)))
        places, counts = (
            np.zeros(shape, dtype=np.int64) for shape in ((len(plays), width), (len(plays), len(plays[0]), width))
        )
        for task, (values, own) in enumerate(zip(distinct, plays, strict=True)):
            places[task, : len(values)] = np.searchsorted(used, values)
            for j, play in enumerate(own):
                counts[task, j] = np.bincount(np.searchsorted(values, play), minlength=width)
        return cls(ckde, tasks, truths, rows[used], places, counts, kept, points)

    def thinned(self, others: int, seed: int) -> "HeldOutTasks":
        """Each task against so many of its other tasks, drawn at random, whatever order the tasks stand in."""
        place = np.argsort(order_of_tasks(self.ckde))
        draws = np.random.default_rng(stream(seed, "other tasks")).random((self.ckde.n_tasks,) * 2)
        draws = draws[np.ix_(place[self.tasks], place)]
        order = np.argsort(np.where(self.kept > 0, draws, np.inf), axis=1)
        chosen = np.zeros_like(self.kept)
        np.put_along_axis(chosen, order[:, :others], 1.0, axis=1)
        return replace(self, kept=chosen * self.kept)

    def part(self, tasks: slice) -> "HeldOutTasks":
        """Some of the tasks, with the rows that they show."""
        used, index = np.unique(self.index[tasks], return_inverse=True)
        own = {name: getattr(self, name)[tasks] for name in ("tasks", "truths", "counts", "kept")}
        return replace(self, rows=self.rows[used], index=index.reshape(self.index[tasks].shape), **own)

    @float64
    def reward_kernels(self, h_rewards: Float[np.ndarray, " c"]) -> list[RewardKernel]:
        """For each h': log K' of the points (P, K) and of the truths (t, K) with every task."""
        kernel, rewards = self.ckde.reward_kernel, self.ckde.task_rewards
        at_points = log_reward_kernel(kernel, self.points, rewards, h_rewards)
        at_truths = log_reward_kernel(kernel, self.truths, rewards, h_rewards)
        kept = jnp.asarray(np.unique(self.kept, axis=0))
        gaps = [float(_largest_gap(jnp.asarray(b), kept)) for b in at_points]
        near = [gap < LARGEST_GAP for gap in gaps]
        return [RewardKernel(*found) for found in zip(at_points, at_truths, near, strict=True)]

    @float64
    def log_likelihoods(
        self, h: Float[np.ndarray, " parts"], reward_kernels: list[RewardKernel]
    ) -> tuple[Float[np.ndarray, "c t p P"], Float[np.ndarray, "c t p"]]:
        """For one h and every h': log L of each play at the points and at its truth."""
        tables = (jnp.asarray(table) for table in self.ckde.tables(self.rows, h))
        counts = jnp.asarray(self.counts, dtype=float)
        fixed = *tables, jnp.asarray(self.index), counts, _by_bit(self.counts), jnp.asarray(self.kept)
        results = [_all_plays(*fixed, jnp.asarray(b), jnp.asarray(own), near) for b, own, near in reward_kernels]
        return np.stack([np.asarray(at) for at, _ in results]), np.stack([np.asarray(truth) for _, truth in results])

    def calibration(self, widths: Bandwidths, power: float, names: tuple[str, ...]) -> Calibration:
        """Of the posteriors of the plays: a posterior where nothing explains the rows is the prior."""
        kernels = self.reward_kernels(np.array([widths.h_reward]))
        at_points, at_truths = (power * part[0, :, 0] for part in self.log_likelihoods(widths.h, kernels))
        explained = np.asarray(np.isfinite(at_points).any(axis=1))
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


def order_of_tasks(ckde: CKDE) -> Int[np.ndarray, " K"]:
    """The tasks in an order that does not depend on the one they stand in: by reward, and then by their rows."""
    weighted = [np.bincount(ckde.tasks, ckde.weights * column, ckde.n_tasks) for column in ckde.rows.T]
    return np.lexsort([*np.stack(weighted), ckde.rows_per_task, *ckde.task_rewards.T])


def _by_bit(counts: Int[np.ndarray, "t p w"]) -> list[tuple[Array, Array]]:
    """For each bit b, the places of the counts that have it, and which of these are not padding: both (t, p, w_b)."""
    found = []
    for bit in range(int(counts.max()).bit_length()):
        has = counts >> bit & 1 == 1
        places = np.argsort(~has, axis=2, kind="stable")[:, :, : has.sum(axis=2).max()]
        found.append((jnp.asarray(places), jnp.asarray(np.take_along_axis(has, places, axis=2))))
    return found


@partial(jax.jit, static_argnames="near")
def _all_plays(
    numerator: Float[Array, "u K"],
    denominator: Float[Array, "v K"],
    index: Int[Array, "t w"],
    counts: Float[Array, "t p w"],
    by_bit: list[tuple[Int[Array, "t p _"], Bool[Array, "t p _"]]],
    kept: Float[Array, "t K"],
    at_points: Float[Array, "P K"],
    at_truths: Float[Array, "t K"],
    near: bool,
) -> tuple[Float[Array, "t p P"], Float[Array, "t p"]]:
    by_task = at_points.T
    shared = _weights(by_task)

    def of_task(task: tuple[Array, Array, list[tuple[Array, Array]], Array, Array]) -> tuple[Array, Array]:
        rows, count, bits, keep, own = task

        def log_ratio(weights: Float[Array, "K P"], summed: Callable[..., Array]) -> Float[Array, "p P"]:
            above = summed(*_mixtures(numerator[rows], keep, weights))
            if len(denominator) == 1:  # the same for every row
                total, largest = _mixtures(denominator, keep, weights)
                below = count.sum(axis=1)[:, None] * (jnp.log(total) + largest[:, None])
            else:
                below = summed(*_mixtures(denominator[rows], keep, weights))
            inside = jnp.isfinite(above) & jnp.isfinite(below)
            return jnp.where(inside, above - jnp.where(inside, below, 0.0), -jnp.inf)

        left_out = jnp.log(keep)[:, None]  # -inf
        at_point = shared if near else _weights(by_task + left_out)
        at_truth = _weights(own[:, None] + left_out)
        return (
            log_ratio(at_point, partial(_sums_by_products, counts=count, by_bit=bits)),
            log_ratio(at_truth, partial(_sums_of_logs, counts=count))[:, 0],
        )

    points, truths = jax.lax.map(of_task, (index, counts, by_bit, kept, at_truths))
    return points, truths


def _weights(logs: Float[Array, "K P"]) -> Float[Array, "K P"]:
    largest = jnp.max(logs, axis=0, keepdims=True)
    return jnp.exp(logs - jnp.where(jnp.isfinite(largest), largest, 0.0))


@jax.jit
def _largest_gap(at_points: Float[Array, "P K"], kept: Float[Array, "t K"]) -> Float[Array, ""]:
    """The most that leaving out tasks takes off the largest log weight at a point."""
    by_task = at_points.T
    largest = jnp.max(by_task, axis=0)

    def one(keep: Float[Array, " K"]) -> Float[Array, ""]:
        left = jnp.max(by_task + jnp.log(keep)[:, None], axis=0)
        return jnp.max(largest - left, where=jnp.isfinite(left), initial=0.0)

    return jnp.max(jax.lax.map(one, kept))


def _mixtures(
    logs: Float[Array, "w K"], keep: Float[Array, " K"], weights: Float[Array, "K P"]
) -> tuple[Float[Array, "w P"], Float[Array, " w"]]:
    """sum_k exp(logs[i, k]) weights[k, p], and the logs of the scales that it is to be multiplied by."""
    masked = jnp.where(keep[None] > 0, logs, -jnp.inf)
    largest = jnp.max(masked, axis=1)
    largest = jnp.where(jnp.isfinite(largest), largest, 0.0)
    return jnp.exp(masked - largest[:, None]) @ weights, largest


def _sums_of_logs(
    numbers: Float[Array, "w P"], log_scales: Float[Array, " w"], counts: Float[Array, "p w"]
) -> Float[Array, "p P"]:
    """sum_i counts[j, i] log(scale_i numbers_i) of each play j; -inf where a number is zero."""
    positive = numbers >= SMALLEST
    logs = jnp.where(positive, jnp.log(jnp.where(positive, numbers, 1.0)), -ZERO)
    total = counts @ (logs + log_scales[:, None])
    return jnp.where(total > -ZERO / 2, total, -jnp.inf)


def _sums_by_products(
    numbers: Float[Array, "w P"],
    log_scales: Float[Array, " w"],
    counts: Float[Array, "p w"],
    by_bit: list[tuple[Int[Array, "p _"], Bool[Array, "p _"]]],
) -> Float[Array, "p P"]:
    """The same for many points, where logarithms of all numbers would cost more than all else.

    With x = m 2^e, 1 <= m < 2, exponents are added, and the mantissas of rows whose count has bit b are multiplied
    before one logarithm is taken, 2^b times.
    """
    pattern = jax.lax.bitcast_convert_type(numbers, jnp.int64)
    mantissa = jax.lax.bitcast_convert_type((pattern & MANTISSA) | ONE, numbers.dtype)
    exponent = jnp.where(numbers < SMALLEST, -ZERO, (pattern >> 52) - 1023.0)

    def log_mantissa(bits: list[tuple[Array, Array]]) -> Float[Array, " P"]:
        found = jnp.zeros(numbers.shape[1])
        for bit, (places, used) in enumerate(bits):
            for first in range(0, len(places), MOST_FACTORS):
                some = slice(first, first + MOST_FACTORS)
                factors = jnp.where(used[some, None], mantissa[places[some]], 1.0)
                found += 2.0**bit * jnp.log(jnp.prod(factors, axis=0))
        return found

    exponents = counts @ exponent
    logs = jax.lax.map(log_mantissa, by_bit) + jnp.log(2.0) * exponents + (counts @ log_scales)[:, None]
    return jnp.where(exponents > -ZERO / 2, logs, -jnp.inf)


@float64
def log_mean_and_effective(
    logs: Float[np.ndarray, "*b P"], powers: Float[np.ndarray, " c"]
) -> tuple[Float[np.ndarray, "c *b"], Float[np.ndarray, "c *b"]]:
    """log mean_P L^power, and the effective number of points (sum w)^2 / sum w^2 with w = L^power."""
    mean, effective = _log_mean_and_effective(jnp.asarray(logs), jnp.asarray(powers))
    return np.asarray(mean), np.asarray(effective)


@jax.jit
def _log_mean_and_effective(
    logs: Float[Array, "*b P"], powers: Float[Array, " c"]
) -> tuple[Float[Array, "c *b"], Float[Array, "c *b"]]:
    largest = jnp.max(logs, axis=-1, keepdims=True)
    largest = jnp.where(jnp.isfinite(largest), largest, 0.0)
    below = logs - largest

    def one(power: Float[Array, ""]) -> tuple[Array, Array]:
        weights = jnp.exp(power * below)
        total, squares = jnp.sum(weights, axis=-1), jnp.sum(weights**2, axis=-1)
        reached = total > 0
        mean = jnp.log(jnp.where(reached, total, 1.0) / logs.shape[-1]) + power * largest[..., 0]
        return jnp.where(reached, mean, -jnp.inf), jnp.where(reached, total**2 / jnp.where(reached, squares, 1.0), 0.0)

    found: tuple[Array, Array] = jax.lax.map(one, powers)
    return found


# Whether training rewards lie so far outside the others that leaving them out tests nothing but extrapolation.

FAR = 0.3  # in median distances between rewards: the least far of 8 random points in a cube is below 0.22 from the rest


def distance_to_hull(point: Float[np.ndarray, " q"], others: Float[np.ndarray, "k q"]) -> float:
    """The distance of a point to the convex hull of others: min |sum_k a_k x_k - point| with a >= 0, sum a = 1."""
    scale = max(float(np.abs(others - point).max()), np.finfo(float).tiny)
    centred = (others - point) / scale
    sum_to_one = 1e4  # the weight of that equation in the least squares
    equations = np.vstack([centred.T, np.full(len(others), sum_to_one)])
    weights, _ = nnls(equations, np.append(np.zeros(len(point)), sum_to_one))
    return float(np.linalg.norm(weights / weights.sum() @ centred)) * scale


def all_extrapolate(rewards: Float[np.ndarray, "K q"]) -> bool:
    """Whether every reward is far from the hull of the others, as with one task per corner of a box."""
    distinct = np.unique(rewards, axis=0)
    if len(distinct) < 3:
        return True
    typical = float(np.median(pdist(distinct)))
    others = (np.delete(distinct, k, axis=0) for k in range(len(distinct)))
    return all(distance_to_hull(point, rest) > FAR * typical for point, rest in zip(distinct, others, strict=True))
