"""Dense layers in single precision, for every small network that learns with Equinox and Optax."""

from collections.abc import Sequence

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float


class Layer(eqx.Module):
    """x W + b. First weights are uniform in +- 1 / sqrt(inputs), drawn with NumPy: JAX would compile for seconds."""

    weight: Float[Array, "i o"]
    bias: Float[Array, " o"]

    def __init__(self, inputs: int, outputs: int, rng: np.random.Generator) -> None:
        half = 1 / np.sqrt(inputs)
        self.weight = jnp.asarray(rng.uniform(-half, half, (inputs, outputs)).astype(np.float32))
        self.bias = jnp.asarray(rng.uniform(-half, half, outputs).astype(np.float32))

    def __call__(self, x: Float[Array, "n i"]) -> Float[Array, "n o"]:
        return x @ self.weight + self.bias[None]


def dense_layers(sizes: Sequence[int], rng: np.random.Generator) -> tuple[Layer, ...]:
    """One layer from each size to the next."""
    return tuple(Layer(sizes[i], sizes[i + 1], rng) for i in range(len(sizes) - 1))
