"""Banks of simulators: all tasks side by side are the tasks one by one."""

import numpy as np
import pytest

import kdbirl as kb
from kdbirl.errors import InputError
from kdbirl.random_streams import stream
from kdbirl.worlds import simulated_rollouts as simulated_episodes
from kdbirl.worlds.simulator import TabularSimulator

from ..worlds.cartpole import CartPole
from ..worlds.untrained import untrained

CART = CartPole(discount=0.99)
REWARDS = np.random.default_rng(3).normal(size=(5, len(CART.feature_names)))


def test_each_task_is_a_rollout_of_its_own_policy(monkeypatch):
    """In blocks of 2 of 5 tasks, the last filled up, with the seeds that the tasks would have alone."""
    monkeypatch.setattr(simulated_episodes, "TOGETHER", 8)
    policies = untrained(CART)
    bank = kb.make_bank(CART, REWARDS, episodes=3, horizon=12, seed=4, planner=policies)
    seeds = stream(4, "training tasks").generate_state(5, np.uint64)
    assert bank.reward_names == CART.feature_names
    assert bank.demonstrations.state_names == CART.observation_names
    np.testing.assert_array_equal(bank.rewards, REWARDS)
    for task, (reward, seed) in enumerate(zip(REWARDS, seeds, strict=True)):
        alone = kb.rollout(CART, policies.policy(reward), episodes=3, horizon=12, seed=int(seed))
        found = bank.task(task)
        np.testing.assert_allclose(found.states, alone.states, atol=1e-6)
        for name in ("actions", "terminated", "truncated"):
            np.testing.assert_array_equal(getattr(found, name), getattr(alone, name))


def test_a_planner_that_is_a_function_gives_the_same_bank():
    policies = untrained(CART)
    both = [
        kb.make_bank(CART, {"a": REWARDS[0], "b": REWARDS[1]}, episodes=2, horizon=6, seed=1, planner=planner)
        for planner in (policies, lambda world, reward: policies.policy(reward))
    ]
    assert both[0].names == both[1].names == ("a", "b")
    np.testing.assert_allclose(both[0].demonstrations.states, both[1].demonstrations.states, atol=1e-6)


def test_noise_is_the_fraction_of_random_actions():
    """Gridworld: a random action is the meant one in a fifth of the cases; within 4.5 standard errors."""
    simulator = TabularSimulator(kb.Gridworld(3))
    policies, rewards = untrained(simulator, states=np.eye(9)), np.random.default_rng(0).normal(size=(2, 9))
    bank = kb.make_bank(simulator, rewards, episodes=300, horizon=10, seed=0, noise=0.5, planner=policies)
    meant = [policies.policy(reward).actions(bank.task(k).states) for k, reward in enumerate(rewards)]
    other = np.mean(np.concatenate(meant) != bank.demonstrations.actions)
    assert other == pytest.approx(0.4, abs=4.5 * np.sqrt(0.24 / bank.n_rows))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"planner": None}, "needs planner="),
        ({"temperature": 1.0}, "temperature= is for tabular worlds"),
        ({"noise": 2.0}, "noise=2.0"),
        ({"episodes": 0}, "episodes=0"),
        ({"rewards": [[1.0, 2.0]]}, "parameters"),
        ({"mdp": object()}, "needs a kb.TabularMDP or a simulator"),
        ({"mdp": kb.Gridworld(2), "rewards": np.eye(4)}, "planner= is for simulators"),
    ],
    ids=["no planner", "temperature", "noise", "episodes", "rewards", "no world", "tabular"],
)
def test_mistakes(changes, words):
    given = {"mdp": CART, "rewards": REWARDS, "planner": untrained(CART)} | changes
    with pytest.raises(InputError, match=words):
        kb.make_bank(given.pop("mdp"), given.pop("rewards"), **given)
