"""The network of the VAE before its first step: principal components, which learning then betters.

With few rows a network from random weights overfits before it has found what principal components give at once, and on
rows that are linear but for a little noise the KL keeps it from ever getting there. So learning starts there, in the
same architecture: LeakyReLU passes a number c on unchanged in a pair of units, since with its slope `LEAK` below 0

    leaky(c) - leaky(-c) = (1 + LEAK) c.

Encoder and decoder carry the latents in their first 2 * latents units of each hidden layer; the other units keep their
random weights, and the last layer does not hear them until it learns to.

    z_k = score_k / sqrt(variance_k),    x = mean + sum_k sqrt(variance_k) z_k v_k,    with vectors v_k,

and q's variance is that of a linear model, min(1, kl_weight / (2 variance_k)).
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from kdbirl.features.autoencoder import LEAK

Weights = tuple[np.ndarray, np.ndarray]  # (inputs, outputs) and (outputs,) of a layer
SMALLEST = 1e-10  # variance of a component, as a share of the largest, that is more than rounding


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
