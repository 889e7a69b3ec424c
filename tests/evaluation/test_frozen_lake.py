"""The whole way with an environment that Gymnasium makes: demonstrations, fit, and what the posterior loses."""

import gymnasium
import numpy as np
import pytest

import kdbirl as kb
from kdbirl.errors import IdentifiabilityWarning

FEW = kb.NUTS(chains=2, warmup=300, draws=300)


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
    with pytest.warns(IdentifiabilityWarning, match="8 training tasks inform 7 of 16 reward directions"):
        post = model.fit(bank).posterior(expert, seed=0)
    learnt, prior = kb.evd(post, world, truth), kb.evd(post.prior_draws[:500], world, truth)
    assert post.mean()[cells].argmax() == cells.index(14)
    assert learnt.interval[1] < prior.interval[0]
