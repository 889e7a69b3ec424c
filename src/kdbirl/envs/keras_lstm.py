"""Recurrent networks that Keras 2 saved as HDF5, read as plain arrays and computed in JAX.

A file has the group `model_weights` (or is that group), whose attribute `layer_names` lists the layers; a layer's group
lists its arrays in `weight_names`. Layers without weights are passed over. What is expected here is

    LSTM(50, tanh, recurrent hard_sigmoid), Dense(128, relu), Dense(outputs, linear or softmax)

with Keras' order of the gates: input, forget, cell, output.
"""

from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from kdbirl.errors import FileProblem
from kdbirl.hdf5 import Arrays, Attributes, read_hdf5

UNITS, HIDDEN = 50, 128
EXPECTED = "it should be one of gym-sepsis' three Keras networks"


class LSTMWeights(NamedTuple):
    """Of the three layers, in the order in which Keras stores them."""

    kernel: Float[np.ndarray, "inputs 200"]
    recurrent: Float[np.ndarray, "50 200"]
    bias: Float[np.ndarray, " 200"]
    hidden: Float[np.ndarray, "50 128"]
    hidden_bias: Float[np.ndarray, " 128"]
    output: Float[np.ndarray, "128 outputs"]
    output_bias: Float[np.ndarray, " outputs"]


def hard_sigmoid(x: Array) -> Array:
    """clip(0.2 x + 0.5, 0, 1), as Keras 2 had it; Keras 3 has x / 6 + 0.5, which would change what was trained."""
    return jnp.clip(0.2 * x + 0.5, 0.0, 1.0)


def lstm_output(weights: LSTMWeights, rows: Float[Array, "n time inputs"]) -> Float[Array, "n outputs"]:
    """The network's answer to the last of the rows, before any softmax."""
    kernel, recurrent, bias, hidden, hidden_bias, output, output_bias = (jnp.asarray(w, rows.dtype) for w in weights)
    given = jnp.swapaxes(rows @ kernel + bias[None, None], 0, 1)  # all times at once: only the recurrence is a loop

    def move(carry: tuple[Array, Array], now: Array) -> tuple[tuple[Array, Array], None]:
        said, cell = carry
        enter, forget, fresh, leave = jnp.split(now + said @ recurrent, 4, axis=1)
        cell = hard_sigmoid(forget) * cell + hard_sigmoid(enter) * jnp.tanh(fresh)
        return (hard_sigmoid(leave) * jnp.tanh(cell), cell), None

    nothing = jnp.zeros((rows.shape[0], UNITS), rows.dtype)
    (said, _), _ = jax.lax.scan(move, (nothing, nothing), given)
    return jax.nn.relu(said @ hidden + hidden_bias[None]) @ output + output_bias[None]


def read_lstm(path: Path, inputs: int, outputs: int) -> LSTMWeights:
    """The weights of one file, of the shapes that this many inputs and outputs ask for."""
    attributes, stored = read_hdf5(path, EXPECTED, "a Keras 2 network in HDF5")
    try:
        arrays = _arrays(attributes, stored, "model_weights/" if "model_weights" in attributes else "")
    except (KeyError, TypeError) as error:
        reason = str(error).strip("'\"")
        raise FileProblem(f"{path}: it cannot be read as a Keras 2 network in HDF5 ({reason} is missing).") from error
    return _checked(path, arrays, inputs, outputs)


def _arrays(attributes: Attributes, stored: Arrays, group: str) -> list[np.ndarray]:
    """All weights in the order of the layers."""
    layers = [f"{group}{layer}" for layer in attributes[group.rstrip("/")]["layer_names"]]
    places = [f"{layer}/{name}" for layer in layers for name in attributes[layer]["weight_names"]]
    return [np.asarray(stored[place], dtype=np.float64) for place in places]


def _checked(path: Path, arrays: list[np.ndarray], inputs: int, outputs: int) -> LSTMWeights:
    gates = 4 * UNITS
    expected = [(inputs, gates), (UNITS, gates), (gates,), (UNITS, HIDDEN), (HIDDEN,), (HIDDEN, outputs), (outputs,)]
    shapes = [array.shape for array in arrays]
    if shapes != expected:
        raise FileProblem(
            f"{path}: weights of shapes {shapes}, expected {expected}: LSTM({UNITS}) of {inputs} inputs, "
            f"Dense({HIDDEN}), Dense({outputs})."
        )
    if not all(np.isfinite(array).all() for array in arrays):
        raise FileProblem(f"{path}: some of its weights are not finite numbers; the file is damaged.")
    return LSTMWeights(*arrays)
