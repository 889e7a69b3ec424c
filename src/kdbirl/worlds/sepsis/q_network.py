"""The network of deep Q-learning, Q(s, a, w) = w . f(s, a, w), for rewards w . phi(s, a); with a horizon Q(s, t, a, w).

The best values grow linearly with the size of w, which the product with w gives for nothing; f itself is free. (f
could be learnt as successor features, E[sum_t discount^t phi], by a loss on the vectors. Tried, and four times worse:
they jump wherever the best policy changes with w, while Q is continuous.) With the reward itself as the only feature,
w = 1 and f is Q, so that one network serves a single reward too.

Networks compute in single precision, as is usual: action values have some six digits,
and the noise of learning is far above that.
"""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

CLOCK = 4  # inputs that tell the time to go


class ActionValueNetwork(eqx.Module):
    """Layers of ReLU units with layer normalisation on (s, w), then a dueling head (Wang et al. 2016):

        f(s, a, w) = horizon V(s, w) + A(s, a, w) - mean_b A(s, b, w),      horizon = 1 / (1 - discount)

    so that both V and A are of the size of one step's features. Every leaf is an array that is learnt, so that the
    network can be differentiated, averaged and carried through loops as it is.

    limit: the number T of steps of an episode, if the network is to know it; then the share u = (T - t) / T that is to
    go after t steps is an input too, and `horizon` (sum_{t < T} discount^t) is multiplied with it. Else t has no part.
    """

    layers: tuple[eqx.nn.Linear, ...]
    norms: tuple[eqx.nn.LayerNorm, ...]
    value: eqx.nn.Linear
    advantage: eqx.nn.Linear
    horizon: float = eqx.field(static=True)
    limit: int | None = eqx.field(static=True)

    def __init__(
        self,
        inputs: int,
        hidden: Sequence[int],
        actions: int,
        p: int,
        horizon: float,
        key: Array,
        limit: int | None = None,
    ) -> None:
        clock = 0 if limit is None else CLOCK
        sizes, keys = (inputs + clock, *hidden), jax.random.split(key, len(hidden) + 2)
        self.layers = tuple(
            eqx.nn.Linear(sizes[i], sizes[i + 1], key=keys[i])  # one layer for each size of `hidden`
            for i in range(len(hidden))
        )
        self.norms = tuple(eqx.nn.LayerNorm(n) for n in hidden)
        self.value = eqx.nn.Linear(sizes[-1], p, key=keys[-2])
        self.advantage = eqx.nn.Linear(sizes[-1], actions * p, key=keys[-1])
        self.horizon, self.limit = horizon, limit

    def __call__(
        self, observation: Float[Array, " d"], step: Int[Array, ""], weights: Float[Array, " p"]
    ) -> Float[Array, " A"]:
        """Q of every action in one state after `step` steps, for one w."""
        inputs, horizon = [observation, weights], jnp.asarray(self.horizon)
        if self.limit is not None:
            to_go = 1 - step.astype(observation.dtype) / self.limit
            inputs, horizon = [*inputs, _clock(to_go)], horizon * to_go
        x = jnp.concatenate(inputs)
        for layer, norm in zip(self.layers, self.norms, strict=True):
            x = jax.nn.relu(norm(layer(x)))
        advantage = self.advantage(x).reshape(-1, len(weights)) @ weights
        return horizon * (self.value(x) @ weights) + advantage - advantage.mean()


def _clock(to_go: Float[Array, ""]) -> Float[Array, " clock"]:
    """cos(k pi u), k = 1, ...: the time to go, so that few units tell the last steps from the first."""
    return jnp.cos(jnp.pi * jnp.arange(1, CLOCK + 1, dtype=to_go.dtype) * to_go)


def action_values(
    network: ActionValueNetwork,
    observation: Float[Array, "n d"],
    step: Int[Array, " n"],
    weights: Float[Array, "n p"],
) -> Float[Array, "n A"]:
    """Q(s, t, a, w) of n triples (s, t, w)."""
    return jax.vmap(network)(observation, step, weights)


def greedy(
    network: ActionValueNetwork,
    observation: Float[Array, "n d"],
    step: Int[Array, " n"],
    weights: Float[Array, "n p"],
) -> Int[Array, " n"]:
    """The action of highest value for each of n triples (s, t, w)."""
    return jnp.argmax(action_values(network, observation, step, weights), axis=1)
