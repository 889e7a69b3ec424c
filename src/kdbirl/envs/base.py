"""`TabularMDP`: a world with finitely many states and actions, as arrays, validated once, here, and frozen.

    V(pi, R) = E[ sum_t discount^t R(s_t, a_t) ],    s_0 ~ start,  a_t ~ pi(. | s_t),  s_{t+1} ~ transitions[s_t, a_t]

A reward is a vector of q parameters: R(s, a) = features(s, a) . reward; without features, one parameter per state.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from kdbirl.envs import arrays
from kdbirl.envs.absorption import lingering_states, reachable_states
from kdbirl.errors import InputError


@dataclass(frozen=True, eq=False, init=False, repr=False)
class TabularMDP:
    """A Markov decision process with S states and A actions; its reward is left open, as q parameters.

    Arguments (copied to read-only arrays):
        transitions: `(S, A, S)` probabilities of the next state; every row sums to one.
        start: `(S,)` distribution of the first state, the number of a single state, or "uniform" (not on terminals).
        discount: in [0, 1]. 1 needs a `horizon`, or that every policy ends in a terminal state with certainty.
        features: phi, `(S, q)` or `(S, A, q)`; None is one parameter per state, R(s, a) = reward[s].
        terminal: `(S,)` booleans: the episode is over when such a state is reached; nobody acts there, nothing is
            earned there, and its rows of `transitions` are replaced by staying there.
        horizon: episodes end after this many steps at the latest, and optimal policies depend on the step; None: never.
        feature_names, state_names, action_names: words for tables and plots.
        env_reward: `(S, A)`, the world's own expected reward, where it has one.
        recorded_states: demonstrations declare the states 0 .. recorded_states - 1; the others must be terminal, such
            as an end state that was added. Default: all S.
    """

    transitions: Float[np.ndarray, "S A S"]
    start: Float[np.ndarray, " S"]
    discount: float
    features: Float[np.ndarray, "S A q"] | Float[np.ndarray, "S q"] | None
    terminal: Bool[np.ndarray, " S"]
    horizon: int | None
    feature_names: tuple[str, ...]
    state_names: tuple[str, ...] | None
    action_names: tuple[str, ...]
    env_reward: Float[np.ndarray, "S A"] | None
    recorded_states: int

    def __init__(
        self,
        transitions: Any,
        start: Any,
        discount: Any,
        features: Any = None,
        *,
        terminal: Any = None,
        horizon: Any = None,
        feature_names: Sequence[str] = (),
        state_names: Sequence[str] | None = None,
        action_names: Sequence[str] = (),
        env_reward: Any = None,
        recorded_states: int | None = None,
    ) -> None:
        table, ends = arrays.as_transitions(transitions, terminal)
        n_states, n_actions, _ = table.shape
        phi = arrays.as_features(features, n_states, n_actions)
        q = n_states if phi is None else phi.shape[-1]
        default = [f"state {s}" for s in range(q)] if phi is None else [f"phi{j}" for j in range(q)]
        values: dict[str, object] = {
            "transitions": table,
            "terminal": ends,
            "start": arrays.as_start(start, ends),
            "discount": arrays.as_discount(discount),
            "horizon": arrays.as_horizon(horizon),
            "features": phi,
            "feature_names": arrays.as_names(feature_names, q, default, "feature_names"),
            "action_names": arrays.as_names(action_names, n_actions, map(str, range(n_actions)), "action_names"),
            "state_names": None if state_names is None else arrays.as_names(state_names, n_states, (), "state_names"),
            "env_reward": None if env_reward is None else arrays.as_table(env_reward, n_states, n_actions),
            "recorded_states": arrays.as_recorded(recorded_states, ends),
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)  # the object is frozen, and only being made
        if self.discount == 1 and self.horizon is None:
            self._check_absorption()

    def _check_absorption(self) -> None:
        stays = lingering_states(self.transitions, self.terminal, self.reachable)
        if stays.any():
            state = self.state_name(int(stays.argmax()))
            raise InputError(
                f"discount=1: a policy can stay for ever without an end, for example in {state}, so its value may be "
                "infinite; give a discount below 1, a horizon, or terminal states that no policy avoids."
            )

    @classmethod
    def from_gymnasium(cls, env: Any, discount: Any, features: Any = "state", horizon: Any = None) -> "TabularMDP":
        """From a Gymnasium environment with a table of transitions (`env.unwrapped.P`): see `envs.toy_text`."""
        from kdbirl.envs.toy_text import from_toy_text

        return from_toy_text(env, discount, features, horizon)

    @property
    def n_states(self) -> int:
        return len(self.start)

    @property
    def n_actions(self) -> int:
        return int(self.transitions.shape[1])

    @property
    def n_parameters(self) -> int:
        """q, the length of a reward."""
        return len(self.feature_names)

    @cached_property
    def reachable(self) -> Bool[np.ndarray, " S"]:
        """The states that some policy visits."""
        return arrays.frozen(reachable_states(self.transitions, self.start, self.terminal))

    def state_name(self, state: int) -> str:
        """How a message speaks of a state."""
        return f"state {state}" if self.state_names is None else f"state {state} ({self.state_names[state]})"

    def as_rewards(self, rewards: Any) -> Float[np.ndarray, "r q"]:
        """One reward (q,) or several (r, q) as a table of finite numbers; a wrong length is the user's to mend."""
        return arrays.as_rewards(rewards, self.feature_names)

    def reward_table(self, rewards: Any) -> Float[np.ndarray, "S A"] | Float[np.ndarray, "r S A"]:
        """R(s, a) = phi(s, a) . reward, `(S, A)`; for several rewards `(r, q)` all their tables, `(r, S, A)`.

        Terminal states have no reward: nobody acts there.
        """
        table = self.as_rewards(rewards)
        phi = np.eye(self.n_states) if self.features is None else self.features
        values = np.tensordot(table, phi, axes=(1, phi.ndim - 1))
        values = values if values.ndim == 3 else np.repeat(values[:, :, None], self.n_actions, axis=2)
        values = np.where(self.terminal[None, :, None], 0.0, values)
        return values[0] if np.ndim(rewards) == 1 else values

    def features_of(self, states: Any, actions: Any) -> Float[np.ndarray, "rows q"]:
        """phi of rows of demonstrations, for feature maps: `kb.Function(mdp.features_of, names=mdp.feature_names)`."""
        state = np.asarray(states).reshape(-1).astype(np.int64)
        if self.features is None:
            return np.eye(self.n_states)[state]
        if self.features.ndim == 2:
            return np.array(self.features[state])
        return np.array(self.features[state, np.asarray(actions).reshape(-1).astype(np.int64)])

    def describe(self) -> dict[str, Any]:
        """What defines the world, as JSON, for a run's record; the defaults that were used are among it."""
        return {
            "world": type(self).__name__,
            "states": self.n_states,
            "actions": list(self.action_names),
            "discount": self.discount,
            "horizon": self.horizon,
            "terminal_states": int(self.terminal.sum()),
            "reward_parameters": list(self.feature_names),
        }

    def __repr__(self) -> str:
        end = "" if self.horizon is None else f", horizon {self.horizon}"
        sizes = f"{self.n_states} states, {self.n_actions} actions, {self.n_parameters} reward parameters"
        return f"{type(self).__name__}({sizes}, discount {self.discount:g}{end})"
