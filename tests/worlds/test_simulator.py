"""The vectorised simulator of a tabular world: the same frequencies as its tables, under jit."""

import jax
import jax.numpy as jnp
import numpy as np
from scipy.stats import chisquare

import kdbirl as kb
from kdbirl.worlds.simulator import TabularSimulator

N = 20_000


def test_frequencies_are_those_of_the_tables():
    """Chi-square tests at one in a million."""
    grid = kb.Gridworld(3, slip=0.5, goal=8)
    simulator = TabularSimulator(grid)
    state, observation = simulator.reset(jax.random.key(0), N)
    assert observation.shape == (N, 10)
    possible = grid.start > 0
    counts = np.bincount(np.asarray(state.cell), minlength=10)
    assert counts[~possible].sum() == 0
    assert chisquare(counts[possible], N * grid.start[possible]).pvalue > 1e-6
    there = state._replace(cell=jnp.full(N, 4))
    outcome = jax.jit(simulator.step)(there, jnp.full(N, 1), jax.random.key(1))
    expected = grid.transitions[4, 1]
    counts = np.bincount(np.asarray(outcome.state.cell), minlength=10)
    assert counts[expected == 0].sum() == 0
    assert chisquare(counts[expected > 0], N * expected[expected > 0]).pvalue > 1e-6
    np.testing.assert_array_equal(outcome.features[0], grid.features[4])


def test_the_end_and_the_cut_are_kept_apart():
    grid = kb.Gridworld(2, start=3, goal=3, horizon=2)
    simulator = TabularSimulator(grid)
    state, _ = simulator.reset(jax.random.key(0), 4)
    outcome = simulator.step(state, jnp.zeros(4, dtype=int), jax.random.key(1))
    assert outcome.terminated.all()
    assert not outcome.truncated.any()
    elsewhere = state._replace(cell=jnp.zeros(4, dtype=state.cell.dtype), step=jnp.ones_like(state.step))
    outcome = simulator.step(elsewhere, jnp.zeros(4, dtype=int), jax.random.key(1))
    assert outcome.truncated.all()
    assert not outcome.terminated.any()


def test_states_can_be_observed_as_numbers():
    grid = kb.Gridworld(3, features="xy")
    simulator = TabularSimulator(grid, grid.features)
    _, observation = simulator.reset(jax.random.key(0), 5)
    assert observation.shape == (5, 2)
    assert len(simulator.observation_names) == 2
