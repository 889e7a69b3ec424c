"""Feature expectations of many rewards' policies in a simulator: the exact ones, and one program for all calls."""

import numpy as np
import pytest

import kdbirl as kb
from kdbirl.errors import InputError
from kdbirl.worlds.simulator import TabularSimulator

from ..worlds.cartpole import CartPole
from ..worlds.untrained import untrained

GRID = kb.Gridworld(3, horizon=8)
SIMULATOR = TabularSimulator(GRID)
REWARDS = np.random.default_rng(0).normal(size=(6, 9))


def test_they_are_the_exact_ones_up_to_chance():
    """All nine parameters of six policies, within 5 standard errors of 4000 episodes (of length 8 at most)."""
    policies = untrained(SIMULATOR, states=np.eye(9))
    found = kb.policy_features(SIMULATOR, policies, REWARDS, episodes=4000, seed=1)
    exact = np.stack([kb.feature_expectations(GRID, policies.policy(w).table()) for w in REWARDS])
    assert np.abs(found - exact).max() < 5 * 8 / np.sqrt(4000) / 2


def test_evd_follows_from_them():
    policies, truth = untrained(SIMULATOR), REWARDS[0]
    mu = kb.policy_features(SIMULATOR, policies, REWARDS, episodes=64, seed=3)
    evd = kb.evd(REWARDS[1:], SIMULATOR, truth, planner=policies, episodes=64, seed=3)
    np.testing.assert_allclose(evd.per_draw, (mu[0] - mu[1:]) @ truth, atol=1e-9)


def test_a_second_call_compiles_nothing_even_for_another_network(monkeypatch):
    """Compiled programs do not ask Python for a step; other rewards, fewer of them, another seed and network."""
    cart = CartPole(discount=0.99)
    rewards = np.random.default_rng(1).normal(size=(8, len(cart.feature_names)))
    kb.policy_features(cart, untrained(cart, seed=0), rewards, episodes=8, horizon=10, seed=0)

    def asked(*arguments):
        raise AssertionError("the simulator was traced again")

    monkeypatch.setattr(CartPole, "step", asked)
    kb.policy_features(cart, untrained(cart, seed=1), rewards[:6] + 1, episodes=8, horizon=10, seed=5)
    with pytest.raises(AssertionError, match="traced again"):  # so it would be seen
        kb.policy_features(cart, untrained(cart, seed=1), rewards, episodes=9, horizon=10, seed=5)


def test_mistakes():
    with pytest.raises(InputError, match=r"kb\.feature_expectations"):
        kb.policy_features(GRID, None, REWARDS)
    with pytest.raises(InputError, match="needs planner="):
        kb.policy_features(SIMULATOR, None, REWARDS)
