"""The grid settings of the paper and the data that is made by them."""

import math
from dataclasses import replace

import numpy as np
import pytest
from paper.grid_data import GridData, walk
from paper.grid_settings import DISCOUNTS, FIG1, FIG2, FIG3, GridSetting

from kdbirl.errors import InputError
from kdbirl.worlds.gridworld import Gridworld
from kdbirl.worlds.planning import plan


def test_the_settings_are_those_of_the_paper():
    """The text, and the scripts with their variances as sigmas (DESIGN 5)."""
    assert FIG1["printed"].truth == (0, 0, 0, 1)
    np.testing.assert_array_equal(GridData(FIG1["printed"], 0).rewards, [[1, 0, 0, 0], [0, 1, 0, 0]])
    assert FIG1["printed"].bandwidth == FIG3["printed"].bandwidth == "paper"
    assert FIG1["released"].bandwidth == pytest.approx((math.sqrt(0.5), math.sqrt(0.4)))
    assert FIG3["released"].bandwidth == pytest.approx((math.sqrt(0.1), math.sqrt(0.4)))
    assert (FIG1["released"].rows, FIG3["released"].rows) == (200, 300)
    np.testing.assert_array_equal(GridData(FIG3["released"], 0).rewards, np.eye(25))
    first, second = FIG2[(-1.0, 1.0)], FIG2[(1.0, 1.0)]
    assert first["printed"].prior == "truncated-normal:0,1,-1,1"
    assert second["printed"].prior.startswith("truncated-normal:0.5,0.7071")
    assert second["released"].prior == first["released"].prior
    weights = GridData(second["released"], 0).rewards
    assert (len(weights), weights.min(), weights.max()) == (121, -1.1, pytest.approx(0.9))
    assert first["released"].rows == first["released"].expert_rows == 500


def test_what_the_text_does_not_name_is_drawn_by_seed():
    drawn = [GridData(FIG3["printed"], seed) for seed in range(30)]
    assert {data.world.discount for data in drawn} == set(DISCOUNTS)
    assert {data.horizon for data in drawn} == {10, 15, 20}
    for data in drawn:
        assert data.rewards.sum() == 3
        assert data.rewards[:, 24].sum() == 0
    assert len({tuple(data.rewards.argmax(axis=1)) for data in drawn}) > 20


def test_the_same_seed_gives_the_same_rows_and_variants_share_the_expert():
    one, two = GridData(FIG1["printed"], 3), GridData(FIG1["printed"], 3)
    assert one.bank.fingerprint() == two.bank.fingerprint()
    assert one.expert.fingerprint() == GridData(FIG1["ours"], 3).expert.fingerprint()
    assert one.expert.fingerprint() != GridData(FIG1["printed"], 4).expert.fingerprint()


@pytest.mark.parametrize("variant", ["printed", "released", "ours"])
def test_the_rows_are_as_many_as_asked_for(variant):
    data = GridData(FIG1[variant], 1)
    assert data.bank.n_rows == FIG1[variant].rows
    assert data.expert.n_rows == FIG1[variant].expert_rows
    assert len(np.unique(data.bank.tasks)) == len(data.rewards)


def test_printed_experts_are_optimal():
    data = GridData(FIG3["printed"], 0)
    policy = plan(data.world, np.asarray(FIG3["printed"].truth)).at(0)
    assert (policy[data.expert.states, data.expert.actions] > 0).all()


def test_walkers_climb_one_step_at_a_time_and_finish():
    world = Gridworld(4, features="xy")
    rows = walk(world, np.array([1.0, 1.0]), 12, np.random.default_rng(0))
    last = rows.terminated
    np.testing.assert_array_equal(rows.states[last], 15)
    np.testing.assert_array_equal(rows.actions[last], 0)
    assert set(rows.actions[~last]) == {1, 2}  # UP and RIGHT: both raise x + y
    assert rows.n_episodes == 1000


def test_unfinished_rollouts_are_dropped():
    world, goal = Gridworld(5), np.eye(25)[24]
    rows = walk(world, goal, 10, np.random.default_rng(0))
    assert 50 < rows.n_episodes < 900
    for episode in np.unique(rows.episodes)[:50]:
        own = rows.states[rows.episodes == episode]
        assert own[-1] == 24
        assert 24 not in own[:-1]
    with pytest.raises(InputError, match="No walker reached its goal"):
        walk(Gridworld(5, start=0), goal, 2, np.random.default_rng(0))


def test_random_actions_make_training_rows_worse_and_leave_the_expert():
    clean = GridData(FIG3["printed"], 0)
    noisy = GridData(replace(FIG3["printed"], noise=0.6), 0)
    assert noisy.expert.fingerprint() == clean.expert.fingerprint()
    assert noisy.bank.fingerprint() != clean.bank.fingerprint()


def test_a_setting_that_makes_no_sense_is_refused():
    with pytest.raises(InputError, match="has 3 numbers"):
        replace(FIG1["printed"], truth=(0.0, 0.0, 1.0))
    with pytest.raises(InputError, match="make no experiment"):
        replace(FIG1["printed"], rows=0)
    assert isinstance(FIG1["printed"], GridSetting)
