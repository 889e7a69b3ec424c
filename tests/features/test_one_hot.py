"""Levels seen, declared and never seen; labels; what is refused."""

import numpy as np
import pytest

from kdbirl.data.demonstrations import Demonstrations
from kdbirl.errors import InputError
from kdbirl.features import Identity, OneHot, OneHotActions, OneHotStates
from kdbirl.features.one_hot import MOST_LEVELS_OF_A_NUMBER

bank = Demonstrations(np.array([0, 2, 5, 2]), np.array([1, 0, 1, 1]))


def test_columns_are_the_levels_seen_and_one_for_the_others() -> None:
    fitted = OneHot().fit(bank)
    assert fitted.names == ("state=0", "state=2", "state=5", "state=<other>", "action=0", "action=1", "action=<other>")
    np.testing.assert_array_equal(
        fitted(bank), [[1, 0, 0, 0, 0, 1, 0], [0, 1, 0, 0, 1, 0, 0], [0, 0, 1, 0, 0, 1, 0], [0, 1, 0, 0, 0, 1, 0]]
    )


def test_an_unseen_level_is_as_far_from_every_seen_one_as_these_are_from_each_other() -> None:
    features = OneHotStates().fit(bank)(Demonstrations(np.array([0, 2, 5, 1, 9_999])))
    distance = np.linalg.norm(features[:, None] - features[None], axis=2)
    between = distance[:4, :4][~np.eye(4, dtype=bool)]
    np.testing.assert_array_equal(between, np.sqrt(2))
    assert distance[3, 4] == 0  # all unseen levels share the last column


def test_declared_levels_give_one_column_per_state_and_no_other() -> None:
    for feature_map, rows in (
        (OneHotStates(), Demonstrations(np.array([3, 1]), n_states=4)),
        (OneHotStates(n_states=4), Demonstrations(np.array([3, 1]))),
        (OneHotStates(n_states=4), Demonstrations(np.array([[3.0], [1.0]]))),
    ):
        np.testing.assert_array_equal(feature_map.fit(rows)(rows), [[0, 0, 0, 1], [0, 1, 0, 0]])


def test_a_code_outside_the_declared_levels_is_named_with_its_row() -> None:
    fitted = OneHotStates(n_states=4).fit(Demonstrations(np.array([3, 1])))
    with pytest.raises(InputError, match=r"Row 2 has state = 7, which is none of the 4 declared levels \(0 to 3\)"):
        fitted(Demonstrations(np.array([1, 7, 2])))
    with pytest.raises(InputError, match="Row 3 has action = 2, which is none of the 2 declared levels"):
        OneHotActions(n_actions=2).fit(Demonstrations(np.zeros((3, 1)), np.array([0, 1, 2])))


@pytest.mark.parametrize("count", [0, -1, 2.5, True])
def test_a_count_is_a_positive_whole_number(count: float) -> None:
    with pytest.raises((InputError, TypeError), match=r"n_states"):
        OneHotStates(n_states=count)  # type: ignore[arg-type]


def test_equal_labels_have_equal_columns_whatever_their_codes() -> None:
    training = Demonstrations(np.zeros(3, dtype=int), np.array([0, 1, 2]), action_labels=("left", "right", "stay"))
    other = Demonstrations(np.zeros(3, dtype=int), np.array([0, 1, 2]), action_labels=("stay", "jump", "left"))
    fitted = OneHotActions().fit(training)
    assert fitted.names == ("action=left", "action=right", "action=stay", "action=<other>")
    np.testing.assert_array_equal(fitted(other), [[0, 0, 1, 0], [0, 0, 0, 1], [1, 0, 0, 0]])


def test_features_do_not_depend_on_whether_the_rows_were_aligned_before() -> None:
    training = Demonstrations(np.array(["a", "b", "c"]), np.array(["up", "down", "up"]))
    other = Demonstrations(np.array(["c", "x", "b"]), np.array(["sideways", "down", "up"]))
    fitted = OneHot().fit(training)
    np.testing.assert_array_equal(fitted(other), fitted(other.aligned_to(training)))


def test_plain_codes_are_their_own_labels() -> None:
    plain = Demonstrations(np.zeros((3, 1)), np.array([0, 1, 2]))
    text = Demonstrations(np.zeros((3, 1)), np.array([0, 1, 2]), action_labels=("2", "7", "0"))
    np.testing.assert_array_equal(OneHotActions().fit(plain)(text), [[0, 0, 1, 0], [0, 0, 0, 1], [1, 0, 0, 0]])
    np.testing.assert_array_equal(OneHotActions().fit(text)(plain), [[0, 0, 1, 0], [0, 0, 0, 1], [1, 0, 0, 0]])


def test_codes_beside_text_labels_have_no_meaning() -> None:
    plain = Demonstrations(np.zeros((2, 1)), np.array([0, 1]))
    text = Demonstrations(np.zeros((2, 1)), np.array(["left", "right"]))
    with pytest.raises(
        InputError, match=r"fitted on actions that are plain codes, and these rows have labels .*left, right"
    ):
        OneHotActions().fit(plain)(text)
    with pytest.raises(InputError, match="fitted on actions that are labels, and these rows have plain codes"):
        OneHotActions().fit(text)(plain)


def test_a_label_outside_a_declared_set_is_an_error() -> None:
    training = Demonstrations(np.zeros((2, 1)), np.array([0, 1]), action_labels=("left", "right"), n_actions=2)
    other = Demonstrations(np.zeros((2, 1)), np.array([0, 1]), action_labels=("left", "jump"))
    with pytest.raises(InputError, match=r"Row 2 has action = .*none of the 2 declared levels"):
        OneHotActions().fit(training)(other)


def test_rows_that_are_one_hot_already_are_passed_through() -> None:
    training = Demonstrations(np.eye(3), state_names=("ward", "icu", "home"))
    fitted = OneHot().fit(training)
    assert fitted.names == ("ward", "icu", "home")
    np.testing.assert_array_equal(fitted(training), np.eye(3))
    with pytest.raises(InputError, match="Row 2 is not one-hot in its state columns"):
        fitted(Demonstrations(np.array([[0.0, 1, 0], [0, 1, 1]]), state_names=training.state_names))


def test_measurements_are_refused() -> None:
    rows = Demonstrations(np.array([[1.0, 2.0], [3.0, 0.5]]), state_names=("floor", "height"))
    with pytest.raises(InputError, match=r"row 2 has 0.5 in the state column 'height': use Standardize\(\)"):
        OneHot().fit(rows)
    many = Demonstrations(np.arange(MOST_LEVELS_OF_A_NUMBER + 1.0)[:, None], state_names=("days",))
    with pytest.raises(InputError, match=r"turn the state column 'days' into 10001 columns"):
        OneHot().fit(many)


def test_an_encoder_of_actions_needs_actions() -> None:
    with pytest.raises(InputError, match="needs actions, and the training rows have none"):
        OneHotActions().fit(Demonstrations(np.zeros((2, 1))))


@pytest.mark.parametrize("feature_map", [OneHot(), Identity()])
def test_actions_are_never_dropped_without_a_word(feature_map: OneHot | Identity) -> None:
    fitted = feature_map.fit(Demonstrations(np.array([0, 1])))
    with pytest.raises(InputError, match="fitted on rows without actions, and these rows have actions"):
        fitted(Demonstrations(np.array([0, 1]), np.array([0, 1])))


def test_a_map_of_states_alone_needs_no_actions() -> None:
    fitted = OneHotStates().fit(bank)
    np.testing.assert_array_equal(fitted(Demonstrations(bank.states)), fitted(bank))
