"""Influence by weighting, against posteriors that were really made without the task or the row."""

import numpy as np
import pytest

import kdbirl as kb
from kdbirl.report.influence import Influence, influence_of_rows, influence_of_tasks

GRID = kb.Grid(draws=4000, chains=1)


def bank(rng, left_out=None):
    rewards = np.array([[-1.0], [-0.3], [0.2], [0.6], [1.0]])
    tasks = np.repeat(np.arange(5), 40)
    states = 0.6 * rewards[tasks] + rng.normal(0, 1, (200, 1))
    kept = np.flatnonzero(tasks != left_out)
    names, index = np.unique(tasks[kept], return_inverse=True)
    return kb.TaskBank.from_arrays(states[kept], None, index, rewards[names])


def fitted(bank, expert):
    model = kb.KDBIRL(prior=kb.Normal(0, 1), features=kb.Identity(), bandwidth=(0.6, 0.7), sampler=GRID).fit(bank)
    return model, model.posterior(kb.Demonstrations(states=expert), seed=0)


@pytest.fixture(scope="module")
def full():
    expert = np.random.default_rng(2).normal(0.5, 1, (12, 1)).round(2)
    return expert, *fitted(bank(np.random.default_rng(1)), expert)


def test_tasks_move_the_answer_as_a_fit_without_them_does(full):
    expert, model, posterior = full
    found = influence_of_tasks(posterior, model.fitted.ckde)
    sd = posterior.flat.std()
    slow = []
    for task in range(5):
        _, without = fitted(bank(np.random.default_rng(1), task), expert)
        slow.append(abs(float(without.mean()[0] - posterior.mean()[0])) / sd)
    # Monte Carlo: 4000 draws here and there, so a mean is known to 0.016 sd, and a weighted one somewhat worse
    np.testing.assert_allclose(found.shift, slow, atol=0.1)
    assert max(slow) > 0.2
    assert not found.beyond.any()


def test_rows_move_the_answer_as_a_fit_without_them_does(full):
    expert, _, posterior = full
    found = influence_of_rows(posterior)
    sd = posterior.flat.std()
    for row in (0, 5):
        _, without = fitted(bank(np.random.default_rng(1)), np.delete(expert, row, axis=0))
        slow = abs(float(without.mean()[0] - posterior.mean()[0])) / sd
        assert found.shift[posterior.expert_index[row]] == pytest.approx(slow, abs=0.07)


def test_what_decides_beyond_weighting_comes_first():
    found = Influence(np.array([0.5, 0.1, 0.7]), np.zeros(3, dtype=int), np.array([0.9, 0.01, 0.8]))
    assert found.order.tolist() == [1, 2, 0]
    assert found.beyond.tolist() == [False, True, False]
