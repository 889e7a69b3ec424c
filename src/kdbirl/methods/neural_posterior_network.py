"""The network of the neural posterior: a set of rows -> a mixture of normal distributions of z, the reward on the line.

    e     = mean_i f(x_i)                                 the set's embedding: the order of rows cannot matter
    p(z)  = sum_m w_m N(z; mu_m, (L_m' L_m)^-1)           w, mu, L from g(e, log n, 1 / sqrt n)

L_m is lower triangular with 1 / sd on its diagonal, so log |L_m| = -sum log sd. Above `MOST_CORRELATED` parameters its
other entries are zero: their number grows with the square.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from kdbirl.data.demonstrations import TaskBank
from kdbirl.features import FeatureMap
from kdbirl.training import Layers, dense_layers, through

MOST_CORRELATED = 16
LEAST_SD = 0.01  # of a component, in units of the training rewards' spread: a spike on one task is no posterior
FIRST_SCALE = (
    0.1  # of the last layer's first weights: it begins with the training rewards' own spread, whatever is seen
)


class Sets(NamedTuple):
    """b sets of rows: `weight (b, k)` of the rows at `places (b, k)` of a table, or of all its k rows (places None).

    Weights of a set add up to 1; size: how many rows it has.
    """

    places: Int[Array, "b k"] | None
    weight: Float[Array, "b k"]
    size: Float[Array, " b"]


class Mixture(NamedTuple):
    """Normal components: `log_weight (b, M)`, `mean`, `sd (b, M, q)`, `lower (b, M, q, q)`: L below its diagonal."""

    log_weight: Float[Array, "b M"]
    mean: Float[Array, "b M q"]
    sd: Float[Array, "b M q"]
    lower: Float[Array, "b M q q"] | None


class NeuralPosteriorNetwork(eqx.Module):
    """f is `embed`, g is `head`. Every leaf is an array that is learnt."""

    embed: Layers
    head: Layers
    q: int = eqx.field(static=True)
    components: int = eqx.field(static=True)

    def __init__(self, inputs: int, hidden: Sequence[int], q: int, components: int, rng: np.random.Generator) -> None:
        self.q, self.components = q, components
        outputs = components * (1 + 2 * q + (q * q if q <= MOST_CORRELATED else 0))
        self.embed = dense_layers((inputs, *hidden), rng)
        *body, last = dense_layers((hidden[-1] + 2, *hidden, outputs), rng)
        self.head = (*body, jax.tree.map(lambda leaf: FIRST_SCALE * leaf, last))

    def embedding(self, rows: Float[Array, "u d"], sets: Sets) -> Float[Array, "b e"]:
        """Weighted means of f."""
        if sets.places is None:
            return sets.weight @ self._embedded(rows)
        b, k = sets.places.shape
        each = self._embedded(rows[sets.places.reshape(-1)]).reshape(b, k, -1)
        return jnp.sum(sets.weight[:, :, None] * each, axis=1)

    def _embedded(self, rows: Float[Array, "u d"]) -> Float[Array, "u e"]:
        return jax.nn.elu(through(self.embed, rows, jax.nn.elu))

    def __call__(self, rows: Float[Array, "u d"], sets: Sets) -> Mixture:
        """The mixture of each set."""
        about_size = jnp.stack([jnp.log(sets.size) / 3.0, 1.0 / jnp.sqrt(sets.size)], axis=1)
        given = jnp.concatenate([self.embedding(rows, sets), about_size], axis=1)
        out = through(self.head, given, jax.nn.elu)
        b, m, q = len(out), self.components, self.q
        logits, mean, spread, rest = jnp.split(out, (m, m + m * q, m + 2 * m * q), axis=1)
        sd = LEAST_SD + jax.nn.softplus(spread.reshape(b, m, q) + float(np.log(math.e - 1)))
        lower = jnp.tril(rest.reshape(b, m, q, q), -1) if q <= MOST_CORRELATED else None
        return Mixture(jax.nn.log_softmax(logits, axis=1), mean.reshape(b, m, q), sd, lower)


def log_density(mixture: Mixture, z: Float[Array, "b q"]) -> Float[Array, " b"]:
    """log p(z) of one z for each set."""
    away = z[:, None, :] - mixture.mean
    scaled = away / mixture.sd
    if mixture.lower is not None:
        scaled = scaled + jnp.einsum("bmij,bmj->bmi", mixture.lower, away)
    normal = -0.5 * jnp.sum(scaled**2, axis=2) - jnp.sum(jnp.log(mixture.sd), axis=2)
    constant = 0.5 * z.shape[1] * float(np.log(2 * np.pi))
    return jax.nn.logsumexp(mixture.log_weight + normal, axis=1) - constant


def surprise(
    network: NeuralPosteriorNetwork, rows: Float[Array, "u d"], batch: tuple[Sets, Float[Array, "b q"]]
) -> Float[Array, ""]:
    """Mean of -log p(z of the task | a play of it): what training lowers."""
    sets, z = batch
    return -jnp.mean(log_density(network(rows, sets), z))


compiled_surprise = jax.jit(surprise)


@jax.jit
def mixtures(network: NeuralPosteriorNetwork, rows: Float[Array, "u d"], sets: Sets) -> Mixture:
    """Compiled."""
    return network(rows, sets)


def log_densities(mixture: Mixture, z: Float[np.ndarray, "r q"]) -> Float[np.ndarray, " r"]:
    """log p of many z under the first set's mixture, in NumPy: nothing is compiled for each number of them."""
    weight, mean, factors = _first(mixture)
    scaled = np.einsum("mij,rmj->rmi", factors, z[:, None, :] - mean)
    log_volume = np.log(np.diagonal(factors, axis1=1, axis2=2)).sum(axis=1)
    normal = -0.5 * (scaled**2).sum(axis=2) + log_volume - 0.5 * z.shape[1] * np.log(2 * np.pi)
    return np.logaddexp.reduce(weight + normal, axis=1)


def _first(mixture: Mixture) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Log weights, means and factors L of the first set's components."""
    weight, mean, sd = (np.asarray(part, dtype=np.float64)[0] for part in mixture[:3])
    factors = np.eye(mean.shape[1]) / sd[:, None, :]
    if mixture.lower is not None:
        factors = factors + np.asarray(mixture.lower, dtype=np.float64)[0]
    return weight - np.logaddexp.reduce(weight), mean, factors


def drawn(mixture: Mixture, n: int, rng: np.random.Generator) -> Float[np.ndarray, "n q"]:
    """Draws of z from the first set's mixture."""
    weight, mean, factors = _first(mixture)
    component = rng.choice(len(weight), size=n, p=np.exp(weight))
    normal = rng.standard_normal((n, mean.shape[1]))
    return np.asarray(mean[component] + np.einsum("nij,nj->ni", np.linalg.inv(factors)[component], normal))


# Training data of the neural posterior: training tasks that play the test task, over and over, each time differently.
#
# A play is a random task, a random order of its episodes, and its first rows in that order: whole episodes, but for the
# last one. A task of a single episode starts at a random row, and goes on from its first row after its last.

DENSE = 4096  # distinct rows up to which a play is a weight for each of them, ...
DENSE_SHARE = 16  # ... and not more than so many times a play's rows
MOST_ROWS = 1000  # of a play, where the user names no number
CELLS = 2**22  # of the table of a block of plays


@dataclass(frozen=True, eq=False)
class InputScale:
    """(x - centre) / scale of each feature; columns with finitely many values by construction stay as they are."""

    centre: Float[np.ndarray, " d"]
    scale: Float[np.ndarray, " d"]

    @classmethod
    def learn(cls, rows: Float[np.ndarray, "u d"], discrete: tuple[int, ...]) -> "InputScale":
        """From the distinct rows of the bank."""
        centre, spread = rows.mean(axis=0), rows.std(axis=0)
        scale = np.where(spread > 0, spread, 1.0)
        centre[list(discrete)], scale[list(discrete)] = 0.0, 1.0
        return cls(centre, scale)

    def __call__(self, rows: Float[np.ndarray, "u d"]) -> np.ndarray:
        return ((rows - self.centre) / self.scale).astype(np.float32)


@dataclass(frozen=True, eq=False)
class PlayGround:
    """The bank's rows as plays need them, and how long plays are.

    rows: distinct feature rows; `index (m,)`: which one each bank row is; tasks, episodes `(m,)`: of each bank row
    (episodes numbered over the whole bank); n: rows of a play, None for random numbers up to a task's own.
    """

    rows: Float[np.ndarray, "u d"]
    index: Int[np.ndarray, " m"]
    tasks: Int[np.ndarray, " m"]
    episodes: Int[np.ndarray, " m"]
    n: int | None

    @classmethod
    def of(cls, bank: TaskBank, features: FeatureMap, n: int | None) -> "PlayGround":
        """All rows of a bank."""
        rows, index = features.distinct(bank.demonstrations)
        return cls(rows, index, bank.tasks, bank.episode_index, n)

    @property
    def sizes(self) -> Int[np.ndarray, " K"]:
        """Rows of each task."""
        return np.bincount(self.tasks)

    @property
    def longest(self) -> int:
        """The most rows that a play has."""
        return min(int(self.sizes.max()), MOST_ROWS if self.n is None else self.n)

    @property
    def dense(self) -> bool:
        """Whether plays are weights of all distinct rows, which are then embedded once for a whole batch."""
        return len(self.rows) <= min(DENSE, DENSE_SHARE * self.longest)

    @property
    def table_length(self) -> int:
        """Rows of the table that the network is given: a power of two, so that banks share few compiled programs."""
        return 2 ** int(np.ceil(np.log2(len(self.rows))))

    @property
    def width(self) -> int:
        """Cells that one play takes."""
        return max(self.longest, self.table_length) if self.dense else self.longest

    def table(self, scale: InputScale) -> np.ndarray:
        """The distinct rows as the network sees them, filled up with zeros."""
        rows = scale(self.rows)
        return np.concatenate([rows, np.zeros((self.table_length - len(rows), rows.shape[1]), np.float32)])

    def plays(self, tasks: Int[np.ndarray, " p"], rng: np.random.Generator) -> Sets:
        """A play of each of these tasks."""
        order, starts = self._shuffled(tasks, rng)
        count, size = self._lengths(tasks, rng), self.sizes[tasks]
        first = np.searchsorted(self.tasks, tasks)
        step = np.arange(self.longest)
        place = first[:, None] + (starts[:, None] + step) % size[:, None]
        shown = step < count[:, None]
        return self._sets(self.index[order[place]], shown, count)

    def _lengths(self, tasks: Int[np.ndarray, " p"], rng: np.random.Generator) -> Int[np.ndarray, " p"]:
        """n rows, or as many as there are; without n a number from 1 up, its logarithm uniform."""
        most = np.minimum(self.sizes[tasks], self.longest)
        if self.n is not None:
            return most
        return np.minimum(np.exp(rng.uniform(0, np.log(most + 1.0))).astype(np.int64), most)

    def _shuffled(
        self, tasks: Int[np.ndarray, " p"], rng: np.random.Generator
    ) -> tuple[Int[np.ndarray, " m"], Int[np.ndarray, " p"]]:
        """Bank rows, each task's episodes in random order, and where in its task each play starts: with an episode."""
        episodes = int(self.episodes.max()) + 1
        order = np.lexsort((rng.random(episodes)[self.episodes], self.tasks))
        new = np.ones(len(order), dtype=bool)
        new[1:] = np.diff(self.episodes[order]) != 0
        begins = np.flatnonzero(new)
        per_task = np.bincount(self.tasks[begins], minlength=len(self.sizes))
        of_task = np.concatenate([[0], np.cumsum(per_task)])[tasks]
        chosen = begins[of_task + (rng.random(len(tasks)) * per_task[tasks]).astype(np.int64)]
        anywhere = (rng.random(len(tasks)) * self.sizes[tasks]).astype(np.int64)
        starts = np.where(per_task[tasks] == 1, anywhere, chosen - np.searchsorted(self.tasks, tasks))
        return order, starts

    def _sets(self, rows: Int[np.ndarray, "p n"], shown: np.ndarray, count: Int[np.ndarray, " p"]) -> Sets:
        weight = (shown / count[:, None]).astype(np.float32)
        counts = count.astype(np.float32)
        if not self.dense:
            return Sets(rows.astype(np.int32), weight, counts)  # type: ignore[arg-type]
        p, u = len(rows), self.table_length
        cells = np.bincount((np.arange(p)[:, None] * u + rows).ravel(), weight.ravel(), minlength=p * u)
        return Sets(None, cells.reshape(p, u).astype(np.float32), counts)  # type: ignore[arg-type]
