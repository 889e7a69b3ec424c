"""Principal components: those of the standardised inputs, with signs that are fixed."""

import json

import numpy as np
import pytest

from kdbirl.data.demonstrations import Demonstrations
from kdbirl.errors import InputError
from kdbirl.features import PCA, OneHot, Standardize, from_spec

random = np.random.default_rng(0)
STATES = random.normal(size=(200, 6)) @ random.normal(size=(6, 6)) * [1, 10, 100, 1, 1, 0.01] + 3
ACTIONS = random.integers(0, 3, 200)
ROWS = Demonstrations(STATES, ACTIONS, n_actions=3)


def reference(inputs: np.ndarray, count: int) -> np.ndarray:
    """Eigenvectors of the covariance, one after the other, each turned so that its largest entry is positive."""
    centred = inputs - inputs.mean(axis=0)
    values, vectors = np.linalg.eigh(centred.T @ centred / len(centred))
    scores = []
    for place in np.argsort(-values)[:count]:
        vector = vectors[:, place]
        scores.append(centred @ (vector if vector[np.abs(vector).argmax()] > 0 else -vector))
    return np.column_stack(scores)


def test_it_is_the_singular_value_decomposition_of_the_standardised_matrix() -> None:
    both = np.column_stack([STATES, ACTIONS])
    standardised = (both - both.mean(axis=0)) / both.std(axis=0)
    fitted = PCA(4).fit(ROWS)
    u, sizes, vectors = np.linalg.svd(standardised, full_matrices=False)
    signs = np.array([1.0 if vector[np.abs(vector).argmax()] > 0 else -1.0 for vector in vectors[:4]])
    np.testing.assert_allclose(fitted(ROWS), u[:, :4] * sizes[:4] * signs, atol=1e-12)
    np.testing.assert_allclose(fitted(ROWS), reference(standardised, 4), atol=1e-10)
    np.testing.assert_allclose(fitted.variances, sizes[:4] ** 2 / 200, rtol=1e-12)
    np.testing.assert_allclose(fitted.explained, sizes[:4] ** 2 / np.sum(sizes**2), rtol=1e-12)
    assert fitted.names == ("pc1", "pc2", "pc3", "pc4")


def test_one_hot_actions_are_centred_and_not_scaled() -> None:
    inputs = np.column_stack([(STATES - STATES.mean(axis=0)) / STATES.std(axis=0), np.eye(3)[ACTIONS]])
    np.testing.assert_allclose(PCA(3, actions="one-hot").fit(ROWS)(ROWS), reference(inputs, 3), atol=1e-10)


def test_the_signs_do_not_depend_on_the_order_of_the_rows() -> None:
    fitted, other = PCA(5).fit(ROWS), PCA(5).fit(ROWS.take(np.arange(199, -1, -1)))
    np.testing.assert_allclose(fitted(ROWS), other(ROWS), atol=1e-12)


def test_all_components_reconstruct_the_inputs_and_fewer_leave_the_rest() -> None:
    np.testing.assert_allclose(PCA(7).fit(ROWS).reconstruct(ROWS), PCA(7).fit(ROWS).inputs_of(ROWS), atol=1e-12)
    three = PCA(3).fit(ROWS)
    left = three.inputs_of(ROWS) - three.reconstruct(ROWS)
    np.testing.assert_allclose(np.sum(left**2) / 200, three.total_variance - sum(three.variances), rtol=1e-10)


def test_each_row_is_mapped_by_itself_and_a_file_gives_the_same_bits() -> None:
    fitted = PCA(1, action_weight=2.0).fit(ROWS)
    loaded = from_spec(json.loads(json.dumps(fitted.to_spec(), allow_nan=False)))
    assert loaded == fitted
    np.testing.assert_array_equal(loaded(ROWS.take([7, 3])), fitted(ROWS)[[7, 3]])


def test_it_goes_inside_other_maps_and_takes_other_inputs() -> None:
    np.testing.assert_allclose(Standardize(PCA(2)).fit(ROWS)(ROWS).std(axis=0), 1, rtol=1e-12)
    codes = Demonstrations(ACTIONS, n_states=3)
    assert PCA(2, inputs=OneHot()).fit(codes).groups == {"state": (0, 1)}


def test_more_components_than_directions_are_refused() -> None:
    doubled = Demonstrations(np.column_stack([STATES[:, :2], STATES[:, :1] * 4 + 1]))
    with pytest.raises(InputError, match=r"PCA\(components=3\).* vary in 2 directions of their 3 inputs.* at most 2"):
        PCA(3).fit(doubled)
    with pytest.raises(InputError, match="all 20 training rows have the same inputs"):
        PCA(1).fit(Demonstrations(np.ones((20, 2))))
    with pytest.raises(InputError, match=r"components=0\) should be a positive whole number"):
        PCA(0)
