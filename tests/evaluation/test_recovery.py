"""The whole way: a world, training tasks planned in it, KD-BIRL, and what its posterior loses."""

import gymnasium
import numpy as np
import pytest

import kdbirl as kb

WIDTHS = (kb.sigma_from_paper(0.5), kb.sigma_from_paper(0.4))  # the released 2x2 runs
TRUTH = np.array([0.0, 0.0, 0.0, 1.0])
FEW = kb.NUTS(chains=2, warmup=300, draws=300)


def two_by_two(training: np.ndarray, seed: int = 0) -> kb.Posterior:
    grid = kb.Gridworld(2)
    bank = kb.make_bank(grid, training, episodes=20, horizon=10, seed=seed)
    expert = kb.rollout(grid, kb.plan(grid, TRUTH), episodes=20, horizon=10, seed=seed + 100)
    model = kb.KDBIRL(prior=kb.Uniform(0, 1), features=kb.OneHot(), bandwidth=WIDTHS)
    return model.fit(bank).posterior(expert, seed=seed)


def test_one_task_per_cell_finds_the_right_policy():
    """Draws lose less than 5 % of what draws of the prior lose."""
    grid = kb.Gridworld(2)
    post = two_by_two(np.eye(4))
    learnt, prior = kb.evd(post, grid, TRUTH), kb.evd(post.prior_draws, grid, TRUTH)
    assert learnt.mean < 0.05 * prior.mean
    assert learnt.of_mean == pytest.approx(0, abs=1e-9)


def test_the_two_printed_tasks_leave_two_cells_at_their_prior():
    """DESIGN 4: R1 = [1,0,0,0], R2 = [0,1,0,0] say nothing about the last two cells, however many rows there are.

    Mean 1/2 and sd 1/sqrt(12) of a uniform prior; tolerances of 4.5 standard errors of 1,000 independent draws or more.
    """
    post = two_by_two(np.eye(4)[:2])
    draws = post.flat[:, 2:]
    n = post.convergence.ess_bulk[2:].min()
    np.testing.assert_allclose(draws.mean(axis=0), 0.5, atol=4.5 / np.sqrt(12 * n))
    np.testing.assert_allclose(draws.std(axis=0), 1 / np.sqrt(12), atol=4.5 * 0.13 / np.sqrt(n))
    assert post.flat[:, :2].std(axis=0).max() < 0.2


@pytest.mark.parametrize("truth", [np.array([-1.0, 1.0]), np.array([1.0, 1.0])], ids=str)
def test_the_released_featurised_grid_has_the_right_signs(truth):
    grid = kb.Gridworld(10, features="xy")
    axis = np.linspace(-1.1, 0.9, 11)
    rewards = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    bank = kb.make_bank(grid, rewards, episodes=1, horizon=20, seed=0)
    expert = kb.rollout(grid, kb.plan(grid, truth), episodes=25, horizon=20, seed=1)
    model = kb.KDBIRL(
        prior=kb.TruncatedNormal(0, 1, -1.2, 1),
        features=kb.GridCoordinates(10) + kb.OneHotActions(),
        bandwidth=(kb.sigma_from_paper(0.1), kb.sigma_from_paper(0.4)),
    )
    post = model.fit(bank).posterior(expert, seed=0)
    assert (np.sign(post.mean()) == np.sign(truth)).all()


def test_frozen_lake_from_gymnasium_alone():
    """Each training task wants to be at one cell of the border, the expert at the one next to the goal.

    All rows are played in Gymnasium; its own table of transitions gives the experts and the judge.
    """
    lake = gymnasium.make("FrozenLake-v1", is_slippery=False)
    world = kb.TabularMDP.from_gymnasium(lake, discount=0.95)
    cells = [0, 1, 2, 3, 4, 8, 13, 14]
    tasks = {
        f"cell {cell}": (kb.rollout(lake, kb.plan(world, np.eye(16)[cell]), 10, 10, cell), np.eye(16)[cell])
        for cell in cells
    }
    bank = kb.TaskBank.from_tasks(tasks, reward_names=world.feature_names)
    truth = np.eye(16)[14]
    expert = kb.rollout(lake, kb.plan(world, truth), episodes=5, horizon=10, seed=99)
    model = kb.KDBIRL(prior=kb.Uniform(0, 1), features=kb.OneHot(), bandwidth=(0.5, 0.5), sampler=FEW)
    post = model.fit(bank).posterior(expert, seed=0)
    learnt, prior = kb.evd(post, world, truth), kb.evd(post.prior_draws[:500], world, truth)
    assert post.mean()[cells].argmax() == cells.index(14)
    assert learnt.interval[1] < prior.interval[0]
