"""What every world promises, whichever it is."""

import json
import re

import numpy as np
import pytest

import kdbirl as kb
from kdbirl.worlds.simulator import Simulator, TabularSimulator

from .cartpole import CartPole
from .worlds import WORLDS


@pytest.fixture(scope="module", params=list(WORLDS))
def world(request):
    return WORLDS[request.param]()


def some_reward(world, seed=0):
    return np.random.default_rng(seed).normal(size=world.n_parameters)


def test_transitions_and_start_are_distributions(world):
    np.testing.assert_allclose(world.transitions.sum(axis=2), 1, atol=1e-12)
    assert world.start.sum() == pytest.approx(1, abs=1e-12)
    assert (world.start[world.terminal] == 0).all()
    assert world.reachable[world.start > 0].all()


def test_it_is_frozen(world):
    for array in (world.transitions, world.start, world.terminal):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0
    with pytest.raises(AttributeError):
        world.discount = 0.5


def test_rewards_are_linear_in_the_features(world):
    reward, other = some_reward(world), some_reward(world, 1)
    table = world.reward_table(reward)
    assert table.shape == (world.n_states, world.n_actions)
    many = world.reward_table(np.stack([reward, other, reward + 2 * other]))
    np.testing.assert_allclose(many[0], table, atol=1e-12)
    np.testing.assert_allclose(many[2], many[0] + 2 * many[1], atol=1e-12)
    states, actions = np.divmod(np.arange(table.size), world.n_actions)
    acting = ~world.terminal[states]
    rows = world.features_of(states, actions) @ reward
    np.testing.assert_allclose(rows[acting], table.ravel()[acting], atol=1e-12)
    assert (table[world.terminal] == 0).all()


def test_it_says_what_it_is(world):
    described = json.loads(json.dumps(world.describe()))
    assert described["discount"] == world.discount
    assert f"discount {world.discount:g}" in repr(world)
    assert len(world.feature_names) == world.n_parameters
    assert len(world.action_names) == world.n_actions


def test_demonstrations_show_only_what_can_happen(world):
    demos = kb.rollout(world, "random", episodes=30, horizon=8, seed=3)
    assert demos.n_states == world.recorded_states
    assert demos.n_actions == world.n_actions
    assert not world.terminal[demos.states].any()
    assert world.reachable[demos.states].all()
    same = demos.episodes[1:] == demos.episodes[:-1]
    chances = world.transitions[demos.states[:-1], demos.actions[:-1], demos.states[1:]]
    assert (chances[same] > 0).all()


def test_the_best_policy_is_better_than_chance(world):
    reward = some_reward(world)
    best = kb.value(world, kb.plan(world, reward), reward)
    assert best >= kb.value(world, kb.Policy.uniform(world.n_states, world.n_actions), reward)


def test_it_is_a_gymnasium_environment(world):
    from gymnasium.utils.env_checker import check_env

    check_env(kb.as_gymnasium(world, some_reward(world)), skip_render_check=True)


def test_it_is_a_simulator(world):
    assert isinstance(TabularSimulator(world), Simulator)


@pytest.mark.parametrize("kind", [kb.Gridworld, kb.ICUSepsis, CartPole])
def test_the_documentation_follows_the_template(kind):
    headings = re.findall(r"^ *## (.+)$", kind.__doc__, flags=re.MULTILINE)
    assert headings == ["States", "Actions", "Rewards", "Start and end", "Arguments"]
