"""Value iteration in JAX, for many rewards at once: V <- max_a [R + discount P V], with a bound on its error.

    |V* - V_{k+1}|  <=  discount / (1 - discount) * |V_{k+1} - V_k|              (discount < 1, maximum norm)

Undiscounted, with certain absorption, discount / (1 - discount) becomes the largest expected number of steps of any
policy, `longest_stay`. `plan` uses policy iteration, which is exact and quicker; this is its independent check, and a
building block for methods that plan inside a compiled JAX program (`bellman`).
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from kdbirl._jax import float64
from kdbirl.errors import InputError
from kdbirl.worlds.dynamics import Dynamics, dynamics_of
from kdbirl.worlds.policy import Policy
from kdbirl.worlds.policy_iteration import longest_stay
from kdbirl.worlds.tabular import TabularMDP

TOLERANCE = 1e-10  # of the largest |R| times the longest stay: the size that values can have
SWEEPS = 100_000
GATHERED = 64  # successors of a row up to which they are gathered


@dataclass(frozen=True, eq=False)
class Iterated:
    """`values (r, S)`, `q_values (r, S, A)` (0 where nobody acts), |V* - V| <= error_bound `(r,)`, sweeps, and whether
    the bound met the tolerance."""

    values: Float[np.ndarray, "r S"]
    q_values: Float[np.ndarray, "r S A"]
    error_bound: Float[np.ndarray, " r"]
    sweeps: int
    converged: bool


class Rows(NamedTuple):
    """Transition rows in JAX: `weight (u, k)` of the states `after (u, k)`, or, where `after` is None, of all n states.

    Rows with few successors are gathered: a matrix product hands its work to threads, which in a loop of thousands of
    small ones costs more than the work, and on a busy machine a thousand times more.
    """

    weight: Float[Array, "u k"]
    after: Int[Array, "u k"] | None

    @classmethod
    def of(cls, dynamics: Dynamics) -> "Rows":
        """From a world's compressed form."""
        successors = max(1, int((dynamics.rows > 0).sum(axis=1).max()))
        if successors > GATHERED:
            return cls(jnp.asarray(dynamics.rows), None)
        after = np.argsort(-dynamics.rows, axis=1, kind="stable")[:, :successors]
        return cls(jnp.asarray(np.take_along_axis(dynamics.rows, after, axis=1)), jnp.asarray(after))

    def expected(self, values: Float[Array, "n r"]) -> Float[Array, "u r"]:
        """Expected value of the next state after each row."""
        if self.after is None:
            return self.weight @ values
        return (self.weight[:, :, None] * values[self.after]).sum(axis=1)


def bellman(
    rows: Rows, row_of: Any, tables: Float[Array, "n A r"], discount: Any, values: Float[Array, "n r"]
) -> Float[Array, "n A r"]:
    """Q(s, a) = R(s, a) + discount sum_s' P(s' | s, a) V(s'), the rewards last."""
    return tables + discount * rows.expected(values)[row_of]


@float64
def value_iteration(mdp: TabularMDP, rewards: Any, tolerance: float = TOLERANCE, sweeps: int = SWEEPS) -> Iterated:
    """Optimal values for rewards (r, q), to `tolerance` times the size that values can have."""
    if mdp.horizon is not None:
        raise InputError("value_iteration is for worlds without a horizon; plan does backward induction with one.")
    dynamics = dynamics_of(mdp)
    tables = dynamics.tables(mdp.as_rewards(rewards))
    longest = longest_stay(dynamics)
    factor = longest * dynamics.discount
    goal = tolerance * longest * np.maximum(np.abs(tables).max(axis=(0, 1)), np.finfo(float).tiny)
    arrays = (Rows.of(dynamics), jnp.asarray(dynamics.row_of), jnp.asarray(tables))
    values, bound, done = _iterate(*arrays, dynamics.discount, factor, jnp.asarray(goal), sweeps)
    q_values = bellman(*arrays, dynamics.discount, values)
    return Iterated(
        on_all_states(dynamics, np.asarray(values).T[:, :, None])[:, :, 0],
        on_all_states(dynamics, np.asarray(q_values).transpose(2, 0, 1)),
        np.asarray(bound),
        int(done),
        bool((np.asarray(bound) <= goal).all()),
    )


@jax.jit
def _iterate(
    rows: Rows, row_of: Array, tables: Array, discount: Any, factor: Any, goal: Array, sweeps: Any
) -> tuple[Array, Array, Array]:
    """Sweeps until every reward's bound is below its goal."""

    def again(state: tuple[Array, Array, Array]) -> Array:
        return (state[1] > goal).any() & (state[2] < sweeps)

    def sweep(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        values, _, done = state
        better = bellman(rows, row_of, tables, discount, values).max(axis=1)
        return better, factor * jnp.abs(better - values).max(axis=0), done + 1

    values = tables.max(axis=1)
    return jax.lax.while_loop(again, sweep, (values, jnp.full_like(goal, jnp.inf), jnp.asarray(0)))


def on_all_states(dynamics: Dynamics, table: Float[np.ndarray, "r n k"]) -> Float[np.ndarray, "r S k"]:
    """A table over the live states, written into zeros over all states."""
    whole = np.zeros((len(table), dynamics.n_states, table.shape[2]))
    whole[:, dynamics.live] = table
    return whole


# Soft (maximum-entropy) value iteration in JAX, for many rewards at once (Ziebart 2010; Haarnoja et al. 2017).
#
#     Q(s, a) = R(s, a) + discount sum_s' P(s' | s, a) V(s')
#     V(s)    = temperature * log sum_a exp( Q(s, a) / temperature )
#     pi(a|s) = exp( (Q(s, a) - V(s)) / temperature )
#
# The optimal policy of an agent that earns `temperature` times its entropy besides the reward; towards temperature 0 it
# is value iteration. The map is a contraction by `discount`: |V* - V_{k+1}| <= discount / (1 - discount) |V_{k+1} -
# V_k|.


@dataclass(frozen=True, eq=False)
class SoftSolution:
    """`values (r, S)`, `q_values (r, S, A)`, `policies (r, S, A)`, |V* - V| <= error_bound `(r,)`."""

    values: Float[np.ndarray, "r S"]
    q_values: Float[np.ndarray, "r S A"]
    policies: Float[np.ndarray, "r S A"]
    error_bound: Float[np.ndarray, " r"]
    sweeps: int
    converged: bool

    def policy(self, i: int) -> Policy:
        """The policy of reward i."""
        return Policy(self.policies[i])


@float64
def soft_value_iteration(
    mdp: TabularMDP, rewards: Any, temperature: float | int, tolerance: float = TOLERANCE, sweeps: int = SWEEPS
) -> SoftSolution:
    """Soft-optimal values and policies for rewards (r, q). The discount must be below 1, or the bonus may not end."""
    if mdp.horizon is not None or mdp.discount == 1:
        raise InputError("soft_value_iteration needs a world with a discount below 1 and no horizon.")
    if not 0 < temperature < np.inf:
        raise InputError(f"temperature={temperature!r} should be a positive number.")
    dynamics = dynamics_of(mdp)
    tables = dynamics.tables(mdp.as_rewards(rewards))
    size = np.abs(tables).max(axis=(0, 1)) + temperature * np.log(dynamics.n_actions)
    goal = tolerance * np.maximum(size, np.finfo(float).tiny) / (1 - dynamics.discount)
    arrays = (Rows.of(dynamics), jnp.asarray(dynamics.row_of), jnp.asarray(tables))
    values, bound, done = _iterate_softly(*arrays, dynamics.discount, temperature, jnp.asarray(goal), sweeps)
    q_values = bellman(*arrays, dynamics.discount, values)
    chances = np.full((tables.shape[2], dynamics.n_states, dynamics.n_actions), 1.0 / dynamics.n_actions)
    chances[:, dynamics.live] = np.asarray(jax.nn.softmax(q_values / temperature, axis=1)).transpose(2, 0, 1)
    return SoftSolution(
        on_all_states(dynamics, np.asarray(values).T[:, :, None])[:, :, 0],
        on_all_states(dynamics, np.asarray(q_values).transpose(2, 0, 1)),
        chances,
        np.asarray(bound),
        int(done),
        bool((np.asarray(bound) <= goal).all()),
    )


@jax.jit
def _iterate_softly(
    rows: Rows, row_of: Array, tables: Array, discount: Any, temperature: Any, goal: Array, sweeps: Any
) -> tuple[Array, Array, Array]:
    """Sweeps until every reward's bound is below its goal."""

    def again(state: tuple[Array, Array, Array]) -> Array:
        return (state[1] > goal).any() & (state[2] < sweeps)

    def sweep(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        values, _, done = state
        q_values = bellman(rows, row_of, tables, discount, values)
        better = temperature * jax.nn.logsumexp(q_values / temperature, axis=1)
        return better, discount / (1 - discount) * jnp.abs(better - values).max(axis=0), done + 1

    return jax.lax.while_loop(again, sweep, (tables.max(axis=1), jnp.full_like(goal, jnp.inf), jnp.asarray(0)))
