"""A trained variational autoencoder in NumPy: what a fitted `VAE` holds, computes with and writes to files.

Learning is in JAX (`vae_training.py`); using what was learnt is not, so that a saved map needs neither JAX nor its
compilation, and maps rows in double precision like every other feature map.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Float64

from kdbirl.features.row_blocks import in_row_blocks
from kdbirl.features.stored_array import StoredArray

BLOCK = 250  # steps of learning per compiled call, and between two entries of a `Course`
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


@dataclass(frozen=True)
class Course:
    """How a training went: the loss (per row) of each block of steps, and the held-out reconstruction error before the
    first and after each.

    kept_step: after how many steps the network was taken that is kept; 0 is the start, principal components. outcome:
    "finished", "stopped early" or "diverged". held_out is empty where no rows were held out.
    """

    kind: ClassVar[str] = "vae_course"
    steps: int
    kept_step: int
    outcome: str
    loss: tuple[float, ...]
    held_out: tuple[float, ...]
    held_out_rows: int

    @property
    def sentence(self) -> str:
        """The outcome in words."""
        if self.outcome == "diverged":
            return f"The VAE diverged after {self.steps:,} steps: {self._kept} is kept; lower learning_rate."
        how = "stopped early" if self.outcome == "stopped early" else "trained to the end"
        if not self.held_out:
            return f"The VAE {how} after {self.steps:,} steps, without held-out rows: its loss was {self.loss[-1]:.4g}."
        return (
            f"The VAE {how} after {self.steps:,} steps: {self._kept} is kept, whose squared error on "
            f"{self.held_out_rows:,} held-out rows is {min(self.held_out):.4g} a row."
        )

    @property
    def _kept(self) -> str:
        return f"the network of step {self.kept_step:,}" if self.kept_step else "its start (principal components)"
