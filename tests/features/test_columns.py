"""Columns by name, rows read in the training rows' sense, grid coordinates."""

import numpy as np
import pytest

from kdbirl.data.demonstrations import Demonstrations
from kdbirl.errors import InputError
from kdbirl.features import Columns, GridCoordinates, Identity

numbers = np.arange(12.0).reshape(4, 3) / 7
rows = Demonstrations(numbers, numbers[:, :1], state_names=("x", "y", "z"), action_names=("dose",))


def test_columns_come_in_the_order_asked_for() -> None:
    np.testing.assert_array_equal(
        Columns(["dose", "z", "x"]).fit(rows)(rows), np.column_stack([numbers[:, 0], numbers[:, 2], numbers[:, 0]])
    )
    assert Columns("y").fit(rows).names == ("y",)


def test_identity_is_states_then_actions() -> None:
    np.testing.assert_array_equal(Identity().fit(rows)(rows), np.column_stack([numbers, numbers[:, 0]]))


def test_a_missing_column_is_named_with_the_nearest() -> None:
    with pytest.raises(InputError, match=r"no column 'doze' .* Did you mean 'dose'\?"):
        Columns(["x", "doze"]).fit(rows)


@pytest.mark.parametrize("wrong", [[], [1, 2]])
def test_columns_takes_names(wrong: list[int]) -> None:
    with pytest.raises(InputError, match="takes the names of columns"):
        Columns(wrong)


def test_labels_are_no_numbers() -> None:
    text = Demonstrations(numbers, np.array(["left", "right", "left", "left"]))
    with pytest.raises(
        InputError, match=r"'action' holds labels \(left, right\), which are no numbers: use OneHotActions"
    ):
        Columns(["action"]).fit(text)


def test_a_name_of_a_state_and_an_action_column_is_ambiguous_only_by_name() -> None:
    both = Demonstrations(numbers, numbers[:, :1], state_names=("x", "y", "z"), action_names=("x",))
    with pytest.raises(InputError, match="both a state and an action column"):
        Columns(["x"]).fit(both)
    assert Identity().fit(both)(both).shape == (4, 4)


def test_columns_in_another_order_are_found_by_name() -> None:
    fitted = Identity().fit(rows)
    swapped = Demonstrations(numbers[:, [2, 0, 1]], numbers[:, :1], state_names=("z", "x", "y"), action_names=("dose",))
    np.testing.assert_array_equal(fitted(swapped), fitted(rows))
    np.testing.assert_array_equal(fitted(swapped), fitted(swapped.aligned_to(rows)))


def test_columns_of_other_names_are_taken_by_position_but_not_when_some_agree() -> None:
    fitted = Identity().fit(rows)
    np.testing.assert_array_equal(fitted(Demonstrations(numbers, numbers[:, :1])), fitted(rows))
    mixed_up = Demonstrations(numbers, numbers[:, :1], state_names=("x", "y", "weight"))
    with pytest.raises(InputError, match=r"3 state columns \(x, y, z\); these rows have .*\(x, y, weight\)"):
        fitted(mixed_up)


def test_whole_numbers_of_a_measured_column_are_still_numbers() -> None:
    """A dose column of an expert may hold 1 and 2 only, and then comes as codes."""
    fitted = Columns(["dose"]).fit(rows)
    np.testing.assert_array_equal(fitted(Demonstrations(numbers[:2], np.array([1, 2]))), [[1.0], [2.0]])


def test_grid_coordinates() -> None:
    states = Demonstrations(np.array([0, 1, 4, 5, 14]))
    np.testing.assert_array_equal(GridCoordinates(5).fit(states)(states), [[0, 0], [1, 0], [4, 0], [0, 1], [4, 2]])
    np.testing.assert_array_equal(GridCoordinates((3, 5)).fit(states)(states), [[0, 0], [1, 0], [1, 1], [2, 1], [2, 4]])
    assert GridCoordinates(5).fit(states).names == ("x", "y")


def test_states_outside_the_grid_are_named() -> None:
    with pytest.raises(InputError, match=r"Row 2 has state 9, outside a grid of 3 x 3 \(0 to 8\)"):
        GridCoordinates(3).fit(Demonstrations(np.array([8, 9])))
    with pytest.raises(InputError, match="Row 1 has state 9, outside a grid"):
        GridCoordinates(3).fit(Demonstrations(np.array([8])))(Demonstrations(np.array([9])))


def test_a_grid_of_another_size_than_declared_is_refused() -> None:
    with pytest.raises(InputError, match="A grid of 3 x 3 has 9 states, but 16 are declared"):
        GridCoordinates(3).fit(Demonstrations(np.array([0, 1]), n_states=16))


def test_a_grid_needs_state_numbers() -> None:
    with pytest.raises(InputError, match=r"one column of state numbers 0 to 8; the training rows have 3 state columns"):
        GridCoordinates(3).fit(rows)
    with pytest.raises(InputError, match="the training rows have states with labels"):
        GridCoordinates(3).fit(Demonstrations(np.array(["a", "b"])))


@pytest.mark.parametrize("size", [0, -2, 2.5, "5", (3, 0), (3, 3, 3), True])
def test_a_grid_has_a_size(size: object) -> None:
    with pytest.raises(InputError, match="give the side of the grid"):
        GridCoordinates(size)
