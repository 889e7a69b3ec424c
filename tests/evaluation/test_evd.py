"""EVD: zero for the truth, never negative, blind to scale, with honest errors of its mean."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2

import kdbirl as kb
from kdbirl.errors import InputError

from ..worlds.worlds import WORLDS, random_mdp


def posterior(draws, sampler="NUTS", lp=None):
    names = tuple(f"r{j}" for j in range(draws.shape[2]))
    stats = {} if lp is None else {"lp": lp}
    return kb.Posterior(draws=draws, names=names, method="test", sampler=sampler, seed=0, sample_stats=stats)


@pytest.mark.parametrize("name", list(WORLDS))
def test_the_truth_loses_nothing_and_nothing_gains(name):
    world = WORLDS[name]()
    rng = np.random.default_rng(0)
    truth = rng.normal(size=world.n_parameters)
    draws = np.concatenate([truth[None], 3 * truth[None], rng.normal(size=(20, world.n_parameters))])
    found = kb.evd(draws, world, truth)
    assert found.per_draw[0] == 0
    assert abs(found.per_draw[1]) <= 1e-9 * abs(found.best)
    assert (found.per_draw >= -1e-9 * abs(found.best)).all()
    assert found.best >= found.random


@settings(max_examples=25)
@given(seed=st.integers(0, 1000), scale=st.floats(1e-4, 1e4), discount=st.sampled_from([0.0, 0.5, 0.95]))
def test_scaling_what_was_learnt_changes_nothing(seed, scale, discount):
    world = random_mdp(6, 3, discount, seed)
    rng = np.random.default_rng(seed)
    truth, draws = rng.normal(size=6), rng.normal(size=(5, 6))
    plain, scaled = kb.evd(draws, world, truth), kb.evd(scale * draws, world, truth)
    np.testing.assert_allclose(scaled.per_draw, plain.per_draw, atol=1e-10)
    assert (plain.per_draw >= -1e-9 * max(abs(plain.best), 1e-3)).all()


def test_it_is_the_difference_of_two_values():
    """By the definition: plan for the draw, and compare values under the truth."""
    world = kb.Gridworld(4, slip=0.1)
    rng = np.random.default_rng(1)
    truth, draws = rng.normal(size=16), rng.normal(size=(4, 16))
    best = kb.value(world, kb.plan(world, truth), truth)
    expected = [best - kb.value(world, kb.plan(world, draw), truth) for draw in draws]
    np.testing.assert_allclose(kb.evd(draws, world, truth).per_draw, expected, atol=1e-10)


def test_a_reward_of_zeros_is_the_random_agent():
    world = kb.Gridworld(3)
    found = kb.evd(np.zeros((3, 9)), world, np.eye(9)[8])
    np.testing.assert_allclose(found.per_draw, found.best - found.random, atol=1e-10)
    assert found.regret == pytest.approx(1)


def test_parameters_are_matched_by_name():
    world = kb.Gridworld(4, features="xy")
    draws = np.array([[[1.0, -1.0], [0.5, -0.7]]])
    swapped = kb.Posterior(draws=draws[:, :, ::-1], names=("y", "x"), method="test", sampler="Grid", seed=0)
    found = kb.evd(swapped, world, [1.0, -1.0])
    np.testing.assert_allclose(found.per_draw, kb.evd(draws, world, [1.0, -1.0]).per_draw)
    assert found.per_draw.max() < 1e-9 < kb.evd(draws[:, :, ::-1], world, [1.0, -1.0]).per_draw.min()


def test_of_mean_and_of_map():
    world = kb.Gridworld(3)
    truth = np.eye(9)[8]
    draws = np.stack([np.eye(9)[0], truth, np.eye(9)[1]])[None]
    found = kb.evd(posterior(draws, lp=np.array([[0.0, 2.0, 1.0]])), world, truth)
    assert found.of_map == 0
    assert found.of_mean == pytest.approx(kb.evd(draws.mean(axis=1), world, truth).per_draw[0])
    assert kb.evd(posterior(draws), world, truth).of_map is None


def test_the_interval_is_that_of_the_mean_and_the_draws_have_their_own():
    world = kb.Gridworld(3)
    draws = np.random.default_rng(0).random((1, 400, 9))
    found = kb.evd(posterior(draws, "Grid"), world, np.eye(9)[8])
    assert found.effective_size == 400
    assert found.standard_error == pytest.approx(found.per_draw.std(ddof=1) / 20)
    low, high = found.interval
    assert high - low == pytest.approx(2 * 1.959964 * found.standard_error, rel=1e-6)
    assert found.quantile(0.95) - found.quantile(0.05) > 3 * (high - low)
    assert found.mean == pytest.approx(found.per_draw.mean())
    assert "95 % interval" in repr(found)


def test_draws_that_repeat_themselves_count_less():
    """The standard error with the effective sample size is the spread of means over independent chains.

    Chains of AR(1) draws with correlation 0.9 have an effective size of n * 0.1 / 1.9. The variance of 60 means is
    compared with the claimed one: their ratio times 59 is chi-square; two-sided limits at one in 10,000, widened by
    20 % for the error of the estimated effective size (5 % here).
    """
    world = kb.Gridworld(2, discount=0.5)
    rng = np.random.default_rng(0)
    truth = np.array([0.0, 0.0, 0.0, 1.0])
    means, errors = [], []
    for _ in range(60):
        path = np.empty((2, 500, 4))
        path[:, 0] = rng.normal(size=(2, 4))
        for t in range(1, 500):
            path[:, t] = 0.9 * path[:, t - 1] + np.sqrt(1 - 0.81) * rng.normal(size=(2, 4))
        found = kb.evd(posterior(path), world, truth)
        means.append(found.mean)
        errors.append(found.standard_error)
    ratio = np.var(means, ddof=1) / np.mean(np.square(errors))
    low, high = chi2.ppf([5e-5, 1 - 5e-5], 59) / 59
    assert 0.8 * low < ratio < 1.2 * high
    assert found.effective_size < 500


def test_repeated_draws_are_planned_once(monkeypatch):
    world = kb.Gridworld(3)
    asked = []

    def planner(mdp, reward):
        asked.append(reward)
        return kb.plan(mdp, reward)

    draws = np.repeat(np.eye(9)[:2], 50, axis=0)
    found = kb.evd(draws, world, np.eye(9)[8], planner=planner)
    assert len(asked) == 4  # two draws, their mean, and the truth
    np.testing.assert_allclose(found.per_draw, kb.evd(draws, world, np.eye(9)[8]).per_draw, atol=1e-10)


def test_another_planner_is_compared_with_the_optimum():
    world = kb.Gridworld(3)
    draws = np.eye(9)[8:]
    found = kb.evd(draws, world, np.eye(9)[8], planner=lambda mdp, reward: kb.plan(mdp, reward, noise=0.5))
    assert found.per_draw[0] > 0
    assert found.best == pytest.approx(kb.evd(draws, world, np.eye(9)[8]).best)


def test_a_planner_may_ask_for_the_reward_alone():
    world, draws = kb.Gridworld(3), np.eye(9)[:2]
    one = kb.evd(draws, world, np.eye(9)[8], planner=lambda reward: kb.plan(world, reward))
    two = kb.evd(draws, world, np.eye(9)[8], planner=kb.plan)
    np.testing.assert_array_equal(one.per_draw, two.per_draw)


def test_one_draw_has_no_standard_error():
    found = kb.evd(np.eye(4)[:1], kb.Gridworld(2), np.eye(4)[3])
    assert np.isnan(found.standard_error)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: kb.evd(np.eye(4), kb.Gridworld(3), np.ones(9)), "has 4 reward parameters, but .* has 9"),
        (lambda: kb.evd(np.eye(9), kb.Gridworld(3), np.ones(8)), "has 9 parameters"),
        (lambda: kb.evd(np.eye(9), kb.Gridworld(3), np.ones((2, 9))), "true_reward: shape"),
        (lambda: kb.evd(np.eye(9), "grid", np.ones(9)), "evd needs a kb.TabularMDP .* or a simulator, not str"),
        (lambda: kb.evd(np.eye(9), kb.Gridworld(3), np.ones(9), planner=7), "planner=7 should be a function"),
        (lambda: kb.evd(np.ones(9), kb.Gridworld(3), np.ones(9)), r"rewards \(draws, q\)"),
    ],
)
def test_bad_input_is_a_sentence(call, sentence):
    with pytest.raises(InputError, match=sentence):
        call()
