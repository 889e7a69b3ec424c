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
from dataclasses import dataclass
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from kdbirl.data.demonstrations import Demonstrations
from kdbirl.errors import InputError
from kdbirl.random_streams import stream
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


# The expert's rows as AVRIL reads them: what follows each row, how the networks see a state, whole held-out episodes.
#
# Row i is followed by the next row of its episode. The last row of an episode has no next one: where it `terminated`,
# nothing follows, and Q(s, a) is the reward itself; where it was cut, or nothing is known, it teaches only the action.

SAME = 1e-6  # a column with a smaller spread than this share of its size is constant up to rounding


class Succession(NamedTuple):
    """following: the row after each row, -1 if there is none; terminated: the episode ended with it; part: which
    unbroken run of rows it belongs to, 0 .. parts - 1."""

    following: Int[np.ndarray, " rows"]
    terminated: Bool[np.ndarray, " rows"]
    part: Int[np.ndarray, " rows"]


def succession(expert: Demonstrations) -> Succession:
    """Rows of one episode follow each other in their order; a row that is terminated or truncated is its last."""
    nothing = np.zeros(expert.n_rows, dtype=bool)
    terminated = nothing if expert.terminated is None else np.asarray(expert.terminated)
    cut = nothing if expert.truncated is None else np.asarray(expert.truncated)
    order = np.argsort(expert.episodes, kind="stable")
    goes_on = np.zeros(expert.n_rows, dtype=bool)
    goes_on[:-1] = np.diff(expert.episodes[order]) == 0
    goes_on &= ~(terminated | cut)[order]
    following, part = np.full(expert.n_rows, -1), np.zeros(expert.n_rows, dtype=np.int64)
    following[order[:-1][goes_on[:-1]]] = order[1:][goes_on[:-1]]
    part[order[1:]] = np.cumsum(~goes_on[:-1])
    return Succession(following, terminated, part)


@dataclass(frozen=True, eq=False)
class StateView:
    """How the networks see a state: (s - centre) / spread, or one-hot where there are `n_states` discrete ones.

    A discrete state beyond those, such as an end that no row shows, is all zeros.
    """

    centre: Float[np.ndarray, " d"]
    spread: Float[np.ndarray, " d"]
    n_states: int | None = None

    @classmethod
    def learn(cls, expert: Demonstrations, n_states: int | None, standardize: bool) -> "StateView":
        """Mean 0 and standard deviation 1 over the expert's rows, or numbers as they are."""
        width = n_states if n_states is not None else expert.states.shape[1]
        if n_states is not None or not standardize:
            return cls(np.zeros(width), np.ones(width), n_states)
        spread, size = expert.states.std(axis=0), np.abs(expert.states).max(axis=0)
        return cls(expert.states.mean(axis=0), np.where(spread > SAME * size, spread, 1.0), None)

    @property
    def width(self) -> int:
        return len(self.centre)

    def see(self, states: Any) -> Float[Array, "n d"]:
        """Codes `(n,)`, or numbers `(n, d)`, as the networks' input, in JAX."""
        given = jnp.asarray(states)
        if given.ndim == 1:
            return jax.nn.one_hot(given, self.width, dtype=jnp.float32)
        return standardised(given, jnp.asarray(self.centre), jnp.asarray(self.spread))

    def checked(self, states: Any) -> np.ndarray:
        """States from a user: codes `(n,)` of discrete states, or `(n, d)` numbers."""
        given = np.asarray(states)
        if self.n_states is not None and given.ndim == 1:
            if given.size and (given.dtype.kind not in "iu" or given.min() < 0):
                raise InputError(f"States are the codes 0 to {self.n_states - 1}, not {given.tolist()[:5]}.")
            return given.astype(np.int32)
        if given.ndim != 2 or given.shape[1] != self.width:
            expected = f"(n, {self.width})" if self.n_states is None else "(n,) codes"
            raise InputError(f"The states have shape {given.shape}, expected {expected}.")
        return given.astype(np.float64)


def standardised(
    states: Float[Array, "n d"], centre: Float[Array, " d"], spread: Float[Array, " d"]
) -> Float[Array, "n d"]:
    """(s - centre) / spread in single precision, as the networks compute."""
    return (states.astype(jnp.float32) - centre.astype(jnp.float32)[None]) / spread.astype(jnp.float32)[None]


def coded_like(other: Demonstrations, rows: Demonstrations) -> Demonstrations:
    """`rows` in the coding of `other`, of which either may have no actions."""
    both = rows.actions is not None and other.actions is not None
    return rows.aligned_to(other) if both else rows.states_aligned_to(other)


def transitions(expert: Demonstrations, follows: Succession, view: StateView, rows: Int[np.ndarray, " m"]) -> Any:
    """The `Transitions` of these rows."""
    next_row = np.where(follows.following >= 0, follows.following, np.arange(expert.n_rows))[rows]
    states, actions = np.asarray(expert.states), np.asarray(expert.actions)
    return Transitions(
        state=view.see(_exact(states[rows])),
        action=jnp.asarray(actions[rows].astype(np.int32)),
        following=view.see(_exact(states[next_row])),
        next_action=jnp.asarray(actions[next_row].astype(np.int32)),
        continues=jnp.asarray(follows.following[rows] >= 0),
        terminated=jnp.asarray(follows.terminated[rows]),
    )


def _exact(states: np.ndarray) -> np.ndarray:
    return states.astype(np.int32 if states.ndim == 1 else np.float32)


def padded(rows: Transitions, size: int | None = None) -> Transitions:
    """Repeat the last row up to a power of two from `size`, so that experts of many lengths share few programs."""
    more = 2 ** int(np.ceil(np.log2(size or len(rows.action)))) - len(rows.action)
    return Transitions(*(jnp.concatenate([part, jnp.repeat(part[-1:], more, axis=0)]) for part in rows))


def learnt_and_held_out(
    expert: Demonstrations, view: StateView, keep_ends: bool, share: float, seed: int
) -> tuple[Any, Any]:
    """The transitions to learn from, and those held out (None if there are none)."""
    follows = succession(expert)
    learnt, aside = split(follows, keep_ends, share, seed)
    if not len(learnt):
        raise InputError('No row of the expert has a next one, so ends="dropped" leaves none; use "terminated".')
    held_out = transitions(expert, follows, view, aside) if len(aside) else None
    return transitions(expert, follows, view, learnt), held_out


def split(
    follows: Succession, keep_ends: bool, share: float, seed: int
) -> tuple[Int[np.ndarray, " m"], Int[np.ndarray, " k"]]:
    """Rows to learn from, and rows of whole episodes held out: `share` of the episodes, but never the last one.

    Without `keep_ends` rows that nothing follows are left out.
    """
    usable = np.flatnonzero(keep_ends | (follows.following >= 0))
    parts = np.unique(follows.part[usable])
    count = min(max(1, round(share * len(parts))), len(parts) - 1) if share > 0 and len(parts) else 0
    aside = np.random.default_rng(stream(seed, "rows held out of AVRIL")).permutation(parts)[:count]
    held = np.isin(follows.part[usable], aside)
    return usable[~held], usable[held]
