"""What is measured on a grid's posterior, on draws where the answer is known."""

import numpy as np
import pytest
from paper.fig2 import regret_of

from kdbirl.worlds.gridworld import Gridworld
from paper import grid_settings as measures

TRUTH = np.array([0.0, 1.0])


def test_distance_and_mass():
    draws = np.array([[0.0, 1.0], [0.5, 1.0], [1.0, 0.8], [0.1, 0.2]])
    np.testing.assert_allclose(measures.expected_distance(draws, TRUTH), [0.4, 0.25])
    np.testing.assert_allclose(measures.mass_near(draws, TRUTH), [0.5, 0.75])
    assert measures.distance(draws[:1], TRUTH) == 0
    assert measures.distance(draws[1:2], TRUTH) == 0.5
    assert measures.wrong_states(np.array([0.1, 0.5]), TRUTH) == 1


def test_effective_states():
    assert measures.effective_states(np.zeros(9, dtype=int)) == pytest.approx(1)
    assert measures.effective_states(np.arange(5).repeat(3)) == pytest.approx(5)


def test_arrival_is_one_for_equivalent_rewards_and_small_for_others():
    world, goal = Gridworld(5, discount=0.95), 24
    right = np.full(25, 0.4)
    right[goal] = 1.0
    wrong = np.zeros(25)
    wrong[0] = 1.0
    assert measures.arrival(world, np.eye(25)[goal], goal) == pytest.approx(1)
    assert measures.arrival(world, right, goal) == pytest.approx(1)
    assert measures.arrival(world, wrong, goal) == pytest.approx(0)


@pytest.mark.parametrize(
    ("weights", "degrees"), [([2.0, 2.0], 0), ([1.0, 0.0], 45), ([-1.0, -1.0], 180), ([0.0, 0.0], 180)]
)
def test_angle(weights, degrees):
    assert measures.angle(np.array(weights), np.array([1.0, 1.0])) == pytest.approx(degrees, abs=1e-5)


def test_signs_and_maps():
    draws = np.array([[-0.1, 0.3], [0.2, 0.3], [-0.5, -0.1], [-1.0, 1.0]])
    assert measures.signs_right(draws, np.array([-1.0, 1.0])) == 0.5
    world = Gridworld(10, features="xy")
    truth = np.array([-1.0, 1.0])
    assert measures.map_error(world, truth, truth) == 0
    assert measures.map_error(world, 0.5 * truth, truth) == pytest.approx(0.5)


def test_regret_is_none_for_the_truth_and_large_for_its_contrary():
    world, truth = Gridworld(4, features="xy"), np.array([1.0, 1.0])
    assert regret_of(np.array([[2.0, 2.0], [0.3, 0.3]]), world, truth) == pytest.approx(0, abs=1e-9)
    assert regret_of(np.array([[-1.0, -1.0]]), world, truth) > 1.2
