"""The network of the VAE while it learns, and its loss (Kingma and Welling 2014, as in the paper's released program):

    q(z | x) = N(mean(x), variance(x)),   z = mean + sqrt(variance) noise,   noise ~ N(0, 1)
    loss(x)  = |x - decoder(z)|^2 + kl_weight * KL(q(z | x) || N(0, 1))

The squared error is summed over the inputs, as released; it is a normal likelihood of variance 1/2. Only this file of
the features imports Equinox. Single precision, as networks usually have.
"""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from kdbirl.dense_layers import Layer, dense_layers
from kdbirl.features.autoencoder import LEAK, Autoencoder, Dense
from kdbirl.features.linear_start import principal_components, start_decoder, start_encoder
from kdbirl.features.stored_array import StoredArray


class AutoencoderNetwork(eqx.Module):
    """Encoder inputs -> hidden -> mean and log variance; decoder latents -> hidden in reverse -> inputs.

    Every leaf is an array that is learnt, so that the network is carried through compiled loops as it is.
    """

    encoder: tuple[Layer, ...]
    decoder: tuple[Layer, ...]

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
    leaves = [jnp.asarray(part, dtype=jnp.float32) for layer in encoder + decoder for part in layer]
    started: AutoencoderNetwork = jax.tree.unflatten(jax.tree.structure(network), leaves)
    return started


def _weights(layers: tuple[Layer, ...]) -> list[tuple[np.ndarray, np.ndarray]]:
    return [(np.asarray(layer.weight), np.asarray(layer.bias)) for layer in layers]


def loss_terms(
    network: AutoencoderNetwork, x: Float[Array, "n i"], noise: Float[Array, "n z"]
) -> tuple[Float[Array, " n"], Float[Array, "n z"]]:
    """The summed squared error of each row, and the KL of each row and latent."""
    mean, log_variance = network.encode(x)
    z = mean + jnp.exp(log_variance / 2) * noise
    kl = (mean**2 + jnp.exp(log_variance) - 1 - log_variance) / 2
    return jnp.sum((network.decode(z) - x) ** 2, axis=1), kl


def stored(network: AutoencoderNetwork) -> Autoencoder:
    """The network as it is used and kept after learning."""
    encoder, decoder = (tuple(_dense(layer) for layer in layers) for layers in (network.encoder, network.decoder))
    return Autoencoder(encoder, decoder)


def _dense(layer: Layer) -> Dense:
    return Dense(StoredArray.of(layer.weight, "float32"), StoredArray.of(layer.bias, "float32"))


def _through(layers: tuple[Layer, ...], x: Float[Array, "n i"]) -> Float[Array, "n o"]:
    for layer in layers[:-1]:
        x = jax.nn.leaky_relu(layer(x), LEAK)
    return layers[-1](x)
