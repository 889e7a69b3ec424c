"""Bandwidths chosen by the value of acting on the posterior."""

import numpy as np
import pytest

import kdbirl as kb
from kdbirl.errors import InputError


def test_the_objective_is_minus_the_expected_value_difference():
    mdp, rng = kb.Gridworld(3, features="xy"), np.random.default_rng(0)
    points, weights = rng.uniform(-1, 1, (6, 2)), rng.dirichlet(np.ones(6))
    truth = np.array([0.4, -0.9])
    expected = weights @ kb.evd(points, mdp, truth).per_draw.reshape(-1)
    assert kb.evd_objective(mdp)(truth, points, weights) == pytest.approx(-expected, abs=1e-9)


def test_loto_takes_it_and_chooses_narrower_posteriors_than_the_score_does():
    mdp = kb.Gridworld(4, features="xy", scaled=True)
    rewards = np.random.default_rng(1).uniform(-1, 1, (12, 2))
    bank = kb.make_bank(mdp, rewards, episodes=8, horizon=8, seed=0)
    powers = (1.0, 0.3, 0.1, 0.03, 0.01)
    factors = {"h_factors": (0.5,), "h_reward_factors": (0.25, 0.5), "powers": powers}
    chosen = {}
    for name, objective in (("score", None), ("evd", kb.evd_objective(mdp))):
        settings = kb.LotoSettings(**factors, objective=objective)
        model = kb.KDBIRL(prior=kb.Uniform(-1, 1), features=kb.GridCoordinates(4), bandwidth=settings).fit(bank)
        chosen[name] = model.fitted.choices.for_rows(40).power
    assert chosen["evd"] > chosen["score"]


def test_it_needs_a_world_with_a_table():
    with pytest.raises(InputError, match=r"needs a kb\.TabularMDP"):
        kb.evd_objective("gridworld")
