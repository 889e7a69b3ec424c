"""Values by simulation agree with exact ones, and pairing removes noise."""

import jax.numpy as jnp
import numpy as np
import pytest

import kdbirl as kb
from kdbirl.errors import InputError
from kdbirl.evaluation.paired_rollouts import collected_features
from kdbirl.worlds.policy_value import feature_expectations
from kdbirl.worlds.simulator import TabularSimulator

WORLD = kb.Gridworld(size=3, slip=0.3, horizon=8, discount=0.9)


class Always:
    """Takes one action everywhere."""

    def __init__(self, action: int) -> None:
        self.action = action

    def __call__(self, observation):
        return jnp.full(observation.shape[0], self.action)


def exact(action: int) -> np.ndarray:
    table = np.zeros((9, 5))
    table[:, action] = 1.0
    return feature_expectations(WORLD, table)


@pytest.mark.parametrize("action", [0, 1, 2])
def test_mean_is_the_exact_feature_expectation(action):
    """Within 4.5 standard errors for each of nine cells: a false failure in 15,000 runs."""
    sums = collected_features(TabularSimulator(WORLD), Always(action), episodes=4000, horizon=None, seed=0)
    error = sums.std(axis=0, ddof=1) / np.sqrt(len(sums))
    assert sums.shape == (4000, 9)
    assert sums.dtype == np.float64
    assert (np.abs(sums.mean(axis=0) - exact(action)) <= 4.5 * error + 1e-12).all()


def test_the_same_policy_has_no_difference_and_others_have_less_noise_when_paired():
    simulator = TabularSimulator(WORLD)
    reward = np.arange(9.0)
    one, same = (collected_features(simulator, Always(1), 500, None, seed=3) for _ in range(2))
    assert np.array_equal(one, same)
    other = collected_features(simulator, Always(2), 500, None, seed=3) @ reward
    unpaired = collected_features(simulator, Always(2), 500, None, seed=4) @ reward
    assert (one @ reward - other).std() < 0.9 * (one @ reward - unpaired).std()


def test_a_horizon_is_needed():
    with pytest.raises(InputError, match="horizon"):
        collected_features(TabularSimulator(kb.Gridworld(size=3)), Always(0), 10, None, 0)
