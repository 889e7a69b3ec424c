"""Demonstrations and banks made in worlds: seeded, labelled, ended and cut where they should be."""

import numpy as np
import pytest

import kdbirl as kb
from kdbirl.errors import InputError

from ..worlds.cartpole import FARTHEST, SECONDS, STEEPEST, CartPole


def test_an_optimal_expert_walks_to_its_cell_and_stays():
    grid = kb.Gridworld(4)
    demos = kb.rollout(grid, kb.plan(grid, np.eye(16)[15]), episodes=20, horizon=10, seed=0)
    assert demos.n_rows == 200
    assert (demos.states.reshape(20, 10)[:, 6:] == 15).all()
    assert demos.action_labels == grid.action_names
    assert (demos.n_states, demos.n_actions, demos.n_episodes) == (16, 5, 20)
    assert demos.truncated.reshape(20, 10)[:, -1].all()
    assert demos.truncated.sum() == 20
    assert not demos.terminated.any()


def test_rows_follow_each_other():
    """Next states are possible ones; the shares of actions are the policy's (within 4.5 standard errors)."""
    grid = kb.Gridworld(3, slip=0.3)
    policy = np.random.default_rng(0).dirichlet(np.ones(5), 9)
    demos = kb.rollout(grid, policy, episodes=500, horizon=20, seed=1)
    states, actions = demos.states.reshape(500, 20), demos.actions.reshape(500, 20)
    assert (grid.transitions[states[:, :-1], actions[:, :-1], states[:, 1:]] > 0).all()
    for cell in range(9):
        chosen = demos.actions[demos.states == cell]
        share = np.bincount(chosen, minlength=5) / len(chosen)
        error = np.sqrt(policy[cell] * (1 - policy[cell]) / len(chosen))
        assert (np.abs(share - policy[cell]) < 4.5 * error + 1e-12).all()


def test_starts_are_drawn_from_the_start_distribution():
    """Within 4.5 standard errors: fails once in 150,000 per cell."""
    start = np.array([0.5, 0.25, 0.25, 0.0])
    demos = kb.rollout(kb.Gridworld(2, start=start), "random", episodes=4000, horizon=1, seed=0)
    share = np.bincount(demos.states, minlength=4) / 4000
    assert (np.abs(share - start) <= 4.5 * np.sqrt(start * (1 - start) / 4000)).all()


class Leaning:
    """Pushes the cart towards the side where the pole leans: as a function of many observations, and of one."""

    def __call__(self, observations):
        import jax.numpy as jnp

        return (observations[:, 2] + 0.5 * observations[:, 3] > 0).astype(jnp.int32)


class Asked:
    """The same, with NumPy alone."""

    def predict(self, observation):
        assert observation.shape == (4,)
        return int(observation[2] + 0.5 * observation[3] > 0), None


def test_simulators_are_environments_too():
    """Rows follow each other by CartPole's own equations, and ends and cuts are told apart."""
    pole = CartPole(discount=0.99)
    demos = kb.rollout(pole, "random", episodes=30, horizon=25, seed=0)
    assert demos.state_names == pole.observation_names
    assert demos.n_actions == 2
    last = np.append(demos.episodes[1:] != demos.episodes[:-1], True)
    assert ((demos.terminated | demos.truncated) == last).all()
    assert not (demos.terminated & demos.truncated).any()
    assert demos.terminated.any()
    lengths = np.bincount(demos.episodes)
    assert len(lengths) == 30
    assert (lengths[demos.episodes[demos.truncated]] == 25).all()
    before, after = demos.states[:-1][~last[:-1]], demos.states[1:][~last[:-1]]
    np.testing.assert_allclose(after[:, [0, 2]], (before + SECONDS * before[:, [1, 0, 3, 2]])[:, [0, 2]], atol=1e-12)
    assert ((after[:, 1] > before[:, 1]) == (demos.actions[:-1][~last[:-1]] == 1)).all()  # pushed to the right
    assert (np.abs(demos.states[:, 0]) <= FARTHEST).all()
    assert (np.abs(demos.states[:, 2]) <= STEEPEST).all()


def test_policies_of_every_kind_act_in_simulators():
    pole = CartPole(discount=0.99, horizon=40)
    by_jax, by_numpy = (kb.rollout(pole, policy, episodes=4, horizon=None, seed=1) for policy in (Leaning(), Asked()))
    assert by_jax == by_numpy
    assert by_jax.n_rows == 160
    assert by_jax.truncated.sum() == 4
    grid = kb.Gridworld(2, start=0, horizon=3, discount=1)
    from kdbirl.worlds.simulator import TabularSimulator

    plan = kb.plan(grid, [0.6, 0, 0, 1.0])  # a table for each step
    demos = kb.rollout(TabularSimulator(grid), plan, episodes=5, horizon=10, seed=0)
    np.testing.assert_array_equal(demos.states, np.tile([1.0, 0, 0, 0], (15, 1)))
    half = kb.rollout(TabularSimulator(grid), kb.Policy.uniform(4, 5), episodes=2000, horizon=1, seed=0)
    share = np.bincount(half.actions, minlength=5) / 2000
    assert (np.abs(share - 0.2) < 4.5 * np.sqrt(0.2 * 0.8 / 2000)).all()


def test_simulated_rows_depend_on_the_seed_and_not_on_the_horizon():
    pole = CartPole(discount=0.99)
    first, again, other, longer = (
        kb.rollout(pole, "random", episodes=3, horizon=horizon, seed=seed)
        for seed, horizon in [(7, 8), (7, 8), (8, 8), (7, 9)]
    )
    assert first == again
    assert first != other
    kept = np.concatenate([np.flatnonzero(longer.episodes == i)[:8] for i in range(3)])
    np.testing.assert_array_equal(longer.take(kept).states, first.states)
    np.testing.assert_array_equal(longer.take(kept).actions, first.actions)


def test_seeds():
    grid = kb.Gridworld(4)
    first, again, other = (kb.rollout(grid, "random", seed=seed) for seed in (7, 7, 8))
    assert first == again
    assert first != other


def test_an_episode_is_the_same_whatever_comes_after_it():
    grid = kb.Gridworld(4, slip=0.2)
    few, many = (kb.rollout(grid, "random", episodes=n, seed=3) for n in (5, 50))
    assert many.take(many.episodes < 5) == few


def test_the_end_and_the_cut_are_kept_apart():
    grid = kb.Gridworld(3, goal=8)
    demos = kb.rollout(grid, "random", episodes=300, horizon=15, seed=0)
    last = np.append(demos.episodes[1:] != demos.episodes[:-1], True)
    assert ((demos.terminated | demos.truncated) == last).all()
    assert not (demos.terminated & demos.truncated).any()
    assert (demos.states[demos.terminated] == 8).all()
    lengths = np.bincount(demos.episodes)
    assert (lengths[demos.episodes[demos.truncated]] == 15).all()
    assert demos.terminated.any()
    assert demos.truncated.any()


def test_a_horizon_of_the_world_cuts_and_chooses_the_table_of_the_step():
    grid = kb.Gridworld(2, start=0, horizon=3, discount=1)
    reward = np.array([0.6, 0, 0, 1.0])
    demos = kb.rollout(grid, kb.plan(grid, reward), episodes=5, horizon=10, seed=0)
    assert demos.n_rows == 15
    # 0.6 three times beats 0.6 now, nothing on the way, and 1 at the last step
    assert (demos.states == 0).all()


def test_state_names_become_labels():
    transitions = np.full((2, 1, 2), 0.5)
    world = kb.TabularMDP(transitions, "uniform", 0.9, state_names=["ward", "home"])
    assert kb.rollout(world, "random", seed=0).state_labels == ("ward", "home")


@pytest.mark.parametrize("rewards", [np.eye(9)[:3], {"a": np.eye(9)[0], "b": np.eye(9)[1], "c": np.eye(9)[2]}])
def test_a_bank_has_a_task_for_each_reward(rewards):
    bank = kb.make_bank(kb.Gridworld(3), rewards, episodes=4, horizon=5, seed=0)
    assert bank.n_tasks == 3
    assert bank.rows_per_task.tolist() == [20, 20, 20]
    np.testing.assert_array_equal(bank.rewards, np.eye(9)[:3])
    assert bank.reward_names[0] == "cell 0"
    assert bank.names == (("a", "b", "c") if isinstance(rewards, dict) else ("0", "1", "2"))
    for k in range(3):
        assert (bank.task(k).states.reshape(4, 5)[:, -1] == k).all()


def test_a_task_added_at_the_end_changes_no_other():
    grid = kb.Gridworld(3)
    small, large = (kb.make_bank(grid, np.eye(9)[:k], seed=5) for k in (3, 4))
    assert large.select([0, 1, 2]) == small
    assert kb.make_bank(grid, np.eye(9)[:3], seed=6) != small


def test_equal_rewards_are_demonstrated_independently():
    bank = kb.make_bank(kb.Gridworld(4), np.zeros((2, 16)), seed=0)
    assert not np.array_equal(bank.task(0).states, bank.task(1).states)


def test_banks_of_weights():
    grid = kb.Gridworld(10, features="xy")
    bank = kb.make_bank(grid, [[1.0, 1.0], [-1.0, 1.0]], episodes=5, horizon=20, seed=0)
    assert bank.reward_names == ("x", "y")
    assert (bank.task(0).states.reshape(5, 20)[:, -1] == 99).all()
    assert (bank.task(1).states.reshape(5, 20)[:, -1] == 90).all()


def test_worse_experts_earn_less():
    grid = kb.Gridworld(4)
    reward = np.eye(16)[15]

    def earned(**quality):
        bank = kb.make_bank(grid, reward[None], episodes=300, horizon=10, seed=0, **quality)
        return (bank.demonstrations.states == 15).mean()

    optimal, warm, hot, half, random = (
        earned(**quality) for quality in ({}, {"temperature": 0.3}, {"temperature": 3}, {"noise": 0.5}, {"noise": 1})
    )
    assert optimal > warm > hot > random
    assert optimal > half > random


def test_boltzmann_experts_are_those_of_the_action_values():
    grid = kb.Gridworld(3)
    reward = np.eye(9)[8]
    expected = np.exp(kb.action_values(grid, reward) / 0.5)
    expected /= expected.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(kb.plan(grid, reward, temperature=0.5).probabilities, expected, atol=1e-12)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: kb.rollout(kb.Gridworld(2), "random", episodes=0), "episodes=0 should be a whole number, at least 1"),
        (lambda: kb.rollout(kb.Gridworld(2), "random", horizon=0), "horizon=0 should be"),
        (lambda: kb.rollout(kb.Gridworld(2), "random", horizon=None), "no horizon of its own"),
        (lambda: kb.rollout(CartPole(0.9, horizon=None), "random", horizon=None), "no horizon of its own"),
        (lambda: kb.rollout(CartPole(0.9), "best"), "the only policy with a name"),
        (lambda: kb.rollout(CartPole(0.9), np.ones((4, 2)) / 2), "ndarray is no policy for a simulator"),
        (lambda: kb.rollout(CartPole(0.9), lambda o: o[:, 0] * 0), "gives float64 actions"),
        (lambda: kb.rollout(kb.Gridworld(2), "random", seed=-1), "seed=-1 should be"),
        (lambda: kb.rollout(kb.Gridworld(2), "best"), "the only policy with a name"),
        (lambda: kb.rollout(kb.Gridworld(2), kb.Policy.uniform(3, 5)), "is for 3 states"),
        (lambda: kb.rollout(kb.Gridworld(2), np.full((3, 4, 5), 0.2)), "is for 3 steps, but episodes have up to 10"),
        (lambda: kb.make_bank("grid", np.eye(4)), "make_bank plans, so it needs"),
        (lambda: kb.make_bank(kb.Gridworld(2), np.ones((2, 3))), "has 4 parameters"),
        (lambda: kb.make_bank(kb.Gridworld(2), {"a": [1.0], "b": [1.0, 2.0]}), "reward: expected an array of numbers"),
    ],
)
def test_bad_input_is_a_sentence(call, sentence):
    with pytest.raises(InputError, match=sentence):
        call()
