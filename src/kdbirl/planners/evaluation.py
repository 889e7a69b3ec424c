"""What a policy is worth: its value, the states it visits, the features it collects. Exact, by a linear solve.

    x(s)   = sum_t discount^t P(s_t = s),              x = start + discount P_pi^T x
    mu     = sum_{s,a} x(s) pi(a | s) phi(s, a)        feature expectations
    V(pi, w) = w . mu                                  the value from the start distribution

With a horizon the sums stop there. States are all S of the world; terminal ones are never acted in.
"""

from typing import Any

import numpy as np
from jaxtyping import Float

from kdbirl.envs.base import TabularMDP
from kdbirl.planners.dynamics import Dynamics, dynamics_of
from kdbirl.planners.linear_solve import occupancies_by_factoring, one_thread, row_weights
from kdbirl.planners.policy import as_policy


def value(mdp: TabularMDP, policy: Any, reward: Any) -> float:
    """V(pi, R) from the start distribution, for one reward (q,)."""
    weights = mdp.as_rewards(reward)
    return float(weights[0] @ feature_expectations(mdp, policy))


def policy_values(mdp: TabularMDP, policy: Any, reward: Any) -> Float[np.ndarray, " S"]:
    """V(s) of each state, 0 in terminal ones; with a horizon, with all its steps to go."""
    table, dynamics = as_policy(policy, mdp.n_states, mdp.n_actions), dynamics_of(mdp)
    rewards = dynamics.tables(mdp.as_rewards(reward))[:, :, 0]
    values = np.zeros(mdp.n_states)
    if mdp.horizon is None:
        chances = table.at(0)[dynamics.live]
        mean = row_weights(dynamics, chances[None])[0]
        with one_thread():
            system = np.eye(dynamics.n) - mdp.discount * mean
            values[dynamics.live] = np.linalg.solve(system, (chances * rewards).sum(axis=1))
        return values
    here = np.zeros((dynamics.n, 1))
    for step in reversed(range(mdp.horizon)):
        chances = table.at(step)[dynamics.live]
        after = dynamics.expected(here)[dynamics.row_of][:, :, 0]
        here = (chances * (rewards + mdp.discount * after)).sum(axis=1, keepdims=True)
    values[dynamics.live] = here[:, 0]
    return values


def occupancy(mdp: TabularMDP, policy: Any) -> Float[np.ndarray, "S A"]:
    """Discounted expected number of times that each action is taken in each state; sums to the mean length."""
    table, dynamics = as_policy(policy, mdp.n_states, mdp.n_actions), dynamics_of(mdp)
    visits = np.zeros((mdp.n_states, mdp.n_actions))
    if mdp.horizon is None:
        chances = table.at(0)[dynamics.live]
        visits[dynamics.live] = occupancies_by_factoring(dynamics, chances[None])[0][:, None] * chances
        return visits
    here, factor = dynamics.start.copy(), 1.0
    for step in range(mdp.horizon):
        acting = here[:, None] * table.at(step)[dynamics.live]
        visits[dynamics.live] += factor * acting
        here, factor = pushed(dynamics, acting), factor * mdp.discount
    return visits


def pushed(dynamics: Dynamics, acting: Float[np.ndarray, "n A"]) -> Float[np.ndarray, " n"]:
    """The distribution of the next live state, from that of state and action."""
    weight = np.bincount(dynamics.row_of.ravel(), acting.ravel(), minlength=len(dynamics.rows))
    return dynamics.expected_from(weight)


def feature_expectations(mdp: TabularMDP, policy: Any) -> Float[np.ndarray, " q"]:
    """mu: the discounted sum of phi(s, a) that the policy collects, so that its value is w . mu."""
    visits = occupancy(mdp, policy)
    phi = np.eye(mdp.n_states) if mdp.features is None else mdp.features
    return np.tensordot(visits, phi, 2) if phi.ndim == 3 else visits.sum(axis=1) @ phi
