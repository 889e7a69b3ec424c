"""Value iteration, policy iteration and a linear programme agree; error bounds hold; many rewards are as one each."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kdbirl as kb
from kdbirl.errors import InputError
from kdbirl.worlds import planning as plan
from kdbirl.worlds import policy_value as linear_solve
from kdbirl.worlds.dynamics import dynamics_of
from kdbirl.worlds.policy_iteration import policy_iteration
from kdbirl.worlds.policy_value import Anchor

from .reference import best_by_enumeration, by_linear_programme, by_sweeps, value_of
from .worlds import random_mdp


def rewards_of(mdp, count=3, seed=0):
    return np.random.default_rng(seed).normal(size=(count, mdp.n_parameters))


def optimal_values(mdp, reward):
    """V* of policy iteration on all states."""
    return kb.action_values(mdp, reward).max(axis=1)


@settings(max_examples=40)
@given(
    states=st.sampled_from([2, 5, 12]),  # few shapes: each is compiled
    actions=st.sampled_from([1, 4]),
    discount=st.floats(0, 0.98),
    ends=st.sampled_from([0.0, 0.2]),
    seed=st.integers(0, 10_000),
)
def test_value_iteration_policy_iteration_and_a_linear_programme_agree(states, actions, discount, ends, seed):
    mdp = random_mdp(states, actions, discount, seed, ends)
    reward = rewards_of(mdp, 1, seed)[0]
    programme = np.where(mdp.terminal, 0, by_linear_programme(mdp, reward))
    np.testing.assert_allclose(optimal_values(mdp, reward), programme, atol=1e-8)
    iterated = kb.value_iteration(mdp, reward)
    assert iterated.converged
    np.testing.assert_allclose(iterated.values[0], programme, atol=1e-8)


@pytest.mark.parametrize(
    "mdp",
    [
        kb.Gridworld(4),
        kb.Gridworld(4, slip=0.3, goal=15, walls=[5]),
        kb.Gridworld(3, goal=8, discount=0.0),
        random_mdp(ends=0.1, discount=1.0),
        random_mdp(9, 4, 0.9, features=np.random.default_rng(1).normal(size=(9, 4, 2))),
    ],
    ids=repr,
)
def test_the_optimum_is_that_of_plain_sweeps(mdp):
    for reward in rewards_of(mdp):
        np.testing.assert_allclose(optimal_values(mdp, reward), by_sweeps(mdp, reward), atol=1e-9)


def test_the_optimum_is_the_best_of_all_policies():
    mdp = random_mdp(4, 3, 0.8)
    for reward in rewards_of(mdp):
        best = best_by_enumeration(mdp, reward)
        assert kb.value(mdp, kb.plan(mdp, reward), reward) == pytest.approx(best, abs=1e-12)


def test_the_error_bounds_hold_and_are_small():
    mdp = random_mdp(12, 4, 0.97)
    rewards = rewards_of(mdp, 5)
    exact = np.stack([by_linear_programme(mdp, reward) for reward in rewards])
    rough = kb.value_iteration(mdp, rewards, tolerance=1e-3)
    error = np.abs(rough.values - exact).max(axis=1)
    assert (error <= rough.error_bound).all()
    assert (error > 1e-9).all()
    assert not kb.value_iteration(mdp, rewards, sweeps=3).converged
    assert kb.plan_many(mdp, rewards).error_bound.max() < 1e-10


def test_the_bound_without_a_discount_counts_the_longest_stay():
    mdp = random_mdp(8, 3, 1.0, ends=0.05)
    rewards = rewards_of(mdp, 4)
    exact = np.stack([by_sweeps(mdp, reward) for reward in rewards])
    rough = kb.value_iteration(mdp, rewards, tolerance=1e-3)
    assert rough.converged
    assert (np.abs(rough.values - exact).max(axis=1) <= rough.error_bound).all()


@pytest.mark.parametrize(
    "mdp", [kb.Gridworld(5), random_mdp(20, 4, 0.9), kb.Gridworld(3, discount=1, horizon=4)], ids=repr
)
def test_many_rewards_are_as_one_each(mdp):
    rewards = rewards_of(mdp, 6)
    plans = kb.plan_many(mdp, rewards)
    collected = plan.optimal_feature_expectations(mdp, rewards)
    for i, reward in enumerate(rewards):
        alone = kb.plan(mdp, reward)
        np.testing.assert_array_equal(plans.policy(i).probabilities, alone.probabilities)
        np.testing.assert_allclose(collected[i], kb.feature_expectations(mdp, alone), atol=1e-10)
        assert plans.values[i] == pytest.approx(kb.value(mdp, alone, reward), abs=1e-10)
        np.testing.assert_allclose(plan.many_action_values(mdp, rewards)[i], kb.action_values(mdp, reward), atol=1e-10)


def test_blocks_change_nothing(monkeypatch):
    mdp = kb.Gridworld(4, slip=0.1)
    rewards = rewards_of(mdp, 50)
    whole = plan.optimal_feature_expectations(mdp, rewards)
    monkeypatch.setattr(plan, "_block_size", lambda cells: 7)
    np.testing.assert_allclose(plan.optimal_feature_expectations(mdp, rewards), whole, atol=1e-11)


def test_scaling_and_repeating_a_reward_change_nothing():
    mdp = kb.Gridworld(4)
    reward = rewards_of(mdp, 1)[0]
    plans = kb.plan_many(mdp, np.stack([reward, 1e-6 * reward, reward, 1e9 * reward]))
    assert (plans.best == plans.best[0]).all()
    np.testing.assert_allclose(plans.values, plans.values[0] * np.array([1, 1e-6, 1, 1e9]), rtol=1e-12)


def test_a_reward_of_zeros_leaves_everything_open():
    mdp = kb.Gridworld(3)
    np.testing.assert_array_equal(kb.plan(mdp, np.zeros(9)).probabilities, 0.2)
    assert kb.plan_many(mdp, np.zeros((2, 9))).best.all()


def test_large_worlds_have_an_anchor_and_the_same_answers(monkeypatch):
    """The change of low rank against a factorisation for each policy; ties are there (equal actions)."""
    mdp = random_mdp(40, 3, 0.95, features=np.random.default_rng(0).normal(size=(40, 3, 4)))
    transitions = np.concatenate([mdp.transitions, mdp.transitions[:, :1]], axis=1)
    phi = np.concatenate([mdp.features, mdp.features[:, :1]], axis=1)
    mdp = kb.TabularMDP(transitions, mdp.start, 0.95, phi)
    rewards = rewards_of(mdp, 30)
    direct = plan.optimal_feature_expectations(mdp, rewards)
    monkeypatch.setattr(plan, "SMALL", 10)
    monkeypatch.setattr("kdbirl.worlds.policy_iteration.SMALL", 10)
    anchored = plan.optimal_feature_expectations(mdp, rewards)
    np.testing.assert_allclose(anchored, direct, atol=1e-10)
    assert kb.plan_many(mdp, rewards).error_bound.max() < 1e-9


def test_an_anchor_knows_every_policy():
    dynamics = dynamics_of(random_mdp(12, 4, 0.9))
    rng = np.random.default_rng(0)
    anchor = Anchor.of(dynamics, np.eye(4, dtype=bool)[rng.integers(0, 4, 12)])
    for _ in range(5):
        marks = rng.random((12, 4)) < 0.5
        marks[np.arange(12), rng.integers(0, 4, 12)] = True
        chances = (marks / marks.sum(axis=1, keepdims=True))[None]
        visits = linear_solve.occupancies_by_factoring(dynamics, chances)[0]
        np.testing.assert_allclose(anchor.occupancy(marks), visits, atol=1e-12)
        rewards = rng.normal(size=12)
        mean = linear_solve.mean_rows(dynamics, chances)[0]
        expected = np.linalg.solve(np.eye(12) - 0.9 * mean, rewards)
        np.testing.assert_allclose(anchor.values(marks, rewards), expected, atol=1e-12)


def test_equal_actions_are_planned_as_one_and_split_evenly():
    """Action 2 repeats action 0; where one is best, so is the other."""
    mdp = random_mdp(8, 2, 0.9)
    doubled = kb.TabularMDP(mdp.transitions[:, [0, 1, 0]], mdp.start, 0.9)
    assert len(dynamics_of(doubled).rows) == 16
    reward = rewards_of(mdp, 1)[0]
    policy, plain = kb.plan(doubled, reward).probabilities, kb.plan(mdp, reward).probabilities
    np.testing.assert_array_equal(policy[:, 0], policy[:, 2])
    np.testing.assert_array_equal(policy[:, 1], plain[:, 1])


@pytest.mark.parametrize("discount", [0.9, 1.0])
def test_a_horizon_is_planned_backwards(discount):
    mdp = random_mdp(4, 3, discount, horizon=5)
    reward = rewards_of(mdp, 1)[0]
    values = np.zeros(4)
    for _ in range(5):
        values = (mdp.reward_table(reward) + discount * mdp.transitions @ values).max(axis=1)
    policy = kb.plan(mdp, reward)
    assert policy.probabilities.shape == (5, 4, 3)
    assert kb.value(mdp, policy, reward) == pytest.approx(mdp.start @ values, abs=1e-12)
    assert value_of(mdp, policy.probabilities, reward) == pytest.approx(mdp.start @ values, abs=1e-12)


def test_a_long_horizon_is_like_none():
    endless, long = (kb.Gridworld(3, discount=0.8, horizon=horizon) for horizon in (None, 200))
    reward = rewards_of(endless, 1)[0]
    values = [kb.value(world, kb.plan(world, reward), reward) for world in (endless, long)]
    assert values[0] == pytest.approx(values[1], rel=1e-12)


def test_policy_iteration_needs_no_good_start(monkeypatch):
    monkeypatch.setattr("kdbirl.worlds.policy_iteration.SWEEPS", 0)
    mdp = kb.Gridworld(6, slip=0.1)
    dynamics, reward = dynamics_of(mdp), rewards_of(mdp, 1)
    solution = policy_iteration(dynamics, dynamics.tables(reward))
    np.testing.assert_allclose(solution.values[0], by_sweeps(mdp, reward[0]), atol=1e-9)


def test_bad_input_is_a_sentence():
    mdp = kb.Gridworld(3)
    with pytest.raises(InputError, match="plan takes one vector"):
        kb.plan(mdp, np.ones((2, 9)))
    with pytest.raises(InputError, match="has 9 parameters"):
        kb.plan(mdp, np.ones(8))
    with pytest.raises(InputError, match="temperature=0 should be a positive number"):
        kb.plan(mdp, np.ones(9), temperature=0)
    with pytest.raises(InputError, match="noise=2 should be the fraction"):
        kb.plan(mdp, np.ones(9), noise=2)
    with pytest.raises(InputError, match="without a horizon"):
        kb.value_iteration(kb.Gridworld(3, horizon=4), np.ones(9))
