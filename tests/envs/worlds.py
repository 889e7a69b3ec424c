"""Worlds of every kind, small, for tests that each of them must pass."""

import numpy as np

import kdbirl as kb


def random_mdp(
    states: int = 7, actions: int = 3, discount: float = 0.9, seed: int = 0, ends: float = 0.0, **options: object
) -> kb.TabularMDP:
    """Dense random transitions; with `ends` every action leads to a last, terminal state with that probability."""
    rng = np.random.default_rng(seed)
    transitions = rng.dirichlet(np.full(states, 0.4), (states, actions))
    start = rng.dirichlet(np.ones(states))
    terminal = None
    if ends:
        transitions *= 1 - ends
        transitions[:, :, -1] += ends
        terminal = np.arange(states) == states - 1
        start[-1] = 0
        start /= start.sum()
    return kb.TabularMDP(transitions, start, discount, terminal=terminal, **options)


def frozen_lake(**options: object) -> kb.TabularMDP:
    import gymnasium

    return kb.TabularMDP.from_gymnasium(gymnasium.make("FrozenLake-v1"), 0.95, **options)


def featurised(seed: int = 0) -> kb.TabularMDP:
    """phi(s, a) of three columns."""
    phi = np.random.default_rng(seed).normal(size=(7, 3, 3))
    return random_mdp(seed=seed, features=phi, feature_names=["a", "b", "c"])


WORLDS = {
    "random": random_mdp,
    "random with an end": lambda: random_mdp(ends=0.1, discount=1.0),
    "features of state and action": featurised,
    "horizon": lambda: random_mdp(discount=1.0, horizon=6),
    "grid": lambda: kb.Gridworld(4),
    "grid with everything": lambda: kb.Gridworld(4, start=0, slip=0.2, walls=[5, 6], goal=15, discount=0.9),
    "featurised grid": lambda: kb.Gridworld(5, features="xy", scaled=True),
    "FrozenLake": frozen_lake,
    "FrozenLake by arrival": lambda: frozen_lake(features="next-state"),
    "ICUSepsis": lambda: kb.ICUSepsis(outcome=True),
}
