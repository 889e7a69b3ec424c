"""Which latents are used, what is kept of the inputs, and what the action controls, where the answer is known."""

import json

import matplotlib.pyplot as plt
import numpy as np
import pytest

from kdbirl.data.demonstrations import Demonstrations
from kdbirl.errors import InputError
from kdbirl.features import PCA, VAE, Fixed, Function, Standardize, diagnose_latents
from kdbirl.features.latent_diagnosis import action_control, action_share
from kdbirl.report.vae_plots import plot_latents

random = np.random.default_rng(0)
FACTOR = random.normal(size=2000)
STATES = FACTOR[:, None] * np.linspace(1, 2, 12) + 0.3 * random.normal(size=(2000, 12))
ACTIONS = random.integers(0, 4, 2000)
ROWS = Demonstrations(STATES, ACTIONS, n_actions=4)


def test_a_collapsed_latent_is_found() -> None:
    """One factor and three latents, with a KL that makes idle latents dear."""
    fitted = VAE(hidden=(16,), steps=1500, kl_weight=4.0, held_out=0, actions="leave-out").fit(ROWS)
    found = diagnose_latents(fitted, ROWS)
    assert found.active.sum() == 1
    assert len(found.collapsed) == 2
    assert found.kl is not None
    assert (found.kl[~found.active] < 0.02).all()
    assert (found.kl[found.active] > 0.5).all()
    assert "are collapsed (the same for all rows): take fewer latents" in found.sentence
    assert found.action_share is found.action_control is found.total_control is None
    best = np.abs(np.corrcoef(fitted(ROWS)[:, found.active].T, FACTOR)[0, 1])
    assert best > 0.95


def test_the_numbers_are_those_of_slow_formulas() -> None:
    fitted = VAE(hidden=(16,), steps=250).fit(ROWS)
    found = diagnose_latents(Fixed(fitted), ROWS)
    mean, variance = fitted.encode(ROWS)
    pairs = [zip(mean[:, k], variance[:, k], strict=True) for k in range(3)]
    kl = [np.mean([0.5 * (m**2 + v - 1 - np.log(v)) for m, v in pair]) for pair in pairs]
    np.testing.assert_allclose(found.kl, kl, rtol=1e-10)
    inputs, back = fitted.inputs_of(ROWS), fitted.reconstruct(ROWS)
    total = np.sum((inputs - inputs.mean(axis=0)) ** 2)
    np.testing.assert_allclose(found.r_squared, 1 - np.sum((inputs - back) ** 2) / total, rtol=1e-12)
    np.testing.assert_allclose(found.correlations, np.corrcoef(mean.T, inputs.T)[:3, 3:], atol=1e-12)
    np.testing.assert_allclose(found.variance, mean.var(axis=0))
    assert json.loads(json.dumps(found.to_dict(), allow_nan=False))["names"] == ["z1", "z2", "z3"]
    assert len(found.describe()) == 4


def test_pca_keeps_the_share_that_it_explains_and_has_no_kl() -> None:
    fitted = PCA(2).fit(ROWS)
    found = diagnose_latents(fitted, ROWS)
    np.testing.assert_allclose(found.r_squared, sum(fitted.explained), rtol=1e-10)
    assert found.kl is None
    assert found.collapsed == ()


def mixture(states: np.ndarray, actions: np.ndarray) -> np.ndarray:
    """The state alone, the action alone, half and half, their product, and a constant."""
    s, a = states[:, 0], np.array([-1.0, 1.0, -1.0, 1.0])[actions]
    return np.column_stack([s, a, s + a, s * a, 0 * s])


def test_shares_of_the_action_where_they_are_known() -> None:
    rng, n = np.random.default_rng(1), 40_000
    rows = Demonstrations(rng.normal(size=(n, 1)), rng.integers(0, 4, n), n_actions=4)
    phi = Function(mixture).fit(rows)
    # The product has no main effect of the action, but only the action turns its sign: a share of 0, control of 1.
    np.testing.assert_allclose(action_share(phi(rows), rows), [0, 1, 0.5, 0, 0], atol=0.02)
    np.testing.assert_allclose(action_control(phi, rows, 0), [0, 1, 0.5, 1, 0], atol=0.03)


def test_actions_that_follow_the_state_explain_features_that_they_do_not_control() -> None:
    actions = (FACTOR > 0).astype(int)
    rows = Demonstrations(STATES, actions, n_actions=2)
    phi = PCA(1, actions="leave-out").fit(rows)
    assert action_share(phi(rows), rows)[0] > 0.5
    assert diagnose_latents(phi, rows).action_control is None  # its inputs have no action
    control = action_control(phi, rows, 0)
    np.testing.assert_allclose(control, 0, atol=1e-12)


def test_vectors_of_actions_are_explained_by_their_columns() -> None:
    doses = random.normal(size=(2000, 2))
    rows = Demonstrations(STATES, doses)
    features = np.column_stack([doses @ [1.0, -2.0], FACTOR])
    np.testing.assert_allclose(action_share(features, rows), [1, 0], atol=0.01)


def test_a_phi_without_the_action_is_told_and_weight_mends_it() -> None:
    without = diagnose_latents(PCA(1).fit(ROWS), ROWS)
    assert without.total_control is not None
    assert without.total_control < 0.01
    assert "hardly any: action_weight=3" in without.sentence
    heavy = diagnose_latents(PCA(2, action_weight=3.0).fit(ROWS), ROWS)
    assert heavy.total_control is not None
    assert heavy.total_control > 0.3
    assert "hardly" not in heavy.sentence


def test_a_constant_input_has_no_r_squared() -> None:
    rows = Demonstrations(np.column_stack([STATES, np.ones(2000)]))
    found = diagnose_latents(PCA(1).fit(rows), rows)
    assert np.isnan(found.input_r_squared[12])
    assert found.to_dict()["input_r_squared"][12] is None
    assert (found.correlations[:, 12] == 0).all()


def test_other_maps_are_refused() -> None:
    with pytest.raises(InputError, match="takes a VAE or a PCA, not Standardize"):
        diagnose_latents(Standardize().fit(ROWS), ROWS)


def test_the_picture_shows_the_course_the_use_and_the_correlations() -> None:
    fitted = VAE(hidden=(16,), steps=500).fit(ROWS)
    found = diagnose_latents(fitted, ROWS)
    course, use, correlations = plot_latents(found, fitted.course).axes[:3]
    np.testing.assert_array_equal(
        course.lines[1].get_xydata(), np.column_stack([[0, 250, 500], fitted.course.held_out])
    )
    heights = [bar.get_height() for bar in use.patches]
    np.testing.assert_allclose(heights, [*found.variance, *(found.variance * np.clip(found.action_control, 0, 1))])
    np.testing.assert_array_equal(correlations.images[0].get_array(), found.correlations)
    assert len(plot_latents(found).axes) == 3  # two panels and the colours
    with pytest.raises(InputError, match="needs 2 axes, not 1"):
        plot_latents(found, axes=[plt.figure().subplots()])
    plt.close("all")
