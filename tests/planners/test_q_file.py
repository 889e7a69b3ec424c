"""Weight-conditioned policies on disk: the same to the last bit, and one sentence for a wrong file."""

import json

import numpy as np
import pytest

import kdbirl as kb
from kdbirl.envs.simulator import TabularSimulator
from kdbirl.errors import FileProblem, InputError
from kdbirl.planners.q_tasks import policies_of

from .untrained import untrained

CART = kb.CartPole(discount=0.99)


def test_the_same_policies_come_back(tmp_path):
    saved, observations = untrained(CART, centre=0.1, spread=0.7), np.random.default_rng(0).normal(size=(50, 4))
    saved.save(tmp_path / "policy.npz")
    found = kb.load_conditioned(tmp_path / "policy.npz")
    rewards = np.random.default_rng(1).normal(size=(3, len(CART.feature_names)))
    np.testing.assert_array_equal(found.q_values(observations, rewards), saved.q_values(observations, rewards))
    assert found.learning == saved.learning
    assert found.values.feature_names == saved.values.feature_names
    assert [path.name for path in tmp_path.iterdir()] == ["policy.npz"]


def test_of_a_tabular_world_the_states_come_back_too(tmp_path):
    simulator = TabularSimulator(kb.Gridworld(2))
    saved = untrained(simulator, states=np.eye(4))
    saved.save(tmp_path / "policy.npz")
    table = kb.load_conditioned(tmp_path / "policy.npz").policy([1.0, 0, 0, 2]).table()
    np.testing.assert_array_equal(table.probabilities, saved.policy([1.0, 0, 0, 2]).table().probabilities)


def record_of(path):
    with np.load(path) as file:
        return dict(file)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda arrays: arrays | {"leaf 0": np.zeros((3, 3))}, "not of the sizes"),
        (lambda arrays: {name: array for name, array in arrays.items() if name != "leaf 2"}, "leaf 2"),
        (lambda arrays: {name: array for name, array in arrays.items() if name != "record"}, "record"),
        (lambda arrays: arrays | {"record": np.array(json.dumps({"kind": "other", "version": 1}))}, "holds other"),
        (lambda arrays: arrays | {"record": np.array("{")}, "expected a file written by ConditionedQ.save"),
    ],
    ids=["sizes", "a leaf is missing", "no record", "another kind", "no JSON"],
)
def test_a_damaged_file_is_refused(tmp_path, change, words):
    untrained(CART).save(tmp_path / "policy.npz")
    np.savez(tmp_path / "other.npz", **change(record_of(tmp_path / "policy.npz")))
    with pytest.raises(FileProblem, match=words):
        kb.load_conditioned(tmp_path / "other.npz")


def test_what_is_no_such_file_is_refused(tmp_path):
    (tmp_path / "text.npz").write_text("not an archive")
    np.savez(tmp_path / "objects.npz", record=np.array([{}], dtype=object))
    for name, words in (
        ("text.npz", "cannot be read"),
        ("none.npz", "no such file"),
        ("objects.npz", "cannot be read"),
    ):
        with pytest.raises(FileProblem, match=words):
            kb.load_conditioned(tmp_path / name)


def test_policies_of_another_world_are_refused(tmp_path):
    untrained(CART).save(tmp_path / "policy.npz")
    rewards = np.ones((1, len(CART.feature_names)))
    assert policies_of(CART, rewards, tmp_path / "policy.npz", seed=0).values.n_actions == CART.n_actions
    with pytest.raises(InputError, match="other observations"):
        policies_of(TabularSimulator(kb.Gridworld(2)), np.ones((1, 4)), tmp_path / "policy.npz", seed=0)
