"""The posterior of the first n rows, for many n at once, is that of each n alone."""

import numpy as np
import pytest
from paper.theory_world import posteriors_of_first_rows

import kdbirl as kb
from kdbirl.errors import InputError

SIZES = (3, 10, 40)


@pytest.fixture(scope="module")
def world():
    return kb.Gridworld(size=3)


@pytest.fixture(scope="module")
def bank(world):
    rewards = np.random.default_rng(1).uniform(0, 1, (6, 9))
    return kb.make_bank(world, rewards, episodes=6, horizon=8, seed=0)


def test_each_n_is_what_the_likelihood_of_these_rows_says(world, bank):
    model = kb.KDBIRL(kb.Uniform(0, 1), features=kb.OneHot(), bandwidth="paper").fit(bank)
    expert = kb.rollout(world, kb.plan(world, np.eye(9)[8]), episodes=5, horizon=8, seed=1)
    points = np.random.default_rng(2).uniform(0, 1, (30, 9))
    found, record = posteriors_of_first_rows(model, expert, SIZES, points)
    for n, weights in zip(SIZES, found, strict=True):
        log = model.log_likelihood(expert.take(np.arange(n)), points)
        expected = np.exp(log - log.max())
        np.testing.assert_allclose(weights, expected / expected.sum(), rtol=1e-9, atol=1e-12)
    assert record["power"] == 1.0
    assert record["rule"] == "paper"
    assert found[0].max() < found[2].max()  # more rows say more


def test_bandwidths_that_depend_on_n_are_refused(world, bank):
    model = kb.KDBIRL(kb.Uniform(0, 1), features=kb.OneHot(), bandwidth="paper")
    expert = kb.rollout(world, kb.plan(world, np.eye(9)[8]), episodes=2, horizon=8, seed=1)
    with pytest.raises(InputError, match="do not depend on n"):
        posteriors_of_first_rows(model, expert, SIZES, np.zeros((1, 9)))
