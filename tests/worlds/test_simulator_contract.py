"""What every vectorised simulator promises, whichever it is."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import kdbirl as kb
from kdbirl.worlds.sepsis.covariates import COVARIATES
from kdbirl.worlds.simulator import Outcome, Simulator, TabularSimulator

from .cartpole import CartPole
from .worlds import WORLDS, check_random_actions


def two_features(observation, action):
    """SOFA and the action's code, as a user would write them."""
    return jnp.stack([observation[:, COVARIATES.index("SOFA")], action.astype(observation.dtype)], axis=1)


SIMULATORS = {
    "CartPole": lambda: CartPole(discount=0.99),
    "CartPole without a horizon": lambda: CartPole(discount=0.99, horizon=None),
    "SepsisSim": kb.SepsisSim,
    "SepsisSim with a phi of its own": lambda: kb.SepsisSim(memory=False, ending="never").with_features(two_features),
    "features of states": lambda: TabularSimulator(kb.Gridworld(3, features="xy"), np.arange(18.0).reshape(9, 2)),
    **{name: (lambda make=make: TabularSimulator(make())) for name, make in WORLDS.items() if name != "ICUSepsis"},
}
N = 6


@pytest.fixture(scope="module", params=list(SIMULATORS))
def simulator(request):
    return SIMULATORS[request.param]()


def stepped(simulator, key=1, n=N):
    state, observation = simulator.reset(jax.random.key(0), n)
    action = jnp.arange(n) % simulator.n_actions
    return observation, simulator.step(state, action, jax.random.key(key))


def test_it_has_the_interface(simulator):
    assert isinstance(simulator, Simulator)
    assert simulator.n_actions >= 1
    assert 0 <= simulator.discount <= 1
    assert len(set(simulator.observation_names)) == len(simulator.observation_names) > 0
    assert len(set(simulator.feature_names)) == len(simulator.feature_names) > 0


def test_shapes_and_kinds(simulator):
    observation, outcome = stepped(simulator)
    assert isinstance(outcome, Outcome)
    assert observation.shape == outcome.observation.shape == (N, len(simulator.observation_names))
    assert outcome.features.shape == (N, len(simulator.feature_names))
    for flag in (outcome.terminated, outcome.truncated):
        assert flag.shape == (N,)
        assert flag.dtype == bool
    assert not (outcome.terminated & outcome.truncated).any()
    for values in (observation, outcome.observation, outcome.features):
        assert jnp.issubdtype(values.dtype, jnp.floating)
        assert jnp.isfinite(values).all()
    assert all(len(leaf) == N for leaf in jax.tree.leaves(outcome.state))


def test_the_key_decides_and_compiling_changes_nothing(simulator):
    _, first = stepped(simulator)
    _, again = stepped(simulator)
    state, _ = simulator.reset(jax.random.key(0), N)
    compiled = jax.jit(simulator.step)(state, jnp.arange(N) % simulator.n_actions, jax.random.key(1))
    for other in (again, compiled):
        for one, two in zip(jax.tree.leaves(first), jax.tree.leaves(other), strict=True):
            np.testing.assert_allclose(one, two, rtol=1e-6, atol=1e-7)


def test_states_keep_their_form_from_step_to_step(simulator):
    """So that a compiled loop can carry them, in either precision."""
    for precision in (False, True):
        with jax.enable_x64(precision):
            state, _ = simulator.reset(jax.random.key(0), N)
            after = simulator.step(state, jnp.zeros(N, int), jax.random.key(1)).state
        assert jax.tree.structure(state) == jax.tree.structure(after)
        assert [leaf.dtype for leaf in jax.tree.leaves(state)] == [leaf.dtype for leaf in jax.tree.leaves(after)]


def test_an_episode_is_cut_at_the_horizon_and_not_before(simulator):
    """Whatever ended before; demonstrations say the same."""
    horizon = simulator.horizon
    demos = kb.rollout(simulator, "random", episodes=3, horizon=None if horizon else 7, seed=0)
    lengths, limit = np.bincount(demos.episodes), horizon or 7
    assert (lengths <= limit).all()
    assert (lengths[demos.episodes[demos.truncated]] == limit).all()
    assert demos.terminated.sum() + demos.truncated.sum() == 3


def test_the_random_agent_and_the_world_share_no_numbers(simulator):
    assert check_random_actions(simulator) >= 4
