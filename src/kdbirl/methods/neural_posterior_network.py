"""The network of the neural posterior: a set of rows -> a mixture of normal distributions of z, the reward on the line.

    e     = mean_i f(x_i)                                 the set's embedding: the order of rows cannot matter
    p(z)  = sum_m w_m N(z; mu_m, (L_m' L_m)^-1)           w, mu, L from g(e, log n, 1 / sqrt n)

L_m is lower triangular with 1 / sd on its diagonal, so log |L_m| = -sum log sd. Above `MOST_CORRELATED` parameters its
other entries are zero: their number grows with the square.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

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
