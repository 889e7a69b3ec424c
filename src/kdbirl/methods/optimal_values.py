"""Q*(s, a) of one reward in JAX: exact, differentiable, and warm-started from a policy where there is one.

    Q*(s, a) = R(s, a) + discount sum_s' P(s' | s, a) V*(s'),      V*(s) = max_a Q*(s, a),      R = phi . reward

Policy iteration (Howard 1960) finds an optimal policy pi; V* then solves (I - discount P_pi) V = R_pi. Where pi is the
only optimal policy it stays so nearby, so d V* / d R is that of the linear system at fixed pi (the envelope theorem):
exact everywhere but on the boundaries between policies, where Q* has a kink. Nothing is smoothed.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from kdbirl._jax import float64
from kdbirl.errors import InputError
from kdbirl.worlds.dynamics import dynamics_of
from kdbirl.worlds.tabular import TabularMDP

NEGLIGIBLE = 1e-18  # discount^steps below which nothing more is added in double precision
GAIN = 1e-12  # an action changes only for a gain above this share of the largest |Q|: rounding must not go in circles
ROUNDS = 200  # policy iteration needs about ten
SWEEPS = 40  # of value iteration before the first exact evaluation, where there is no policy to start from


class Moves(ABC):
    """How the n live states follow each other."""

    @abstractmethod
    def expected(self, values: Float[Array, " n"]) -> Float[Array, "n A"]:
        """E[V(next)] after each action; the end of an episode is worth 0."""

    @abstractmethod
    def policy_values(
        self, chosen: Int[Array, " n"], earned: Float[Array, " n"], discount: Float[Array, ""]
    ) -> Float[Array, " n"]:
        """V of the policy that takes the action `chosen` in each state and earns `earned` there."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class CertainMoves(Moves):
    """Nothing is left to chance: `after (n, A)` is the next live state, n the end.

    V_{2k} = V_k + discount^k V_k[the state after k steps]: `doublings` look-ups instead of a linear system.
    """

    after: Int[Array, "n A"]
    doublings: int = field(metadata={"static": True})

    def expected(self, values: Float[Array, " n"]) -> Float[Array, "n A"]:
        return jnp.append(values, 0.0)[self.after]

    def policy_values(
        self, chosen: Int[Array, " n"], earned: Float[Array, " n"], discount: Float[Array, ""]
    ) -> Float[Array, " n"]:
        place = jnp.append(_of_action(self.after, chosen), len(chosen))
        values, factor = jnp.append(earned, 0.0), discount
        for _ in range(self.doublings):
            values = values + factor * values[place]
            place, factor = place[place], factor * factor
        return values[:-1]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class RandomMoves(Moves):
    """The u distinct transition rows `rows (u, n)`, and which of them each action has, `row_of (n, A)`."""

    rows: Float[Array, "u n"]
    row_of: Int[Array, "n A"]

    def expected(self, values: Float[Array, " n"]) -> Float[Array, "n A"]:
        return (self.rows @ values)[self.row_of]

    def policy_values(
        self, chosen: Int[Array, " n"], earned: Float[Array, " n"], discount: Float[Array, ""]
    ) -> Float[Array, " n"]:
        system = jnp.eye(len(chosen), dtype=earned.dtype) - discount * self.rows[_of_action(self.row_of, chosen)]
        return jnp.linalg.solve(system, earned)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class OptimalValues:
    """Q* of the live states as a function of the reward's q parameters. `features`: phi, `(n, q)` or `(n, A, q)`."""

    moves: Moves
    features: Float[Array, "n q"] | Float[Array, "n A q"]
    discount: Float[Array, ""]
    n_actions: int = field(metadata={"static": True})

    @classmethod
    @float64
    def of(cls, mdp: TabularMDP) -> "OptimalValues":
        """From a world without a horizon: with one, Q* would depend on the step, which demonstrations do not tell."""
        if mdp.horizon is not None:
            raise InputError(
                f"horizon={mdp.horizon}: BIRL needs a world whose optimal policy does not depend on the step; give one "
                "with horizon=None and a discount below 1, or certain absorption."
            )
        dynamics = dynamics_of(mdp)
        moves: Moves
        if dynamics.successor is not None:
            after = jnp.asarray(dynamics.successor[dynamics.row_of], dtype=jnp.int32)
            moves = CertainMoves(after, _doublings(mdp.discount, dynamics.n))
        else:
            moves = RandomMoves(jnp.asarray(dynamics.rows), jnp.asarray(dynamics.row_of, dtype=jnp.int32))
        return cls(moves, jnp.asarray(dynamics.features), jnp.asarray(mdp.discount, dtype=float), mdp.n_actions)

    def __call__(self, reward: Float[Array, " q"]) -> Float[Array, "n A"]:
        """Q*(s, a), differentiable in the reward."""
        table = self.reward_table(reward)
        fixed = jax.lax.stop_gradient(table)
        return self.of_policy(self.optimal_policy(fixed, self.first_policy(fixed)), table)

    def warm(self, reward: Float[Array, " q"], policy: Int[Array, " n"]) -> tuple[Array, Array]:
        """Q* `(n, A)` and an optimal policy `(n,)`, found from the policy of another, similar reward."""
        table = self.reward_table(reward)
        optimal = self.optimal_policy(table, policy)
        return self.of_policy(optimal, table), optimal

    def reward_table(self, reward: Float[Array, " q"]) -> Float[Array, "n A"]:
        """R(s, a) = phi(s, a) . reward."""
        values = self.features @ reward
        return values if values.ndim == 2 else jnp.repeat(values[:, None], self.n_actions, axis=1)

    def of_policy(self, policy: Int[Array, " n"], table: Float[Array, "n A"]) -> Float[Array, "n A"]:
        """Q of a deterministic policy."""
        values = self.moves.policy_values(policy, _of_action(table, policy), self.discount)
        return table + self.discount * self.moves.expected(values)

    def first_policy(self, table: Float[Array, "n A"]) -> Int[Array, " n"]:
        """The best actions after a few sweeps of value iteration."""

        def sweep(_: Any, values: Array) -> Array:
            return jnp.max(table + self.discount * self.moves.expected(values), axis=1)

        values = jax.lax.fori_loop(0, SWEEPS, sweep, jnp.max(table, axis=1))
        return jnp.argmax(table + self.discount * self.moves.expected(values), axis=1).astype(jnp.int32)

    def optimal_policy(self, table: Float[Array, "n A"], policy: Int[Array, " n"]) -> Int[Array, " n"]:
        """Policy iteration from `policy`: rounds of exact evaluation and improvement, until nothing improves."""

        def again(state: tuple[Array, Array, Array]) -> Array:
            return state[1] & (state[2] < ROUNDS)

        def improve(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
            q_values = self.of_policy(state[0], table)
            better = _improves(q_values, state[0])
            changed = jnp.where(better, jnp.argmax(q_values, axis=1).astype(jnp.int32), state[0])
            return changed, better.any(), state[2] + 1

        return jax.lax.while_loop(again, improve, (policy, jnp.asarray(True), jnp.asarray(0)))[0]


def _improves(q_values: Float[Array, "n A"], policy: Int[Array, " n"]) -> Bool[Array, " n"]:
    """Where another action gains more than rounding error."""
    gain = jnp.max(q_values, axis=1) - _of_action(q_values, policy)
    return gain > GAIN * jnp.max(jnp.abs(q_values))


def _of_action(table: Array, chosen: Int[Array, " n"]) -> Array:
    """The entry of each state's chosen action."""
    return jnp.take_along_axis(table, chosen[:, None], axis=1)[:, 0]


def _doublings(discount: float, n: int) -> int:
    """Doublings until nothing is left to add: discount^(2^k) is negligible, or every walk has ended after n steps."""
    if discount == 0:
        return 1
    steps = n + 1 if discount == 1 else np.log(NEGLIGIBLE) / np.log(discount)
    return max(1, int(np.ceil(np.log2(steps))))


# The likelihood of BIRL: an expert whose actions follow the optimal action values (Ramachandran and Amir 2007).
#
# With Q*(s, a) of the reward R (`optimal_values`) and an inverse temperature alpha:
#
#     "policy":        p(a | s, R) = exp(alpha Q*(s, a)) / sum_b exp(alpha Q*(s, b))               (a Boltzmann policy)
#     "joint":         p(s, a | R) = exp(alpha Q*(s, a)) / sum_{s', b} exp(alpha Q*(s', b))         (Eq. 2 of the paper)
#     "unnormalized":  exp(alpha Q*(s, a)), as PolicyWalk was published: its constant depends on R and was left out
#
# The joint form says that experts are rather *found* in states of high value; it sums over all states where anybody
# acts.

Form = Literal["policy", "joint", "unnormalized"]
FORMS: tuple[Form, ...] = get_args(Form)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class BIRLLikelihood:
    """sum_i log p(expert row i | R). `visits (n, A)` counts the expert's rows in each live state and action.

    A table of counts has the same shape for every expert of a world, so a sampler is compiled once.
    """

    optimal_values: OptimalValues
    alpha: Float[Array, ""]
    visits: Float[Array, "n A"]
    form: Form = field(metadata={"static": True})

    @classmethod
    @float64
    def of(
        cls, optimal_values: OptimalValues, alpha: float, visits: Float[np.ndarray, "n A"], form: Form
    ) -> "BIRLLikelihood":
        """From NumPy arrays."""
        return cls(optimal_values, jnp.asarray(alpha, dtype=float), jnp.asarray(visits, dtype=float), form)

    def __call__(self, reward: Float[Array, " q"]) -> Float[Array, ""]:
        return self.of_action_values(self.optimal_values(reward))

    def of_action_values(self, q_values: Float[Array, "n A"]) -> Float[Array, ""]:
        """The log likelihood where Q* is known already."""
        return jnp.sum(self.visits * self.log_densities(q_values))

    def log_densities(self, q_values: Float[Array, "n A"]) -> Float[Array, "n A"]:
        """log p of a row in each state with each action."""
        scaled = self.alpha * q_values
        if self.form == "policy":
            return jax.nn.log_softmax(scaled, axis=1)
        if self.form == "joint":
            return scaled - jax.nn.logsumexp(scaled)
        return scaled

    def pointwise(self, reward: Float[Array, " q"]) -> Float[Array, " pairs"]:
        """log p of every pair of state and action, by state; the method takes those that the expert shows."""
        return self.log_densities(self.optimal_values(reward)).reshape(-1)
