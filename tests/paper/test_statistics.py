"""Each statistic on data where the answer is known, both ways."""

import numpy as np
import pytest
from paper.claims import Interval, converges, goes_to_one, has_rate, slope

SIZES = np.array([256.0, 1024, 4096, 16384, 65536])
RATE = -0.25


def errors(curve, noise=0.02, seeds=12):
    rng = np.random.default_rng(0)
    return curve * np.exp(noise * rng.standard_normal((seeds, len(SIZES))))


def test_the_interval_is_students():
    from scipy import stats

    values = np.array([1.0, 2.0, 4.0, 3.5])
    low, high = stats.t.interval(0.95, 3, values.mean(), stats.sem(values))
    found = Interval.of(values)
    assert (found.number, found.low, found.high) == pytest.approx((values.mean(), low, high))
    assert np.isnan(Interval.of(values[:1]).low)


def test_the_slope_of_a_power_is_its_exponent():
    found = slope(errors(3 * SIZES**-0.3, noise=0), SIZES)
    assert (found.low, found.number, found.high) == pytest.approx((-0.3, -0.3, -0.3))


def test_intervals_of_slopes_cover_as_often_as_they_say():
    """95 % of 400 intervals, within 4 binomial standard errors."""
    rng = np.random.default_rng(1)
    tables = SIZES**RATE * np.exp(0.2 * rng.standard_normal((400, 10, len(SIZES))))
    found = [slope(table, SIZES) for table in tables]
    assert np.mean([one.low <= RATE <= one.high for one in found]) == pytest.approx(0.95, abs=4 * 0.0109)


@pytest.mark.parametrize(
    ("curve", "noise", "verdict"),
    [
        (SIZES**RATE, 0.02, "holds"),
        (0.4 + SIZES**-0.5, 0.02, "does not hold"),  # a floor
        (SIZES**0.1, 0.02, "does not hold"),
        (SIZES ** (RATE / 2), 0.5, "cannot be decided"),
    ],
    ids=["falls", "floor", "grows", "noise"],
)
def test_convergence(curve, noise, verdict):
    assert converges(errors(curve, noise), SIZES, RATE)[1] == verdict


@pytest.mark.parametrize(
    ("exponent", "noise", "verdict"),
    [
        (-0.25, 0.02, "holds"),
        (-0.27, 0.02, "holds"),
        (-0.4, 0.02, "does not hold"),
        (-0.1, 0.02, "does not hold"),
        (-0.25, 1.5, "cannot be decided"),
    ],
)
def test_the_rate(exponent, noise, verdict):
    assert has_rate(errors(SIZES**exponent, noise), SIZES, RATE)[1] == verdict


@pytest.mark.parametrize(
    ("last", "verdict"),
    [
        (np.full(12, 0.99), "holds"),
        (np.full(12, 0.8), "does not hold"),
        (np.r_[np.ones(6), np.zeros(6)], "does not hold"),  # sure of the wrong point for half of the seeds
        (np.r_[np.ones(11), 0.0], "cannot be decided"),
    ],
    ids=["one", "less", "half", "one seed"],
)
def test_mass_that_goes_to_one(last, verdict):
    mass = np.stack([np.full(12, 0.5), last], axis=1)
    found, decided = goes_to_one(mass)
    assert decided == verdict
    assert found.number == pytest.approx(last.mean())
    assert 0 <= found.low <= found.number <= found.high <= 1
