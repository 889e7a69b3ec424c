"""Soft (maximum-entropy) value iteration in JAX, for many rewards at once (Ziebart 2010; Haarnoja et al. 2017).

    Q(s, a) = R(s, a) + discount sum_s' P(s' | s, a) V(s')
    V(s)    = temperature * log sum_a exp( Q(s, a) / temperature )
    pi(a|s) = exp( (Q(s, a) - V(s)) / temperature )

The optimal policy of an agent that earns `temperature` times its entropy besides the reward; towards temperature 0 it
is value iteration. The map is a contraction by `discount`: |V* - V_{k+1}| <= discount / (1 - discount) |V_{k+1} - V_k|.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from kdbirl.envs.base import TabularMDP
from kdbirl.errors import InputError
from kdbirl.planners.dynamics import dynamics_of
from kdbirl.planners.policy import Policy
from kdbirl.planners.value_iteration import SWEEPS, TOLERANCE, Rows, bellman, on_all_states
from kdbirl.precision import float64


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
    values, bound, done = _iterate(*arrays, dynamics.discount, temperature, jnp.asarray(goal), sweeps)
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
def _iterate(
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
