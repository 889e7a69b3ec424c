"""Learnt features inside compiled programs: phi as a JAX function, for simulators whose rewards are w . phi(s, a)."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Float64, Int

from kdbirl.data.demonstrations import Demonstrations
from kdbirl.errors import InputError
from kdbirl.features.autoencoder import LEAK
from kdbirl.features.base import FeatureMap
from kdbirl.features.maps import Columns, Fixed, Standardize
from kdbirl.features.one_hot import OneHotActions
from kdbirl.features.pca import PCA, LatentMap
from kdbirl.features.vae import VAE

Compiled = Callable[[Float[Array, "n d"], Int[Array, " n"]], Float[Array, "n q"]]


def in_jax(phi: FeatureMap, n_actions: int) -> Compiled:
    """phi of observations (n, d) and action codes (n,) as a function that JAX can trace, differentiate and compile.

    For a fitted `VAE` or `PCA` of continuous states and discrete actions with its default inputs. The same numbers as
    `phi(rows)` up to rounding, in the precision of the observations.
    """
    phi = phi.inner if isinstance(phi, Fixed) else phi
    if not isinstance(phi, VAE | PCA) or not phi.is_fitted or phi.inputs is not None:
        raise InputError("in_jax takes a fitted VAE or PCA with its default inputs (without inputs=...).")
    mean, scale, table = _read_inputs(phi, n_actions)
    layers = _layers(phi)

    def features(observation: Float[Array, "n d"], action: Int[Array, " n"]) -> Float[Array, "n q"]:
        def like(values: np.ndarray) -> Array:
            return jnp.asarray(values, dtype=observation.dtype)

        states = (observation - like(mean)[None]) / like(scale)[None]
        x = jnp.concatenate([states, like(table)[action]], axis=1)
        for place, (weight, bias) in enumerate(layers):
            x = (jax.nn.leaky_relu(x, LEAK) if place else x) @ like(weight) + like(bias)[None]
        return x

    return features


def _read_inputs(phi: VAE | PCA, n_actions: int) -> tuple[np.ndarray, np.ndarray, Float64[np.ndarray, "A inputs"]]:
    """Mean and scale of the states, and the inputs (with their weight) that each action gives."""
    states = phi._reader.parts[0]  # type: ignore[attr-defined]
    if not isinstance(states, Standardize) or not isinstance(states.inner, Columns):
        raise InputError("in_jax needs a feature map that was fitted on columns of numbers as states.")
    width = len(states.scale)
    codes, labels = (np.arange(n_actions), _labels(phi)) if "action" in phi._reader.groups else (None, None)
    rows = Demonstrations(
        np.zeros((n_actions, width)),
        codes,
        state_names=states.inner.columns,
        action_labels=labels,
        n_actions=None if codes is None else n_actions,
    )
    return np.asarray(states.mean), np.asarray(states.scale), phi._read(rows)[:, width:]


def _labels(phi: LatentMap) -> tuple[str, ...] | None:
    """Those of one-hot actions, where the training rows had any; action code i has label i."""
    actions = phi._reader.parts[1]  # type: ignore[attr-defined]
    return actions.encoding.block.labels if isinstance(actions, OneHotActions) and actions.encoding else None


def _layers(phi: VAE | PCA) -> tuple[tuple[np.ndarray, np.ndarray], ...]:
    """Weights and biases up to phi; PCA is one layer, and of the VAE's last only the means are phi."""
    if isinstance(phi, PCA):
        return ((phi._loadings, -np.asarray(phi.mean) @ phi._loadings),)
    layers = [(layer.weight.values, layer.bias.values) for layer in phi._network.encoder]
    weight, bias = layers[-1]
    return (*layers[:-1], (weight[:, : phi.width], bias[: phi.width]))
