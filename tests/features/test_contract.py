"""What every feature map promises, checked for every map."""

import dataclasses
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn import decomposition
from sklearn.preprocessing import OneHotEncoder

from kdbirl.data.demonstrations import Demonstrations, TaskBank
from kdbirl.errors import InputError
from kdbirl.features import (
    PCA,
    VAE,
    Columns,
    FeatureMap,
    Function,
    GridCoordinates,
    Identity,
    OneHot,
    OneHotActions,
    OneHotStates,
    Standardize,
    Transformer,
    from_spec,
    function_names,
)

random = np.random.default_rng(0)
NUMBERS = random.normal(size=(40, 3)) * [1.0, 100.0, 1e-3]
CODES = random.integers(0, 9, size=40)
ACTIONS = random.integers(0, 3, size=40)
XYZ = ("x", "y", "z")

continuous = Demonstrations(NUMBERS, ACTIONS, state_names=XYZ)
stateless = Demonstrations(NUMBERS, state_names=XYZ)
vector = Demonstrations(NUMBERS, random.normal(size=(40, 2)), state_names=XYZ, action_names=("dose", "pressure"))
discrete = Demonstrations(CODES, ACTIONS)
declared = Demonstrations(CODES, ACTIONS, n_states=9, n_actions=4)
labelled = Demonstrations(np.array(list("abcdefghi"))[CODES], np.array(["left", "stay", "right"])[ACTIONS])
whole = Demonstrations(np.column_stack([CODES % 3, CODES]).astype(float), ACTIONS, state_names=("col", "cell"))
already = Demonstrations(np.eye(9)[CODES], ACTIONS)
two_columns = Demonstrations(NUMBERS[:, :2], ACTIONS, state_names=("x", "y"))


def squares(states: np.ndarray, actions: np.ndarray) -> np.ndarray:
    """A user's function."""
    return np.column_stack([states**2, actions])


def of_states(states: np.ndarray) -> np.ndarray:
    """A user's function of the states alone, one feature."""
    return states[:, 0] * states[:, 1]


@dataclasses.dataclass(frozen=True)
class Case:
    """A map, rows it is fitted on, the width expected, the widths of its groups, and whether it holds Python code."""

    name: str
    map: FeatureMap
    rows: Demonstrations
    groups: dict[str, int]
    discrete: bool = False
    functions: tuple[Any, ...] = ()


CASES = [
    Case("identity", Identity(), continuous, {"state": 3, "action": 4}),
    Case("identity without actions", Identity(), stateless, {"state": 3}),
    Case("identity of vectors", Identity(), vector, {"state": 3, "action": 2}),
    Case("identity of codes", Identity(), discrete, {"state": 10, "action": 4}, True),
    Case("one-hot", OneHot(), discrete, {"state": 10, "action": 4}, True),
    Case("one-hot declared", OneHot(), declared, {"state": 9, "action": 4}, True),
    Case("one-hot declared in the map", OneHot(12, 5), discrete, {"state": 12, "action": 5}, True),
    Case("one-hot of labels", OneHot(), labelled, {"state": 10, "action": 4}, True),
    Case("one-hot of whole numbers", OneHot(), whole, {"state": 4 + 10, "action": 4}, True),
    Case("one-hot already", OneHot(), already, {"state": 9, "action": 4}, True),
    Case("one-hot states", OneHotStates(), declared, {"state": 9}, True),
    Case("one-hot actions", OneHotActions(), continuous, {"action": 4}, True),
    Case("standardize", Standardize(), continuous, {"state": 3, "action": 4}),
    Case("standardize vectors", Standardize(), vector, {"state": 3, "action": 2}),
    Case("standardize codes", Standardize(), labelled, {"state": 10, "action": 4}, True),
    Case("standardize columns", Standardize(Columns(["y", "dose"])), vector, {"state": 1, "action": 1}),
    Case("columns", Columns(["z", "x"]), continuous, {"state": 2}),
    Case("columns of both", Columns(["action", "x"]), continuous, {"action": 1, "state": 1}),
    Case("grid", GridCoordinates(3), discrete, {"state": 2}, True),
    Case("grid of a number column", GridCoordinates((9, 1)), Demonstrations(CODES[:, None]), {"state": 2}, True),
    Case("sum", GridCoordinates(3) + OneHotActions(), declared, {"state": 2, "action": 4}, True),
    Case("sum of three", Columns(["x"]) + Standardize() + Columns(["y"]), stateless, {"state": 5}),
    Case("function", Function(squares), continuous, {"mixed": 4}, functions=(squares,)),
    Case("function of states", Function(of_states), continuous, {"state": 1}, functions=(of_states,)),
    Case("pca", Transformer(decomposition.PCA(2)), continuous, {"mixed": 2}, functions=(decomposition.PCA,)),
    Case("pca of ours", PCA(2), continuous, {"mixed": 2}),
    Case("pca of vectors", PCA(4), vector, {"mixed": 4}),
    Case("pca of labels", PCA(3), labelled, {"mixed": 3}),
    Case("pca of states", PCA(1, actions="leave-out"), continuous, {"state": 1}),
    Case("vae", VAE(2, hidden=4, steps=2), continuous, {"mixed": 2}),
    Case("vae of codes", VAE(2, hidden=4, steps=2, actions="one-hot"), declared, {"mixed": 2}),
    Case("vae inside", Standardize(VAE(2, hidden=4, steps=2)), stateless, {"state": 2}),
    Case("sparse", Transformer(OneHotEncoder(), Columns(["action"])), continuous, {"action": 3}, functions=(1,)),
    Case("function inside", Standardize(Function(squares)), continuous, {"mixed": 4}, functions=(squares,)),
]
WITHOUT_CODE = [case for case in CASES if not case.functions]


def named(cases: list[Case]) -> Any:
    return pytest.mark.parametrize("case", cases, ids=lambda case: case.name)


@named(CASES)
def test_features_are_finite_float64_with_a_name_and_a_group_each(case: Case) -> None:
    fitted = case.map.fit(case.rows)
    features = fitted(case.rows)
    width = sum(case.groups.values())
    assert features.shape == (40, width)
    assert features.dtype == np.float64
    assert np.isfinite(features).all()
    assert len(fitted.names) == width
    assert all(isinstance(name, str) for name in fitted.names)
    assert sorted(index for group in fitted.groups.values() for index in group) == list(range(width))
    assert {group: len(indices) for group, indices in fitted.groups.items()} == case.groups
    assert fitted.discrete == case.discrete
    assert fitted.discrete == (len(fitted.discrete_columns) == width)


@named(CASES)
def test_fit_returns_a_new_map_and_leaves_the_old_one_as_it_was(case: Case) -> None:
    before = repr(case.map)
    fitted = case.map.fit(case.rows)
    assert fitted is not case.map
    assert type(fitted) is type(case.map)
    assert fitted.is_fitted
    assert not case.map.is_fitted
    assert repr(case.map) == before
    first_field = dataclasses.fields(fitted)[0].name  # type: ignore[arg-type]
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(fitted, first_field, None)


@named(CASES)
def test_fitting_again_learns_from_the_new_rows_alone(case: Case) -> None:
    again = case.map.fit(case.rows.take(slice(20))).fit(case.rows)
    np.testing.assert_array_equal(again(case.rows), case.map.fit(case.rows)(case.rows))
    assert again.names == case.map.fit(case.rows).names


@named(CASES)
def test_an_unfitted_map_says_what_to_do(case: Case) -> None:
    for use in (
        lambda: case.map(case.rows),
        lambda: case.map.names,
        lambda: case.map.groups,
        lambda: case.map.discrete,
    ):
        with pytest.raises(InputError, match=r"not fitted yet: use the map that its fit\(bank\) returns"):
            use()


@named([case for case in CASES if case.rows in (continuous, stateless, vector) and set(case.groups) != {"action"}])
def test_rows_of_another_width_are_refused_with_both_widths(case: Case) -> None:
    fitted = case.map.fit(case.rows)
    other = dataclasses.replace(case.rows, states=NUMBERS[:, :2], state_names=("x", "y"))
    with pytest.raises(InputError, match=r"fitted on 3 state columns \(x, y, z\); these rows have 2 .*\(x, y\)"):
        fitted(other)


@named([case for case in CASES if case.rows is vector and "action" in case.groups])
def test_actions_of_another_width_are_refused_with_both_widths(case: Case) -> None:
    other = Demonstrations(NUMBERS, NUMBERS, state_names=XYZ)
    with pytest.raises(InputError, match=r"fitted on 2 action columns \(dose, pressure\); these rows have 3 "):
        case.map.fit(vector)(other)


@named([case for case in CASES if case.rows.discrete_states and "state" in case.groups])
def test_numbers_instead_of_codes_are_refused(case: Case) -> None:
    with pytest.raises(InputError, match=r"fitted on discrete states .*; these rows have 3 state columns"):
        case.map.fit(case.rows)(Demonstrations(NUMBERS, case.rows.actions))


@named([case for case in CASES if "action" in case.groups])
def test_rows_without_actions_are_refused_where_actions_are_features(case: Case) -> None:
    fitted = case.map.fit(case.rows)
    without = Demonstrations(case.rows.states, state_names=case.rows.state_names, state_labels=case.rows.state_labels)
    with pytest.raises(InputError, match="these rows have no"):
        fitted(without)


@named(CASES)
@given(index=st.lists(st.integers(0, 39), min_size=1, max_size=60))
@settings(max_examples=15, suppress_health_check=[HealthCheck.differing_executors])
def test_each_row_is_mapped_by_itself(case: Case, index: list[int]) -> None:
    """phi(rows[index]) = phi(rows)[index]: any order, repetition or selection."""
    fitted = case.map.fit(case.rows)
    some, expected = fitted(case.rows.take(np.array(index))), fitted(case.rows)[index]
    # Ours work column by column, to the bit; a matrix product (PCA) may round differently for other shapes.
    size = np.abs(fitted(case.rows)).max() if case.functions else 0.0
    np.testing.assert_allclose(some, expected, rtol=0, atol=1e-14 * size)


@named(CASES)
def test_distinct_rows_and_their_index_give_all_rows(case: Case) -> None:
    fitted = case.map.fit(case.rows)
    features, index = fitted.distinct(case.rows)
    np.testing.assert_array_equal(features[index], fitted(case.rows))
    if case.rows.discrete_states:
        actions = case.rows.actions if case.rows.actions is not None else np.zeros(40)
        assert len(features) == len({*zip(case.rows.states.tolist(), actions.tolist(), strict=True)}) < 40


@pytest.mark.parametrize("actions", [None, [1, 0, 1, 0, 1]])
def test_discrete_rows_of_which_none_repeats_come_back_as_they_stand(actions: list[int] | None) -> None:
    """Callers use the features without the index then."""
    rows = Demonstrations([4, 2, 0, 3, 1], actions, n_states=5)
    features, index = OneHotStates().fit(rows).distinct(rows)
    np.testing.assert_array_equal(features, np.eye(5)[[4, 2, 0, 3, 1]])
    np.testing.assert_array_equal(index, np.arange(5))


@named(CASES)
@pytest.mark.parametrize("other", [OneHotStates(), Standardize(), Identity() + Identity()], ids=repr)
def test_the_widths_of_a_sum_add_up(case: Case, other: FeatureMap) -> None:
    other = other if case.rows.discrete_states else Standardize()
    both, left, right = (each.fit(case.rows) for each in (case.map + other, case.map, other))
    np.testing.assert_array_equal(both(case.rows), np.hstack([left(case.rows), right(case.rows)]))
    assert both.names == left.names + right.names
    width = len(left.names)
    for group, indices in right.groups.items():
        assert both.groups[group] == left.groups.get(group, ()) + tuple(width + index for index in indices)


@named(CASES)
def test_a_bank_is_taken_as_its_rows(case: Case) -> None:
    bank = TaskBank(case.rows, np.zeros(40, dtype=np.int64), np.ones((1, 2)))
    np.testing.assert_array_equal(case.map.fit(bank)(bank), case.map.fit(case.rows)(case.rows))


@named(WITHOUT_CODE)
def test_a_spec_is_json_and_gives_an_equal_map(case: Case) -> None:
    for feature_map in (case.map, case.map.fit(case.rows)):
        spec = feature_map.to_spec()
        assert from_spec(json.loads(json.dumps(spec, allow_nan=False))) == feature_map
        assert function_names(spec) == ()


IN_ANOTHER_PROCESS = """
import hashlib, json, sys
import numpy as np
from kdbirl.data.demonstrations import Demonstrations
from kdbirl.features import from_spec
for line in sys.stdin:
    spec, states, actions, keywords = json.loads(line)
    states = np.array(states)
    keywords = {name: tuple(value) for name, value in keywords.items()}
    rows = Demonstrations(states, None if actions is None else np.array(actions), **keywords)
    print(hashlib.sha256(from_spec(spec)(rows).tobytes()).hexdigest())
assert not {"jax", "sklearn", "matplotlib", "pandas"} & set(sys.modules), "importing the feature maps must be cheap"
"""


def as_json(case: Case) -> str:
    keywords = {"state_names": case.rows.state_names, "action_names": case.rows.action_names}
    for labels in ("state_labels", "action_labels"):
        if getattr(case.rows, labels) is not None:
            keywords[labels] = getattr(case.rows, labels)
    actions = None if case.rows.actions is None else case.rows.actions.tolist()
    return json.dumps([case.map.fit(case.rows).to_spec(), case.rows.states.tolist(), actions, keywords])


@pytest.fixture(scope="module")
def digests(repository: Path) -> dict[str, str]:
    """What another process computes from the specs, one line per case."""
    lines = "\n".join(as_json(case) for case in WITHOUT_CODE)
    environment = os.environ | {"PYTHONPATH": str(repository / "src")}
    command = [sys.executable, "-W", "error", "-c", IN_ANOTHER_PROCESS]
    done = subprocess.run(command, input=lines, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    return dict(zip((case.name for case in WITHOUT_CODE), done.stdout.split(), strict=True))


@named(WITHOUT_CODE)
def test_a_spec_gives_the_same_bits_in_another_process(case: Case, digests: dict[str, str]) -> None:
    features = case.map.fit(case.rows)(case.rows)
    assert digests[case.name] == hashlib.sha256(features.tobytes()).hexdigest()
