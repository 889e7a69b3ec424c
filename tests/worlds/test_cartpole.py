"""`CartPole` is Gymnasium's CartPole-v1, step by step."""

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kdbirl.errors import InputError
from kdbirl.worlds.simulator import Simulator

from .cartpole import CartPole, CartPoleState


def gymnasium_episodes(actions, seed):
    """States (steps + 1, 4) in double precision, rewards and ends, of one episode of the given actions."""
    env = gymnasium.make("CartPole-v1")
    env.reset(seed=seed)
    states, rows = [np.array(env.unwrapped.state)], []
    for action in actions:
        _, reward, terminated, truncated, _ = env.step(int(action))
        states.append(np.array(env.unwrapped.state))
        rows.append((reward, terminated, truncated))
        if terminated or truncated:
            break
    return np.array(states), np.array(rows)


def balancing(observation):
    return (observation[2] + 0.5 * observation[3] > 0).astype(int)


@pytest.mark.parametrize(("precision", "tolerance"), [(True, 1e-13), (False, 1e-5)])
def test_every_step_is_gymnasiums(precision, tolerance):
    """From each state that Gymnasium visits, the same next one: to rounding, in either precision."""
    rng = np.random.default_rng(0)
    step = jax.jit(CartPole(discount=0.99).step)
    for seed in range(10):
        actions = rng.integers(0, 2, 500)
        states, rows = gymnasium_episodes(actions, seed)
        with jax.enable_x64(precision):
            here = CartPoleState(jnp.asarray(states[:-1]), jnp.arange(len(rows)))
            outcome = step(here, jnp.asarray(actions[: len(rows)]), jax.random.key(0))
        np.testing.assert_allclose(outcome.observation, states[1:], rtol=tolerance, atol=tolerance)
        np.testing.assert_array_equal(outcome.features[:, 0], rows[:, 0])
        np.testing.assert_array_equal(outcome.terminated, rows[:, 1])
        np.testing.assert_array_equal(outcome.truncated, rows[:, 2])
        assert outcome.terminated[-1]


def test_a_balanced_pole_is_truncated_after_500_steps():
    """Each balanced by what it observes itself: rounding errors grow without bound in an unstable world."""
    step = jax.jit(CartPole(discount=0.99).step)
    env = gymnasium.make("CartPole-v1")
    there, _ = env.reset(seed=1)
    state = CartPoleState(jnp.asarray(there)[None], jnp.zeros(1, int))
    for number in range(1, 501):
        there, _, terminated, truncated, _ = env.step(int(balancing(there)))
        outcome = step(state, jnp.asarray(balancing(np.asarray(state.variables[0])))[None], jax.random.key(0))
        state = outcome.state
        assert (bool(outcome.terminated[0]), bool(outcome.truncated[0])) == (terminated, truncated)
        assert (terminated, truncated) == (False, number == 500)


def test_it_is_a_simulator():
    simulator = CartPole(discount=0.99, horizon=None)
    assert isinstance(simulator, Simulator)
    state, observation = simulator.reset(jax.random.key(0), 1000)
    assert observation.shape == (1000, len(simulator.observation_names))
    assert float(jnp.abs(observation).max()) <= 0.05
    assert float(jnp.abs(observation).max()) > 0.045
    late = state._replace(step=state.step + 10_000)
    assert not simulator.step(late, jnp.zeros(1000, int), jax.random.key(1)).truncated.any()


@pytest.mark.parametrize(
    ("keywords", "word"), [({"discount": 1.5}, "discount"), ({"discount": 0.9, "horizon": 0}, "horizon")]
)
def test_bad_settings_are_refused(keywords, word):
    with pytest.raises(InputError, match=word):
        CartPole(**keywords)
