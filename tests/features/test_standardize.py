"""Means and scales from the training rows, and what is left unscaled."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.preprocessing import StandardScaler

from kdbirl.data.demonstrations import Demonstrations
from kdbirl.errors import InputError
from kdbirl.features import Columns, Function, OneHot, Standardize

random = np.random.default_rng(1)
numbers = random.normal(3, 5, size=(100, 2))
actions = random.integers(0, 3, 100)
bank = Demonstrations(numbers, actions)
expert = Demonstrations(random.normal(size=(7, 2)), np.arange(7) % 3)


def test_states_are_standardised_by_the_bank_and_labels_are_not_scaled() -> None:
    features = Standardize().fit(bank)(expert)
    scaler = StandardScaler().fit(numbers)
    np.testing.assert_allclose(features[:, :2], scaler.transform(expert.states), rtol=1e-12)
    np.testing.assert_array_equal(features[:, 2:5], np.eye(3)[expert.actions])
    np.testing.assert_array_equal(features[:, 5], 0.0)


def test_vector_actions_are_standardised_too() -> None:
    rows = Demonstrations(numbers, numbers[:, ::-1] * 10)
    features = Standardize().fit(rows)(rows)
    np.testing.assert_allclose(features.mean(axis=0), 0, atol=1e-14)
    np.testing.assert_allclose(features.std(axis=0), 1, rtol=1e-14)


def test_an_inner_map_is_standardised_in_every_column() -> None:
    features = Standardize(OneHot()).fit(Demonstrations(actions))(Demonstrations(actions))
    np.testing.assert_allclose(features[:, :3].std(axis=0), 1, rtol=1e-14)
    np.testing.assert_array_equal(features[:, 3], 0)  # never seen in training: constant


@pytest.mark.parametrize("value", [0.0, 0.1, -1e9, 1e300])
def test_a_constant_column_is_centred_and_keeps_scale_one(value: float) -> None:
    fitted = Standardize().fit(Demonstrations(np.full((30, 1), value)))
    np.testing.assert_array_equal(fitted(Demonstrations(np.array([[value]]))), [[0.0]])
    assert fitted.scale == (1.0,)


def test_what_rounding_left_of_a_constant_is_not_blown_up() -> None:
    fitted = Standardize().fit(Demonstrations(np.array([[0.1 + 0.2], [0.3], [0.3]])))
    assert np.abs(fitted(Demonstrations(np.array([[0.3], [0.1 + 0.2]])))).max() < 1e-15


@given(
    arrays(np.float64, st.tuples(st.integers(2, 20), st.integers(1, 3)), elements=st.floats(-1e6, 1e6, width=32)),
    st.sampled_from([1e-290, 1e-6, 1.0, 1e300]),
)
def test_scaled_columns_have_mean_zero_and_deviation_one_at_any_size(values: np.ndarray, unit: float) -> None:
    rows = Demonstrations(values * unit)
    fitted = Standardize().fit(rows)
    features = fitted(rows)
    for column, scale in zip(features.T, fitted.scale, strict=True):
        spread = np.ptp(column)
        if scale == 1.0 and spread < 1e-14:
            continue  # constant
        # The bound on rounding: a mean of 20 values, each of at most spread, subtracted and divided once.
        size = np.abs(values).max() * unit / scale
        assert abs(column.mean()) <= 1e-14 * max(spread, size)
        np.testing.assert_allclose(column.std(), 1, rtol=1e-13 * max(1.0, size))


def test_a_value_too_large_to_scale_is_named() -> None:
    fitted = Standardize().fit(Demonstrations(np.array([[1e-6], [2e-6]]), state_names=("x",)))
    with pytest.raises(InputError, match=r"gives inf in row 2, column 'x'; every feature must be a finite number"):
        fitted(Demonstrations(np.array([[1.0], [1e305]]), state_names=("x",)))


def test_only_a_map_can_be_inside() -> None:
    with pytest.raises(InputError, match=r"Standardize takes a feature map, such as Standardize\(Function\(f\)\)"):
        Standardize(np.sin)
    inside = Standardize(Function(np.sin, names=["a", "b"])).fit(bank)
    assert inside.names == ("a", "b")
    assert Standardize(Columns(["s1"])).fit(bank)(bank).shape == (100, 1)
