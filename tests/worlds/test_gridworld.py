"""The grid of the paper's appendix, and its options."""

import numpy as np
import pytest

import kdbirl as kb
from kdbirl.errors import InputError


def cell(x, y, size):
    return y * size + x


def test_every_action_moves_as_it_says():
    grid = kb.Gridworld(3)
    assert grid.action_names == ("NO ACTION", "UP", "RIGHT", "LEFT", "DOWN")
    after = grid.transitions[cell(1, 1, 3)].argmax(axis=1)
    assert after.tolist() == [cell(1, 1, 3), cell(1, 2, 3), cell(2, 1, 3), cell(0, 1, 3), cell(1, 0, 3)]


def test_borders_and_walls_hold():
    grid = kb.Gridworld(3, walls=[4])
    assert grid.transitions[0].argmax(axis=1).tolist() == [0, 3, 1, 0, 0]
    assert grid.transitions[1, 1].argmax() == 1  # UP from (1, 0) is the wall
    assert not grid.reachable[4]
    assert grid.start[4] == 0


def test_coordinates_are_those_of_the_feature_map():
    grid = kb.Gridworld(4, features="xy")
    demos = kb.rollout(grid, "random", episodes=5, seed=0)
    np.testing.assert_array_equal(
        kb.GridCoordinates(4).fit(demos)(demos), grid.features_of(demos.states, demos.actions)
    )
    assert kb.Gridworld(4, features="xy", scaled=True).features.max() == 1


def test_slip_shares_its_probability_between_the_four_directions():
    grid = kb.Gridworld(3, slip=0.4)
    middle = grid.transitions[4]
    assert middle[0, 4] == 1  # staying put does not slip
    assert middle[1, 7] == pytest.approx(0.6 + 0.1)
    assert [middle[1, s] for s in (5, 3, 1)] == pytest.approx([0.1] * 3)


def test_the_goal_is_earned_once():
    """From the far corner the goal is reached after 4 moves and earned at the fifth action, discounted by 0.9^4."""
    grid = kb.Gridworld(3, start=0, goal=8, discount=0.9)
    reward = np.eye(9)[8]
    policy = kb.plan(grid, reward)
    assert kb.value(grid, policy, reward) == pytest.approx(0.9**4)
    demos = kb.rollout(grid, policy, episodes=4, horizon=10, seed=0)
    assert demos.n_rows == 4 * 5
    assert demos.terminated.sum() == 4
    assert (demos.states[demos.terminated] == 8).all()
    assert not demos.truncated.any()
    assert demos.n_states == 9  # the added end state is not shown


def test_without_a_goal_staying_at_the_best_cell_is_optimal():
    grid = kb.Gridworld(5, discount=0.9)
    reward = np.eye(25)[24]
    # uniform start, distance d to the corner: sum over cells of 0.9^d / (1 - 0.9) / 25
    expected = sum(0.9 ** ((4 - x) + (4 - y)) for x in range(5) for y in range(5)) / 25 / 0.1
    assert kb.value(grid, kb.plan(grid, reward), reward) == pytest.approx(expected, rel=1e-12)


def test_the_default_discount_is_shown_and_recorded():
    assert "discount 0.95" in repr(kb.Gridworld(5))
    assert kb.Gridworld(5).describe()["discount"] == 0.95


@pytest.mark.parametrize("start", ["uniform", 3, np.full(9, 1 / 9)])
def test_starts(start):
    assert kb.Gridworld(3, start=start).start.sum() == pytest.approx(1)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"size": 0}, "size=0 should be the number of cells on a side"),
        ({"size": 2.5}, "size=2.5 should be"),
        ({"slip": 1.5}, "slip=1.5 should be a probability"),
        ({"walls": [9]}, "walls: there is no cell 9"),
        ({"goal": -1}, "goal: there is no cell -1"),
        ({"goal": 4, "walls": [4]}, "goal=4 is a wall"),
        ({"start": 4, "walls": [4]}, "cell 4 is a wall, where nobody can be"),
        ({"start": 11}, "start: there is no cell 11"),
        ({"start": [1.0, 0.0]}, "expected a probability for each of the 9 cells"),
        ({"start": "left"}, 'should be "uniform", a cell or a distribution'),
        ({"features": "zz"}, "features='zz' is unknown"),
        ({"discount": 1}, "for ever"),
        ({"size": 1, "goal": 0}, "leave no cell to start from"),
    ],
)
def test_bad_input_is_a_sentence(options, sentence):
    with pytest.raises(InputError, match=sentence):
        kb.Gridworld(**({"size": 3} | options))
