"""Are the expert's rows unusual? Training tasks that play the expert say what is usual.

Each training task in turn shows as many rows as the expert, in whole episodes, and is compared with the other tasks.
Two numbers describe a player whose rows are x_1 ... x_n:

    misfit  = -max_k mean_i log p_h(x_i | task k)      how badly the training task that explains the rows best does so
    scatter = -mean_i log p_h(x_i | the other rows)    how varied the rows are: an agent with no aim goes everywhere

with p_h the density of the model's own kernel and h, plus `FLOOR` of a row everywhere. Nothing else is asked of the
features: units, codings and repeated columns that leave K_h(x_i, x_j) as it is change nothing.

If the new task is exchangeable with the training tasks, its numbers are exchangeable with theirs, however the rows of
an episode depend on each other. Each player's numbers are held against all others' by a one-sided t-test; the smaller
p-value is doubled (Bonferroni). If the expert's is the smallest of the K + 1, it counts, but as 1 / (K + 1) at most;
otherwise the p-value is the expert's rank over K + 1. So from 19 tasks on, false alarms at the 5 % line are at most 5 %
by exchangeability alone. (The expert meets one task more than a player does, which makes them rarer.) With fewer tasks,
where no rank reaches 5 %, the line rests on the t-test, and 1 / (K + 1) bounds false alarms. With fewer than
`FEWEST_TASKS` nothing is said.

The same with a player's own task, its other rows, among those that it is compared with answers another question: does
any *training* task behave like the expert? A new task may be exchangeable with tasks none of which behaves like it.

Tried with 20 to 40 banks of six kinds, K = 8 to 16: energy and MMD distances to the predicted rows, to the nearest task
or to the best mixture of tasks found 0 to 40 % of agents that act at random in a grid, where these two numbers find 80
to 100 %. Adding scatter - misfit, two-sided tests, Hotelling's T2 or more plays of each task won nothing overall.

What they cannot find: an agent that some reward explains (random actions, where R = 0 means just that), and one whose
order of rows is odd but not where they lie. Power falls where h is wide and features leave the action out.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int
from scipy.stats import t as student

from kdbirl._jax import float64
from kdbirl.likelihood.kernels import PairKernel
from kdbirl.likelihood.sums import collapse_by_task, task_log_sums
from kdbirl.random_streams import stream
from kdbirl.trust.held_out import Plays

UNUSUAL = 0.05  # the share of well-specified experts that are called unusual
FEWEST_TASKS = 5  # with distinct rewards
FLOOR = 0.1  # of a row: keeps the log density of a row that nobody is near finite, and far rows from deciding alone
MOST_PLAYERS = 100  # training tasks that play the expert
MOST_PAIRS, FEWEST_ROWS = 400_000_000, 20  # kernel evaluations; rows that are played even if they cost more


@dataclass(frozen=True, eq=False)
class Unusual:
    """The expert's rows held against those of training tasks that play the expert.

    misfit, scatter: of the expert; players `(K, 2)`: the same of each player. p_value: whether a task of the bank's
    kind would be as unusual. seen_p_value: whether a training task's own rows would fit the bank as badly; None where
    too few tasks have rows to spare. rows: that each player shows.
    """

    misfit: float
    scatter: float
    players: Float[np.ndarray, "players 2"]
    p_value: float
    seen_p_value: float | None
    rows: int


def how_unusual(
    plays: Plays,
    task_rewards: Float[np.ndarray, "K q"],
    kernel: PairKernel,
    h: Float[np.ndarray, " parts"],
    expert: Float[np.ndarray, "n d"],
    seed: int = 0,
) -> Unusual | None:
    """Hold the expert's rows against those of training tasks; tasks with a player's reward are left out with it."""
    if len(np.unique(task_rewards, axis=0)) < FEWEST_TASKS:
        return None
    players = np.arange(len(task_rewards))
    if len(players) > MOST_PLAYERS:
        players = np.sort(np.random.default_rng(stream(seed, "players")).choice(players, MOST_PLAYERS, replace=False))
    affordable = max(MOST_PAIRS // (len(players) * len(plays.index)), FEWEST_ROWS)
    n = int(min(len(expert), np.median(plays.sizes), affordable))
    training = _Training.of(plays, n)
    shown = [plays.of_task(int(k), n, 1)[0] for k in players]
    rows, index = np.unique(np.concatenate(shown), return_inverse=True)
    played, spare = np.exp(training.log_sums(plays.rows[rows], kernel, h))
    itself = _with_itself(plays.rows[rows], kernel, h)
    held_out, seen, scatter = [], [], []
    for k, own in zip(players, np.split(index, np.cumsum([len(own) for own in shown])[:-1]), strict=True):
        others = ~(task_rewards == task_rewards[k]).all(axis=1)
        held_out.append(_misfit((played[own] + spare[own])[:, others], training.sizes[others], n))
        if training.spare[k] >= n:
            seen.append(min(held_out[-1], _misfit(spare[own][:, [k]], training.spare[[k]], n)))
        scatter.append(_scatter(played[own, k], itself[own], n))
    own = expert[:n]
    of_expert = np.exp(training.log_sums(own, kernel, h)).sum(axis=0)
    within = np.exp(task_log_sums(own, own, np.ones(n), np.zeros(n, np.int64), 1, kernel, h))[:, 0]
    misfit = _misfit(of_expert, training.sizes, n)
    own_scatter = _scatter(within, _with_itself(own, kernel, h), n)
    numbers = np.stack([held_out, scatter], axis=1)
    enough = len(seen) >= FEWEST_TASKS
    return Unusual(
        misfit,
        own_scatter,
        numbers,
        _p_value(numbers, np.array([misfit, own_scatter])),
        _p_value(np.array(seen)[:, None], np.array([misfit])) if enough else None,
        n,
    )


@dataclass(frozen=True, eq=False)
class _Training:
    """Every task's rows in two parts, those that it plays and those to spare: distinct rows, weights, part 2k or 2k+1.

    sizes, spare `(K,)`: rows in all, and to spare.
    """

    rows: Float[np.ndarray, "m d"]
    weights: Float[np.ndarray, " m"]
    parts: Int[np.ndarray, " m"]
    sizes: Int[np.ndarray, " K"]
    spare: Int[np.ndarray, " K"]

    @classmethod
    def of(cls, plays: Plays, n: int) -> "_Training":
        task = np.repeat(np.arange(len(plays.sizes)), plays.sizes)
        played = np.arange(len(plays.index)) - plays.first[task] < n
        rows, weights, parts = collapse_by_task(plays.rows, 2 * task + ~played, plays.index)
        return cls(rows, weights, parts, plays.sizes, np.maximum(plays.sizes - n, 0))

    def log_sums(
        self, rows: Float[np.ndarray, "n d"], kernel: PairKernel, h: Float[np.ndarray, " parts"]
    ) -> Float[np.ndarray, "2 n K"]:
        """log sum_j K_h(x_i, x_j) over the played and the spare rows of each task."""
        table = task_log_sums(rows, self.rows, self.weights, self.parts, 2 * len(self.sizes), kernel, h)
        return np.stack([table[:, ::2], table[:, 1::2]])


def _misfit(sums: Float[np.ndarray, "n tasks"], sizes: Int[np.ndarray, " tasks"], n: int) -> float:
    return float(-_log_density(sums / sizes, n).mean(axis=0).max())


def _scatter(sums: Float[np.ndarray, " n"], itself: Float[np.ndarray, " n"], n: int) -> float:
    """Of sums over a player's own rows, each row's kernel with itself taken off."""
    others = np.maximum(sums - itself, 0.0) / max(len(sums) - 1, 1)
    return float(-_log_density(others, n).mean())


@float64
def _with_itself(
    rows: Float[np.ndarray, "n d"], kernel: PairKernel, h: Float[np.ndarray, " parts"]
) -> Float[np.ndarray, " n"]:
    """K_h(x_i, x_i): 1 for a Gaussian; not so for every user's kernel or distance."""
    if kernel.squared_exponential:
        return np.ones(len(rows))
    given = jnp.asarray(rows)
    return np.exp(np.asarray(jax.vmap(kernel.log, (0, 0, None))(given, given, jnp.asarray(h))))


def _log_density(density: Float[np.ndarray, "..."], n: int) -> Float[np.ndarray, "..."]:
    """With `FLOOR` of the n rows everywhere: 0 at best, and bounded where nobody is near."""
    return np.asarray(np.log((density + FLOOR / n) / (1 + FLOOR / n)))


def _p_value(players: Float[np.ndarray, "K c"], expert: Float[np.ndarray, " c"]) -> float:
    """Of an expert with larger numbers than the players'; see the head of this file."""
    values = np.concatenate([players, expert[None]])
    count = len(players)
    means = (values.sum(axis=0) - values) / count
    squares = (values**2).sum(axis=0) - values**2 - count * means**2
    spread = np.sqrt(np.maximum(squares, 0.0) / (count - 1) * (1 + 1 / count))
    tiny = 1e-9 * (1 + np.abs(values).max())  # players may all be alike
    tails = student.sf((values - means) / (spread + tiny), count - 1)
    smallest = np.minimum(1.0, values.shape[1] * tails.min(axis=1))
    rank = float(np.mean(smallest <= smallest[-1]))
    return float(min(rank, smallest[-1])) if rank <= 1 / len(values) else rank
