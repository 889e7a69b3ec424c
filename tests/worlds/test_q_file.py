"""Weight-conditioned policies on disk: the same to the last bit, and one sentence for a wrong file."""

import json

import numpy as np
import pytest

import kdbirl as kb
from kdbirl.errors import FileProblem, InputError
from kdbirl.worlds.sepsis.deep_q import policies_of
from kdbirl.worlds.simulator import TabularSimulator

from .cartpole import CartPole
from .untrained import untrained

CART = CartPole(discount=0.99)


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


def test_with_a_horizon_the_steps_come_back_too(tmp_path):
    """As Q of each step, and as what compiled rollouts and paired ones play."""
    mdp = kb.Gridworld(3, horizon=6, discount=0.9)
    simulator, reward = TabularSimulator(mdp), np.linspace(-1, 1, 9)
    saved = untrained(simulator, states=np.eye(9), seed=2)
    saved.save(tmp_path / "policy.npz")
    found = kb.load_conditioned(tmp_path / "policy.npz")
    assert found.values.limit == 6
    table = found.policy(reward).table()
    assert table.probabilities.shape == (6, 9, 5)
    assert (table.probabilities[0] != table.probabilities[5]).any(), "no step matters"
    for step in range(6):
        np.testing.assert_array_equal(found.q_values([0, 4], reward, step), saved.q_values([0, 4], reward, step))
    options = {"episodes": 12, "horizon": 6, "seed": 1}
    rows = kb.make_bank(simulator, reward[None], planner=found, **options).task(0)
    steps = np.concatenate([np.arange(6)] * 12)
    chosen = np.argmax(table.probabilities, axis=2)
    np.testing.assert_array_equal(rows.actions, chosen[steps, np.argmax(rows.states, axis=1)])
    one = kb.policy_features(simulator, lambda world, w: table, reward, **options)
    np.testing.assert_allclose(kb.policy_features(simulator, found, reward, **options), one, rtol=1e-6)


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
    shorter = CartPole(discount=0.99, horizon=50)  # so near that the policies know it
    with pytest.raises(InputError, match=r"other steps \(None\) than this world's \(50\)"):
        policies_of(shorter, rewards, tmp_path / "policy.npz", seed=0)
