"""Gymnasium's toy-text worlds, which carry their own table of transitions, as a `TabularMDP`."""

from typing import Any

import numpy as np

from kdbirl.envs.base import TabularMDP
from kdbirl.errors import InputError, did_you_mean

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
