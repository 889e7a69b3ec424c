"""The world of real patients: the numbers that were published for it, and its features."""

import sys

import numpy as np
import pytest

import kdbirl as kb
from kdbirl.errors import FileProblem, InputError, MissingDependency
from kdbirl.worlds import icu_sepsis
from kdbirl.worlds.dynamics import dynamics_of
from kdbirl.worlds.icu_sepsis import COVARIATES

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


@pytest.fixture(scope="module")
def learnt():
    return kb.ICUSepsis(kb.VAE(hidden=(16,), steps=250), outcome=True)


def test_learnt_features_are_the_maps_standardised_over_random_treatment(learnt):
    assert learnt.feature_names == ("z1", "z2", "z3", "survived", "died")
    assert learnt.features.shape == (716, 25, 5)
    assert (learnt.features[713:] == 0).all()
    occupancy = kb.occupancy(kb.ICUSepsis(discount=1), kb.Policy.uniform(716, 25))
    share, phi = occupancy[:713] / occupancy[:713].sum(), learnt.features[:713, :, :3]
    mean = np.einsum("sa,saq->q", share, phi)
    np.testing.assert_allclose(mean, 0, atol=1e-9)
    np.testing.assert_allclose(np.einsum("sa,saq->q", share, phi**2), 1, rtol=1e-9)
    row = kb.Demonstrations(learnt.centres[[7]], np.array([3]), state_names=COVARIATES, n_actions=25)
    other = kb.Demonstrations(learnt.centres[[8]], np.array([3]), state_names=COVARIATES, n_actions=25)
    differences = (learnt.feature_map(other) - learnt.feature_map(row))[0]
    scale = (phi[8, 3] - phi[7, 3]) / differences
    np.testing.assert_allclose(phi[9, 20] - phi[7, 3], scale * (raw(learnt, 9, 20) - raw(learnt, 7, 3)), rtol=1e-9)


def raw(world, state, action):
    rows = kb.Demonstrations(world.centres[[state]], np.array([action]), state_names=COVARIATES, n_actions=25)
    return world.feature_map(rows)[0]


def test_a_fitted_map_is_taken_as_it_is(learnt):
    again = kb.ICUSepsis(learnt.feature_map, outcome=True)
    assert again.feature_map is learnt.feature_map
    np.testing.assert_array_equal(again.features, learnt.features)
    assert kb.ICUSepsis().feature_map is None


def test_rewards_of_learnt_features_do_not_pay_for_an_early_end(learnt):
    """With either sign of each feature, planned stays are not shorter than 6 of the 9.5 steps of random treatment."""
    world, steps = kb.ICUSepsis(learnt.feature_map), kb.ICUSepsis(discount=1)
    rewards = np.concatenate([np.eye(3), -np.eye(3)])
    policies = [kb.plan(world, w) for w in rewards]
    assert min(kb.occupancy(steps, policy).sum() for policy in policies) > 6
    random = kb.Policy.uniform(716, 25)
    gains = [kb.value(world, best, w) - kb.value(world, random, w) for best, w in zip(policies, rewards, strict=True)]
    assert min(gains) > 0.3  # in standard deviations of a feature: treatment has a hold on each, through the dynamics


def test_the_covariates_names_fit_their_columns(learnt):
    column = {name: learnt.centres[:713, k] for k, name in enumerate(COVARIATES)}
    assert len(column) == 47
    pairs = [("SysBP", "MeanBP"), ("shock index", "heart rate"), ("PT", "INR"), ("SGOT", "SGPT"), ("BUN", "creatinine")]
    assert all(np.corrcoef(column[a], column[b])[0, 1] > 0.75 for a, b in pairs)
    assert np.corrcoef(column["SOFA"], learnt.sofa[:713])[0, 1] > 0.99
    assert np.corrcoef(column["shock index"], column["SysBP"])[0, 1] < -0.6


def test_features_of_the_wrong_kind_are_refused():
    with pytest.raises(InputError, match="should be a name or a feature map of the 47 covariates"):
        kb.ICUSepsis(features=np.sin)


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
    with pytest.raises(
        FileProblem, match=r"cannot be read as an npz file \(.*\); expected the arrays of icu-sepsis 2\.0\.1"
    ):
        icu_sepsis._load(tmp_path / "dynamics.npz")


def test_unknown_features_are_a_sentence():
    with pytest.raises(InputError, match=r"Did you mean 'sofa-lactate-map'"):
        kb.ICUSepsis("sofa-lactate")
