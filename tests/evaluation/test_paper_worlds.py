"""KD-BIRL in the paper's grids, with the settings of its released programs (variances there, sigmas here)."""

import numpy as np
import pytest
from scipy.stats import ks_2samp

import kdbirl as kb
from kdbirl.errors import IdentifiabilityWarning


def sampled(bank: kb.TaskBank, rows: int, seed: int) -> kb.TaskBank:
    """Rows of the whole bank drawn at random, as the released programs do; at least one a task."""
    rng = np.random.default_rng(seed)
    first = np.unique(bank.tasks, return_index=True)[1]
    rest = rng.choice(np.setdiff1d(np.arange(bank.n_rows), first), rows - bank.n_tasks, replace=False)
    chosen = np.sort(np.concatenate([first, rest]))
    taken = bank.demonstrations.take(chosen)
    return kb.TaskBank(taken, bank.tasks[chosen], bank.rewards, bank.names, bank.reward_names)


def test_one_task_per_cell_has_an_evd_below_a_twentieth_of_the_priors():
    """2x2, R* = [0, 0, 0, 1], m = n = 200, h = 0.5, h' = 0.4 (variances), U(0, 1)."""
    world = kb.Gridworld(size=2)
    truth = np.array([0.0, 0, 0, 1])
    bank = kb.make_bank(world, np.eye(4), episodes=10, horizon=5, seed=0)
    expert = kb.rollout(world, kb.plan(world, truth), episodes=40, horizon=5, seed=1)
    widths = kb.sigma_from_paper(0.5), kb.sigma_from_paper(0.4)
    model = kb.KDBIRL(prior=kb.Uniform(0, 1), features=kb.OneHot(), bandwidth=widths).fit(bank)
    post = model.posterior(expert, seed=0)
    of_draws, of_prior = (kb.evd(rewards, world, truth) for rewards in (post, post.prior_draws))
    assert of_draws.mean < 0.05 * of_prior.mean
    assert of_prior.mean > 0.1


def test_the_two_printed_tasks_leave_states_3_and_4_at_the_prior():
    """The text's R1 = [1, 0, 0, 0], R2 = [0, 1, 0, 0] inform one direction. KS at 1e-4."""
    world = kb.Gridworld(size=2)
    bank = kb.make_bank(world, np.eye(4)[:2], episodes=20, horizon=5, seed=0)
    expert = kb.rollout(world, kb.plan(world, [0.0, 0, 0, 1]), episodes=20, horizon=5, seed=1)
    widths = kb.sigma_from_paper(0.5), kb.sigma_from_paper(0.4)
    model = kb.KDBIRL(prior=kb.Uniform(0, 1), features=kb.OneHot(), bandwidth=widths)
    with pytest.warns(
        IdentifiabilityWarning, match="2 training tasks inform 1 of 4 reward directions; cell 2 and cell 3"
    ):
        post = model.fit(bank).posterior(expert, seed=0)
    uniform = np.random.default_rng(5).random(20_000)
    thinned = post.flat[:: max(1, int(len(post.flat) / post.convergence.ess_bulk.min()))]
    for cell in (2, 3):
        assert ks_2samp(thinned[:, cell], uniform).pvalue > 1e-4


@pytest.mark.parametrize("truth", [(-1.0, 1.0), (1.0, 1.0)])
def test_featurised_grid_has_the_right_signs_over_ten_seeds(truth):
    """10x10, phi = [x, y] raw, 121 weights on a grid from -1.1 to 0.9, m = n = 500, h = 0.1, h' = 0.4 (variances)."""
    world = kb.Gridworld(size=10, features="xy")
    axis = np.linspace(-1.1, 0.9, 11)
    weights = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    widths = kb.sigma_from_paper(0.1), kb.sigma_from_paper(0.4)
    expert_policy = kb.plan(world, truth)
    for seed in range(10):
        bank = sampled(kb.make_bank(world, weights, episodes=4, horizon=18, seed=seed), 500, seed)
        expert = kb.rollout(world, expert_policy, episodes=28, horizon=18, seed=1000 + seed)
        model = kb.KDBIRL(prior=kb.TruncatedNormal(0, 1, -1, 1), features=kb.GridCoordinates(10), bandwidth=widths).fit(
            bank
        )
        post = model.posterior(expert, seed=seed)
        assert (np.sign(post.mean()) == np.sign(truth)).all(), (seed, post.mean())
