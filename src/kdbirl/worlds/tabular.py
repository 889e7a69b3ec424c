"""`TabularMDP`: a world with finitely many states and actions, as arrays, validated once, here, and frozen.

    V(pi, R) = E[ sum_t discount^t R(s_t, a_t) ],    s_0 ~ start,  a_t ~ pi(. | s_t),  s_{t+1} ~ transitions[s_t, a_t]

A reward is a vector of q parameters: R(s, a) = features(s, a) . reward; without features, one parameter per state.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float, Int

from kdbirl.errors import InputError, did_you_mean
from kdbirl.worlds import tabular_arrays as arrays

# Which states can be reached, and whether every policy ends: what decides if a discount of 1 has a meaning.


def reachable_states(
    transitions: Float[np.ndarray, "S A S"], start: Float[np.ndarray, " S"], terminal: Bool[np.ndarray, " S"]
) -> Bool[np.ndarray, " S"]:
    """States that some policy visits from the start distribution; nothing is reached through a terminal state."""
    leads_to = transitions.max(axis=1) > 0
    reached = start > 0
    frontier = reached & ~terminal
    while frontier.any():
        found = leads_to[frontier].any(axis=0) & ~reached
        reached = reached | found
        frontier = found & ~terminal
    return reached


def lingering_states(
    transitions: Float[np.ndarray, "S A S"], terminal: Bool[np.ndarray, " S"], among: Bool[np.ndarray, " S"]
) -> Bool[np.ndarray, " S"]:
    """States of `among` in which some policy can stay for ever without meeting a terminal state.

    The largest set in each of whose states an action exists that never leaves the set. If it is empty, every policy is
    absorbed with probability one, in a finite expected time.
    """
    staying = among & ~terminal
    while staying.any():
        leaves = transitions[staying][:, :, ~staying].sum(axis=2)
        kept = staying.copy()
        kept[staying] = (leaves <= 0).any(axis=1)
        if np.array_equal(kept, staying):
            return staying
        staying = kept
    return staying


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


# A world, in a table or simulated: what its name, its rewards and its demonstrations have in common.


@runtime_checkable
class World(Protocol):
    """A `TabularMDP` or a simulator; its rewards are weights of the features."""

    @property
    def feature_names(self) -> tuple[str, ...]: ...

    @property
    def n_actions(self) -> int: ...

    @property
    def discount(self) -> float: ...

    def describe(self) -> dict[str, Any]:
        """What defines the world, as JSON, for a record."""


# What an environment gives when somebody acts in it: plain arrays, of which `demos.rollouts` makes demonstrations.


@dataclass(frozen=True, eq=False)
class Steps:
    """One row for each action that was taken.

    states: `(rows,)` codes or `(rows, d)` numbers, before the action; actions: `(rows,)` codes; episodes: `(rows,)`.
    terminated: the episode *ended* with this action; truncated: it was merely *cut* after it.
    n_states, n_actions: how many there are (n_states is None for numbers). rewards: `(rows,)`, the environment's own.
    """

    states: Int[np.ndarray, " rows"] | Float[np.ndarray, "rows d"]
    actions: Int[np.ndarray, " rows"]
    episodes: Int[np.ndarray, " rows"]
    terminated: Bool[np.ndarray, " rows"]
    truncated: Bool[np.ndarray, " rows"]
    n_states: int | None
    n_actions: int
    rewards: Float[np.ndarray, " rows"] | None = None


# Gymnasium's toy-text worlds, which carry their own table of transitions, as a `TabularMDP`.

FEATURES = ("state", "next-state", "env-reward")


def from_toy_text(env: Any, discount: Any, features: Any = "state", horizon: Any = None) -> TabularMDP:
    """`env.unwrapped.P[s][a]` = list of (probability, next state, reward, done), with `initial_state_distrib`.

    A transition that is done goes to an added end state, which is absorbing and has no reward: demonstrations have the
    rows that Gymnasium gives. The world's own expected reward is kept as `env_reward`.
    features: "state", one parameter per state, earned by *acting* in it; "next-state", one per state, earned by
    *arriving* in it (phi(s, a) = the distribution of the next state, done or not: it sees goals and holes, where nobody
    acts); "env-reward", one parameter that multiplies the world's own reward; or an array over the world's states.
    """
    table, start = _tables(env)
    states, actions = len(table), len(table[0])
    transitions = np.zeros((states + 1, actions, states + 1))
    arrivals = np.zeros((states + 1, actions, states))
    env_reward = np.zeros((states + 1, actions))
    transitions[states, :, states] = 1.0
    for s in range(states):
        for a in range(actions):
            for probability, after, reward, done in table[s][a]:
                transitions[s, a, states if done else after] += probability
                arrivals[s, a, after] += probability
                env_reward[s, a] += probability * reward
    phi, names = _features(features, arrivals, env_reward)
    return TabularMDP(
        transitions,
        np.append(start, 0.0),
        discount,
        phi,
        terminal=np.arange(states + 1) == states,
        horizon=horizon,
        feature_names=names,
        env_reward=env_reward,
        recorded_states=states,
    )


def _tables(env: Any) -> tuple[Any, np.ndarray]:
    inner = getattr(env, "unwrapped", env)
    table, start = getattr(inner, "P", None), getattr(inner, "initial_state_distrib", None)
    if table is None or start is None:
        raise InputError(
            f"{type(inner).__name__} has no table of transitions (P and initial_state_distrib), as Gymnasium's "
            "toy-text worlds have; kb.rollout takes it as it is, and kb.TabularMDP takes arrays."
        )
    return table, np.asarray(start, dtype=np.float64)


def _features(kind: Any, arrivals: np.ndarray, env_reward: np.ndarray) -> tuple[np.ndarray, list[str]]:
    states = arrivals.shape[2]
    if not isinstance(kind, str):
        phi = np.asarray(kind, dtype=np.float64)
        if phi.ndim not in (2, 3) or len(phi) != states:
            raise InputError(f"features: shape {phi.shape}, expected ({states}, q) or ({states}, actions, q).")
        return np.concatenate([phi, np.zeros((1, *phi.shape[1:]))]), []
    if kind not in FEATURES:
        raise InputError(f"features={kind!r} is unknown.{did_you_mean(kind, FEATURES)}")
    if kind == "env-reward":
        return env_reward[:, :, None], ["env reward"]
    names = [f"state {s}" for s in range(states)]
    return (np.eye(states + 1)[:, :states], names) if kind == "state" else (arrivals, names)
