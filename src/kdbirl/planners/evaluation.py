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
from kdbirl.errors import InputError
from kdbirl.planners.dynamics import Dynamics, dynamics_of
from kdbirl.planners.linear_solve import mean_rows, occupancies_by_factoring, on_one_thread, systems
from kdbirl.planners.policy import Policy, as_policy


def value(mdp: TabularMDP, policy: Any, reward: Any) -> float:
    """V(pi, R) from the start distribution, for one reward (q,)."""
    weights = mdp.as_rewards(reward)
    return float(weights[0] @ feature_expectations(mdp, policy))


@on_one_thread
def policy_values(mdp: TabularMDP, policy: Any, reward: Any) -> Float[np.ndarray, " S"]:
    """V(s) of each state, 0 in terminal ones; with a horizon, with all its steps to go."""
    table, dynamics = as_policy(policy, mdp.n_states, mdp.n_actions), dynamics_of(mdp)
    rewards = dynamics.tables(mdp.as_rewards(reward))[:, :, 0]
    values = np.zeros(mdp.n_states)
    if mdp.horizon is None:
        chances = table.at(0)[dynamics.live]
        system = systems(dynamics, mean_rows(dynamics, chances[None]))[0]
        values[dynamics.live] = np.linalg.solve(system, (chances * rewards).sum(axis=1))
        return values
    here = np.zeros((dynamics.n, 1))
    for chances in _of_steps(table, mdp.horizon)[::-1, dynamics.live]:
        after = dynamics.expected(here)[dynamics.row_of][:, :, 0]
        here = (chances * (rewards + mdp.discount * after)).sum(axis=1, keepdims=True)
    values[dynamics.live] = here[:, 0]
    return values


@on_one_thread
def occupancy(mdp: TabularMDP, policy: Any) -> Float[np.ndarray, "S A"]:
    """Discounted expected number of times that each action is taken in each state; it sums to the mean length."""
    table, dynamics = as_policy(policy, mdp.n_states, mdp.n_actions), dynamics_of(mdp)
    if mdp.horizon is None:
        chances = table.at(0)[dynamics.live]
        here = occupancies_by_factoring(dynamics, chances[None])[0][:, None] * chances
    else:
        here = visits_by_step(dynamics, _of_steps(table, mdp.horizon)[None, :, dynamics.live])[0]
    visits = np.zeros((mdp.n_states, mdp.n_actions))
    visits[dynamics.live] = here
    return visits


def visits_by_step(dynamics: Dynamics, chances: Float[np.ndarray, "r T n A"]) -> Float[np.ndarray, "r n A"]:
    """Discounted visits of state and action over T steps, forwards from the start distribution."""
    total = np.zeros((len(chances), *chances.shape[2:]))
    here = np.repeat(dynamics.start[None], len(chances), axis=0)
    for step in range(chances.shape[1]):
        acting = here[:, :, None] * chances[:, step]
        total += dynamics.discount**step * acting
        here = dynamics.pushed(acting)
    return total


def feature_expectations(mdp: TabularMDP, policy: Any) -> Float[np.ndarray, " q"]:
    """mu: the discounted sum of phi(s, a) that the policy collects, so that its value is w . mu."""
    dynamics = dynamics_of(mdp)
    return collected_features(dynamics, occupancy(mdp, policy)[None, dynamics.live])[0]


def collected_features(dynamics: Dynamics, visits: Float[np.ndarray, "r n A"]) -> Float[np.ndarray, "r q"]:
    """mu = sum_{s,a} visits(s, a) phi(s, a)."""
    phi = dynamics.features
    if phi.ndim == 2:
        return visits.sum(axis=2) @ phi
    return visits.reshape(len(visits), -1) @ phi.reshape(-1, phi.shape[2])


def _of_steps(policy: Policy, horizon: int) -> Float[np.ndarray, "T S A"]:
    """The tables of `horizon` steps."""
    if policy.steps not in (None, horizon):
        raise InputError(f"The policy is for {policy.steps} steps, but this world has a horizon of {horizon}.")
    return np.broadcast_to(policy.probabilities, (horizon, policy.n_states, policy.n_actions))
