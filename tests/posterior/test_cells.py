"""The adaptive grid's cells: exact where the log density is linear, split where and along what it is not."""

import numpy as np
import pytest
from scipy import stats

from kdbirl.posterior.cells import (
    BOUND_SLACK,
    LARGEST_ERROR,
    NEGLIGIBLE_MASS,
    CellTree,
    Evaluate,
    _log_sinh_ratio,
    _truncated_exponential,
)

LOW, HIGH = np.array([-1.0, 2.0]), np.array([3.0, 4.0])


def tree_of(log_density: Evaluate, low: np.ndarray = LOW, high: np.ndarray = HIGH) -> CellTree:
    draws = np.random.default_rng(0).uniform(low, high, (500, len(low)))
    return CellTree(low, high, draws, log_density)


def linear(points: np.ndarray) -> np.ndarray:
    return np.asarray(0.7 + points @ np.array([1.3, -0.4]))


def bump(points: np.ndarray) -> np.ndarray:
    """Narrow, off the middle, and of another width along each axis."""
    return np.asarray(-0.5 * (((points - [0.3, 3.1]) / [0.02, 0.2]) ** 2).sum(axis=1))


def ring(points: np.ndarray) -> np.ndarray:
    """Zero outside a disc: cells on its edge are cut."""
    inside = ((points - [1.0, 3.0]) ** 2).sum(axis=1) < 0.64
    return np.where(inside, points[:, 0], -np.inf)


def test_a_log_linear_density_needs_no_more_cells() -> None:
    tree = tree_of(linear)
    first = len(tree.leaves)
    tree.refine(10_000)
    assert len(tree.leaves) == first == 32 * 32
    np.testing.assert_allclose(tree.slopes, np.broadcast_to([1.3, -0.4], tree.slopes.shape))
    np.testing.assert_allclose(tree.errors, 0.0, atol=1e-12)
    points = np.random.default_rng(1).uniform(LOW, HIGH, (200, 2))
    np.testing.assert_allclose(tree.predict(tree.find(points), points), linear(points))


def test_errors_are_those_at_the_faces() -> None:
    """f = a x^2 departs from its tangent by a s^2 at a distance s."""
    tree = tree_of(lambda points: points**2 @ np.array([3.0, -0.5]))
    np.testing.assert_allclose(tree.errors, np.array([3.0, 0.5]) * tree.halves**2)


@pytest.mark.parametrize("log_density", [linear, bump, ring])
def test_leaves_cover_the_box_once(log_density: Evaluate) -> None:
    tree = tree_of(log_density)
    tree.refine(20_000)
    leaves = tree.leaves
    assert np.prod(2 * tree.halves[leaves], axis=1).sum() == pytest.approx(np.prod(HIGH - LOW))
    points = np.random.default_rng(1).uniform(LOW, HIGH, (2000, 2))
    cells = tree.find(points)
    assert np.isin(cells, leaves).all()
    assert (np.abs(points - tree.centres[cells]) <= tree.halves[cells] * (1 + 1e-9)).all()


def test_points_outside_of_the_box_get_the_nearest_cell() -> None:
    tree = tree_of(linear)
    outside = tree.find(np.array([[-9.0, 3.3], [9.0, 9.0]]))
    np.testing.assert_array_equal(outside, tree.find(np.array([[-1.0, 3.3], [3.0, 4.0]])))


@pytest.mark.parametrize("axis", [0, 1])
def test_a_cell_is_halved_along_the_axis_of_its_error_or_else_the_steepest(axis: int) -> None:
    curved = tree_of(lambda points: -(points[:, axis] ** 2) + 1e-3 * points.sum(axis=1))
    steep = tree_of(lambda points: 3.0 * points[:, axis])
    for tree in (curved, steep):
        tree.split(np.array([5]))
        assert tree.axis[5] == axis
        pair = tree.child[5] + np.arange(2)
        np.testing.assert_allclose(tree.halves[pair, axis], tree.halves[5, axis] / 2)
        np.testing.assert_allclose(tree.halves[pair, 1 - axis], tree.halves[5, 1 - axis])
        np.testing.assert_allclose(tree.centres[pair].mean(axis=0), tree.centres[5])


def test_a_cell_that_is_cut_is_halved_along_its_longer_side() -> None:
    tree = tree_of(ring)
    cut = np.flatnonzero(np.isinf(tree.errors[:, 0]))
    assert len(cut)
    tree.split(cut)
    np.testing.assert_array_equal(tree.axis[cut], tree.halves[cut].argmax(axis=1))


@pytest.mark.parametrize("log_density", [linear, bump])
def test_draws_follow_the_approximation(log_density: Evaluate) -> None:
    """Self-normalised weights density / approximation are nearly even, so the draws' mean is that of a fine sum."""
    tree = tree_of(log_density)
    tree.refine(20_000)
    points, cells = tree.draw(np.random.default_rng(2), 20_000)
    assert (np.abs(points - tree.centres[cells]) <= tree.halves[cells] * (1 + 1e-9)).all()
    ratios = log_density(points) - tree.predict(cells, points)
    weights = np.exp(ratios - ratios.max())
    assert weights.sum() ** 2 / (weights**2).sum() > 0.9 * len(weights)
    axes = [np.linspace(low, high, 2001)[:-1] + (high - low) / 4000 for low, high in zip(LOW, HIGH, strict=True)]
    for j, axis in enumerate(axes):  # both densities are products over the axes
        along = np.tile(np.array([0.3, 3.1]), (len(axis), 1))
        along[:, j] = axis
        mass = np.exp(log_density(along) - log_density(along).max())
        mean = (mass * axis).sum() / mass.sum()
        sd = np.sqrt((mass * (axis - mean) ** 2).sum() / mass.sum())
        found = (weights * points[:, j]).sum() / weights.sum()
        assert abs(found - mean) < 4.5 * sd / np.sqrt(0.9 * len(points))


def test_the_first_and_the_last_cell_are_drawn_from() -> None:
    line = tree_of(lambda points: np.zeros(len(points)), LOW[:1], HIGH[:1])
    line.refine(1000)
    assert len(line.leaves) == 256
    cells = line.draw(np.random.default_rng(3), 50_000)[1]
    assert {line.leaves[0], line.leaves[-1]} < set(cells)


@pytest.mark.parametrize("log_density", [linear, bump])
def test_the_upper_bound_is_above_the_highest_value_and_close(log_density: Evaluate) -> None:
    tree = tree_of(log_density)
    axes = [np.linspace(low, high, 801) for low, high in zip(LOW, HIGH, strict=True)]
    highest = log_density(np.stack(np.meshgrid(*axes), axis=-1).reshape(-1, 2)).max()
    assert highest - 1e-9 <= tree.upper_bound(50_000) <= highest + 2 * BOUND_SLACK


@pytest.mark.parametrize("width", [1e-3, 1.0, 1e3])
def test_every_cell_that_holds_mass_is_nearly_linear_and_the_others_are_left_alone(width: float) -> None:
    """Whatever the units: a bump much narrower than the first cells, whose mass in a cell is known exactly."""
    low, high, sd = np.array([-3 * width]), np.array([5 * width]), 0.004 * width
    tree = tree_of(lambda points: -0.5 * (points[:, 0] / sd) ** 2, low, high)
    first = len(tree.leaves)
    tree.refine(10_000)
    leaves = tree.leaves
    ends = [tree.centres[leaves, 0] + side * tree.halves[leaves, 0] for side in (-1, 1)]
    mass = stats.norm.cdf(ends[1] / sd) - stats.norm.cdf(ends[0] / sd)
    wrong = tree.errors[leaves, 0] > LARGEST_ERROR
    assert mass[wrong].max(initial=0.0) < NEGLIGIBLE_MASS
    assert first < len(leaves) < 2 * first
    assert wrong.any()  # far out, where the log density falls steeply


def test_the_limit_of_cells_ends_the_refinement() -> None:
    tree = tree_of(bump)
    tree.refine(1025)
    assert 1025 <= len(tree.leaves) <= 2 * 1025


@pytest.mark.parametrize("slope", [-800.0, -3.0, -1e-3, 1e-5, 0.0, 0.5, 20.0, 800.0])
def test_closed_forms_in_a_cell(slope: float) -> None:
    """log of the mean of exp(a t) over [-1, 1], and its quantiles: exp(a t) integrated up to t is the share u."""
    t = np.linspace(-1, 1, 200_001)
    shifted = np.exp(slope * t - abs(slope))
    total = np.trapezoid(shifted, t)
    assert _log_sinh_ratio(np.array(slope)) == pytest.approx(np.log(total / 2) + abs(slope), abs=1e-4)
    u = np.array([0.01, 0.3, 0.5, 0.9])
    places = np.sort(_truncated_exponential(u, np.full(4, slope)))
    sides = np.sort(u if slope >= 0 else 1 - u)
    below = np.array([np.trapezoid(np.where(t <= place, shifted, 0.0), t) for place in places]) / total
    np.testing.assert_allclose(below, sides, atol=2e-2 if abs(slope) > 100 else 1e-4)
