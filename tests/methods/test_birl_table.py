"""BIRL from a table of Q*: its likelihood is BIRL's, its posterior the exact one; alpha from training tasks."""

import numpy as np
import pytest

import kdbirl as kb
from kdbirl.errors import InputError
from kdbirl.methods.birl_table import BIRLTable, direction_table
from kdbirl.methods.birl_temperature import LARGEST, likeliest_alpha

from .worlds import random_world

PRIOR = kb.Uniform(-1, 1)


def grid():
    return kb.Gridworld(3, features="xy", scaled=True, discount=0.8)


def shown(world, truth, temperature=None):
    return kb.rollout(world, kb.plan(world, truth, temperature=temperature), episodes=6, horizon=5, seed=1)


@pytest.mark.parametrize("world", [grid(), random_world()], ids=["grid", "random"])
def test_the_likelihood_is_that_of_birl(world):
    """To the single precision of the table."""
    q = world.n_parameters
    expert = shown(world, np.linspace(-1, 1, q), 0.5)
    model = BIRLTable(world, PRIOR, alpha=1.5, per_axis=4, shells=5, draws=50)
    post = model.posterior(expert, seed=0)
    table, middles = model._table(), model._middles
    rewards = (table.directions[::7, None] * middles[None, :, None]).reshape(-1, q)
    exact = kb.BIRL(world, PRIOR, alpha=1.5).log_likelihood(expert, rewards)
    visits = np.zeros((world.n_states, world.n_actions))
    np.add.at(visits, (expert.states, expert.actions), 1.0)
    live = visits[: table.advantages.shape[1]]  # a terminal state, where there is one, comes last
    found = table.log_likelihoods(live, 1.5 * middles)
    assert found[::7].reshape(-1) == pytest.approx(exact, rel=1e-5, abs=1e-4)
    weights = np.bincount(post.expert_index)
    assert (post.log_likelihood @ weights).max() <= found.max() + 1e-3  # draws are in cells of the table


def test_the_posterior_is_the_exact_one():
    """4,000 independent draws each: means differ by less than 4.5 standard errors, spreads by less than a tenth."""
    world = grid()
    expert = shown(world, [0.8, -0.3], 0.3)
    exact = kb.BIRL(world, PRIOR, alpha=3.0, sampler=kb.Grid(draws=1000, chains=4)).posterior(expert, seed=0).flat
    found = BIRLTable(world, PRIOR, alpha=3.0, shells=48, draws=4000).posterior(expert, seed=0).flat
    error = np.hypot(exact.std(axis=0), found.std(axis=0)) / np.sqrt(4000)
    assert np.all(np.abs(found.mean(axis=0) - exact.mean(axis=0)) < 4.5 * error)
    assert found.std(axis=0) == pytest.approx(exact.std(axis=0), rel=0.1)


def test_without_evidence_the_posterior_is_the_prior():
    """An inverse temperature of almost nothing; also for a normal prior, whose shells reach far out."""
    world, expert = grid(), shown(grid(), [0.8, -0.3])
    for prior in (PRIOR, kb.Normal(0, 0.5)):
        post = BIRLTable(world, prior, alpha=1e-9, shells=64, draws=4000).posterior(expert, seed=0)
        known = post.prior_draws
        assert post.flat.mean(axis=0) == pytest.approx([0, 0], abs=4.5 * known.std() / np.sqrt(4000))
        assert post.flat.std(axis=0) == pytest.approx(known.std(axis=0), rel=0.08)


def test_only_signs_that_the_prior_allows_are_planned_for_and_the_table_is_shared():
    world = grid()
    positive = direction_table(world, 8, (1, 1))
    assert len(positive.directions) == 8
    assert (positive.directions > 0).all()
    assert np.abs(direction_table(world, 8, (0, 0)).directions).max(axis=1) == pytest.approx(1)
    first, second = (BIRLTable(world, kb.Uniform(0, 1), alpha, per_axis=8) for alpha in (1.0, 2.0))
    assert first._table() is second._table() is positive
    assert (first.posterior(shown(world, [1.0, 0.2]), seed=0).flat >= 0).all()


def test_a_posterior_narrower_than_a_cell_is_told():
    world = grid()
    post = BIRLTable(world, PRIOR, alpha=1e4, per_axis=4).posterior(shown(world, [0.8, -0.3], 0.1), seed=0)
    assert "narrower than the table" in post.settings["notes"][0]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"mdp": kb.Gridworld(3)}, "9 parameters"),
        ({"mdp": kb.Gridworld(3, features="xy", horizon=4)}, "without a horizon"),
        ({"mdp": "grid"}, "TabularMDP"),
        ({"prior": 1}, "not a prior"),
        ({"alpha": 0}, "alpha=0"),
        ({"per_axis": 1}, "per_axis=1"),
        ({"draws": 0}, "draws=0"),
    ],
)
def test_a_wrong_choice_is_refused_in_a_sentence(changes, sentence):
    with pytest.raises(InputError, match=sentence):
        BIRLTable(**{"mdp": grid(), "prior": PRIOR, "alpha": 1.0, **changes})


def test_the_inverse_temperature_of_the_training_tasks_is_found():
    """Ten tasks of 200 rows: alpha = 1/0.25 to within 15 %. Demonstrators who never err have none: the largest."""
    world = grid()
    rewards = np.random.default_rng(0).uniform(-1, 1, (10, 2))
    noisy = kb.make_bank(world, rewards, episodes=20, horizon=10, seed=0, temperature=0.25)
    assert likeliest_alpha(world, noisy) == pytest.approx(4.0, rel=0.15)
    optimal = kb.make_bank(world, rewards, episodes=20, horizon=10, seed=0)
    assert likeliest_alpha(world, optimal) == pytest.approx(LARGEST)
    with pytest.raises(InputError, match="TaskBank"):
        likeliest_alpha(world, None)
