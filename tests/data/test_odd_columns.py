"""Columns that say nothing are named, and ordinary ones are not."""

import numpy as np
import pytest

import kdbirl as kb
from kdbirl.methods.fitted import odd_columns

RNG = np.random.default_rng(0)
PLAIN = RNG.normal(size=500)


def with_one(value: float) -> np.ndarray:
    return np.where(np.arange(500) == 7, value, PLAIN)


@pytest.mark.parametrize(
    "values",
    [PLAIN, 1e300 * PLAIN, 1e-300 * PLAIN, RNG.lognormal(0, 3, 500), RNG.standard_cauchy(500), with_one(1e4)],
    ids=["normal", "huge", "tiny", "lognormal", "cauchy", "an outlier"],
)
def test_ordinary_columns_need_no_word(values: np.ndarray) -> None:
    assert odd_columns(kb.Demonstrations(states=values[:, None])) == ()


def test_mostly_zero_is_a_dose_and_no_accident() -> None:
    dose = np.where(np.arange(500) == 7, 3.0, 0.0)
    assert odd_columns(kb.Demonstrations(states=dose[:, None])) == ()


@pytest.mark.parametrize("value", [1e300, -1e300, 1e8])
def test_one_number_beyond_all_others_is_named(value: float) -> None:
    rows = kb.Demonstrations(states=np.stack([PLAIN, with_one(value)], axis=1), state_names=["x", "lactate"])
    expected = f"column 'lactate' is {value:g} somewhere, beside which all other training rows look alike"
    assert odd_columns(rows) == (expected,)


def test_constant_columns_of_states_and_actions_are_named_and_labels_are_not() -> None:
    rows = kb.Demonstrations(np.full((4, 1), 2.5), np.zeros((4, 1)), state_names=["x"], action_names=["force"])
    assert [sentence.split(",")[0] for sentence in odd_columns(rows)] == [
        "column 'x' is 2.5 in every training row",
        "column 'force' is 0 in every training row",
    ]
    assert odd_columns(kb.Demonstrations([1, 1, 1], [0, 0, 0])) == ()


def test_the_posterior_notes_it() -> None:
    rewards, tasks = RNG.uniform(-1, 1, (5, 1)), np.repeat(np.arange(5), 100)
    bank = kb.TaskBank.from_arrays(with_one(1e300)[:, None], None, tasks, rewards)
    model = kb.KDBIRL(prior=kb.Uniform(-1, 1), bandwidth=(0.5, 0.5)).fit(bank)
    post = model.posterior(kb.Demonstrations(states=PLAIN[:5, None]), seed=0)
    assert any("1e+300 somewhere" in note for note in post.settings["notes"])
