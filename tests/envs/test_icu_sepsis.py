"""The world of real patients: the numbers that were published for it, and its features."""

import sys

import numpy as np
import pytest

import kdbirl as kb
from kdbirl.envs import icu_sepsis
from kdbirl.errors import FileProblem, InputError, MissingDependency
from kdbirl.planners.dynamics import dynamics_of

# SEPSIS.md 3, to the digits given there.
RETURNS = {"random": 0.780071, "expert": 0.781845, "optimal": 0.875142}
LENGTHS = {"random": 9.4623, "expert": 9.2379, "optimal": 10.9917}


@pytest.fixture(scope="module")
def undiscounted():
    return kb.ICUSepsis(outcome=True, discount=1)


def test_exact_returns_and_lengths(undiscounted):
    assert undiscounted.baseline_returns() == pytest.approx(RETURNS, abs=5e-7)
    assert undiscounted.baseline_lengths() == pytest.approx(LENGTHS, abs=5e-5)


def test_the_planners_agree_with_the_baselines(undiscounted):
    """Survival is the fourth parameter of w.phi, so planning for it is planning for the package's own reward."""
    survival = np.array([0, 0, 0, 1.0, 0])
    returns = undiscounted.baseline_returns()
    policies = {
        "random": kb.Policy.uniform(716, 25),
        "expert": kb.Policy(undiscounted.expert_policy),
        "optimal": kb.plan(undiscounted, survival),
    }
    for name, policy in policies.items():
        assert kb.value(undiscounted, policy, survival) == pytest.approx(returns[name], abs=1e-10)
        assert kb.occupancy(undiscounted, policy).sum() == pytest.approx(
            undiscounted.baseline_lengths()[name], rel=1e-9 if name != "optimal" else 0.2
        )  # ties between best actions are split here, which leaves survival as it is but not the length
    assert undiscounted.reward_table(survival) == pytest.approx(undiscounted.env_reward)


def test_every_patient_survives_or_dies(undiscounted):
    collected = kb.feature_expectations(undiscounted, kb.Policy.uniform(716, 25))
    assert collected[3] + collected[4] == pytest.approx(1, abs=1e-10)


@pytest.mark.parametrize(
    ("kind", "names"),
    [("sofa-fluid-vasopressor", ("SOFA", "fluid", "vasopressor")), ("sofa-lactate-map", ("SOFA", "lactate", "MAP"))],
)
@pytest.mark.parametrize("outcome", [False, True])
def test_features(kind, names, outcome):
    world = kb.ICUSepsis(kind, outcome=outcome)
    assert world.feature_names == names + (("survived", "died") if outcome else ())
    assert (world.features[713:] == 0).all()
    np.testing.assert_array_equal(world.features[:713, 0, 0], world.sofa[:713])
    if kind == "sofa-fluid-vasopressor":
        assert world.action_names[7] == "fluid 1 vasopressor 2"
        np.testing.assert_array_equal(world.features[100, 7, 1:3], [1, 2])


def test_the_columns_of_the_centres_are_what_they_are_called():
    """SOFA stands next to lactate in that order; lactate goes with acidosis, mean pressure with the other two."""
    world = kb.ICUSepsis()
    centres = world.centres[:713]
    assert np.corrcoef(centres[:, icu_sepsis.LACTATE + 1], world.sofa[:713])[0, 1] > 0.99
    base_excess, systolic, diastolic = centres[:, 28], centres[:, 8], centres[:, 10]
    assert np.corrcoef(centres[:, icu_sepsis.LACTATE], base_excess)[0, 1] < -0.4
    assert min(np.corrcoef(centres[:, icu_sepsis.MEAN_PRESSURE], other)[0, 1] for other in (systolic, diastolic)) > 0.9


def test_different_weights_want_different_treatments():
    world = kb.ICUSepsis()
    sparing, generous = (kb.plan(world, [-1.0, w, w]).probabilities for w in (-1.0, 1.0))
    assert (np.abs(sparing - generous).max(axis=1) > 0.5)[:713].mean() > 0.5


def test_equal_rows_are_planned_once():
    assert len(dynamics_of(kb.ICUSepsis()).rows) < 0.2 * 713 * 25


def test_the_package_is_not_imported():
    kb.ICUSepsis()
    assert "icu_sepsis" not in sys.modules
    assert "gym" not in sys.modules


def test_a_missing_package_is_a_sentence(monkeypatch):
    monkeypatch.setattr(icu_sepsis, "find_spec", lambda name: None)
    with pytest.raises(MissingDependency, match=r"pip install 'kdbirl\[icu-sepsis\]'"):
        kb.ICUSepsis()


def test_a_damaged_file_is_a_sentence(tmp_path):
    (tmp_path / "dynamics.npz").write_bytes(b"not an archive")
    with pytest.raises(FileProblem, match="cannot be read as the arrays of icu-sepsis"):
        icu_sepsis._load(tmp_path / "dynamics.npz")


def test_unknown_features_are_a_sentence():
    with pytest.raises(InputError, match=r"Did you mean 'sofa-lactate-map'"):
        kb.ICUSepsis("sofa-lactate")
