"""Recurrent networks that Keras 2 saved as HDF5, read by h5py alone and computed in JAX.

A file has the group `model_weights` (or is that group), whose attribute `layer_names` lists the layers; a layer's group
lists its arrays in `weight_names`. Layers without weights are passed over. What is expected here is

    LSTM(50, tanh, recurrent hard_sigmoid), Dense(128, relu), Dense(outputs, linear or softmax)

with Keras' order of the gates: input, forget, cell, output.
"""

from pathlib import Path
from typing import Any, NamedTuple

import h5py
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from kdbirl.errors import FileProblem

UNITS, HIDDEN = 50, 128


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
    if not path.is_file():
        raise FileProblem(f"{path}: there is no such file; it should be one of gym-sepsis' three Keras networks.")
    try:
        with h5py.File(path, "r") as file:
            arrays = _arrays(file.get("model_weights", file))
    except (OSError, KeyError, ValueError, TypeError, AttributeError, RuntimeError) as error:
        reason = " ".join(str(error).strip("'\"").split()).rstrip(".")
        raise FileProblem(f"{path}: it cannot be read as a Keras 2 network in HDF5 ({reason}).") from error
    return _checked(path, arrays, inputs, outputs)


def _arrays(group: Any) -> list[np.ndarray]:
    """All weights in the order of the layers."""
    found = []
    for layer in group.attrs["layer_names"]:
        inside = group[_text(layer)]
        found += [_array(inside[_text(name)]) for name in inside.attrs["weight_names"]]
    return found


def _array(item: Any) -> np.ndarray:
    if not isinstance(item, h5py.Dataset):
        raise ValueError(f"{item.name} is no array")
    return np.asarray(item[()], dtype=np.float64)


def _text(name: Any) -> str:
    """Keras wrote names as bytes, later as text."""
    return name.decode("utf-8") if isinstance(name, bytes) else str(name)


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
