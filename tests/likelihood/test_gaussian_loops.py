"""The powers of two of the loops, over all exponents that they are asked for; blocks and threads change nothing."""

import itertools

import numpy as np
import pytest
from numba import njit

from kdbirl.likelihood import sums as gaussian_sums
from kdbirl.likelihood.gaussian_loops import MOST, exp2
from kdbirl.likelihood.sums import gaussian_log_sums, in_range

EXPONENTS = np.concatenate(
    [
        np.linspace(-1000, 1000, 200_001),
        np.random.default_rng(0).uniform(-80, 1, 100_000),
        np.arange(-1000.0, 1000.5, 0.5),
    ]
)


@njit
def powers(exponents):
    found = np.empty_like(exponents)
    for i in range(len(exponents)):
        found[i] = exp2(exponents[i])
    return found


def test_powers_of_two_are_right_to_rounding():
    exact = np.exp2(EXPONENTS.astype(np.longdouble))
    assert float(np.max(np.abs(powers(EXPONENTS) / exact - 1))) < 2**-51  # of a correct one: 2^-53
    whole = np.arange(-1000.0, 1001.0)
    np.testing.assert_array_equal(powers(whole), np.exp2(whole))


def test_beyond_their_range_powers_are_those_of_the_bound():
    far = np.array([-np.inf, -1e300, -MOST - 1, MOST + 1, 1e300, np.inf])
    np.testing.assert_array_equal(powers(far), np.exp2(np.clip(far, -MOST, MOST)))


def problem(d, m=3000, n=40):
    generator = np.random.default_rng(d)
    rows, expert = generator.normal(size=(m, d)), generator.normal(size=(n, d))
    return expert, rows, generator.uniform(0.1, 5, m), np.array([0, 1, 700, 701, m])


def directly(expert, rows, weights, first, h):
    squares = ((expert[:, None].astype(np.longdouble) - rows[None]) ** 2).sum(axis=-1) / np.longdouble(h) ** 2
    logs = np.log(weights) - squares / 2
    return np.stack([np.logaddexp.reduce(logs[:, a:b], axis=1) for a, b in itertools.pairwise(first)], axis=1).astype(
        float
    )


@pytest.mark.parametrize("d", [1, 2, 3, 4, 5, 6, 7, 8, 11, 46])
@pytest.mark.parametrize("h", [0.02, 0.3, 3.0])
def test_any_number_of_columns(d, h):
    given = problem(d)
    expected = directly(*given, h)
    np.testing.assert_allclose(gaussian_log_sums(*given, h), expected, rtol=1e-14, atol=1e-13)


def test_what_a_row_gets_depends_on_nothing_beside_it(monkeypatch):
    """Bit by bit: not on the rows in the same call, nor on how many threads there are."""
    expert, *bank = problem(3)
    together = gaussian_log_sums(expert, *bank, 0.3)
    apart = np.concatenate([gaussian_log_sums(expert[i : i + 1], *bank, 0.3) for i in range(len(expert))])
    np.testing.assert_array_equal(together, apart)
    monkeypatch.setattr(gaussian_sums, "PAIRS_OF_A_THREAD", 0)
    monkeypatch.setattr(gaussian_sums, "EXPERT_ROWS", 7)
    np.testing.assert_array_equal(gaussian_log_sums(expert, *bank, 0.3), together)


def test_arrays_in_any_layout():
    expert, rows, weights, first = problem(3)
    expected = gaussian_log_sums(expert, rows, weights, first, 0.3)
    found = gaussian_log_sums(np.asfortranarray(expert), np.flip(np.flip(rows).copy()), weights, first, 0.3)
    np.testing.assert_array_equal(found, expected)


def test_values_that_the_loops_cannot_square_are_known():
    assert in_range(np.zeros((0, 2)), 1.0)
    assert in_range(np.array([[-1e149, 3.0]]), 1.0)
    for value, h in ((1e151, 1.0), (-1e151, 1.0), (np.nan, 1.0), (np.inf, 1.0), (1.0, 1e-151), (1.0, 1e-309)):
        assert not in_range(np.array([[0.0], [value]]), h)
