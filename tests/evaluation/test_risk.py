"""The value-at-risk bound of Brown and Niekum (2018): its formula, and its promise."""

from math import comb

import numpy as np
import pytest
from scipy.stats import binom

import kdbirl as kb
from kdbirl.errors import InputError
from kdbirl.evaluation.risk import _bound


def test_what_a_policy_may_lose():
    world = kb.Gridworld(3)
    rng = np.random.default_rng(0)
    draws = rng.random((50, 9))
    policy = kb.plan(world, draws.mean(axis=0))
    found = kb.value_at_risk(draws, world, policy)
    lost = [kb.value(world, kb.plan(world, draw), draw) - kb.value(world, policy, draw) for draw in draws]
    np.testing.assert_allclose(found.per_draw, lost, atol=1e-10)
    assert found.estimate == pytest.approx(np.quantile(lost, 0.95))


@pytest.mark.parametrize(("alpha", "delta", "draws"), [(0.9, 0.05, 300), (0.95, 0.05, 59), (0.5, 0.1, 40)])
def test_the_bound_is_the_first_order_statistic_that_keeps_the_promise(alpha, delta, draws):
    """By the definition: the smallest k with P(fewer than k of the draws are below the quantile) >= 1 - delta."""
    rewards = np.random.default_rng(0).random((draws, 4))
    found = kb.value_at_risk(rewards, kb.Gridworld(2), kb.Policy.uniform(4, 5), alpha=alpha, delta=delta)
    chances = np.cumsum([comb(draws, i) * alpha**i * (1 - alpha) ** (draws - i) for i in range(draws + 1)])
    k = int(np.argmax(chances >= 1 - delta)) + 1
    assert found.bound == np.sort(found.per_draw)[k - 1]
    assert found.bound > found.estimate


def test_the_bound_holds_as_often_as_it_says():
    """400 posteriors of 100 draws: the true 0.9-quantile is below the bound in at least 95 % of them, less what chance
    takes once in 10,000; and the draw below the bound would not do."""
    world, policy = kb.Gridworld(2, discount=0.5), kb.Policy.uniform(4, 5)
    rng = np.random.default_rng(0)
    lost = kb.value_at_risk(rng.random((80_000, 4)), world, policy).per_draw
    truth = np.quantile(lost, 0.9)
    sets = np.sort(rng.permutation(lost)[:40_000].reshape(400, 100), axis=1)
    bounds = np.array([_bound(one, 0.9, 0.05, 100.0) for one in sets])
    below = sets[np.arange(400), (sets < bounds[:, None]).sum(axis=1) - 1]
    assert (bounds >= truth).sum() >= binom.ppf(1e-4, 400, 0.95)
    assert (below >= truth).sum() < binom.ppf(1 - 1e-4, 400, 0.95)


def test_draws_that_repeat_themselves_count_less():
    """59 independent draws, each twice: the same bound as of the 59, and none when a draw is missing."""
    lost = np.random.default_rng(0).random(59)
    assert _bound(np.repeat(lost, 2), 0.95, 0.05, 59.4) == lost.max()
    assert _bound(np.repeat(lost, 2), 0.95, 0.05, 58.9) == np.inf
    twice = np.repeat(np.arange(300.0), 2)
    assert _bound(twice, 0.9, 0.05, 300.0) == _bound(np.arange(300.0), 0.9, 0.05, 300.0)


@pytest.mark.parametrize(("draws", "bounded"), [(1, False), (58, False), (59, True)])
def test_too_few_draws_bound_nothing(draws, bounded):
    rewards = np.random.default_rng(0).random((draws, 4))
    found = kb.value_at_risk(rewards, kb.Gridworld(2), kb.Policy.uniform(4, 5))
    assert np.isfinite(found.bound) == bounded
    assert found.needed == 59
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
