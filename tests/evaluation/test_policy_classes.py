"""Classes of policies on worlds where they are known."""

import json

import numpy as np
import pytest

import kdbirl as kb
from kdbirl.errors import InputError
from kdbirl.evaluation.policy_classes import equivalent, policy_classes, shift_direction
from kdbirl.worlds.policy import Policy
from kdbirl.worlds.policy_value import feature_expectations


def branches(n: int = 3) -> kb.TabularMDP:
    """From state 0, action a leads to end a for good; the reward is what each end is worth. One step decides."""
    transitions = np.zeros((n + 1, n, n + 1))
    transitions[0, np.arange(n), np.arange(n) + 1] = 1
    transitions[1:, :, :] = np.eye(n + 1)[1:, None, :]
    features = np.concatenate([np.zeros((1, n)), np.eye(n)])
    return kb.TabularMDP(transitions, 0, 0.5, features, feature_names=[f"end{a}" for a in range(n)])


def test_classes_are_the_branches_that_are_best():
    rng = np.random.default_rng(0)
    draws = rng.normal([0.5, 0, 0], 1, (900, 3))
    best = np.bincount(draws.argmax(axis=1), minlength=3) / 900
    found = policy_classes(draws, branches(), tolerance=0)
    assert found.n_classes == found.distinct == 3
    np.testing.assert_allclose(found.shares, np.sort(best)[::-1], atol=1e-12)
    assert found.largest == best[0]
    assert found.share_of_mean == best[0]
    assert [int(policy.probabilities[0].argmax()) for policy in found.policies] == np.argsort(-best).tolist()
    np.testing.assert_allclose(found.feature_expectations, np.eye(3)[np.argsort(-best)], atol=1e-12)
    assert "3 kinds of policy" in found.sentence
    json.dumps(found.to_dict())


def test_scale_and_shift_make_no_new_class():
    rng = np.random.default_rng(1)
    draws = rng.uniform(0.01, 100, (200, 1)) * [1.0, 0.2, 0] + rng.normal(size=(200, 1))
    found = policy_classes(draws, branches(), tolerance=1e-6)
    assert (found.n_classes, found.largest, found.share_of_mean) == (1, 1.0, 1.0)
    assert "one kind of policy" in found.sentence


def test_a_loss_below_the_tolerance_does_not_make_a_class():
    """End 0 and end 1 differ by 2 % of (best - random)."""
    near = np.array([[1.0, 0.99, 0.5], [0.99, 1.0, 0.5]])
    lost = 0.01 / (1 - np.mean([1, 0.99, 0.5]))
    assert policy_classes(near, branches(), tolerance=1.01 * lost).n_classes == 1
    assert policy_classes(near, branches(), tolerance=0.99 * lost).n_classes == 2


def test_equivalence_equals_the_definition_both_ways():
    world = kb.Gridworld(size=3)
    rng = np.random.default_rng(2)
    rewards = rng.normal(size=(6, 9))
    policies = [kb.plan(world, reward) for reward in rewards]
    random = Policy.uniform(world.n_states, world.n_actions)
    tolerance = 0.3

    def good_for(i: int, j: int) -> bool:
        best, other, chance = (kb.value(world, p, rewards[i]) for p in (policies[i], policies[j], random))
        return best - other <= tolerance * (best - chance)

    expected = [[good_for(i, j) and good_for(j, i) for j in range(6)] for i in range(6)]
    collected = np.stack([feature_expectations(world, policy) for policy in policies])
    found = equivalent(rewards, collected, rewards, collected, feature_expectations(world, random), tolerance)
    assert found.tolist() == expected
    assert 6 < found.sum() < 36


def test_the_posterior_is_compared_with_its_prior_in_the_worlds_order():
    rng = np.random.default_rng(3)
    names = ("end2", "end0", "end1")  # another order than the world's
    draws = rng.normal([0, 3, 0], 0.1, (2, 300, 3))
    prior = rng.normal(size=(3000, 3))
    post = kb.Posterior(draws=draws, names=names, method="KDBIRL", sampler="Grid", seed=0, prior_draws=prior)
    found = policy_classes(post, branches())
    assert found.share_of_mean == 1
    assert found.policies[0].probabilities[0].argmax() == 0
    assert found.prior_share_of_mean == pytest.approx(1 / 3, abs=0.06)  # 4 standard errors of 1,000 draws
    assert "(of the prior's: 3" in found.sentence
    assert found.draws == 600


def test_a_constant_that_no_policy_feels():
    endless = kb.Gridworld(size=3)
    np.testing.assert_allclose(shift_direction(endless), np.ones(9), atol=1e-9)
    found = policy_classes(np.random.default_rng(4).normal(size=(20, 9)), endless)
    assert "Adding a constant" in found.describe()[-1]
    transitions = np.array([[[0.0, 1.0], [1.0, 0.0]], [[0.0, 1.0], [0.0, 1.0]]])
    ending = kb.TabularMDP(transitions, 0, 0.9, terminal=[False, True])
    assert shift_direction(ending) is None
    assert shift_direction(kb.Gridworld(size=3, features="xy")) is None


def test_refusals():
    with pytest.raises(InputError, match="TabularMDP"):
        policy_classes(np.zeros((2, 3)), "world")
    with pytest.raises(InputError, match="tolerance"):
        policy_classes(np.zeros((2, 3)), branches(), tolerance=1.0)
    with pytest.raises(InputError, match="draws=0"):
        policy_classes(np.zeros((2, 3)), branches(), draws=0)
    assert policy_classes(np.zeros((5, 3)), branches()).n_classes == 1
