"""Predicted occupancy: the weights are the estimator's own; an expert of the bank's kind fits, a stranger does not."""

import json

import numpy as np
import pytest

import kdbirl as kb
from kdbirl.errors import InputError
from kdbirl.posterior.result import Posterior
from kdbirl.report.trust_plots import plot_predictive
from kdbirl.trust.predictive import Predictive, predict_occupancy, task_probabilities

from .models import bank_of, expert_at, model_of, scattered

POSTERIORS: dict[str, Posterior] = {}  # by the expert's and the bank's content, so that each is drawn once


def predicted(model: kb.KDBIRL, expert: kb.Demonstrations, seed: int = 0) -> Predictive:
    key = expert.fingerprint() + model.fitted.bank_fingerprint
    if key not in POSTERIORS:
        POSTERIORS[key] = model.posterior(expert, seed=0)
    posterior = POSTERIORS[key]
    return occupancy_of(model, posterior.flat, posterior.expert_features, expert.episodes, seed)


def occupancy_of(model: kb.KDBIRL, draws: np.ndarray, rows: np.ndarray, episodes=None, seed: int = 0) -> Predictive:
    fitted, widths = model.fitted, model.fitted.choices.start
    plays = fitted.choices.plays
    return predict_occupancy(fitted.ckde, widths.h, widths.h_reward, plays, draws, rows, (), episodes, seed)


@pytest.fixture(scope="module")
def model() -> kb.KDBIRL:
    return model_of(bank_of(scattered(12), rows=np.arange(12) % 3 * 10 + 30), bandwidth=(0.3, 0.3))


@pytest.mark.parametrize("weighting", ["rows", "equal"])
def test_task_probabilities_against_the_formula(weighting: str):
    bank = bank_of(scattered(3), rows=np.array([5, 20, 80]))
    ckde = model_of(bank, bandwidth=(0.3, 0.4), task_weights=weighting).fitted.ckde
    reward = np.array([0.3, -0.2])
    kernel = np.exp(-((reward - bank.rewards) ** 2).sum(axis=1) / (2 * 0.4**2))
    kernel = kernel * [5, 20, 80] if weighting == "rows" else kernel
    assert task_probabilities(ckde, reward[None], 0.4)[0] == pytest.approx(kernel / kernel.sum())


def test_the_weights_are_those_of_the_density_estimate(model: kb.KDBIRL):
    """For one reward, sum_j weight_j K_h(x, x_j) is the likelihood of row x."""
    expert, reward = expert_at(np.zeros(2), rows=5), np.array([[0.2, 0.1]])
    ckde, x = model.fitted.ckde, np.asarray(expert.states)
    weights = occupancy_of(model, reward, x).weights
    assert weights.sum() == pytest.approx(1)
    kernel = np.exp(-((x[:, None] - ckde.rows[None]) ** 2).sum(axis=2) / (2 * 0.3**2))
    assert np.log(kernel @ weights).sum() == pytest.approx(model.log_likelihood(expert, reward[0]))


def test_weights_are_averaged_over_draws(model: kb.KDBIRL):
    x = np.zeros((3, 2))
    one, other = np.array([[0.2, 0.1]]), np.array([[-0.5, 0.4]])
    single = [occupancy_of(model, draws, x).weights for draws in (one, other)]
    both = occupancy_of(model, np.concatenate([one, other]), x).weights
    assert both == pytest.approx((single[0] + single[1]) / 2)


def test_an_expert_like_the_bank_fits(model: kb.KDBIRL):
    found = predicted(model, expert_at(np.array([0.3, -0.3]), rows=60))
    assert found.p_value > 0.05
    assert "no more unusual" in found.sentence
    for feature in found.features:
        assert feature.expert.sum() == pytest.approx(1)
        assert feature.predicted.sum() == pytest.approx(1)
        assert (feature.low <= feature.high).all()


def test_an_expert_of_another_kind_is_found(model: kb.KDBIRL):
    """Half of its rows here and half there: a mixture that no task between them shows in the second feature."""
    rng = np.random.default_rng(0)
    states = np.stack([rng.normal(0, 0.5, 80), np.where(rng.random(80) < 0.5, -2.0, 2.0)], axis=1)
    found = predicted(model, kb.Demonstrations(states=states))
    assert found.p_value < 0.01
    assert found.unexplained
    assert found.worst.name == found.features[1].name
    assert "No reward explains the expert's rows" in found.sentence


def test_shares_have_intervals_of_whole_episodes(model: kb.KDBIRL):
    """20 episodes of 10 equal rows say as much as 20 rows: intervals are those of 20 rows, not of 200."""
    rng = np.random.default_rng(0)
    episodes, states = np.repeat(np.arange(20), 10), rng.normal(size=(20, 2))
    alike = occupancy_of(model, np.zeros((1, 2)), states[episodes], episodes).features
    few = occupancy_of(model, np.zeros((1, 2)), states).features
    apart = occupancy_of(model, np.zeros((1, 2)), states[episodes]).features
    for one, other, rows in zip(alike, few, apart, strict=True):
        # ends are quantiles of 400 resamples, of multiples of 1/20: they differ by a step or two
        assert one.high - one.low == pytest.approx(other.high - other.low, abs=0.101)
        assert (one.high - one.low).sum() > 2 * (rows.high - rows.low).sum()
        assert ((one.low <= one.expert) & (one.expert <= one.high)).all()


def test_discrete_features_have_a_bin_for_each_value():
    rng = np.random.default_rng(0)
    states, tasks = rng.integers(0, 3, 90), np.repeat([0, 1, 2], 30)
    bank = kb.TaskBank.from_arrays(states=states.astype(float)[:, None], actions=None, tasks=tasks, rewards=np.eye(3))
    model = model_of(bank, bandwidth=(0.5, 0.5), prior=kb.Uniform(-1, 2))
    found = predicted(model, kb.Demonstrations(states=np.array([[0.0], [1.0], [3.0], [0.0]])))
    assert found.p_value is None
    assert "too few to say" in found.sentence
    assert found.features[0].labels == ("0", "1", "2", "3")
    assert found.features[0].expert.tolist() == [0.5, 0.25, 0, 0.25]
    assert found.features[0].predicted[3] == 0
    assert found.features[0].means[0] == 1.0


def test_it_refuses_what_it_cannot_do(model: kb.KDBIRL):
    with pytest.raises(InputError, match="expected \\(rows, 2\\)"):
        occupancy_of(model, np.zeros((1, 2)), np.zeros((4, 3)))
    with pytest.raises(InputError, match="episodes has 3 values for 4"):
        occupancy_of(model, np.zeros((1, 2)), np.zeros((4, 2)), np.zeros(3, int))
    bank, _ = kb.TaskBank.from_arrays(np.array([0, 1, 0, 1]), np.array([0, 1, 1, 0]), [0, 0, 1, 1], np.eye(2)), None
    model = kb.KDBIRL(prior=kb.Uniform(0, 1), conditional="action").fit(bank)
    with pytest.raises(InputError, match="does not predict states"):
        occupancy_of(model, np.zeros((1, 2)), model.fitted.ckde.rows)


def test_record_figure_and_seed(model: kb.KDBIRL):
    expert = expert_at(np.array([0.3, -0.3]))
    found = predicted(model, expert)
    record = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert record == json.loads(json.dumps(predicted(model, expert).to_dict()))
    assert [feature["name"] for feature in record["features"]] == [feature.name for feature in found.features]
    figure = plot_predictive(found)
    assert len(figure.axes) == 2
    assert "apart: " in figure.axes[0].get_title(loc="left")
