"""Worlds of every kind, small, for tests that each of them must pass."""

import jax
import numpy as np
from scipy import stats

import kdbirl as kb
from kdbirl.worlds.acting import as_actor
from kdbirl.worlds.simulated_rollouts import recorded_chances
from kdbirl.worlds.simulator import Simulator


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


def check_random_actions(simulator: Simulator, n: int = 1000, steps: int = 4) -> int:
    """Play as a recording does, and test that random actions are independent of all that was seen before, the last
    step's noise included: above or below the median of each observed column and of its last change. Each table fails
    by chance once in a million, divided by the number of tables, which is returned."""
    chances = recorded_chances(0, steps)
    act, parameters, *_ = as_actor("random", simulator, steps)
    state, seen = simulator.reset(chances.start, n)
    before, tables = np.zeros_like(seen), []
    step = jax.jit(simulator.step)
    for number in range(steps):
        action = act(parameters, state, seen, number, chances.choose[number])
        for column in np.concatenate([seen, np.asarray(seen) - before], axis=1).T:
            high = column > np.median(column)
            if 0.03 < high.mean() < 0.97:  # else too few for a table
                tables.append(stats.contingency.crosstab(high, np.asarray(action) % 6).count)
        before, outcome = np.asarray(seen), step(state, action, chances.on[number])
        state, seen = outcome.state, outcome.observation
    assert min(stats.chi2_contingency(table).pvalue for table in tables) > 1e-6 / len(tables)
    return len(tables)
