"""What AVRIL has learnt: q(R | s, a) of any row, and the policy of its Q network."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from kdbirl.demos.data import Demonstrations
from kdbirl.errors import InputError
from kdbirl.methods.avril_elbo import RewardAndValueNetwork, chosen
from kdbirl.methods.avril_rows import StateView, coded_like, standardised
from kdbirl.planners.acting import Actor
from kdbirl.planners.policy import Policy
from kdbirl.precision import single_precision
from kdbirl.progress import Course


@dataclass(frozen=True, eq=False)
class AVRILAgent:
    """The trained networks. A policy wherever one is asked for: `kb.rollout(env, agent)`, `kb.value(mdp, agent, R)`.

    course: how the training went. state_only: whether the reward is one of the state alone. expert: the rows that it
    was trained on, whose labels and columns say how others are read.
    """

    network: RewardAndValueNetwork
    view: StateView
    expert: Demonstrations
    n_actions: int
    state_only: bool
    course: Course

    def reward(self, rows: Demonstrations) -> tuple[Float[np.ndarray, " rows"], Float[np.ndarray, " rows"]]:
        """Mean and standard deviation of the reward of each row, whose labels or columns may be in another order."""
        if not self.state_only and not rows.discrete_actions:
            raise InputError("This AVRIL has a reward of state and action: rows need discrete actions.")
        if rows.discrete_states != (self.view.n_states is not None):
            raise InputError("The rows' states must be of the kind that AVRIL was trained on, discrete or numbers.")
        return self.coded_reward(
            rows.states_aligned_to(self.expert) if self.state_only else coded_like(self.expert, rows)
        )

    @single_precision
    def coded_reward(self, rows: Demonstrations) -> tuple[Float[np.ndarray, " rows"], Float[np.ndarray, " rows"]]:
        """The same for rows that are coded as the expert's are."""
        mean, log_sd = _rewards(self.network, self.view.see(self.view.checked(rows.states)))
        action = jnp.zeros(rows.n_rows, int) if self.state_only else jnp.asarray(np.asarray(rows.actions))
        if not self.state_only and rows.n_rows and int(action.max()) >= self.n_actions:
            raise InputError(f"There is no action {int(action.max())}; actions are 0 to {self.n_actions - 1}.")
        mean, log_sd = (np.asarray(chosen(part, action), dtype=np.float64) for part in (mean, log_sd))
        return mean, np.exp(log_sd)

    @single_precision
    def q_values(self, observations: Any) -> Float[np.ndarray, "n A"]:
        """Q(s, a) for states `(n, d)`, or the codes `(n,)` of discrete ones."""
        seen = self.view.see(self.view.checked(observations))
        return np.asarray(_values(self.network, seen), dtype=np.float64)

    def actions(self, observations: Any) -> Int[np.ndarray, " n"]:
        """The action of highest value in each."""
        return self.q_values(observations).argmax(axis=1)

    def predict(self, observation: Any) -> int:
        """The action for one observation `(d,)`, or one discrete state."""
        return int(self.actions(np.asarray(observation)[None])[0])

    def __call__(self, observations: Float[Array, "n d"]) -> Int[Array, " n"]:
        """The actions for a simulator's observations, in JAX: what compiled rollouts call."""
        return jnp.argmax(self.network.action_values(self.view.see(observations)), axis=1)

    def as_actor(self) -> Actor:
        """How it acts in a simulator, its numbers as parameters: agents of one size share one compiled program."""
        if self.view.n_states is not None:
            return Actor(lambda parameters, state, observation, step, key: self(observation), ())
        return Actor(_acts, (self.network, jnp.asarray(self.view.centre), jnp.asarray(self.view.spread)), alike=True)

    def table(self, n_states: int | None = None) -> Policy:
        """The policy as a table of `n_states` discrete states (default: those of the expert)."""
        if self.view.n_states is None:
            raise InputError("This AVRIL was trained on states of numbers; only discrete states make a table.")
        states = np.arange(self.view.n_states if n_states is None else n_states)
        return Policy(np.eye(self.n_actions)[self.actions(states)])

    def __repr__(self) -> str:
        return f"AVRILAgent({self.course.sentence})"


def _acts(
    parameters: tuple[RewardAndValueNetwork, Array, Array], state: Any, observation: Array, step: Any, key: Array
) -> Int[Array, " n"]:
    network, centre, spread = parameters
    return jnp.argmax(network.action_values(standardised(observation, centre, spread)), axis=1)


@jax.jit
def _values(network: RewardAndValueNetwork, states: Float[Array, "n d"]) -> Float[Array, "n A"]:
    return network.action_values(states)


@jax.jit
def _rewards(
    network: RewardAndValueNetwork, states: Float[Array, "n d"]
) -> tuple[Float[Array, "n c"], Float[Array, "n c"]]:
    return network.reward(states)
