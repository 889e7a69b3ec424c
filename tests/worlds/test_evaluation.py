"""What a policy is worth, against sums over time and against rollouts; soft values against their definition."""

import numpy as np
import pytest
from scipy.special import logsumexp

import kdbirl as kb
from kdbirl.errors import InputError
from kdbirl.worlds.policy_value import policy_values

from .reference import value_of
from .worlds import WORLDS, featurised, random_mdp

SMALL = [name for name in WORLDS if name != "ICUSepsis"]


def some(world, seed=0):
    rng = np.random.default_rng(seed)
    steps = () if world.horizon is None else (world.horizon,)
    return rng.dirichlet(np.ones(world.n_actions), (*steps, world.n_states)), rng.normal(size=world.n_parameters)


@pytest.mark.parametrize("name", SMALL)
def test_the_value_is_the_sum_over_time(name):
    world = WORLDS[name]()
    policy, reward = some(world)
    assert kb.value(world, policy, reward) == pytest.approx(value_of(world, policy, reward), abs=1e-10)
    by_state = policy_values(world, policy, reward)
    assert world.start @ by_state == pytest.approx(kb.value(world, policy, reward), abs=1e-10)
    assert (by_state[world.terminal] == 0).all()


@pytest.mark.parametrize("name", SMALL)
def test_value_occupancy_and_feature_expectations_are_one(name):
    world = WORLDS[name]()
    policy, reward = some(world, 1)
    value = kb.value(world, policy, reward)
    assert (kb.occupancy(world, policy) * world.reward_table(reward)).sum() == pytest.approx(value, abs=1e-10)
    assert kb.feature_expectations(world, policy) @ reward == pytest.approx(value, abs=1e-10)


def test_without_an_end_the_visits_sum_to_the_discounted_time():
    world = random_mdp(discount=0.9)
    assert kb.occupancy(world, some(world)[0]).sum() == pytest.approx(10, abs=1e-10)


def test_the_value_is_the_mean_of_rollouts():
    """4,000 episodes of 150 steps (0.9^150 is nothing): within 4.5 standard errors, one failure in 150,000."""
    world = featurised()
    policy, reward = some(world)
    demos = kb.rollout(world, policy, episodes=4000, horizon=150, seed=0)
    rewards = world.reward_table(reward)[demos.states, demos.actions].reshape(4000, 150)
    returns = rewards @ 0.9 ** np.arange(150)
    error = returns.std() / np.sqrt(4000)
    assert abs(returns.mean() - kb.value(world, policy, reward)) < 4.5 * error


def test_soft_values_solve_their_equation():
    world, temperature = random_mdp(8, 3, 0.9), 0.5
    reward = some(world)[1]
    soft = kb.soft_value_iteration(world, np.stack([reward, 2 * reward]), temperature)
    assert soft.converged
    values = soft.values[0]
    q_values = world.reward_table(reward) + 0.9 * world.transitions @ values
    np.testing.assert_allclose(values, temperature * logsumexp(q_values / temperature, axis=1), atol=1e-8)
    np.testing.assert_allclose(soft.q_values[0], q_values, atol=1e-8)
    expected = np.exp((q_values - values[:, None]) / temperature)
    np.testing.assert_allclose(soft.policy(0).probabilities, expected, atol=1e-8)


def test_soft_values_become_hard_ones_when_cold():
    world = kb.Gridworld(3)
    reward = some(world)[1]
    hard = kb.value_iteration(world, reward).values
    cold = kb.soft_value_iteration(world, reward, 1e-6)
    np.testing.assert_allclose(cold.values, hard, atol=1e-6 * np.log(5) * 20 + 1e-7)


def test_soft_planning_refuses_what_has_no_end():
    with pytest.raises(InputError, match="discount below 1"):
        kb.soft_value_iteration(random_mdp(ends=0.1, discount=1.0), np.ones(7), 1.0)
    with pytest.raises(InputError, match="temperature=-1 should be"):
        kb.soft_value_iteration(kb.Gridworld(3), np.ones(9), -1)
    with pytest.raises(InputError, match="is for 3 steps, but this world has a horizon of 4"):
        kb.value(kb.Gridworld(2, horizon=4), np.full((3, 4, 5), 0.2), np.ones(4))
