"""The two networks of AVRIL: the reward's encoder and the action values' decoder (Chan and van der Schaar 2021).

    encoder   s -> mean and log standard deviation of R(s), or of R(s, a) for every action a
    decoder   s -> Q(s, a) for every action a

Both are layers of ELU units, as released. They compute in single
precision, as networks usually do.
"""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from kdbirl.dense_layers import Layer, dense_layers

Layers = tuple[Layer, ...]


class RewardAndValueNetwork(eqx.Module):
    """`outputs` of the encoder are 1 for a reward of the state, the number of actions for one of state and action.

    Every leaf is an array that is learnt, so that the network is carried through compiled loops as it is.
    """

    encoder: Layers
    decoder: Layers

    def __init__(
        self, inputs: int, hidden: Sequence[int], outputs: int, actions: int, rng: np.random.Generator
    ) -> None:
        self.encoder = dense_layers((inputs, *hidden, 2 * outputs), rng)
        self.decoder = dense_layers((inputs, *hidden, actions), rng)

    def reward(self, states: Float[Array, "n d"]) -> tuple[Float[Array, "n c"], Float[Array, "n c"]]:
        """Mean and log standard deviation of q(R | s)."""
        mean, log_sd = jnp.split(_through(self.encoder, states), 2, axis=1)
        return mean, log_sd

    def action_values(self, states: Float[Array, "n d"]) -> Float[Array, "n A"]:
        """Q(s, a) of every action."""
        return _through(self.decoder, states)


def _through(layers: Layers, states: Float[Array, "n d"]) -> Float[Array, "n o"]:
    for layer in layers[:-1]:
        states = jax.nn.elu(layer(states))
    return layers[-1](states)
