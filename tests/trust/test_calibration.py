"""Calibration passes on a known answer first, and finds posteriors that are too narrow, too wide or shifted."""

import json

import numpy as np
import pytest
from scipy import stats

from kdbirl.errors import InputError
from kdbirl.report.trust_plots import plot_calibration
from kdbirl.trust.calibration import calibrate, calibrate_weighted, rank_counts, uniformity
from kdbirl.trust.weighted_draws import WeightedDraws, binomial_interval, weighted_quantiles

from .conjugate import normal_posteriors

TASKS = 400


def scaled(factor: float, tasks: int = TASKS, draws: int = 99, q: int = 2, seed: int = 0):
    """Truths, and exact posteriors made wider or narrower about their means."""
    truths, sample, means, _ = normal_posteriors(tasks, draws, q, seed)
    return truths, means[:, None] + factor * (sample - means[:, None])


def prior_draws(q: int = 2) -> np.ndarray:
    return np.random.default_rng(9).normal(size=(4000, q))


def test_the_exact_posterior_is_calibrated():
    found = calibrate(*scaled(1.0), prior_draws=prior_draws(), names=("a", "b"))
    # p-values and 95 % limits of 400 tasks: a false failure in about one seed of twenty, and this seed is fixed
    assert found.p_value > 0.05
    assert (found.pooled_low <= found.levels).all()
    assert (found.levels <= found.pooled_high).all()
    assert abs(found.z_spread - 1).max() < 0.12
    assert abs(found.z_bias).max() < 0.15
    assert "as promised" in found.sentence
    _, _, _, sd = normal_posteriors(2, 2)
    assert found.contraction == pytest.approx(1 - sd**2, abs=0.03)
    assert found.sharpness == pytest.approx(sd, abs=0.05)


def test_ranks_of_exact_posteriors_are_uniform_over_many_repetitions():
    """p-values of the test itself are uniform when all is well: 200 repetitions, Kolmogorov-Smirnov."""
    p_values = [calibrate(*scaled(1.0, tasks=100, draws=19, q=1, seed=s), seed=s).p_value for s in range(200)]
    assert stats.kstest(p_values, "uniform").pvalue > 1e-3


@pytest.mark.parametrize("draws", [1, 3, 19])
def test_coverage_is_exact_however_few_the_draws(draws: int):
    found = calibrate(*scaled(1.0, tasks=4000, draws=draws))
    assert found.pooled == pytest.approx(found.levels, abs=0.025)  # 4 standard errors of 4000 tasks at 50 %: 0.03


@pytest.mark.parametrize("tasks", [40, 400])
def test_a_posterior_twice_too_narrow_is_found(tasks: int):
    found = calibrate(*scaled(0.5, tasks=tasks))
    assert (found.pooled_high < found.levels).all()
    assert found.p_value < 1e-3
    assert found.z_spread == pytest.approx(2, rel=0.25)
    assert "over-confident" in found.sentence
    counts = rank_counts(found.ranks[:, 0])
    assert min(counts[0], counts[-1]) > np.median(counts)  # the U of a posterior that is too narrow


def test_a_posterior_twice_too_wide_is_found():
    found = calibrate(*scaled(2.0))
    assert (found.pooled_low > found.levels).all()
    assert found.p_value < 1e-3
    assert "wider than it needs" in found.sentence


def test_a_shifted_posterior_is_found():
    truths, draws = scaled(1.0)
    found = calibrate(truths, draws + 0.5)
    assert found.p_value < 1e-3
    assert (found.z_bias > 0.5).all()


def test_uneven_ranks_with_the_right_coverage_are_spoken_of():
    truths = np.zeros((200, 1))
    draws = np.linspace(-1, 1, 201)[None, :, None] + np.linspace(-1, 0, 200)[:, None, None] * 0.98
    found = calibrate(truths, draws)
    assert found.headline[3] >= 0.9 >= found.headline[2]
    assert "not uniform" in found.sentence


def test_weights_say_the_same_as_draws():
    """The normal posterior as weights on a shared grid, against its own draws."""
    truths, draws, means, sd = normal_posteriors(TASKS, 999, q=1)
    points = np.linspace(-5, 5, 2001)[:, None]
    logs = stats.norm.logpdf(points.T, means, sd)
    weighted = calibrate_weighted(truths, points, logs, log_prior_weights=stats.norm.logpdf(points[:, 0]))
    sampled = calibrate(truths, draws, prior_draws=prior_draws(1))
    exact = stats.norm.cdf(truths, means, sd)
    assert abs(weighted.ranks - exact).max() < 0.01
    assert abs(sampled.ranks - exact).max() < 0.08  # the largest of 400 errors of sd up to 0.5 / sqrt(999)
    assert weighted.contraction == pytest.approx(1 - sd**2, abs=1e-3)
    assert weighted.sharpness[:, 0] == pytest.approx(sd, abs=0.01)
    assert weighted.z_scores == pytest.approx((means - truths) / sd, abs=1e-3)
    assert weighted.pooled == pytest.approx(sampled.pooled, abs=0.03)


def test_equal_weights_are_draws():
    truths, draws = scaled(1.0, tasks=1, draws=50)
    one = calibrate(truths, draws, seed=3)
    other = calibrate_weighted(truths, draws[0], np.zeros((1, 50)), seed=3)
    assert np.allclose(one.ranks, other.ranks, atol=1 / 51)
    assert np.allclose(one.z_scores, other.z_scores)


def test_points_too_coarse_for_the_posterior_do_not_hide_it():
    """All weight on one point far from the truth is over-confidence, not a rank in the middle of one draw."""
    logs = np.where(np.arange(11) == 0, 0.0, -1e3) * np.ones((40, 1))
    found = calibrate_weighted(np.full((40, 1), 0.8), np.linspace(0, 1, 11)[:, None], logs)
    assert (found.pooled == 0).all()
    assert found.effective_draws == pytest.approx(1)


@pytest.mark.parametrize("sd", [0.3, 0.03, 0.001])
def test_the_truth_among_the_points_keeps_narrow_posteriors_calibrated(sd: float):
    """Exact posteriors down to a fortieth of the points' distance: judged by the points alone, none holds the truth."""
    rng = np.random.default_rng(3)
    truths = rng.uniform(-2, 2, (TASKS, 1))
    seen, points = truths + sd * rng.normal(size=truths.shape), np.linspace(-2, 2, 101)[:, None]
    logs, own = (-((at - seen) ** 2) / (2 * sd**2) for at in (points.T, truths))
    found = calibrate_weighted(truths, points, logs, log_weights_of_truths=own[:, 0])
    # four standard errors of 400 tasks at 50 %: a false failure in one of 4,000 comparisons
    assert found.pooled == pytest.approx(found.levels, abs=0.1)
    assert found.z_spread.max() < 1.2
    if sd == 0.001:
        assert calibrate_weighted(truths, points, logs).pooled.max() < 0.1


def test_a_posterior_without_width_fits_the_table():
    """One point with all the weight has no sd: the z-score says so within its column."""
    logs = np.where(np.arange(11) == 0, 0.0, -1e4) * np.ones((40, 1))
    far = np.full(40, -1e4)
    found = calibrate_weighted(np.full((40, 1), 0.8), np.linspace(0, 1, 11)[:, None], logs, log_weights_of_truths=far)
    assert found.z_spread == pytest.approx([999.0])
    assert "over 100 times its own sd" in found.sentence
    assert max(map(len, found.describe())) <= 80


def test_ranks_against_counting():
    """The rank formula in its plain form: (count below + U (1 + count equal)) / (draws + 1)."""
    draws = np.array([[[0.0], [1.0], [1.0], [2.0]]])
    found = WeightedDraws.equal(draws).ranks(np.array([[1.0]]), np.random.default_rng(5))
    assert found[0, 0] == pytest.approx((1 + np.random.default_rng(5).uniform() * 3) / 5)


def test_binomial_intervals_are_scipys():
    for hits, trials in [(0, 12), (9, 12), (12, 12), (36, 40)]:
        low, high = binomial_interval(np.array(hits / trials), trials)
        exact = stats.binomtest(hits, trials).proportion_ci(0.95)
        assert (float(low), float(high)) == pytest.approx((exact.low, exact.high), abs=1e-9)


def test_pooled_intervals_count_tasks():
    """Ten copies of one parameter are one parameter: no narrower interval."""
    truths, draws = scaled(1.0, tasks=60, q=1)
    one = binomial_interval(calibrate(truths, draws).pooled, 60)
    ten = calibrate(np.repeat(truths, 10, axis=1), np.repeat(draws, 10, axis=2))
    width = ten.pooled_high - ten.pooled_low
    assert width == pytest.approx(one[1] - one[0], abs=0.03)


def test_quantiles_of_equal_weights():
    values = np.random.default_rng(0).normal(size=400)
    at = np.array([0.05, 0.5, 0.95])
    found = weighted_quantiles(values, np.full(400, 1 / 400), at)
    assert found == pytest.approx(np.quantile(values, at, method="hazen"))


def test_few_ranks_have_one_bin_and_say_nothing():
    assert uniformity(np.array([0.01, 0.02, 0.03])) == 1.0


def test_the_table_fits_and_the_dictionary_is_json():
    truths, draws = scaled(1.0, q=2)
    found = calibrate(truths, draws, names=("w", "a very long name of a parameter"))
    lines = found.describe()
    assert len(lines) == 5
    assert max(map(len, lines)) <= 80
    record = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert record["n_tasks"] == TASKS
    assert record["contraction"] == [None, None]  # no prior was given
    assert np.shape(record["ranks"]) == (TASKS, 2)


def test_the_same_seed_gives_the_same_numbers():
    given = scaled(1.0)
    assert np.array_equal(calibrate(*given, seed=1).ranks, calibrate(*given, seed=1).ranks)
    assert not np.array_equal(calibrate(*given, seed=1).ranks, calibrate(*given, seed=2).ranks)


def test_wrong_shapes_are_named():
    truths, draws = scaled(1.0, tasks=5)
    with pytest.raises(InputError, match=r"truths has shape \(4, 2\); expected \(5, 2\)"):
        calibrate(truths[:4], draws)
    with pytest.raises(InputError, match="levels"):
        calibrate(truths, draws, levels=(90,))
    with pytest.raises(InputError, match="no point has any weight"):
        calibrate_weighted(truths[:1], draws[0], np.full((1, draws.shape[1]), -np.inf))
    with pytest.raises(InputError, match="test task 2 are not all finite"):
        calibrate(truths, np.where(np.arange(5)[:, None, None] == 1, np.nan, draws))


def test_the_figure_shows_coverage_ranks_and_worth():
    figure = plot_calibration(calibrate(*scaled(0.5), prior_draws=prior_draws(), names=("a", "b")))
    assert [axis.get_title(loc="left") for axis in figure.axes][:2] == ["coverage", "rank: a"]
    assert len(figure.axes) == 4  # coverage, two rank histograms, z-scores
