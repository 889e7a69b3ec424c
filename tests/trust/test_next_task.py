"""The suggested task lies in the prior's support, and adds what the sentence says."""

import numpy as np
import pytest

import kdbirl as kb
from kdbirl.likelihood.ckde import CKDE
from kdbirl.likelihood.distances import euclidean, manhattan
from kdbirl.likelihood.kernels import RadialKernel, as_kernel, on_columns
from kdbirl.posterior.priors import Prior
from kdbirl.trust.identifiability import identify
from kdbirl.trust.next_task import NextTask, distances, suggest_task

NAMES = ("a", "b", "c")


def suggested(rewards: np.ndarray, uninformed: np.ndarray, prior: Prior, h: float = 1.0, seed: int = 0) -> NextTask:
    prior = prior.for_parameters(rewards.shape[1])
    draws = prior.sample(np.random.default_rng(seed), 1024)
    return suggest_task(rewards, uninformed, prior, draws, euclidean, h, NAMES[: rewards.shape[1]])


@pytest.mark.parametrize("prior", [kb.Uniform(0, 1), kb.Normal(0, 1), kb.Beta(2, 5)])
def test_each_suggestion_raises_the_rank_by_one_until_all_is_informed(prior):
    q = 4
    rewards = np.array([[0.5, 0.3, 0.3, 0.3], [0.3, 0.3, 0.3, 0.3]])
    for expected in range(1, q + 1):
        rows = np.zeros((len(rewards), 1))
        kernel = on_columns(as_kernel("gaussian"), ("x",), {})
        ckde = CKDE.from_rows(rows, np.arange(len(rewards)), rewards, kernel, RadialKernel())
        found = identify(ckde, prior.for_parameters(q), ("a", "b", "c", "d"), 0.5)
        assert found.rank == expected
        assert prior.for_parameters(q).contains(found.suggested_reward[None]).all()
        rewards = np.vstack([rewards, found.suggested_reward])
    assert found.next_task.direction is None


def test_the_new_direction_is_the_one_of_largest_prior_spread():
    found = suggested(np.zeros((2, 3)), np.eye(3)[1:], kb.Normal(0, [1, 0.1, 2]))
    assert abs(found.direction[2]) > 0.99
    assert found.direction[0] == 0
    assert 1.5 < found.gain < 4
    assert "would inform one direction more" in found.sentence
    assert "1 would still keep the prior" in found.sentence
    last = suggested(np.zeros((2, 3)), np.eye(3)[2:], kb.Normal(0, 1))
    assert "every direction would then be informed" in last.sentence


def test_the_largest_gap_is_filled():
    """Tasks cover the square but for its upper right quarter."""
    rng = np.random.default_rng(1)
    rewards = rng.uniform(0, 1, (60, 2))
    rewards = rewards[(rewards < 0.5).any(axis=1)]
    found = suggested(rewards, np.zeros((0, 2)), kb.Uniform(0, 1), h=0.5)
    assert (found.reward > 0.55).all()
    assert found.gain > 0
    assert "fill the largest gap" in found.sentence
    draws = kb.Uniform(0, 1).for_parameters(2).sample(np.random.default_rng(0), 1024)
    before = np.linalg.norm(draws[:, None] - rewards, axis=2).min(axis=1)
    after = np.minimum(before, np.linalg.norm(draws - found.reward, axis=1))
    assert (before.mean() - after.mean()) / 0.5 == pytest.approx(found.gain, rel=0.02)


def test_no_suggestion_from_the_end_of_a_long_tail_and_the_same_for_the_same_seed():
    prior = kb.Normal(0, 1)
    first, again, other = (suggested(np.zeros((2, 3)), np.eye(3), prior, seed=s) for s in (0, 0, 1))
    np.testing.assert_array_equal(first.reward, again.reward)
    assert not np.array_equal(first.reward, other.reward)
    assert np.sum(first.reward**2) < 7.5  # the 90 % quantile of chi-squared with 3 degrees is 6.25


def test_distances_equal_the_direct_ones():
    rng = np.random.default_rng(2)
    x, y = rng.normal(size=(5, 3)), rng.normal(size=(4, 3))
    np.testing.assert_allclose(distances(x, y, manhattan), np.abs(x[:, None] - y).sum(axis=2))
