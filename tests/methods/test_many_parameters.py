"""One reward parameter per cell: 25 with 25 tasks, 100 with 40. NUTS at h = 0.7, h' = 0.63, 4 x 1500 draws."""

import numpy as np
import pytest

import kdbirl as kb

# tasks that say nothing about a parameter are what some tests are about; the warning has its own test
pytestmark = pytest.mark.filterwarnings("ignore::kdbirl.errors.IdentifiabilityWarning")


def grid_tasks(size: int, tasks: int, rows: int, seed: int) -> tuple[kb.TaskBank, kb.Demonstrations]:
    """Each task walks to one cell of a size x size grid and stays there; the expert's goal is the first task's."""
    rng = np.random.default_rng(seed)
    goals = rng.permutation(size**2)[:tasks]
    goal = np.repeat(goals, rows)
    cell = np.where(rng.random(len(goal)) < 0.5, goal, rng.integers(0, size**2, len(goal)))
    right, up = goal % size - cell % size, goal // size - cell // size
    action = np.select([right > 0, right < 0, up > 0, up < 0], [2, 3, 1, 4], default=0)
    counts = {"n_states": size**2, "n_actions": 5}
    bank = kb.TaskBank.from_arrays(
        states=cell, actions=action, tasks=np.repeat(np.arange(tasks), rows), rewards=np.eye(size**2)[goals], **counts
    )
    return bank, kb.Demonstrations(states=cell[: rows // 2], actions=action[: rows // 2], **counts)


@pytest.mark.parametrize(("size", "tasks"), [(5, 25), (10, 40)])
def test_nuts_converges(size, tasks):
    bank, expert = grid_tasks(size, tasks, rows=60, seed=0)
    sampler = kb.NUTS(chains=4, warmup=1000, draws=1500)
    model = kb.KDBIRL(prior=kb.Uniform(0, 1), features=kb.OneHot(), bandwidth=(0.7, 0.63), sampler=sampler).fit(bank)
    post = model.posterior(expert, seed=0)
    assert post.draws.shape == (4, 1500, size**2)
    assert post.convergence.r_hat.max() < 1.01
    assert post.convergence.divergences == 0
    assert post.mean().argmax() == bank.rewards[0].argmax()
