"""`TabularMDP` refuses what makes no sense, in a sentence, and says what is reachable."""

import numpy as np
import pytest

import kdbirl as kb
from kdbirl.errors import InputError

from .worlds import random_mdp

P = np.full((3, 2, 3), 1 / 3)


def mdp(**changes):
    given = {"transitions": P, "start": 0, "discount": 0.9}
    return kb.TabularMDP(**(given | changes))


def changed(values, where, value):
    array = np.array(values, dtype=float)
    array[where] = value
    return array


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"transitions": changed(P, (1, 1, 2), 0.5)}, "after action 1 in state 1 sum to 1.166666667, not to 1"),
        ({"transitions": changed(P, (1, 1, 2), np.nan)}, r"transitions: entry \(1, 1, 2\) is nan"),
        ({"transitions": changed(P, (2, 0), [-0.5, 1, 0.5])}, "from state 2 by action 0 to state 0 is -0.5"),
        ({"transitions": P[0]}, r"shape \(2, 3\), expected \(states, actions, states\)"),
        ({"transitions": P.transpose(1, 0, 2)}, r"use transitions.transpose\(1, 0, 2\)"),
        ({"transitions": "grid"}, "transitions: expected an array of numbers"),
        ({"start": 3}, "start: there is no state 3; states are whole numbers from 0 to 2"),
        ({"start": [0.5, 0.2, 0.2]}, "sum to 1; they sum to 0.9"),
        ({"start": [1.0, 0.0]}, r"start: shape \(2,\), expected one probability for each of 3 states"),
        ({"start": "left"}, 'should be "uniform", a state or a distribution'),
        ({"start": 2, "terminal": [2]}, "state 2 is terminal, so an episode from there is over before it begins"),
        ({"terminal": [5]}, "terminal: there is no state 5"),
        ({"terminal": [0, 1, 2]}, "every state is terminal"),
        ({"terminal": [True, False]}, "expected one true/false value for each of 3 states"),
        ({"discount": 1.1}, "discount=1.1 should be a number from 0 to 1"),
        ({"discount": -0.1}, "discount=-0.1 should be"),
        ({"discount": float("nan")}, "discount=nan should be"),
        ({"discount": "high"}, "discount='high' should be"),
        ({"discount": 1}, "a policy can stay for ever without an end, for example in state 0"),
        ({"horizon": 0}, "horizon=0 should be a whole number of steps, at least 1"),
        ({"features": np.ones((4, 2))}, r"features: shape \(4, 2\), expected \(states, q\) = \(3, q\)"),
        ({"features": np.ones((3, 2)), "feature_names": ["a"]}, "1 names for 2"),
        ({"features": np.ones((3, 2)), "feature_names": ["a", "a"]}, "are not all different"),
        ({"env_reward": np.ones(3)}, r"env_reward: shape \(3,\), expected \(3, 2\)"),
        ({"recorded_states": 2}, "states from 2 on must be terminal"),
    ],
)
def test_bad_input_is_a_sentence(changes, sentence):
    with pytest.raises(InputError, match=sentence):
        mdp(**changes)


def test_rounding_of_the_probabilities_is_mended():
    world = mdp(transitions=P * (1 + 1e-10))
    np.testing.assert_allclose(world.transitions.sum(axis=2), 1, atol=1e-15)


@pytest.mark.parametrize("reward", [np.ones(2), np.ones((4, 2)), np.ones((2, 2, 3)), 1.0, np.zeros((0, 3))])
def test_a_reward_of_the_wrong_length_is_a_sentence(reward):
    with pytest.raises(InputError, match=r"reward: shape .*but a reward of this world has 3 parameters"):
        mdp().reward_table(reward)


def test_a_reward_that_is_not_finite_is_a_sentence():
    with pytest.raises(InputError, match=r"reward: entry \(1,\) is nan"):
        kb.plan(mdp(), [0.0, np.nan, 0.0])


def test_a_discount_of_one_with_certain_absorption_is_allowed():
    world = random_mdp(ends=0.05, discount=1)
    reward = np.append(np.ones(6), 0.0)
    # every action ends the episode with probability 0.05 or more: at most 20 steps
    assert 1 < kb.value(world, kb.plan(world, reward), reward) <= 20 + 1e-9


def test_a_discount_of_one_looks_only_at_states_that_can_be_reached():
    """State 1 loops for ever, but nobody gets there."""
    transitions = np.zeros((3, 1, 3))
    transitions[0, 0, 2] = transitions[1, 0, 1] = transitions[2, 0, 2] = 1
    world = kb.TabularMDP(transitions, 0, 1, terminal=[2])
    assert world.reachable.tolist() == [True, False, True]
    assert kb.value(world, kb.plan(world, [3.0, 9.0, 9.0]), [3.0, 9.0, 9.0]) == pytest.approx(3)
    with pytest.raises(InputError, match=r"for ever without an end, for example in state 1"):
        kb.TabularMDP(transitions, 1, 1, terminal=[2])


def test_one_bad_policy_is_enough_to_refuse_a_discount_of_one():
    """Action 0 ends; action 1 goes round in a circle."""
    transitions = np.zeros((3, 2, 3))
    transitions[:, 0, 2] = 1
    transitions[0, 1, 1] = transitions[1, 1, 0] = transitions[2, 1, 2] = 1
    with pytest.raises(InputError, match="for ever"):
        kb.TabularMDP(transitions, 0, 1, terminal=[2])
    assert kb.TabularMDP(transitions, 0, 1, terminal=[2], horizon=5).horizon == 5


def test_terminal_states_are_absorbing_whatever_their_rows_say():
    transitions = changed(P, (2,), 0.0)
    world = mdp(transitions=transitions, terminal=[2])
    np.testing.assert_array_equal(world.transitions[2], [[0, 0, 1], [0, 0, 1]])
    with pytest.raises(InputError, match="in state 2 sum to 0, not to 1"):
        mdp(transitions=transitions)


def test_names_are_used_in_messages():
    with pytest.raises(InputError, match=r"in state 0 \(ward\)"):
        mdp(discount=1, state_names=["ward", "theatre", "home"])


def test_no_features_is_one_parameter_per_state():
    table = mdp().reward_table([1.0, 2.0, 3.0])
    np.testing.assert_array_equal(table, [[1, 1], [2, 2], [3, 3]])
    assert mdp().feature_names == ("state 0", "state 1", "state 2")
