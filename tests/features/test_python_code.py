"""Functions and transformers: what they may return, what is refused, and how they come back from a file."""

import json
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.decomposition import PCA
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler

from kdbirl.data.demonstrations import Demonstrations
from kdbirl.errors import InputError
from kdbirl.features import (
    Columns,
    Function,
    Identity,
    OneHot,
    Standardize,
    Transformer,
    as_feature_map,
    from_spec,
    function_names,
)

random = np.random.default_rng(2)
bank = Demonstrations(random.normal(size=(30, 2)), random.integers(0, 3, 30))
expert = Demonstrations(random.normal(size=(5, 2)), np.array([0, 1, 2, 0, 0]))


def fitted(function: Any, **settings: Any) -> Any:
    return Function(function, **settings).fit(bank)


def test_a_function_gets_states_and_actions_and_its_numbers_are_the_features() -> None:
    feature_map = fitted(lambda states, actions: np.column_stack([states[:, 0], actions]), names=["speed", "gear"])
    np.testing.assert_array_equal(feature_map(expert), np.column_stack([expert.states[:, 0], expert.actions]))
    assert feature_map.names == ("speed", "gear")
    assert feature_map.groups == {"mixed": (0, 1)}


def test_names_and_groups_that_a_function_gets_by_itself() -> None:
    def speed(states: np.ndarray) -> np.ndarray:
        return states[:, 0]

    assert fitted(speed).names == ("speed",)
    assert fitted(speed).groups == {"state": (0,)}
    assert fitted(lambda s: s, name="both").names == ("both0", "both1")
    assert fitted(lambda s, a: a, name="gear", group="action").groups == {"action": (0,)}
    assert Function(lambda s, a: s).fit(Demonstrations(bank.states)).groups == {"state": (0, 1)}


@pytest.mark.parametrize(
    "result",
    [
        lambda s, a: pd.DataFrame(s).assign(action=a),
        lambda s, a: pl.DataFrame(s),
        lambda s, a: s.tolist(),
        lambda s, a: s.astype(np.float32),
        lambda s, a: a == 0,
        lambda s, a: np.array([*s], dtype=object),
    ],
)
def test_anything_like_a_matrix_of_numbers_may_be_returned(result: Any) -> None:
    features = fitted(result)(expert)
    assert features.dtype == np.float64
    np.testing.assert_array_equal(features, np.asarray(result(expert.states, expert.actions), float).reshape(5, -1))


def nan_in_third(states: np.ndarray, actions: np.ndarray) -> np.ndarray:
    values = states.copy()
    values[2:3, 1] = np.nan
    return values


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda s, a: s[1:], r"one line of features per row, \(30, d\); it returned \(29, 2\)"),
        (lambda s, a: s.T, r"one line of features per row, \(30, d\); it returned \(2, 30\)"),
        (lambda s, a: 1.0, r"one line of features per row, \(30, d\); it returned \(\)"),
        (lambda s, a: s[:, :0], r"one line of features per row, \(30, d\); it returned \(30, 0\)"),
        (lambda s, a: s[:, :, None], r"it returned \(30, 2, 1\)"),
        (nan_in_third, "'nan_in_third' gives nan in row 3, column '1'; every feature must be a finite number"),
        (lambda s, a: np.full(len(s), np.inf), "gives inf in row 1"),
        (lambda s, a: np.array(["a"] * len(s)), r"must return numbers; it returned <U1 values"),
        (lambda s, a: s * 1j, r"must return numbers; it returned complex128 values"),
        (lambda s, a: np.array([None] * len(s)), "'<lambda>' gives nan in row 1"),
        (lambda s, a: None, "must return"),
        (lambda s, a: s[:, 7], r"'<lambda>' failed on 30 rows: IndexError: index 7 is out of bounds"),
        (lambda s, a: s.__imul__(2), "failed on 30 rows: ValueError: .*read-only"),
    ],
)
def test_what_a_function_may_not_return(function: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        fitted(function)


def test_nan_on_the_experts_rows_is_named() -> None:
    feature_map = Function(lambda s, a: np.where(s > 50, np.nan, s), names=["x", "y"]).fit(bank)
    far = Demonstrations(np.array([[0.0, 0.0], [0.0, 99.0]]), np.array([0, 0]))
    with pytest.raises(InputError, match="gives nan in row 2, column 'y'"):
        feature_map(far)


@pytest.mark.parametrize(
    "function",
    [
        lambda s, a: (s - s.mean(0)) / s.std(0),
        lambda s, a: s / np.abs(s).max(0),
        lambda s, a: np.argsort(s, axis=0),
        lambda s, a: np.cumsum(s, axis=0),
        lambda s, a: random.normal(size=s.shape),
        lambda s, a: s @ np.linalg.inv(s.T @ s),
    ],
    ids=["standardised", "by the maximum", "ranks", "cumulated", "random", "whitened"],
)
def test_a_row_may_not_depend_on_the_rows_beside_it(function: Any) -> None:
    with pytest.raises(InputError, match="gives a row other values when other rows stand beside it"):
        fitted(function)


def test_a_width_that_differs_between_bank_and_expert() -> None:
    rows = Demonstrations(np.zeros((4, 1)), np.array([2, 0, 2, 1]))
    feature_map = Function(lambda s, a: np.eye(a.max() + 1)[a]).fit(
        rows
    )  # rows 1 and 3 have the maximum: not found yet
    with pytest.raises(
        InputError, match=r"gave 3 columns on the training rows and 2 on these: its width may not depend"
    ):
        feature_map(Demonstrations(np.zeros((2, 1)), np.array([0, 1])))


def test_as_many_names_as_columns() -> None:
    with pytest.raises(InputError, match=r"gives 2 columns, but has 1 names \(x\)"):
        fitted(lambda s, a: s, names=["x"])


def test_a_function_takes_one_or_two_arguments() -> None:
    with pytest.raises(InputError, match=r"takes \(a, b, c\): it must take \(states, actions\), or \(states\) alone"):
        Function(lambda a, b, c: a)
    with pytest.raises(InputError, match="Function takes a Python function"):
        Function(3)


def test_a_second_argument_with_a_default_is_not_taken_for_the_actions() -> None:
    assert fitted(np.sin).groups == {"state": (0, 1)}
    assert fitted(lambda s, power=2: s**power).groups == {"state": (0, 1)}
    assert fitted(lambda s, actions=None: s * actions[:, None]).groups == {"mixed": (0, 1)}
    assert fitted(lambda *both: both[1]).groups == {"mixed": (0,)}


def test_a_function_that_needs_no_actions_works_without() -> None:
    feature_map = fitted(lambda s, a: s**2)
    np.testing.assert_array_equal(feature_map(Demonstrations(expert.states)), expert.states**2)
    with pytest.raises(InputError, match=r"failed on 5 rows \(these rows have no actions\): TypeError"):
        fitted(lambda s, a: a + 1)(Demonstrations(expert.states))


def test_a_function_sees_codes_in_the_banks_sense() -> None:
    training = Demonstrations(np.zeros((3, 1)), np.array(["left", "right", "left"]))
    other = Demonstrations(np.zeros((2, 1)), np.array([0, 1]), action_labels=("right", "left"))
    assert training.action_labels == ("left", "right")
    np.testing.assert_array_equal(Function(lambda s, a: a).fit(training)(other), [[1.0], [0.0]])


@pytest.mark.parametrize("transformer", [PCA(2), make_pipeline(StandardScaler(), PolynomialFeatures(2))], ids=repr)
def test_a_transformer_is_fitted_on_the_bank_as_a_copy(transformer: Any) -> None:
    feature_map = Transformer(transformer, Columns(["s0", "s1"])).fit(bank)
    assert not hasattr(transformer, "n_features_in_")
    reference = transformer.fit(bank.states)
    np.testing.assert_allclose(feature_map(expert), reference.transform(expert.states), rtol=1e-13, atol=1e-15)
    assert feature_map.groups == {"state": tuple(range(len(feature_map.names)))}


def test_a_transformer_names_its_columns_where_it_can() -> None:
    polynomial = Transformer(PolynomialFeatures(2, include_bias=False), Columns(["s0", "s1"])).fit(bank)
    assert polynomial.names == ("s0", "s1", "s0^2", "s0 s1", "s1^2")

    class Doubled:
        def fit(self, features: np.ndarray) -> "Doubled":
            return self

        def transform(self, features: np.ndarray) -> np.ndarray:
            return features * 2

    assert Transformer(Doubled(), Columns(["s0"])).fit(bank).names == ("doubled0",)


def test_a_transformer_that_fails_or_is_none() -> None:
    with pytest.raises(
        InputError, match=r"'PCA' could not be fitted on \(30, 6\) features: ValueError: n_components=99"
    ):
        Transformer(PCA(99)).fit(bank)
    for wrong in (LinearRegression(), PCA, np.sin):
        with pytest.raises(InputError, match="Transformer takes an object with fit and transform"):
            Transformer(wrong)
    with pytest.raises(InputError, match=r"inner=\.\.\.\) takes a feature map"):
        Transformer(PCA(2), inner=np.sin)


def test_what_a_user_may_give_as_features() -> None:
    one_hot = OneHot()
    assert as_feature_map(one_hot) is one_hot
    assert as_feature_map(None) == Standardize()
    assert isinstance(as_feature_map(lambda s, a: s), Function)
    assert as_feature_map(PCA(2)).inner == Identity()
    for wrong, message in (
        (OneHot, r"OneHot is a class: give an object of it, OneHot\("),
        ("pca", "not 'pca'"),
        (3, "not 3"),
    ):
        with pytest.raises(InputError, match=message):
            as_feature_map(wrong)


def test_code_is_given_again_when_a_map_is_loaded() -> None:
    def squared(states: np.ndarray) -> np.ndarray:
        return states**2

    feature_map = (Standardize(Function(squared)) + Transformer(PCA(2), name="axes")).fit(bank)
    spec = json.loads(json.dumps(feature_map.to_spec(), allow_nan=False))
    assert function_names(spec) == ("squared", "axes")
    functions = {"squared": squared, "axes": feature_map.parts[1].transformer}
    loaded = from_spec(spec, functions=functions)
    np.testing.assert_array_equal(loaded(expert), feature_map(expert))
    assert loaded == feature_map
    with pytest.raises(InputError, match=r"functions=\{'squared': \.\.\., 'axes': \.\.\.\}"):
        from_spec(spec)
    with pytest.raises(InputError, match=r"functions=\{'axes': \.\.\.\}\. Did you mean 'axis'\?"):
        from_spec(spec, functions={"squared": squared, "axis": None})


def test_an_unfitted_transformer_at_loading_is_refused() -> None:
    spec = Transformer(PCA(2)).fit(bank).to_spec()
    with pytest.raises(InputError, match=r"at loading, give it as it was after fitting.*NotFittedError"):
        from_spec(spec, functions={"PCA": PCA(2)})(expert)


def test_another_function_at_loading_is_refused_where_its_width_tells() -> None:
    spec = fitted(lambda s, a: s, name="f").to_spec()
    with pytest.raises(InputError, match="gave 2 columns on the training rows and 1 on these"):
        from_spec(spec, functions={"f": lambda s, a: s[:, 0]})(expert)


def test_two_functions_of_one_name_could_not_be_told_apart_in_a_file() -> None:
    with pytest.raises(InputError, match=r"are called '<lambda>', .*give each its own name"):
        (Function(lambda s, a: s) + Function(lambda s, a: a)).to_spec()
    same = Function(np.sin)
    assert function_names((same + same).to_spec()) == ("sin",)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"kind": "one_hat"}, r"no feature map of the kind 'one_hat'.* Did you mean 'one_hot'\?"),
        ({}, "no feature map of the kind"),
        ({"kind": "identity"}, "'identity' is damaged or from another version of kdbirl: see parts"),
        ({"kind": "identity", "parts": [], "colour": 1}, "see colour"),
        (
            {"kind": "block", "source": "state", "names": ["x"], "discrete": False, "labels": None, "declared": None},
            "no feature map's description",
        ),
    ],
)
def test_a_damaged_spec(spec: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        from_spec(spec)
