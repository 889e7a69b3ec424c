"""Small worlds for BIRL, and its quantities written out the slow, obvious way."""

from functools import cache

import numpy as np

import kdbirl as kb


def small() -> kb.Gridworld:
    """The 2x2 grid, forgetful enough that value iteration is quick."""
    return kb.Gridworld(2, discount=0.7)


def expert(world: kb.TabularMDP, rows: int = 30, seed: int = 0) -> kb.Demonstrations:
    """A Boltzmann expert who wants the last reward parameter."""
    truth = np.eye(world.n_parameters)[-1]
    return kb.rollout(world, kb.plan(world, truth, temperature=0.5), episodes=rows // 5, horizon=5, seed=seed)


def random_world(discount: float = 0.9, seed: int = 0) -> kb.TabularMDP:
    """Six states of which the last is terminal, three actions, four features of state and action."""
    rng = np.random.default_rng(seed)
    transitions = rng.dirichlet(np.full(6, 0.5), (6, 3))
    return kb.TabularMDP(transitions, "uniform", discount, rng.normal(size=(6, 3, 4)), terminal=np.arange(6) == 5)


def corridor() -> kb.TabularMDP:
    """0 -> 1 -> 2 -> end by either action, or straight to the end: certain, and not discounted."""
    transitions = np.zeros((4, 2, 4))
    transitions[np.arange(4), 0, [1, 2, 3, 3]] = transitions[:, 1, 3] = 1.0
    return kb.TabularMDP(transitions, 0, 1.0, terminal=np.arange(4) == 3)


def action_values(world: kb.TabularMDP, rewards: np.ndarray, sweeps: int = 400) -> np.ndarray:
    """Q* (r, S, A) by value iteration."""
    tables = world.reward_table(rewards)
    values = np.zeros((len(rewards), world.n_states))
    for _ in range(sweeps):
        q_values = tables + world.discount * np.tensordot(values, world.transitions, axes=(1, 2))
        values = np.where(world.terminal, 0.0, q_values.max(axis=2))
    return q_values


def log_densities(world: kb.TabularMDP, rewards: np.ndarray, alpha: float, form: str, sweeps: int = 800) -> np.ndarray:
    """log p of each pair of state and action, (r, S, A), from the formulas."""
    weights = np.exp(alpha * action_values(world, rewards, sweeps))
    if form == "policy":
        return np.log(weights / weights.sum(axis=2, keepdims=True))
    if form == "joint":
        acting = weights * ~world.terminal[:, None]
        return np.log(weights / acting.sum(axis=(1, 2), keepdims=True))
    return np.log(weights)


def cells(per_side: int, parameters: int) -> np.ndarray:
    """Midpoints of equal cells of the unit cube."""
    middle = (np.arange(per_side) + 0.5) / per_side
    return np.stack(np.meshgrid(*[middle] * parameters, indexing="ij"), axis=-1).reshape(-1, parameters)


@cache
def exact_moments(alpha: float, form: str, per_side: int) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of each parameter of `small` on a lattice of cells, uniform prior on the unit cube."""
    world, rows = small(), expert(small())
    points = cells(per_side, world.n_parameters)
    values = log_densities(world, points, alpha, form, sweeps=60)[:, rows.states, rows.actions].sum(axis=1)
    weights = np.exp(values - values.max())
    weights /= weights.sum()
    mean = weights @ points
    return mean, weights @ (points - mean) ** 2
