"""BIRL from a table of Q*: its likelihood is BIRL's, its posterior the exact one; alpha from training tasks."""

import numpy as np
import pytest
from scipy.special import logsumexp

import kdbirl as kb
from kdbirl.errors import InputError
from kdbirl.methods.birl import LARGEST, likeliest_alpha
from kdbirl.methods.birl_table import BIRLTable, direction_table

from .worlds import random_world

PRIOR = kb.Uniform(-1, 1)


def grid():
    return kb.Gridworld(3, features="xy", scaled=True, discount=0.8)


def three_parameters():
    """Features of state and action, from which a policy tells the direction of the reward and, with alpha, its size."""
    rng = np.random.default_rng(5)
    features = rng.normal(size=(5, 3, 3))
    return kb.TabularMDP(rng.dirichlet(np.ones(5), (5, 3)), "uniform", 0.8, features=features)


def model_box(prior):
    return prior.for_parameters(3).support


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


@pytest.mark.parametrize(
    "prior",
    [kb.Uniform([0, 0, 0], [1, 0.3, 0.3]), kb.Uniform([-1, -1, -1], [1, 1, 1.5]), kb.Uniform(0.2, 0.5)],
    ids=["unequal", "a longer side", "away from 0"],
)
def test_bounds_that_cut_cells_leave_no_draw_on_an_edge(prior):
    """Almost without evidence the draws are the prior's: means and spreads within 5 standard errors (1 in 100,000)."""
    world = three_parameters()
    post = BIRLTable(world, prior, alpha=1e-9, draws=40_000).posterior(shown(world, np.ones(3)), seed=0)
    low, high = model_box(prior)
    assert ((post.flat > low) & (post.flat < high)).all()
    standard = (post.flat - low) / (high - low)
    assert np.abs(standard.mean(axis=0) - 1 / 2).max() < 5 * np.sqrt(1 / 12 / 40_000)
    assert np.abs(standard.var(axis=0) - 1 / 12).max() < 5 * np.sqrt(1 / 180 / 40_000)


def test_a_prior_far_narrower_than_the_cells_is_refused():
    world = three_parameters()
    with pytest.raises(InputError, match=r"narrower than the table's cells; raise per_axis \(14\) and shells \(16\)"):
        BIRLTable(world, kb.Uniform(10, 10.001), alpha=1.0).posterior(shown(world, np.ones(3)), seed=0)


def values_by_sweeps(world, rewards):
    """Q* (r, S, A) of each reward by value iteration, 120 sweeps at discount 0.8: to 1e-11."""
    table = np.einsum("saq,rq->rsa", world.features, rewards)
    found = np.zeros_like(table)
    for _ in range(120):
        found = table + world.discount * np.einsum("sat,rt->rsa", world.transitions, found.max(axis=2))
    return found


def test_the_posterior_against_sweeps_and_a_plain_grid():
    """Log likelihoods of draws' cells to the table's single precision; then moments under a prior that is not flat, by
    midpoints on 25^3 rewards: 20,000 independent draws, 5 standard errors, and 2 % of a spread for the cells' size."""
    world = three_parameters()
    expert, alpha = shown(world, np.array([0.8, -0.3, 0.4]), 0.3), 3.0
    prior = kb.TruncatedNormal(0.3, 0.6, -1, 1)
    model = BIRLTable(world, prior, alpha=alpha, shells=32, draws=20_000)
    post = model.posterior(expert, seed=0)

    def log_likelihood(rewards):
        q_values = alpha * values_by_sweeps(world, rewards)
        return (q_values - logsumexp(q_values, axis=2, keepdims=True))[:, expert.states, expert.actions]

    table, visits = model._table(), np.zeros((world.n_states, world.n_actions))
    np.add.at(visits, (expert.states, expert.actions), 1.0)
    cells = np.random.default_rng(0).integers(0, len(table.directions), 200)
    exact = log_likelihood(table.directions[cells] * model._middles[7]).sum(axis=1)
    assert table.log_likelihoods(visits, alpha * model._middles)[cells, 7] == pytest.approx(exact, abs=1e-4)

    side = -1 + 2 * (np.arange(25) + 0.5) / 25
    points = np.stack(np.meshgrid(side, side, side), axis=-1).reshape(-1, 3)
    log_mass = np.concatenate([log_likelihood(part).sum(axis=1) for part in np.array_split(points, 30)])
    log_mass += -0.5 * (((points - 0.3) / 0.6) ** 2).sum(axis=1)
    mass = np.exp(log_mass - logsumexp(log_mass))
    mean = mass @ points
    sd = np.sqrt(mass @ (points - mean) ** 2)
    assert sd.max() < 0.45, "the prior's own spread is 0.46: the expert would say nothing"
    assert np.abs(post.flat.mean(axis=0) - mean).max() < (5 / np.sqrt(20_000) + 0.02) * sd.max()
    assert post.flat.std(axis=0) == pytest.approx(sd, rel=0.02 + 5 / np.sqrt(2 * 20_000))


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
    assert post.convergence.colour == "amber"


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"mdp": kb.Gridworld(3)}, "9 parameters"),
        ({"mdp": kb.Gridworld(3, features="xy", horizon=4)}, "without a horizon"),
        ({"mdp": "grid"}, "TabularMDP"),
        ({"prior": 1}, "not a prior"),
        ({"alpha": 0}, "alpha=0"),
        ({"per_axis": 1}, "per_axis=1"),
        ({"per_axis": 5}, "per_axis=5 should be even"),
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
