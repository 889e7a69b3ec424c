"""The interface of vectorised simulators in JAX: many episodes side by side, one call a step, everything compiled.

A simulator is a frozen object of pure functions; its state is any pytree whose leaves have the n episodes first.

    state, observation = simulator.reset(key, n)                # observation (n, d)
    outcome            = simulator.step(state, action, key)     # action (n,) ints; see `Outcome`

`terminated` and `truncated` are kept apart; a simulator does not reset by itself, so what happens after the end of an
episode is the caller's business. `TabularSimulator` makes one of any `TabularMDP`, and is the reference for tests.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from kdbirl.worlds.tabular import TabularMDP


class Outcome(NamedTuple):
    """What one step gives: the next state, its observation `(n, d)`, the features phi(s, a) `(n, q)` of the step just
    taken (the reward is w . phi), `(n,)` flags, and whatever else the simulator has to say."""

    state: Any
    observation: Float[Array, "n d"]
    features: Float[Array, "n q"]
    terminated: Bool[Array, " n"]
    truncated: Bool[Array, " n"]
    info: dict[str, Any]


@runtime_checkable
class Simulator(Protocol):
    """What planners and rollouts ask of a simulator."""

    @property
    def n_actions(self) -> int:
        """Actions are the codes 0 .. n_actions - 1."""

    @property
    def observation_names(self) -> tuple[str, ...]:
        """The d columns of an observation."""

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The q features that a reward weighs."""

    @property
    def discount(self) -> float:
        """Of the value that is planned for."""

    @property
    def horizon(self) -> int | None:
        """Steps after which an episode is truncated, or None."""

    def reset(self, key: Array, n: int) -> tuple[Any, Float[Array, "n d"]]:
        """n fresh episodes and their first observations."""

    def step(self, state: Any, action: Int[Array, " n"], key: Array) -> Outcome:
        """One step of every episode."""


def identity(simulator: Simulator) -> Any:
    """By what compiled programs know a simulator again: itself, so that equal ones share them; but a user's may hold
    arrays, which can be neither compared nor hashed, and is told apart by its id."""
    try:
        hash(simulator)
    except TypeError:
        return id(simulator)
    return simulator


class TabularState(NamedTuple):
    """Where each episode is, and how many steps it has taken."""

    cell: Int[Array, " n"]
    step: Int[Array, " n"]


@dataclass(frozen=True, eq=False)
class TabularSimulator:
    """A `TabularMDP` as a simulator. `observations (S, d)` describe its states; default one-hot.

    The tables are NumPy constants of the compiled program, in the precision that JAX has where it is called.
    """

    mdp: TabularMDP
    observations: Float[np.ndarray, "S d"] | None = None

    @property
    def n_actions(self) -> int:
        return self.mdp.n_actions

    @property
    def observation_names(self) -> tuple[str, ...]:
        return tuple(f"o{i}" for i in range(self._observed.shape[1]))

    @property
    def feature_names(self) -> tuple[str, ...]:
        return self.mdp.feature_names

    @property
    def discount(self) -> float:
        return self.mdp.discount

    @property
    def horizon(self) -> int | None:
        return self.mdp.horizon

    @property
    def _observed(self) -> np.ndarray:
        return np.eye(self.mdp.n_states) if self.observations is None else self.observations

    @property
    def _features(self) -> np.ndarray:
        phi = np.eye(self.mdp.n_states) if self.mdp.features is None else self.mdp.features
        return phi if phi.ndim == 3 else np.repeat(phi[:, None, :], self.mdp.n_actions, axis=1)

    def reset(self, key: Array, n: int) -> tuple[TabularState, Float[Array, "n d"]]:
        """First states from the start distribution."""
        cell = jax.random.categorical(key, _log(self.mdp.start), shape=(n,))
        return TabularState(cell, jnp.zeros_like(cell)), jnp.asarray(self._observed)[cell]

    def step(self, state: TabularState, action: Int[Array, " n"], key: Array) -> Outcome:
        """Move every episode by one step; episodes in a terminal state are not moved on sensibly."""
        cell = jax.random.categorical(key, _log(self.mdp.transitions)[state.cell, action], axis=-1)
        step = state.step + 1
        terminated = jnp.asarray(self.mdp.terminal)[cell]
        limit = np.iinfo(np.int32).max if self.horizon is None else self.horizon
        features = jnp.asarray(self._features)[state.cell, action]
        observation = jnp.asarray(self._observed)[cell]
        return Outcome(TabularState(cell, step), observation, features, terminated, (step >= limit) & ~terminated, {})


def _log(probabilities: np.ndarray) -> Array:
    with np.errstate(divide="ignore"):
        return jnp.asarray(np.log(probabilities))
