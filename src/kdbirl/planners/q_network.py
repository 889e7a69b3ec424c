"""The network of deep Q-learning: successor features psi(s, a, w), of which Q(s, a, w) = w . psi(s, a, w).

    psi(s, a, w) = E[ sum_t discount^t phi(s_t, a_t) | s, a, then the policy that is greedy for w ]

(universal successor features, Borsa et al. 2019). With one feature that is the reward itself and w = 1, psi is Q, so
that one network serves both forms. Only this file imports Equinox. Arithmetic is in single precision, as it is usual
for networks: action values have some six digits, and the noise of learning is far above that.
"""

import os
from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

SCALAR = bool(os.environ.get("SCALAR"))


class SuccessorNetwork(eqx.Module):
    """Layers of ReLU units with layer normalisation on (s, w), then a dueling head (Wang et al. 2016):

        psi(s, a, w) = V(s, w) / (1 - discount) + A(s, a, w) - mean_b A(s, b, w)

    Every leaf is an array that is learnt, so that it can be differentiated, averaged and carried as it is.
    """

    layers: tuple[eqx.nn.Linear, ...]
    norms: tuple[eqx.nn.LayerNorm, ...]
    value: eqx.nn.Linear
    advantage: eqx.nn.Linear
    value_scale: float = eqx.field(static=True)

    def __init__(self, inputs: int, hidden: Sequence[int], actions: int, p: int, value_scale: float, key: Array):
        sizes, keys = (inputs, *hidden), jax.random.split(key, len(hidden) + 2)
        pairs = zip(sizes[:-1], sizes[1:], keys, strict=False)
        self.layers = tuple(eqx.nn.Linear(m, n, key=k) for m, n, k in pairs)
        self.norms = tuple(eqx.nn.LayerNorm(n) for n in hidden)
        self.value = eqx.nn.Linear(sizes[-1], p, key=keys[-2])
        self.advantage = eqx.nn.Linear(sizes[-1], actions * p, key=keys[-1])
        self.value_scale = value_scale

    def __call__(self, observation: Float[Array, " d"], weights: Float[Array, " p"]) -> Float[Array, "A p"]:
        """psi of every action in one state, for one w."""
        x = jnp.concatenate([observation, weights])
        for layer, norm in zip(self.layers, self.norms, strict=True):
            x = jax.nn.relu(norm(layer(x)))
        if SCALAR:
            a = self.advantage(x).reshape(-1, len(weights))[:, :1]
            v = self.value(x)[:1]
            return (
                (v[None] * self.value_scale + a - a.mean(axis=0, keepdims=True))
                * weights[None]
                / jnp.maximum(jnp.sum(weights**2), 1e-9)
            )
        advantage = self.advantage(x).reshape(-1, len(weights))
        return self.value(x)[None] * self.value_scale + advantage - advantage.mean(axis=0, keepdims=True)


def action_values(
    network: SuccessorNetwork, observation: Float[Array, "n d"], weights: Float[Array, "n p"]
) -> Float[Array, "n A"]:
    """Q(s, a, w) = w . psi(s, a, w) of n pairs (s, w)."""
    return jnp.einsum("nap,np->na", jax.vmap(network)(observation, weights), weights)


def greedy(
    network: SuccessorNetwork, observation: Float[Array, "n d"], weights: Float[Array, "n p"]
) -> Int[Array, " n"]:
    """The action of highest value."""
    return jnp.argmax(action_values(network, observation, weights), axis=1)
