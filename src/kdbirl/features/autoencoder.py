"""A trained variational autoencoder in NumPy: what a fitted `VAE` holds, computes with and writes to files.

Learning is in JAX (`vae_network.py`); using what was learnt is not, so that a saved map needs neither JAX nor its
compilation, and maps rows in double precision like every other feature map.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Float64

from kdbirl.features.base import StoredArray, in_row_blocks

LEAK = 0.2  # slope of LeakyReLU below 0, as in the paper's released VAE

Matrix = Float64[np.ndarray, "rows _"]


@dataclass(frozen=True)
class Dense:
    """x W + b."""

    kind: ClassVar[str] = "dense"
    weight: StoredArray
    bias: StoredArray

    def __call__(self, x: Matrix) -> Matrix:
        return x @ self.weight.values + self.bias.values


@dataclass(frozen=True)
class Autoencoder:
    """Layers with LeakyReLU between: x -> hidden -> mean and log variance of q(z | x), and z -> hidden -> x."""

    kind: ClassVar[str] = "autoencoder"
    encoder: tuple[Dense, ...]
    decoder: tuple[Dense, ...]

    def encode(self, inputs: Matrix) -> tuple[Matrix, Matrix]:
        """Mean and log variance of the latents: (rows, latents) each."""
        both = in_row_blocks(lambda block: _through(self.encoder, block), inputs)
        mean, log_variance = np.split(both, 2, axis=1)
        return mean, log_variance

    def decode(self, latents: Matrix) -> Matrix:
        """The inputs that the latents stand for."""
        return in_row_blocks(lambda block: _through(self.decoder, block), latents)

    def reconstruction_error(self, inputs: Matrix) -> float:
        """Mean over the rows of the summed squared error, decoded from the latents' means."""
        return float(np.mean(np.sum((self.decode(self.encode(inputs)[0]) - inputs) ** 2, axis=1)))


def _through(layers: tuple[Dense, ...], x: Matrix) -> Matrix:
    for layer in layers[:-1]:
        x = layer(x)
        x = np.maximum(x, LEAK * x)
    return layers[-1](x)


def kl_to_standard_normal(mean: Matrix, log_variance: Matrix) -> Matrix:
    """KL(N(mean, variance) || N(0, 1)) = (mean^2 + variance - 1 - log variance) / 2 of each row and latent, in nats."""
    return (mean**2 + np.exp(log_variance) - 1 - log_variance) / 2
