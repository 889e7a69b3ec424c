"""The value-at-risk bound of Brown and Niekum (2018): its formula, and its promise."""

import numpy as np
import pytest
from scipy.stats import binom, norm

import kdbirl as kb
from kdbirl.errors import InputError


def test_what_a_policy_may_lose():
    world = kb.Gridworld(3)
    rng = np.random.default_rng(0)
    draws = rng.random((50, 9))
    policy = kb.plan(world, draws.mean(axis=0))
    found = kb.value_at_risk(draws, world, policy)
    lost = [kb.value(world, kb.plan(world, draw), draw) - kb.value(world, policy, draw) for draw in draws]
    np.testing.assert_allclose(found.per_draw, lost, atol=1e-10)
    assert found.estimate == pytest.approx(np.quantile(lost, 0.95))


def test_the_bound_is_the_order_statistic_of_the_paper():
    world = kb.Gridworld(2)
    draws = np.random.default_rng(0).random((300, 4))
    found = kb.value_at_risk(draws, world, "random" and kb.Policy.uniform(4, 5), alpha=0.9, delta=0.05)
    k = int(np.ceil(300 * 0.9 + norm.ppf(0.95) * np.sqrt(300 * 0.9 * 0.1) - 0.5))
    assert found.bound == np.sort(found.per_draw)[k - 1]
    assert found.bound > found.estimate


def test_the_bound_holds_as_often_as_it_says():
    """300 posteriors of 100 draws: the true 0.9-quantile is below the bound in at least 95 % of them, less what chance
    takes once in 10,000."""
    world = kb.Gridworld(2, discount=0.5)
    policy = kb.Policy.uniform(4, 5)
    rng = np.random.default_rng(0)
    lost = kb.value_at_risk(rng.random((40_000, 4)), world, policy).per_draw
    truth = np.quantile(lost, 0.9)
    sets = rng.permutation(lost)[:30_000].reshape(300, 100)
    k = int(np.ceil(100 * 0.9 + norm.ppf(0.95) * np.sqrt(100 * 0.9 * 0.1) - 0.5))
    held = (np.sort(sets, axis=1)[:, k - 1] >= truth).sum()
    assert held >= binom.ppf(1e-4, 300, 0.95)


def test_too_few_draws_bound_nothing():
    found = kb.value_at_risk(np.random.default_rng(0).random((20, 4)), kb.Gridworld(2), kb.Policy.uniform(4, 5))
    assert found.bound == np.inf
    assert np.isfinite(found.estimate)


def test_normalised_losses_do_not_know_the_scale():
    world = kb.Gridworld(3)
    draws = np.random.default_rng(0).random((100, 9))
    policy = kb.plan(world, draws[0])
    first, second = (kb.value_at_risk(c * draws, world, policy, normalised=True) for c in (1.0, 7.0))
    np.testing.assert_allclose(first.per_draw, second.per_draw, atol=1e-10)
    assert first.per_draw[0] == pytest.approx(0, abs=1e-10)


@pytest.mark.parametrize("levels", [{"alpha": 1.0}, {"delta": 0.0}])
def test_levels_are_probabilities(levels):
    with pytest.raises(InputError, match="should be a probability between 0 and 1"):
        kb.value_at_risk(np.eye(4), kb.Gridworld(2), kb.Policy.uniform(4, 5), **levels)
