"""The objective of AVRIL, term by term (Chan and van der Schaar 2021, Eqs. 4 to 8):

    F = mean_i  log softmax(beta Q(s_i, .))[a_i]                                            the expert's actions
              - KL( N(mu_i, sigma_i^2) || N(mu_0, sigma_0^2) )                              the prior of the reward
              + lambda log N( Q(s_i, a_i) - discount Q(s'_i, a'_i);  mu_i, sigma_i^2 )      Q and R are of one world

with mu_i, sigma_i from the encoder at s_i (and a_i), and a'_i the expert's next action. The paper's F is a sum over
rows; the mean has the same maximum. In the released program discount = lambda = beta = 1, mu_0 = 0 and sigma_0 = 1.

With lambda = 1 the two logarithms of sigma_i cancel, and what is left is largest at sigma_i^2 = sigma_0 |TD_i - mu_i|:
sigma says how far Q and R are from a Bellman equation, and nothing about how many rows there were. This is the method.
"""

from collections.abc import Sequence
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from kdbirl.training import Layers, dense_layers, through

LOG_2_PI = 1.8378770664093453


class RewardAndValueNetwork(eqx.Module):
    """Two networks of ELU units, as released, in single precision:

    encoder   s -> mean and log standard deviation of R(s) (1 output), or of R(s, a) for every action a
    decoder   s -> Q(s, a) for every action a
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
        mean, log_sd = jnp.split(through(self.encoder, states, jax.nn.elu), 2, axis=1)
        return mean, log_sd

    def action_values(self, states: Float[Array, "n d"]) -> Float[Array, "n A"]:
        """Q(s, a) of every action."""
        return through(self.decoder, states, jax.nn.elu)


class Transitions(NamedTuple):
    """n rows (s, a, s', a'). `continues`: s', a' are there; `terminated`: the episode ended, so that nothing follows.
    Where neither holds (a cut episode's last row) the third term is unknown, and left out."""

    state: Float[Array, "n d"]
    action: Int[Array, " n"]
    following: Float[Array, "n d"]
    next_action: Int[Array, " n"]
    continues: Bool[Array, " n"]
    terminated: Bool[Array, " n"]


class Weights(NamedTuple):
    """The numbers of the objective: beta, lambda, the discount, and the prior N(mean, sd^2) of every reward."""

    beta: Float[Array, ""]
    td_weight: Float[Array, ""]
    discount: Float[Array, ""]
    prior_mean: Float[Array, ""]
    prior_sd: Float[Array, ""]


class Terms(NamedTuple):
    """The three terms of each row; `td_log_density` is 0 where it is unknown, and not yet times lambda."""

    action_log_likelihood: Float[Array, " n"]
    divergence: Float[Array, " n"]
    td_log_density: Float[Array, " n"]

    def elbo(self, td_weight: Float[Array, ""]) -> Float[Array, " n"]:
        """What each row adds to F."""
        return self.action_log_likelihood - self.divergence + td_weight * self.td_log_density


def terms(network: RewardAndValueNetwork, rows: Transitions, weights: Weights) -> Terms:
    """The three terms of each row."""
    # One pass for s and s' together: these matrices are small, and every operation has its price.
    values = network.action_values(jnp.concatenate([rows.state, rows.following]))
    now, then = jnp.split(values, 2)
    error = td_error(now, then, rows, weights.discount)
    mean, log_sd = (chosen(part, rows.action) for part in network.reward(rows.state))
    known = rows.continues | rows.terminated
    return Terms(
        action_log_likelihood=chosen(jax.nn.log_softmax(weights.beta * now), rows.action),
        divergence=normal_divergence(mean, log_sd, weights.prior_mean, weights.prior_sd),
        td_log_density=jnp.where(known, normal_log_density(error, mean, log_sd), 0.0),
    )


def loss(
    network: RewardAndValueNetwork, data: tuple[Transitions, Weights], batch: Int[Array, " b"]
) -> Float[Array, ""]:
    """-F on some of the rows: what training lowers."""
    rows, weights = data
    return -jnp.mean(terms(network, Transitions(*(part[batch] for part in rows)), weights).elbo(weights.td_weight))


@jax.jit
def objective(
    network: RewardAndValueNetwork, weights: Weights, rows: Transitions, count: int | Int[Array, ""]
) -> Float[Array, ""]:
    """The mean objective of the first `count` rows."""
    each = terms(network, rows, weights).elbo(weights.td_weight)
    return jnp.sum(jnp.where(jnp.arange(len(each)) < count, each, 0.0)) / count


def td_error(
    now: Float[Array, "n A"], then: Float[Array, "n A"], rows: Transitions, discount: Float[Array, ""]
) -> Float[Array, " n"]:
    """Q(s, a) - discount Q(s', a'), without the second where the episode ended: the reward that Q implies."""
    return chosen(now, rows.action) - jnp.where(rows.continues, discount * chosen(then, rows.next_action), 0.0)


def normal_divergence(
    mean: Float[Array, " n"], log_sd: Float[Array, " n"], prior_mean: Float[Array, ""], prior_sd: Float[Array, ""]
) -> Float[Array, " n"]:
    """KL( N(mean, sd^2) || N(prior_mean, prior_sd^2) )."""
    log_ratio = log_sd - jnp.log(prior_sd)
    return 0.5 * (jnp.exp(2 * log_ratio) + ((mean - prior_mean) / prior_sd) ** 2 - 1) - log_ratio


def normal_log_density(
    x: Float[Array, " n"], mean: Float[Array, " n"], log_sd: Float[Array, " n"]
) -> Float[Array, " n"]:
    """log N(x; mean, sd^2)."""
    return -0.5 * ((x - mean) * jnp.exp(-log_sd)) ** 2 - log_sd - 0.5 * LOG_2_PI


def chosen(values: Float[Array, "n A"], action: Int[Array, " n"]) -> Float[Array, " n"]:
    """The column of each row's action; a single column serves every action."""
    if values.shape[1] == 1:
        return values[:, 0]
    return jnp.take_along_axis(values, action[:, None], axis=1)[:, 0]
