"""Planning as it is written in textbooks: slow, obvious, and without any code of the library's planners."""

from itertools import product

import numpy as np
from scipy.optimize import linprog

import kdbirl as kb


def tables(mdp: kb.TabularMDP, reward: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Transitions with nothing after the end, and R(s, a)."""
    transitions = mdp.transitions * ~mdp.terminal[None, None, :] * ~mdp.terminal[:, None, None]
    return transitions, mdp.reward_table(reward)


def by_linear_programme(mdp: kb.TabularMDP, reward: np.ndarray) -> np.ndarray:
    """min sum V such that V(s) >= R(s, a) + discount sum P V for all s, a (Puterman 2005, 6.9)."""
    transitions, rewards = tables(mdp, reward)
    states, actions = rewards.shape
    rows = [mdp.discount * transitions[s, a] - np.eye(states)[s] for s in range(states) for a in range(actions)]
    found = linprog(
        np.ones(states), A_ub=np.array(rows), b_ub=-rewards.ravel(), bounds=(None, None), method="highs-ds",
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )  # fmt: skip
    assert found.status == 0, found.message
    return found.x


def by_sweeps(mdp: kb.TabularMDP, reward: np.ndarray, sweeps: int = 5000) -> np.ndarray:
    """Value iteration, state by state."""
    transitions, rewards = tables(mdp, reward)
    values = np.zeros(mdp.n_states)
    for _ in range(sweeps):
        values = (rewards + mdp.discount * transitions @ values).max(axis=1)
    return values


def value_of(mdp: kb.TabularMDP, policy: np.ndarray, reward: np.ndarray) -> float:
    """V from the start distribution by summing over time until nothing is added."""
    transitions, rewards = tables(mdp, reward)
    here, total, factor = mdp.start.copy(), 0.0, 1.0
    for step in range(mdp.horizon or 5000):
        if factor < 1e-18:
            break
        chances = policy if policy.ndim == 2 else policy[step]
        total += factor * (here[:, None] * chances * rewards).sum()
        here = np.einsum("s,sa,sat->t", here, chances, transitions)
        factor *= mdp.discount
    return float(total)


def best_by_enumeration(mdp: kb.TabularMDP, reward: np.ndarray) -> float:
    """The best of all deterministic policies, by trying each."""
    policies = product(range(mdp.n_actions), repeat=mdp.n_states)
    return max(value_of(mdp, np.eye(mdp.n_actions)[list(choice)], reward) for choice in policies)
