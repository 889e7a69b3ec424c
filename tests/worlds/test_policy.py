"""Policies: made greedy, Boltzmann or noisy, and checked."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import softmax

import kdbirl as kb
from kdbirl.errors import InputError
from kdbirl.worlds.policy import as_policy

Q = np.array([[1.0, 3.0, 3.0], [0.0, -1.0, -2.0]])


def test_greedy_splits_ties():
    np.testing.assert_array_equal(kb.Policy.greedy(Q).probabilities, [[0, 0.5, 0.5], [1, 0, 0]])


def test_ties_are_relative_to_the_largest_value():
    near = np.array([[1e6, 1e6 - 1e-4], [0.0, 0.0]])
    assert kb.Policy.greedy(near).probabilities[0].tolist() == [0.5, 0.5]
    assert kb.Policy.greedy(near, tolerance=1e-12).probabilities[0].tolist() == [1, 0]


@given(st.floats(1e-3, 1e3))
def test_boltzmann_is_a_softmax(temperature):
    policy = kb.Policy.boltzmann(Q, temperature)
    np.testing.assert_allclose(policy.probabilities, softmax(Q / temperature, axis=1), atol=1e-14)


def test_boltzmann_has_its_limits():
    cold, hot = (kb.Policy.boltzmann(Q, temperature).probabilities for temperature in (1e-9, 1e9))
    np.testing.assert_allclose(cold, kb.Policy.greedy(Q).probabilities)
    np.testing.assert_allclose(hot, 1 / 3, atol=1e-8)


def test_noise_is_a_fraction_of_random_actions():
    np.testing.assert_allclose(kb.Policy.greedy(Q).noisy(0.3).probabilities[1], [0.8, 0.1, 0.1])
    np.testing.assert_allclose(kb.Policy.greedy(Q).noisy(1.0).probabilities, 1 / 3)


@pytest.mark.parametrize("table", [np.ones((2, 3)), np.array([[2.0, -1.0]]), np.ones(3) / 3, [[np.nan, 1.0]]])
def test_what_is_no_distribution_is_refused(table):
    with pytest.raises(InputError, match=r"[Aa] policy"):
        kb.Policy(np.asarray(table))


def test_other_sizes_and_other_things_are_refused():
    with pytest.raises(InputError, match="for 2 states and 3 actions, but this world has 9 and 5"):
        kb.value(kb.Gridworld(3), kb.Policy.greedy(Q), np.ones(9))
    with pytest.raises(InputError, match="dict is no policy"):
        as_policy({}, 2, 3)
    with pytest.raises(InputError, match="object is no policy"):
        as_policy(object(), 2, 3)


class Wild:
    def predict(self, observation):
        return 9


def test_a_prediction_outside_the_actions_is_refused():
    with pytest.raises(InputError, match="predicts action 9 in state 0; there are 0 to 2"):
        as_policy(Wild(), 2, 3)
