"""The network of the VAE while it learns, and its loss (Kingma and Welling 2014, as in the paper's released program):

    q(z | x) = N(mean(x), variance(x)),   z = mean + sqrt(variance) noise,   noise ~ N(0, 1)
    loss(x)  = |x - decoder(z)|^2 + kl_weight * KL(q(z | x) || N(0, 1))

The squared error is summed over the inputs, as released; it is a normal likelihood of variance 1/2. Single precision,
as networks usually have.

Learning starts at principal components. With few rows a network from random weights overfits before it has found what
they give at once, and on rows that are linear but for a little noise the KL keeps it from ever getting there. The same
architecture has them: LeakyReLU, of slope `LEAK` below 0, passes a number c on unchanged in a pair of units, since

    leaky(c) - leaky(-c) = (1 + LEAK) c.

Encoder and decoder carry the latents in their first 2 * latents units of each hidden layer; the other units keep their
random weights, and the last layer does not hear them until it learns to.

    z_k = score_k / sqrt(variance_k),    x = mean + sum_k sqrt(variance_k) z_k v_k,    with vectors v_k,

and q's variance is that of a linear model, min(1, kl_weight / (2 variance_k)).
What is kept is judged by the reconstruction of held-out rows, from the latents' means, which is what phi is. The
components are those of all rows: few rows then lose nothing to the holding out, and the start, which has seen the
held-out rows, is left only for what is better in spite of that.
"""

from collections.abc import Sequence
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from kdbirl._jax import single_precision
from kdbirl.features.autoencoder import LEAK, Autoencoder, Dense
from kdbirl.features.base import StoredArray
from kdbirl.progress import Course, Progress
from kdbirl.random_streams import stream
from kdbirl.training import Layers, Learner, Schedule, dense_layers, through, train

Weights = tuple[np.ndarray, np.ndarray]  # (inputs, outputs) and (outputs,) of a layer
SMALLEST = 1e-10  # variance of a component, as a share of the largest, that is more than rounding
MOST_HELD_OUT = 4096  # rows are plenty for a mean, and looking at them must not take longer than learning


class AutoencoderNetwork(eqx.Module):
    """Encoder inputs -> hidden -> mean and log variance; decoder latents -> hidden in reverse -> inputs.

    Every leaf is an array that is learnt, so that the network is carried through compiled loops as it is.
    """

    encoder: Layers
    decoder: Layers

    def __init__(self, inputs: int, hidden: Sequence[int], latents: int, rng: np.random.Generator) -> None:
        self.encoder = dense_layers((inputs, *hidden, 2 * latents), rng)
        self.decoder = dense_layers((latents, *reversed(hidden), inputs), rng)

    def encode(self, x: Float[Array, "n i"]) -> tuple[Float[Array, "n z"], Float[Array, "n z"]]:
        """Mean and log variance of q(z | x)."""
        mean, log_variance = jnp.split(_through(self.encoder, x), 2, axis=1)
        return mean, log_variance

    def decode(self, z: Float[Array, "n z"]) -> Float[Array, "n i"]:
        """The inputs that the latents stand for."""
        return _through(self.decoder, z)


@single_precision
def learnt(
    rows: Float[np.ndarray, "m i"],
    held_out: Float[np.ndarray, "h i"],
    hidden: Sequence[int],
    latents: int,
    kl_weight: float,
    batch: int,
    schedule: Schedule,
    seed: int,
    progress: Progress,
) -> tuple[Autoencoder, Course]:
    """Train, and say how it went. The same seed gives the same network. `held_out` may have no rows."""
    rng, values = np.random.default_rng(stream(seed, "VAE")), rows.astype(np.float32)
    network = first_network(np.concatenate([rows, held_out]), hidden, latents, kl_weight, rng)
    watched = held_out[rng.permutation(len(held_out))[:MOST_HELD_OUT]]

    def batches(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Rows and noise of every batch of a block, so that the compiled program does not depend on how many rows."""
        index = rng.integers(0, len(values), (schedule.block, batch))
        return values[index], rng.standard_normal((schedule.block, batch, latents), dtype=np.float32)

    def error(network: AutoencoderNetwork) -> float:
        with np.errstate(over="ignore", invalid="ignore"):  # of a network that diverges, which is told in words
            return stored(network).reconstruction_error(watched)

    judge = error if len(watched) else None
    learner = Learner(network, jnp.float32(kl_weight), batches, rng, judge, len(watched), (rows, held_out, batch))
    ((best, course),) = train(loss, [learner], schedule, "VAE", progress)
    return stored(best), course


def first_network(
    rows: Float[np.ndarray, "m i"], hidden: Sequence[int], latents: int, kl_weight: float, rng: np.random.Generator
) -> AutoencoderNetwork:
    """Where learning starts: at the principal components of the rows, if they have so many and the layers have room."""
    network = AutoencoderNetwork(rows.shape[1], hidden, latents, rng)
    found = principal_components(rows, latents)
    if found is None or min(hidden) < 2 * latents:
        return network
    encoder = start_encoder(_weights(network.encoder), found, kl_weight)
    decoder = start_decoder(_weights(network.decoder), found)
    leaves = [jnp.asarray(part.T, dtype=jnp.float32) for layer in encoder + decoder for part in layer]
    started: AutoencoderNetwork = jax.tree.unflatten(jax.tree.structure(network), leaves)
    return started


def _weights(layers: Layers) -> list[Weights]:
    """(inputs, outputs) and (outputs,) of each layer; Equinox has weights the other way round."""
    return [(np.asarray(layer.weight).T, np.asarray(layer.bias)) for layer in layers]


def loss_terms(
    network: AutoencoderNetwork, x: Float[Array, "n i"], noise: Float[Array, "n z"]
) -> tuple[Float[Array, " n"], Float[Array, "n z"]]:
    """The summed squared error of each row, and the KL of each row and latent."""
    mean, log_variance = network.encode(x)
    z = mean + jnp.exp(log_variance / 2) * noise
    kl = (mean**2 + jnp.exp(log_variance) - 1 - log_variance) / 2
    return jnp.sum((network.decode(z) - x) ** 2, axis=1), kl


def loss(
    network: AutoencoderNetwork, kl_weight: Float[Array, ""], batch: tuple[Float[Array, "n i"], Float[Array, "n z"]]
) -> Float[Array, ""]:
    """What learning lowers, for the rows and the noise of a batch."""
    squared_error, kl = loss_terms(network, *batch)
    return jnp.mean(squared_error) + kl_weight * jnp.mean(jnp.sum(kl, axis=1))


def stored(network: AutoencoderNetwork) -> Autoencoder:
    """The network as it is used and kept after learning."""
    encoder, decoder = (
        tuple(Dense(*(StoredArray.of(part, "float32") for part in layer)) for layer in _weights(layers))
        for layers in (network.encoder, network.decoder)
    )
    return Autoencoder(encoder, decoder)


def _through(layers: Layers, x: Float[Array, "n i"]) -> Float[Array, "n o"]:
    return through(layers, x, lambda x: jax.nn.leaky_relu(x, LEAK))


class Components(NamedTuple):
    """The inputs' mean, and their first principal components: variances, and vectors as columns."""

    mean: Float[np.ndarray, " i"]
    variances: Float[np.ndarray, " z"]
    vectors: Float[np.ndarray, "i z"]


def principal_components(rows: Float[np.ndarray, "m i"], latents: int) -> Components | None:
    """By eigenvalues of the covariance; None where the rows vary in fewer directions than asked for."""
    mean = rows.mean(axis=0)
    centred = rows - mean
    values, vectors = np.linalg.eigh(centred.T @ centred / max(len(rows), 1))
    if latents > len(values) or values[-latents] <= SMALLEST * values[-1]:
        return None
    return Components(mean, values[::-1][:latents], vectors[:, ::-1][:, :latents])


def start_encoder(layers: list[Weights], found: Components, kl_weight: float) -> list[Weights]:
    """Layers that compute scores / sqrt(variances) as means, and the same log variances for all rows."""
    spread = np.sqrt(found.variances)
    certain = np.log(np.clip(kl_weight / 2 / found.variances, np.exp(-8.0), 1.0))
    read = found.vectors / spread
    *hidden, last = _carried(layers, read, -found.mean @ read)
    weight, bias = np.zeros_like(last[0]), np.concatenate([np.zeros(len(spread)), certain])
    weight[: 2 * len(spread), : len(spread)] = _joined(np.eye(len(spread)))
    return [*hidden, (weight, bias)]


def start_decoder(layers: list[Weights], found: Components) -> list[Weights]:
    """Layers that compute mean + sum_k sqrt(variance_k) z_k v_k."""
    count = len(found.variances)
    *hidden, last = _carried(layers, np.eye(count), np.zeros(count))
    weight = np.zeros_like(last[0])
    weight[: 2 * count] = _joined((found.vectors * np.sqrt(found.variances)).T)
    return [*hidden, (weight, found.mean)]


def _carried(layers: list[Weights], read: Float[np.ndarray, "i z"], bias: Float[np.ndarray, " z"]) -> list[Weights]:
    """The layers with x @ read + bias in pairs of units, handed on from each hidden layer to the next."""
    changed = []
    for weight, offset in layers[:-1]:
        pairs = 2 * read.shape[1]
        weight, offset = weight.copy(), offset.copy()
        weight[:, :pairs], offset[:pairs] = 0.0, np.concatenate([bias, -bias])
        weight[: len(read), :pairs] = np.hstack([read, -read])
        changed.append((weight, offset))
        read, bias = _joined(np.eye(pairs // 2)), np.zeros(pairs // 2)
    return [*changed, layers[-1]]


def _joined(read: Float[np.ndarray, "z o"]) -> Float[np.ndarray, "_ o"]:
    """What reads numbers from single units, reading them from pairs."""
    return np.vstack([read, -read]) / (1 + LEAK)
