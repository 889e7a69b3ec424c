"""Gymnasium's own tables as worlds: the same rows, the known optimum."""

import gymnasium
import numpy as np
import pytest

import kdbirl as kb
from kdbirl.errors import InputError


@pytest.fixture(scope="module")
def lake():
    return gymnasium.make("FrozenLake-v1")


def test_the_optimum_of_frozen_lake_is_the_known_one(lake):
    """0.542 at discount 0.99, in many textbooks."""
    world = kb.TabularMDP.from_gymnasium(lake, 0.99, features="env-reward")
    assert kb.value(world, kb.plan(world, [1.0]), [1.0]) == pytest.approx(0.5420259, abs=1e-6)


def test_arriving_at_the_goal_is_the_worlds_own_reward(lake):
    world = kb.TabularMDP.from_gymnasium(lake, 0.99, features="next-state")
    acting = world.reachable
    np.testing.assert_allclose(world.reward_table(np.eye(16)[15])[acting], world.env_reward[acting], atol=1e-15)


def test_nobody_acts_in_holes(lake):
    world = kb.TabularMDP.from_gymnasium(lake, 0.99)
    assert world.n_states == 17
    assert world.recorded_states == 16
    assert not world.reachable[[5, 7, 11, 12, 15]].any()
    assert world.terminal.tolist() == [False] * 16 + [True]


def test_rollouts_of_table_and_environment_look_alike(lake):
    """Lengths of 2,000 random episodes: means within 4.5 standard errors of each other (1 in 150,000)."""
    world = kb.TabularMDP.from_gymnasium(lake, 0.99)
    ours = kb.rollout(world, "random", episodes=2000, horizon=100, seed=0)
    theirs = kb.rollout(lake, "random", episodes=2000, horizon=100, seed=0)
    assert ours.n_states == theirs.n_states == 16
    lengths = [np.bincount(demos.episodes) for demos in (ours, theirs)]
    error = np.sqrt(sum(length.var() / len(length) for length in lengths))
    assert abs(lengths[0].mean() - lengths[1].mean()) < 4.5 * error


@pytest.mark.parametrize(("name", "states"), [("Taxi-v4", 500), ("CliffWalking-v1", 48)])
def test_the_other_tables(name, states):
    world = kb.TabularMDP.from_gymnasium(gymnasium.make(name), 0.9, features="env-reward")
    assert world.recorded_states == states
    assert kb.value(world, kb.plan(world, [1.0]), [1.0]) > kb.value(world, kb.plan(world, [-1.0]), [1.0])


def test_arrays_as_features(lake):
    world = kb.TabularMDP.from_gymnasium(lake, 0.9, features=np.ones((16, 2)))
    assert world.n_parameters == 2
    with pytest.raises(InputError, match=r"expected \(16, q\)"):
        kb.TabularMDP.from_gymnasium(lake, 0.9, features=np.ones((17, 2)))


def test_a_discount_of_one_needs_a_horizon(lake):
    with pytest.raises(InputError, match="for ever"):
        kb.TabularMDP.from_gymnasium(lake, 1)
    assert kb.TabularMDP.from_gymnasium(lake, 1, horizon=100).horizon == 100


def test_an_environment_without_a_table_is_a_sentence():
    with pytest.raises(InputError, match="has no table of transitions"):
        kb.TabularMDP.from_gymnasium(gymnasium.make("CartPole-v1"), 0.9)
    with pytest.raises(InputError, match=r"Did you mean 'next-state'"):
        kb.TabularMDP.from_gymnasium(gymnasium.make("FrozenLake-v1"), 0.9, features="nextstate")
