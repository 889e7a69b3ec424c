"""Behaviour cloning against counts, and against a known expert where states are numbers."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import kdbirl as kb
from kdbirl.errors import InputError
from kdbirl.methods.cloning import BehaviourCloning, CloningAgent
from kdbirl.worlds.policy import Policy

from .worlds import expert, small

ROWS = kb.Demonstrations(states=[0, 0, 0, 2], actions=[1, 1, 0, 2])


@pytest.mark.parametrize(
    ("smoothing", "table"),
    [
        (0.0, [[1 / 3, 2 / 3, 0], [1 / 3, 1 / 3, 1 / 3], [0, 0, 1]]),
        (1.0, [[2 / 6, 3 / 6, 1 / 6], [1 / 3, 1 / 3, 1 / 3], [1 / 4, 1 / 4, 2 / 4]]),
    ],
)
def test_chances_are_counts(smoothing: float, table: list[list[float]]) -> None:
    policy = BehaviourCloning(smoothing=smoothing).policy(ROWS)
    assert isinstance(policy, Policy)
    np.testing.assert_allclose(policy.probabilities, table)


def test_the_world_or_the_bank_says_how_many_states_there_are() -> None:
    world, rows = small(), expert(small())
    policy = BehaviourCloning(world).policy(rows)
    assert isinstance(policy, Policy)
    for state, action in zip(rows.states, rows.actions, strict=True):
        chosen = (rows.states == state) & (rows.actions == action)
        assert policy.probabilities[state, action] == pytest.approx(chosen.sum() / (rows.states == state).sum())
    assert np.isfinite(kb.value(world, policy, [0.0, 0.0, 0.0, 1.0]))
    bank = kb.TaskBank.from_arrays([0, 4], [0, 3], [0, 1], [[0.0], [1.0]])
    known = BehaviourCloning().fit(bank).policy(ROWS)
    assert isinstance(known, Policy)
    assert known.probabilities.shape == (5, 4)


def test_states_are_those_of_a_bank_without_actions() -> None:
    bank = kb.TaskBank.from_arrays(["c", "b", "a"], None, [0, 0, 1], [[0.0], [1.0]])
    policy = BehaviourCloning().fit(bank).policy(kb.Demonstrations(["c", "c", "b"], [1, 1, 0]))
    np.testing.assert_array_equal(policy.probabilities, [[0.5, 0.5], [1.0, 0.0], [0.0, 1.0]])  # a, b, c


def test_labels_are_those_of_the_bank() -> None:
    bank = kb.TaskBank.from_arrays(["b", "a"], ["left", "right"], [0, 1], [[0.0], [1.0]])
    rows = kb.Demonstrations(states=["b", "b"], actions=["right", "right"])
    policy = BehaviourCloning().fit(bank).policy(rows)
    assert isinstance(policy, Policy)
    states, actions = bank.demonstrations.state_labels, bank.demonstrations.action_labels
    assert states is not None
    assert actions is not None
    assert policy.probabilities[states.index("b"), actions.index("right")] == 1


def test_a_network_finds_the_chances_of_an_expert() -> None:
    """pi(1 | x) = logistic(3 x): 4,000 rows leave an error of a few hundredths."""
    rng = np.random.default_rng(0)
    states = rng.uniform(-1, 1, (4000, 1))
    actions = (rng.random(4000) < 1 / (1 + np.exp(-3 * states[:, 0]))).astype(int)
    rows = kb.Demonstrations(states=states, actions=actions)
    model = BehaviourCloning(hidden=(16,), steps=1000)
    agent = model.policy(rows, seed=1)
    assert isinstance(agent, CloningAgent)
    where = np.linspace(-0.9, 0.9, 7)[:, None]
    found = agent.probabilities(where)
    np.testing.assert_allclose(found[:, 1], 1 / (1 + np.exp(-3 * where[:, 0])), atol=0.08)
    assert agent.predict([0.8]) == 1
    assert agent.predict([-0.8]) == 0
    np.testing.assert_array_equal(np.asarray(agent(jnp.asarray(where))), found.argmax(axis=1))
    again, other = model.policy(rows, seed=1), model.policy(rows, seed=2)
    assert isinstance(again, CloningAgent)
    assert isinstance(other, CloningAgent)
    np.testing.assert_array_equal(again.probabilities(where), found)
    assert not np.array_equal(other.probabilities(where), found)


BAD_EXPERTS: dict[str, tuple[Any, Any, str]] = {
    "no demonstrations": (None, [[0, 1]], "must be Demonstrations"),
    "no actions": (None, kb.Demonstrations(states=[0, 1]), "needs the expert's actions"),
    "actions of numbers": (None, kb.Demonstrations(states=[0, 1], actions=[[0.5], [0.1]]), "discrete"),
    "no actions in a world": (small(), kb.Demonstrations(states=[0, 1]), "has no actions"),
    "a state too many": (small(), kb.Demonstrations(states=[0, 4], actions=[0, 0]), "row 2 has state 4"),
}


@pytest.mark.parametrize("name", BAD_EXPERTS)
def test_bad_experts_are_refused(name: str) -> None:
    world, rows, message = BAD_EXPERTS[name]
    with pytest.raises(InputError, match=message):
        BehaviourCloning(world).policy(rows)


def test_there_is_no_reward() -> None:
    with pytest.raises(InputError, match=r"policy\(expert\)"):
        BehaviourCloning().posterior(ROWS)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"mdp": "grid"}, "kb.TabularMDP"),
        ({"smoothing": -1}, "smoothing=-1"),
        ({"learning_rate": 0}, "learning_rate=0"),
        ({"steps": 0}, "steps"),
        ({"hidden": ()}, "hidden"),
    ],
)
def test_wrong_choices(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        BehaviourCloning(**wrong)
    with pytest.raises(InputError, match="TaskBank"):
        BehaviourCloning().fit(ROWS)
