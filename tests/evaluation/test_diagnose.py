"""Everything about one posterior in one call."""

import json
from dataclasses import replace

import numpy as np
import pytest

import kdbirl as kb
from kdbirl.errors import InputError


@pytest.fixture(scope="module")
def grid():
    mdp = kb.Gridworld(4, features="xy", scaled=True)
    rewards = np.random.default_rng(0).uniform(-1, 1, (9, 2))
    bank = kb.make_bank(mdp, rewards, episodes=6, horizon=8, seed=0)
    expert = kb.rollout(mdp, kb.plan(mdp, [1.0, -1.0]), episodes=3, horizon=8, seed=1)
    settings = kb.LotoSettings(h_factors=(0.5,), h_reward_factors=(0.35, 0.7), powers=(0.5, 0.1, 0.02))
    model = kb.KDBIRL(prior=kb.Uniform(-1, 1), features=kb.GridCoordinates(4), bandwidth=settings).fit(bank)
    return mdp, model, model.posterior(expert)


@pytest.fixture(scope="module")
def everything(grid):
    mdp, model, posterior = grid
    return kb.diagnose(model, posterior, calibrate=True, sensitivity=True, plan=True, mdp=mdp)


def test_every_part_is_there_and_on_the_card(everything):
    found = everything.to_dict()
    assert set(found) == {
        *("report_card", "identifiability", "support", "scale", "predictive", "left_out"),
        *("calibration", "sensitivity", "policies", "plan"),
    }
    assert "not assessed" not in {colour for colour, _ in everything.posterior.report_card().values()}
    json.dumps(found["report_card"])


def test_the_draws_stay_the_same(grid, everything):
    assert np.array_equal(everything.posterior.draws, grid[2].draws)


def test_loto_brings_its_calibration_and_nothing_dear_is_done_unasked(grid):
    _, model, posterior = grid
    found = kb.diagnose(model, posterior)
    assert found.calibration is not None
    assert (found.sensitivity, found.plan, found.policies) == (None, None, None)
    assert found.posterior.report_card()["sensitivity"][0] == "not assessed"


def test_fixed_bandwidths_are_calibrated_when_asked(grid):
    mdp, _, _ = grid
    rewards = np.random.default_rng(0).uniform(-1, 1, (9, 2))
    bank = kb.make_bank(mdp, rewards, episodes=6, horizon=8, seed=0)
    model = kb.KDBIRL(prior=kb.Uniform(-1, 1), features=kb.GridCoordinates(4), bandwidth=(0.4, 0.3)).fit(bank)
    expert = kb.rollout(mdp, kb.plan(mdp, [1.0, -1.0]), episodes=3, horizon=8, seed=1)
    post = model.posterior(expert)
    assert kb.diagnose(model, post).calibration is None
    found = kb.diagnose(model, post, calibrate=True)
    assert found.calibration.n_tasks == 9
    assert found.posterior.report_card()["calibration"][0] == "red"  # power 1 is far too sure of itself here


def test_a_posterior_of_another_bank_is_refused(grid):
    _, model, posterior = grid
    stranger = replace(posterior, settings={**posterior.settings, "bank": "another"})
    with pytest.raises(InputError, match="another bank"):
        kb.diagnose(model, stranger)


def test_a_single_episode_cannot_be_left_out(grid):
    _, model, posterior = grid
    alone = replace(posterior, expert_episodes=np.zeros(len(posterior.expert_features), np.int64))
    assert kb.diagnose(model, alone).left_out is None
