"""Sums in single precision and within a tolerance keep their bounds."""

import itertools
from dataclasses import replace
from math import factorial

import numpy as np
import pytest
from scipy.interpolate import BarycentricInterpolator
from scipy.special import eval_hermitenorm, roots_hermitenorm

import kdbirl as kb
from kdbirl.errors import InputError
from kdbirl.likelihood import box_loops, kernel_sums
from kdbirl.likelihood import boxed_sums as boxed_sums_module
from kdbirl.likelihood import boxes as boxes_module
from kdbirl.likelihood.box_loops import ORDER
from kdbirl.likelihood.boxed_sums import boxed_log_sums
from kdbirl.likelihood.boxes import Boxes
from kdbirl.likelihood.ckde import CKDE, ROWS_PROBED
from kdbirl.likelihood.kernel_sums import SINGLE_ERROR, task_log_sums
from kdbirl.likelihood.kernels import as_kernel, on_columns
from kdbirl.likelihood.nodes import chebyshev_nodes, node_weights


def problem(d, m=6000, n=40, tasks=3, seed=0, far=0.0):
    """Rows of some tasks around their centres, weighted, and expert rows that may lie far from them."""
    rng = np.random.default_rng(seed)
    of_row = np.sort(rng.integers(tasks, size=m))
    rows = rng.uniform(-1, 1, (tasks, d))[of_row] + rng.normal(size=(m, d))
    return rng.normal(size=(n, d)) + far, rows, rng.integers(1, 5, m).astype(float), of_row


def double_loop(expert, rows, weights, tasks, n_tasks, h):
    """The sum as written, in logs."""
    table = np.full((len(expert), n_tasks), -np.inf)
    for i, x in enumerate(expert):
        for k in range(n_tasks):
            own = tasks == k
            table[i, k] = np.logaddexp.reduce(np.log(weights[own]) - ((x - rows[own]) ** 2).sum(1) / (2 * h**2))
    return table


def gaussian(d):
    return on_columns(as_kernel("gaussian"), [f"x{i}" for i in range(d)], {})


@pytest.mark.parametrize("d", [1, 2, 3])
@pytest.mark.parametrize("h", [0.03, 0.1, 1.0, 30.0])
@pytest.mark.parametrize("tolerance", [1e-3, 0.05])
def test_boxes_keep_their_tolerance(d, h, tolerance):
    expert, rows, weights, tasks = problem(d)
    found = boxed_log_sums(expert, Boxes.of(rows, weights, tasks, 3, h), tolerance)
    assert np.abs(found - double_loop(expert, rows, weights, tasks, 3, h)).max() <= tolerance


@pytest.mark.parametrize("d", [1, 2, 3])
@pytest.mark.parametrize("h", [0.02, 0.3, 3.0])
@pytest.mark.parametrize("tolerance", [1e-9, 1e-6])
def test_the_second_round_keeps_tolerances_that_the_first_cannot(d, h, tolerance):
    expert, rows, weights, tasks = problem(d, m=2000, n=12)
    found = boxed_log_sums(expert, Boxes.of(rows, weights, tasks, 3, h), tolerance)
    np.testing.assert_allclose(found, double_loop(expert, rows, weights, tasks, 3, h), rtol=1e-13, atol=tolerance)


@pytest.mark.parametrize("m", [40, 6000])
@pytest.mark.parametrize("away", [1.0, 30.0, 1e4])
def test_expert_rows_far_from_all_or_from_some_tasks_keep_the_tolerance(away, m):
    """Kernels there are as small as e^-10^10, and full boxes are condensed: the rows themselves are summed."""
    expert, rows, weights, tasks = problem(2, m=m)
    rows[tasks == 2] += away
    expert[::2] += np.array([away, 0.0])
    found = boxed_log_sums(expert, Boxes.of(rows, weights, tasks, 3, 0.1), 1e-3)
    np.testing.assert_allclose(found, double_loop(expert, rows, weights, tasks, 3, 0.1), rtol=1e-12, atol=1e-3)


def test_models_with_a_tolerance_have_the_exact_likelihood_within_it():
    expert, rows, _, tasks = problem(2)
    bank = kb.TaskBank.from_arrays(rows, None, tasks, np.eye(3))
    given = {"prior": kb.Uniform(0, 1), "features": kb.Identity(), "bandwidth": (0.05, 0.5)}
    exact, within = (
        kb.KDBIRL(**given, sums=sums).fit(bank).log_likelihood(kb.Demonstrations(expert), np.full(3, 0.5))
        for sums in (kb.KernelSums(), kb.KernelSums(tolerance=1e-3))
    )
    assert exact == pytest.approx(within, abs=1e-3 * len(expert))
    assert exact != within


def test_rows_some_bandwidths_away_from_condensed_boxes_are_summed_within_the_tolerance():
    """No box is opened for them at first; the second round sums the rows themselves."""
    _, rows, weights, tasks = problem(1)
    boxes = Boxes.of(rows, weights, tasks, 3, 30.0)
    assert len(boxes.points.full)
    expert = rows.max() + 30.0 * np.linspace(5.5, 9.0, 8)[:, None]
    found = boxed_log_sums(expert, boxes, 1e-3)
    np.testing.assert_allclose(found, double_loop(expert, rows, weights, tasks, 3, 30.0), atol=1e-3)


def test_nodes_whose_sum_is_below_zero_are_summed_again():
    """Their weights have signs: with all rows in the far corner of a full box, the sum is smaller than its error.

    The user is not warned of its logarithm: warnings are errors here.
    """
    rows, tasks = np.repeat([[0.0], [2.0]], 40, axis=0), np.repeat([0, 1], 40)
    boxes, expert = Boxes.of(rows, np.ones(80), tasks, 2, 1.0), np.array([[6.0], [6.5], [7.0]])
    value, _ = box_loops.first_round(boxes.scaled(expert), *of(boxes), boxed_sums_module.RADIUS, 7.0)
    assert (value[:, 0] < 0).all()
    found = boxed_log_sums(expert, boxes, 1e-3)
    np.testing.assert_allclose(found, double_loop(expert, rows, np.ones(80), tasks, 2, 1.0), atol=1e-3)


def test_sums_that_the_first_round_is_sure_of_are_not_made_again(monkeypatch):
    """What is gained is gained by the first round: a second one, over the rows themselves, is as long as exact sums."""
    again, second_round = [], box_loops.second_round
    monkeypatch.setattr(box_loops, "second_round", lambda *given: again.extend(given[2]) or second_round(*given))
    expert, rows, weights, tasks = problem(2)
    boxes = Boxes.of(rows, weights, tasks, 3, 1.0)
    boxed_log_sums(expert, boxes, 0.05)
    assert not again
    boxed_log_sums(expert, boxes, 1e-9)
    assert len(again) == 3 * len(expert)


@pytest.mark.parametrize("size", [1e-3, 1.0, 1e3])
def test_heavy_boxes_that_the_first_round_does_not_look_at_are_not_forgotten(size):
    """Six boxes just beyond its reach of 7 together outweigh the row at the expert's own place; none does alone."""
    gap, beside = 2.0 - 1e-3, [8.0 - 1e-3, 9.01, 10.0 + 1e-3]
    heavy = [[gap, y] for y in beside] + [[x, gap] for x in beside]
    places = np.array([[0.0, 0.0], [20.0, 20.0], [9.01, 9.01], *heavy])
    rows, weights = np.repeat(places, 12, axis=0), size * np.repeat([1.0, 1.0, 1.0, *[7e9] * 6], 12)
    tasks, expert = np.zeros(len(rows), int), places[2:3]
    found = boxed_log_sums(expert, Boxes.of(rows, weights, tasks, 1, 1.0), 0.1)
    np.testing.assert_allclose(found, double_loop(expert, rows, weights, tasks, 1, 1.0), atol=0.1)


@pytest.mark.parametrize("weight", [1e25, 1e27, 1e30])
def test_a_heavy_group_behind_a_light_one_is_not_forgotten(weight, monkeypatch):
    """The nearest group tells how large the sum is at least; one that is further away may still hold most of it."""
    monkeypatch.setattr(boxes_module, "ROWS_OF_A_GROUP", 1)
    rows = np.repeat([[8.6], [14.0], [22.0]], 6, axis=0)
    weights, tasks = np.repeat([1.0, weight, 1.0], 6), np.zeros(18, int)
    boxes, expert = Boxes.of(rows, weights, tasks, 1, 1.0), np.zeros((1, 1))
    assert len(boxes.groups.mass) >= 2
    found = boxed_log_sums(expert, boxes, 0.1)
    np.testing.assert_allclose(found, double_loop(expert, rows, weights, tasks, 1, 1.0), atol=0.1)


@pytest.mark.parametrize("d", [1, 2, 3])
def test_a_full_box_is_condensed_into_as_many_points_as_there_are_nodes(d):
    """For up to three columns; with four there are never so many rows in a box that it would pay."""
    rng = np.random.default_rng(d)
    rows, weights, tasks = (
        rng.uniform(-1.1, 1.1, (2000, d)),
        rng.integers(1, 5, 2000).astype(float),
        np.zeros(2000, int),
    )
    boxes = Boxes.of(rows, weights, tasks, 1, 2.0)
    np.testing.assert_array_equal(boxes.points.full, np.arange(len(boxes.cells.task)))
    assert boxes.points.points.shape == (4, ORDER**d)
    expert = rng.uniform(-2, 2, (20, d))
    found = boxed_log_sums(expert, boxes, 0.01)
    np.testing.assert_allclose(found, double_loop(expert, rows, weights, tasks, 1, 2.0), atol=0.01)


@pytest.mark.parametrize(("d", "condensed"), [(2, True), (3, False)])
def test_a_tolerance_that_single_precision_may_not_keep_is_not_claimed(d, condensed):
    """Each term may be wrong by 2^-20 (2 + exponent) of itself, of rows as of nodes; a second round is then exact."""
    expert, rows, weights, tasks = problem(d, m=1000)
    boxes = Boxes.of(rows, weights, tasks, 3, 30.0)
    assert bool(len(boxes.points.full)) == condensed
    value, error = box_loops.first_round(boxes.scaled(expert), *of(boxes), 5.0, 7.0)
    assert (error >= 2.0**-19 * value).all()
    assert (error <= 2.0**-17 * value).all()
    exact = double_loop(expert, rows, weights, tasks, 3, 30.0)
    assert np.abs(boxed_log_sums(expert, boxes, 1e-9) - exact).max() < 1e-9 < np.abs(np.log(value) - exact).max()


def in_boxes(grid, rows, weights, tasks):
    """Rows in the boxes of a grid, none of them condensed."""
    cells, points = grid.cells(rows, weights, tasks)
    groups = box_loops.groups_of(cells, tasks.max() + 1)
    fours = boxes_module._in_fours(cells, points, condense=False)
    return Boxes(grid.h, rows, weights, grid.origin, cells, fours, groups, np.bincount(cells.task, cells.mass))


def of(boxes):
    """What the first round is given of boxes."""
    return boxes.cells, boxes.points, boxes.in_all, boxes.most_fours


def cells_of_points(boxes):
    """The cell of each point."""
    cells, points = boxes.cells, boxes.points
    number = {(p, k): c for c, (p, k) in enumerate(zip(cells.place, cells.task, strict=True))}
    place = np.repeat(np.arange(len(points.first) - 1), np.diff(points.first))
    return np.repeat([number[given] for given in zip(place, points.task, strict=True)], 4)


def boxes_of_cells(boxes):
    """The box of each cell along the columns, by the grid and the middle of its points."""
    cells = boxes.cells
    place = np.repeat(np.arange(len(cells.first_cell) - 1), np.diff(cells.first_cell))
    np.testing.assert_array_equal(place, cells.place)
    wide = -(-cells.counts // 4)
    group = np.stack(np.unravel_index(place >> 6, wide), axis=1)
    return 4 * group + np.stack(np.unravel_index(place & 63, (4, 4, 4)), axis=1)


def distances(boxes, expert):
    """Squared distances of rows to the nearest and furthest points of the cells' boxes, over all corners."""
    cells, at = boxes.cells, boxes.scaled(expert)
    gap = np.abs(at[:, None] - ((boxes_of_cells(boxes) + 0.5) * cells.sides))
    return (np.maximum(gap - cells.half, 0.0) ** 2).sum(axis=2), ((gap + cells.half) ** 2).sum(axis=2)


@pytest.mark.parametrize(("radius", "reach"), [(0.0, 3.0), (0.0, 7.0), (2.0, 6.0), (5.0, 5.0)])
@pytest.mark.parametrize("offset", [0.0, 20.0, -20.0])
def test_the_first_round_opens_what_is_within_the_radius_and_bounds_the_rest(radius, reach, offset):
    expert, rows, weights, tasks = problem(2)
    rows, expert = rows + offset, expert + offset
    boxes = Boxes.of(rows, weights, tasks, 3, 0.1)
    cells = boxes.cells
    nearest, _ = distances(boxes, expert)
    value, error = box_loops.first_round(boxes.scaled(expert), *of(boxes), radius, reach)
    of_row = cells_of_points(boxes)
    middle = (boxes_of_cells(boxes) + 0.5) * cells.sides
    at = boxes.points.points[:3].T + middle[of_row]
    kernel = boxes.points.points[3] * np.exp(-0.5 * ((boxes.scaled(expert)[:, None] - at) ** 2).sum(axis=2))
    for k in range(3):
        opened = (nearest[:, of_row] <= radius**2) & (cells.task[of_row] == k)
        seen = (nearest > radius**2) & (nearest <= reach**2) & (cells.task == k)
        left_out = 0.5 * ((seen * cells.mass * np.exp(-0.5 * nearest)).sum(axis=1))
        left_out += 0.5 * np.exp(-0.5 * reach**2) * boxes.in_all[k]
        expected = (kernel * opened).sum(axis=1)
        np.testing.assert_allclose(value[:, k], expected + left_out, rtol=1e-4)
        assert (error[:, k] >= left_out * (1 - 1e-12)).all()
        assert (error[:, k] <= left_out + 1e-3 * expected + 1e-12).all()


def test_the_rounding_of_the_first_round_is_counted_by_the_furthest_point_of_the_opened_boxes():
    expert, rows, weights, tasks = problem(3, m=3000)
    boxes = in_boxes(boxes_module._Grid.around(rows, 0.5), rows, weights, tasks)
    cells, at = boxes.cells, boxes.scaled(expert)
    nearest, furthest = distances(boxes, expert)
    _, error = box_loops.first_round(at, *of(boxes), 50.0, 50.0)
    of_row = cells_of_points(boxes)
    points = boxes.points.points[:3].T + ((boxes_of_cells(boxes) + 0.5) * cells.sides)[of_row]
    kernel = boxes.points.points[3] * np.exp(-0.5 * ((at[:, None] - points) ** 2).sum(axis=2))
    opened = furthest <= 2 * box_loops.LARGEST_EXPONENT
    assert not opened.all()
    furthest = (furthest * opened).max(axis=1)
    for k in range(3):
        own = cells.task == k
        sums = (kernel * (opened & own)[:, of_row]).sum(axis=1)
        rounding = box_loops.EPS * (2 + 0.5 * furthest) * sums
        left_out = 0.5 * (np.exp(-0.5 * nearest) * cells.mass * ~opened)[:, own].sum(axis=1)
        np.testing.assert_allclose(error[:, k], rounding + left_out, rtol=1e-4, atol=1e-300)


def test_the_error_of_nodes_is_their_remainder_and_the_rounding_of_their_weights():
    expert, rows, weights, tasks = problem(2, m=3000)
    boxes = Boxes.of(rows, weights, tasks, 3, 0.4)
    cells, points, at = boxes.cells, boxes.points, boxes.scaled(expert)
    assert 0 < len(points.full) < len(cells.task)
    nearest, furthest = distances(boxes, expert)
    value, error = box_loops.first_round(at, *of(boxes), 50.0, 50.0)
    gap = np.abs(at[:, None] - (boxes_of_cells(boxes) + 0.5) * cells.sides)
    opened = furthest <= 2 * box_loops.LARGEST_EXPONENT
    worst = (furthest * opened).max(axis=1)
    of_nodes = np.zeros(len(cells.task))
    of_nodes[points.full] = points.of_nodes
    nodes, left_out = np.zeros_like(error), np.zeros_like(error)
    for e in range(len(at)):
        for c in range(len(cells.task)):
            k, kernel = cells.task[c], np.exp(-0.5 * nearest[e, c])
            if not opened[e, c]:
                left_out[e, k] += 0.5 * kernel * cells.mass[c]
            elif of_nodes[c]:
                q = [box_loops.remainder(max(g - a, 0.0), a) for g, a in zip(gap[e, c], cells.half, strict=True)]
                rounding = box_loops.EPS * (2 + 0.5 * furthest[e, c]) * of_nodes[c]
                nodes[e, k] += kernel * (cells.mass[c] * (np.prod(1 + np.array(q)) - 1) + rounding)
    rounding = box_loops.EPS * (2 + 0.5 * worst)[:, None] * (value - left_out + nodes)
    np.testing.assert_allclose(error, nodes + left_out + rounding, rtol=1e-4, atol=1e-300)
    assert (nodes > 0.5 * error).any()


def test_boxes_that_are_looked_at_are_in_the_grid():
    for value in (-1e9, -3.0, 0.0, 4.5, 19.9, 20.0, 1e9):
        first, last = box_loops._range(value, 2.0, 10, 7.0)
        middle = np.clip(value, 0.0, 20.0)
        assert 0 <= first <= last <= 9
        assert first == np.clip(np.floor((value - 7.0) / 2.0), 0, 9)
        assert last == np.clip(np.floor((value + 7.0) / 2.0), 0, 9)
        assert first * 2.0 <= middle
    assert box_loops._range(3.0, 0.0, 1, 7.0) == (0, 0)


def edges_of(cells, first, size):
    """The smallest and the largest corner of `size` boxes along each column, which the edge of the grid may cut."""
    return first * cells.sides, np.minimum(first + size, cells.counts) * cells.sides


def test_the_nearest_points_of_the_boxes_of_a_group():
    """By clamping; along each column, of boxes that the edge of the grid may cut off, too."""
    expert, rows, weights, tasks = problem(3)
    cells = Boxes.of(rows, weights, tasks, 3, 0.2).cells
    for at in 5.0 * expert[:8] + 0.5 * cells.sides * cells.counts:
        for corner in (np.zeros(3, int), cells.counts - 1, cells.counts // 2):
            near = np.empty((3, 4))
            box_loops._near_boxes(at, corner, cells, near)
            low = (corner[:, None] + np.arange(4)) * cells.sides[:, None]
            clipped = np.clip(at[:, None], low, low + cells.sides[:, None])
            np.testing.assert_allclose(near, (at[:, None] - clipped) ** 2, rtol=1e-9, atol=1e-9)


def test_the_nearest_points_of_groups():
    expert, rows, weights, tasks = problem(3)
    boxes = Boxes.of(rows, weights, tasks, 3, 0.2)
    groups = boxes.groups
    assert (groups.corner + 4 > boxes.cells.counts).any()
    low, high = edges_of(boxes.cells, groups.corner, 4)
    start, stop = groups.of_task[1], groups.of_task[2]
    for at in 5.0 * expert[:8] + 0.5 * boxes.cells.sides * boxes.cells.counts:
        near = np.full(len(groups.mass), -1.0)
        box_loops._near_groups(at, groups, start, stop, near)
        expected = ((at - np.clip(at, low, high)) ** 2).sum(axis=1)
        np.testing.assert_allclose(near[start:stop], expected[start:stop], rtol=1e-9, atol=1e-9)
        assert (np.delete(near, np.arange(start, stop)) == -1).all()


def test_a_lower_bound_is_below_the_sum_of_a_task_and_as_large_as_a_cell_allows():
    expert, rows, weights, tasks = problem(2, m=2000)
    boxes = Boxes.of(rows, weights, tasks, 3, 0.3)
    cells, groups = boxes.cells, boxes.groups
    _, furthest = distances(boxes, expert)
    exact = double_loop(expert, rows, weights, tasks, 3, 0.3)
    for row, at in enumerate(boxes.scaled(expert)):
        for k in range(3):
            for g in range(groups.of_task[k], groups.of_task[k + 1]):
                own = groups.cells[groups.first[g] : groups.first[g + 1]]
                found = box_loops._lower_bound(at, g, -np.inf, cells, groups)
                assert found == pytest.approx((np.log(cells.mass[own]) - 0.5 * furthest[row, own]).max(), rel=1e-9)
                assert found <= exact[row, k] + 1e-6
                assert box_loops._lower_bound(at, g, 1e9, cells, groups) == 1e9


def test_boxes_that_single_precision_cannot_sum_are_left_to_the_second_round():
    """Sides of 30 bandwidths: exponents up to a thousand."""
    rows = np.concatenate([np.linspace(0, 30, 40), np.linspace(0, 30, 40) + 0.3])[:, None]
    weights, tasks = np.ones(80), np.zeros(80, int)
    grid = boxes_module._Grid(1.0, np.zeros(1), np.array([30.3, 0.0, 0.0]), np.ones(3, int))
    boxes = in_boxes(grid, rows, weights, tasks)
    expert = np.array([[5.0], [40.0]])
    found = boxed_log_sums(expert, boxes, 1e-3)
    np.testing.assert_allclose(found, double_loop(expert, rows, weights, tasks, 1, 1.0), atol=1e-3)


def test_the_exponential_of_single_precision_keeps_its_bound():
    x = -np.concatenate([np.linspace(0, 87, 200_001), np.geomspace(1e-9, 1, 1000)]).astype(np.float32)
    terms = np.empty_like(x)
    zero, one = np.zeros_like(x), np.ones_like(x)
    box_loops._terms(np.sqrt(-2 * x.astype(float)).astype(np.float32), zero, zero, one, 0.0, 0.0, 0.0, terms)
    exponent = 0.5 * np.sqrt(-2 * x.astype(float)).astype(np.float32).astype(float) ** 2
    error = np.abs(terms / np.exp(-exponent) - 1)
    assert (error <= 2.0**-22 * (2 + exponent)).all()
    assert error.max() > 0
    assert box_loops._exp(np.float32(-1e4)) < 1e-37


@pytest.mark.parametrize("a", [0.3, 1.0])
def test_the_remainder_is_that_of_interpolation(a):
    """Its largest derivative is found by trying; f(c + s) on [-a, a] is then interpolated no worse than it says."""
    places = (0.0, 0.4, 1.5, 3.0, 5.0, 8.0)
    far_out = np.concatenate([np.linspace(0, 15, 3001), places, roots_hermitenorm(ORDER + 1)[0]])
    derivative = np.abs(eval_hermitenorm(ORDER, far_out)) * np.exp(-0.5 * far_out**2)
    for t in places:
        bound = box_loops.remainder(t, a) * np.exp(-0.5 * t**2)
        largest = derivative[far_out >= t].max()
        assert bound == pytest.approx(2 * (a / 2) ** ORDER / factorial(ORDER) * largest, rel=1e-9)
        nodes, between = chebyshev_nodes(np.array([a, 0.0, 0.0]))[:, 0], np.linspace(-a, a, 501)
        polynomial = BarycentricInterpolator(nodes, np.exp(-0.5 * (t + a + nodes) ** 2))
        error = np.abs(polynomial(between) - np.exp(-0.5 * (t + a + between) ** 2)).max()
        assert error <= bound + 1e-15


@pytest.mark.parametrize("value", [0.0, 5.0])
@pytest.mark.parametrize(("d", "column"), [(1, 0), (2, 0), (2, 1), (3, 0), (3, 1), (3, 2)])
def test_full_boxes_without_length_along_a_column_are_condensed_too(d, column, value):
    expert, rows, weights, tasks = problem(d)
    rows[:, column] = value
    boxes = Boxes.of(rows, weights, tasks, 3, 2.5)
    assert len(boxes.points.full)
    found = boxed_log_sums(expert, boxes, 2e-4)
    np.testing.assert_allclose(found, double_loop(expert, rows, weights, tasks, 3, 2.5), atol=2e-4)


@pytest.mark.parametrize("share", [0.1, 1e-9])  # of the latter more rows are met than there is room for at once
def test_the_second_round_alone(share):
    """Never above the sum, and below it by half of the share at most."""
    expert, rows, weights, tasks = problem(3, m=9000)
    boxes = Boxes.of(rows, weights, tasks, 3, 0.5)
    assert np.bincount(tasks).min() > box_loops.ROWS_MET
    row, task = (part.ravel() for part in np.indices((len(expert), 3)))
    of_rows = boxes.cells, boxes.groups, boxes.in_all, boxes.rows, boxes.weights, 1 / boxes.h
    unknown = np.full(len(row), -np.inf)
    found = box_loops.second_round(boxes.scaled(expert), expert, row, task, unknown, share, *of_rows)
    error = task_log_sums(expert, rows, weights, tasks, 3, gaussian(3), np.array([0.5]))[row, task] - found
    assert (error > -1e-12).all()
    assert (error < -np.log1p(-share / 2) + 1e-12).all()
    assert (error.max() > 1e-6) == (share == 0.1)  # boxes were left out


def test_rows_far_from_zero_are_summed_as_well():
    """1e14 bandwidths away from it: rows are subtracted before they are divided."""
    expert, rows, weights, tasks = problem(2, m=500)
    rows, expert = np.round(rows * 2**20) / 2**20 + 2.0**27, np.round(expert * 2**20) / 2**20 + 2.0**27
    for h in (0.3, 1e-6):
        found = boxed_log_sums(expert, Boxes.of(rows, weights, tasks, 3, h), 2e-4)
        np.testing.assert_allclose(found, double_loop(expert, rows, weights, tasks, 3, h), rtol=1e-12, atol=2e-4)


@pytest.mark.parametrize(("low", "h"), [(-1e9, 1e-3), (-1e9, 1e-4), (-1e12, 0.1), (1e12, 0.01)])
def test_an_outlier_far_away_costs_no_digits(low, h):
    """It is the corner of the grid from which lengths are taken."""
    rng = np.random.default_rng(0)
    rows, tasks = rng.normal(size=(2000, 1)), np.zeros(2000, int)
    rows[0], expert = low, rng.normal(size=(30, 1))
    found = boxed_log_sums(expert, Boxes.of(rows, np.ones(2000), tasks, 1, h), 2e-4)
    np.testing.assert_allclose(found, double_loop(expert, rows, np.ones(2000), tasks, 1, h), rtol=1e-12, atol=2e-4)


def test_an_expert_row_so_far_away_that_distances_in_a_box_are_lost():
    boxes = Boxes.of(np.ones((1, 1)), np.ones(1), np.zeros(1, int), 1, 0.1)
    np.testing.assert_allclose(boxed_log_sums(np.array([[1e9], [1e12]]), boxes, 1e-3), [[-5e19], [-5e25]], rtol=1e-8)


def test_an_expert_row_whose_squared_distances_overflow_has_sums_of_nothing():
    """As exact sums have, which say that it is out of reach; the row beside it is none the worse."""
    expert, rows, weights, tasks = problem(2, m=500, n=2)
    expected = double_loop(expert, rows, weights, tasks, 3, 0.1)
    expert[0], expected[0] = (1e200, 0.0), -np.inf
    found = boxed_log_sums(expert, Boxes.of(rows, weights, tasks, 3, 0.1), 1e-3)
    np.testing.assert_allclose(found, expected, atol=1e-3)


def test_rows_of_single_precision_have_the_sums_of_the_doubles_that_they_are():
    expert, rows, weights, tasks = problem(2, m=500)
    single = rows.astype(np.float32)
    found = [
        boxed_log_sums(expert, Boxes.of(own, weights, tasks, 3, 0.3), 1e-3) for own in (single, single.astype(float))
    ]
    np.testing.assert_array_equal(*found)


def test_no_expert_rows_have_no_sums():
    boxes = Boxes.of(np.ones((5, 2)), np.ones(5), np.zeros(5, int), 1, 0.1)
    assert boxed_log_sums(np.empty((0, 2)), boxes, 1e-3).shape == (0, 1)


def test_one_row_tasks_of_unequal_size_and_equal_rows():
    rows = np.concatenate([np.zeros((1, 2)), np.ones((500, 2))])
    tasks = np.repeat([0, 1], [1, 500])
    expert = np.array([[0.5, 0.5], [1.0, 1.0]])
    found = boxed_log_sums(expert, Boxes.of(rows, np.ones(501), tasks, 2, 0.3), 1e-3)
    np.testing.assert_allclose(found, double_loop(expert, rows, np.ones(501), tasks, 2, 0.3), atol=1e-3)


@pytest.mark.parametrize("d", [1, 2, 3])
def test_boxes_hold_every_row_once(d):
    _, rows, weights, tasks = problem(d, m=5000)
    boxes = in_boxes(boxes_module._Grid.around(rows, 0.04), rows, weights, tasks)
    cells = boxes.cells
    np.testing.assert_allclose(boxes.in_all, np.bincount(tasks, weights), rtol=2e-7)
    assert (boxes.in_all > np.bincount(tasks, weights)).all()
    of_point, weight = cells_of_points(boxes), boxes.points.points[3]
    np.testing.assert_allclose(cells.mass, np.bincount(of_point, weight), rtol=2e-7)
    np.testing.assert_array_equal(np.sort(cells.order), np.arange(len(rows)))
    np.testing.assert_array_equal(weight[weight > 0], weights[cells.order])
    np.testing.assert_array_equal(np.diff(cells.first_row), np.bincount(of_point, weight > 0))
    np.testing.assert_array_equal(-(-np.diff(cells.first_row) // 4) * 4, np.bincount(of_point))
    assert 4 * boxes.most_fours == np.bincount(cells.place[of_point]).max()
    middle = (boxes_of_cells(boxes) + 0.5) * cells.sides
    back = boxes.origin + 0.04 * (boxes.points.points[:3].T + middle[of_point])[:, :d]
    real = weight > 0
    given, found = (
        np.column_stack([a, b, c])
        for a, b, c in ((rows, tasks, weights), (back[real], cells.task[of_point[real]], weight[real]))
    )
    order = [np.lexsort(np.round(part, 4).T) for part in (given, found)]
    np.testing.assert_allclose(found[order[1]], given[order[0]], atol=1e-5)
    assert (np.abs(boxes.points.points[:3].T) <= cells.half + 1e-6).all()


def test_groups_hold_every_cell_of_their_task_once():
    _, rows, weights, tasks = problem(3, m=20_000)
    boxes = Boxes.of(rows, weights, tasks, 3, 0.05)
    cells, groups = boxes.cells, boxes.groups
    np.testing.assert_array_equal(np.sort(groups.cells), np.arange(len(cells.task)))
    of_cell = np.repeat(np.arange(len(groups.mass)), np.diff(groups.first))
    of_group = np.repeat(np.arange(3), np.diff(groups.of_task))
    np.testing.assert_array_equal(cells.task[groups.cells], of_group[of_cell])
    np.testing.assert_allclose(groups.mass, np.bincount(of_cell, cells.mass[groups.cells]))
    np.testing.assert_array_equal(groups.cell_mass, cells.mass[groups.cells])
    np.testing.assert_array_equal(groups.place, cells.place[groups.cells])
    inside = boxes_of_cells(boxes)[groups.cells] - groups.corner[of_cell]
    assert (inside >= 0).all()
    assert (inside < 4).all()
    corners = np.column_stack([of_group, groups.corner])
    assert len(np.unique(corners, axis=0)) == len(groups.mass) > 3


@pytest.mark.parametrize("d", [1, 2, 3])
def test_boxes_grow_where_rows_are_sparse_so_that_groups_stay_few(d):
    """Hardly two rows would share a group of boxes, and a round over all groups would be longer than an exact sum."""
    _, rows, weights, tasks = problem(d, m=1000)
    boxes = Boxes.of(rows, weights, tasks, 3, 1e-4)
    assert len(boxes.groups.mass) <= len(rows) / boxes_module.ROWS_OF_A_GROUP
    np.testing.assert_allclose(boxes.in_all, np.bincount(tasks, weights), rtol=2e-7)
    near = rows[::100] + 1e-5
    found = boxed_log_sums(near, boxes, 1e-3)
    np.testing.assert_allclose(found, double_loop(near, rows, weights, tasks, 3, 1e-4), rtol=1e-12, atol=1e-3)


@pytest.mark.parametrize("d", [1, 2, 3])
def test_boxes_have_sides_of_two_or_three_bandwidths_unless_they_would_be_too_many(d):
    """Each halving leaves one place in 2^d, or a little more where blocks of four are cut: no coarser than it must."""
    rows = np.stack([np.zeros(d), np.array([400.0, 300.0, 100.0])[:d]])
    fine = np.ceil(rows[1] / boxes_module.SIDES[d - 1])
    np.testing.assert_array_equal(boxes_module._Grid.around(rows, 1.0).counts[:d], fine)
    most = boxes_module.MOST_PLACES
    for wide in (1e3, 1e5):
        counts = boxes_module._Grid.around(wide * rows, 1.0).counts[:d]
        places = 64 * np.prod(np.ceil(counts / 4))
        assert places <= most
        assert (counts == np.ceil(wide * rows[1] / boxes_module.SIDES[d - 1])).all() or 2**d * places > most / 2


@pytest.mark.parametrize("cores", [1, 3, 50])
def test_the_number_of_cores_changes_nothing(cores, monkeypatch):
    for m in (40, 4000):
        expert, rows, weights, tasks = problem(2, m=m)
        boxes = Boxes.of(rows, weights, tasks, 3, 0.5)
        assert bool(len(boxes.points.full)) == (m == 4000)
        with monkeypatch.context() as patch:
            patch.setattr(boxes_module, "cores", lambda: cores)
            patch.setattr(boxed_sums_module, "cores", lambda: cores)
            found = boxed_log_sums(expert, Boxes.of(rows, weights, tasks, 3, 0.5), 1e-3)
        np.testing.assert_allclose(found, boxed_log_sums(expert, boxes, 1e-3), rtol=1e-12)


@pytest.mark.parametrize("d", [1, 2, 3])
def test_nodes_have_the_moments_of_the_rows(d):
    rng = np.random.default_rng(d)
    half = np.array([0.5, 1.0, 0.8])[:d]
    rows, weights = rng.uniform(-half, half, (900, d)), rng.integers(1, 5, 900).astype(float)
    points = np.zeros((4, 900), dtype=np.float32)
    points[:d], points[3] = rows.T, weights
    all_half = np.pad(half, (0, 3 - d))
    found = node_weights(points, np.array([0, 200]), np.array([200, 900]), all_half)
    nodes = chebyshev_nodes(all_half)[:, :d]
    for own, at in ((slice(200), 0), (slice(200, None), 1)):
        for powers in itertools.product([0, 3, ORDER - 1], repeat=d):
            expected = weights[own] @ np.prod(rows[own] ** np.array(powers), axis=1)
            assert found[at] @ np.prod(nodes ** np.array(powers), axis=1) == pytest.approx(expected, abs=1e-4)


@pytest.fixture(params=["processor", "gpu"])
def device(request, monkeypatch):
    """The loops of the Gaussian, or what a GPU does in their place, which XLA compiles for this processor, too."""
    if request.param == "gpu":
        monkeypatch.setattr(kernel_sums, "_looped", lambda *_: False)


@pytest.mark.parametrize("h", [0.2, 0.5, 5.0])
@pytest.mark.usefixtures("device")
def test_single_precision_keeps_its_bound(h):
    expert, rows, weights, tasks = problem(3)
    exact, single = (
        task_log_sums(expert, rows, weights, tasks, 3, gaussian(3), np.array([h]), single=single)
        for single in (False, True)
    )
    error = np.abs(exact - single).max()
    assert 0 < error < SINGLE_ERROR


@pytest.mark.parametrize("logs", [(-80.0, -90.0), (-86.0, -89.0), (-95.0, -96.0)])
@pytest.mark.usefixtures("device")
def test_single_precision_keeps_its_bound_where_terms_vanish(logs):
    """exp is zero below e^-87 in single precision: of one near row and a hundred thousand, or all, nothing is lost."""
    rows = np.sqrt(-2 * np.array(logs))[:, None]
    weights = np.array([1.0, 1e5])
    found = task_log_sums(np.zeros((1, 1)), rows, weights, np.zeros(2, int), 1, gaussian(1), np.ones(1), single=True)
    assert abs(found[0, 0] - np.logaddexp.reduce(logs + np.log(weights))) < SINGLE_ERROR


@pytest.mark.parametrize("sums", [kb.KernelSums(precision="single"), kb.KernelSums(tolerance=0.01)])
def test_the_posterior_says_how_large_the_error_was(sums, tmp_path):
    expert, rows, _, tasks = problem(2, m=3000)
    bank = kb.TaskBank.from_arrays(rows, None, tasks, np.eye(3))
    model = kb.KDBIRL(prior=kb.Uniform(0, 1), bandwidth=(0.1, 0.5), sampler=kb.Grid(draws=50), sums=sums).fit(bank)
    post = model.posterior(kb.Demonstrations(expert), seed=0)
    note = next(note for note in post.settings["notes"] if note.startswith("kernel sums"))
    assert f"within {sums.bound:g}" in note
    assert 0 < float(note.split()[-1]) < sums.bound
    model.save(tmp_path / "model.npz")
    assert kb.load_model(tmp_path / "model.npz").sums == sums


def test_the_error_of_few_expert_rows_is_measured_at_each_of_them():
    """None of up to eight is passed over, wherever the worst one is among them."""
    expert, rows, weights, tasks = problem(2, n=ROWS_PROBED)
    exact = CKDE(rows, weights, tasks, np.eye(3), gaussian(2), as_kernel("gaussian"))
    rough, h = replace(exact, sums=kb.KernelSums(tolerance=0.05)), np.array([0.1])
    tables = [method.task_log_sums(expert, gaussian(2), h, (0, 1)) for method in (rough, exact)]
    error = np.abs(tables[0] - tables[1]).max(axis=1)
    for i in (0, ROWS_PROBED - 2):
        assert rough.realised_error(expert[i:], h) == pytest.approx(error[i:].max(), rel=1e-4)


def test_the_bound_is_the_one_that_is_documented():
    assert kb.KernelSums().bound == 0
    assert kb.KernelSums(precision="single").bound == 1e-5
    assert kb.KernelSums(precision="single", tolerance=0.01).bound == 0.01


@pytest.mark.parametrize("given", [{"precision": "half"}, {"tolerance": 1e-9}, {"tolerance": -1}, {"tolerance": "low"}])
def test_methods_that_do_not_exist_are_refused(given):
    with pytest.raises(InputError, match="should be"):
        kb.KernelSums(**given)
