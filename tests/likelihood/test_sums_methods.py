"""Sums in single precision and within a tolerance keep their bounds."""

import itertools
from math import factorial

import numpy as np
import pytest
from scipy.interpolate import BarycentricInterpolator
from scipy.special import eval_hermitenorm, roots_hermitenorm

import kdbirl as kb
from kdbirl.errors import InputError
from kdbirl.likelihood.boxed_sums import _Block, _remainder, boxed_log_sums
from kdbirl.likelihood.boxes import FILL, ORDER, Boxes, chebyshev_nodes, node_weights
from kdbirl.likelihood.kernel_sums import SINGLE_ERROR, task_log_sums
from kdbirl.likelihood.kernels import as_kernel, on_columns


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
    found, far = boxed_log_sums(expert, Boxes.of(rows, weights, tasks, 3, h), tolerance)
    error = np.abs(found - double_loop(expert, rows, weights, tasks, 3, h))[~far].max(initial=0.0)
    assert error <= tolerance
    assert h <= 0.1 or not far.any()


def test_far_expert_rows_are_found_and_summed_exactly():
    expert, rows, weights, tasks = problem(2, far=30.0)
    _, far = boxed_log_sums(expert, Boxes.of(rows, weights, tasks, 3, 0.05), 1e-3)
    assert far.all()
    bank = kb.TaskBank.from_arrays(rows, None, tasks, np.eye(3))
    given = {"prior": kb.Uniform(0, 1), "features": kb.Identity(), "bandwidth": (0.05, 0.5)}
    values = [
        kb.KDBIRL(**given, sums=sums).fit(bank).log_likelihood(kb.Demonstrations(expert), np.full(3, 0.5))
        for sums in (kb.KernelSums(), kb.KernelSums(tolerance=1e-3))
    ]
    assert values[0] == values[1]


def test_rows_some_bandwidths_away_from_condensed_boxes_are_summed_within_the_tolerance():
    """No box is opened for them at first; later rounds know how well nodes stand for rows, and accept their sums."""
    _, rows, weights, tasks = problem(1)
    boxes = Boxes.of(rows, weights, tasks, 3, 30.0)
    assert boxes.of_nodes.any()
    expert = rows.max() + 30.0 * np.linspace(5.5, 9.0, 8)[:, None]
    found, far = boxed_log_sums(expert, boxes, 1e-3)
    assert not far.any()
    np.testing.assert_allclose(found, double_loop(expert, rows, weights, tasks, 3, 30.0), atol=1e-3)


@pytest.mark.parametrize("size", [1e-3, 1.0, 1e3])
def test_heavy_boxes_that_the_first_round_does_not_look_at_are_not_forgotten(size):
    """Six boxes just beyond its reach of 7 together outweigh the row at the expert's own place; none does alone."""
    gap, beside = 2.0 - 1e-3, [8.0 - 1e-3, 9.01, 10.0 + 1e-3]
    heavy = [[gap, y] for y in beside] + [[x, gap] for x in beside]
    places = np.array([[0.0, 0.0], [20.0, 20.0], [9.01, 9.01], *heavy])
    rows, weights = np.repeat(places, 12, axis=0), size * np.repeat([1.0, 1.0, 1.0, *[7e9] * 6], 12)
    tasks, expert = np.zeros(len(rows), int), places[2:3]
    found, far = boxed_log_sums(expert, Boxes.of(rows, weights, tasks, 1, 1.0), 0.1)
    assert not far.any()
    np.testing.assert_allclose(found, double_loop(expert, rows, weights, tasks, 1, 1.0), atol=0.1)


def test_heavy_boxes_that_a_later_round_does_not_look_at_are_not_forgotten():
    """A box within the second round's reach of 10, and ten million rows in one just beyond it."""
    rows = np.repeat([[8.6], [10.11], [11.6]], [8, 7, 1], axis=0)
    weights, tasks = np.repeat([1.0, 1.5e6, 1.0], [8, 7, 1]), np.zeros(16, int)
    boxes, expert = Boxes.of(rows, weights, tasks, 1, 1.0), np.zeros((1, 1))
    assert len(boxes.mass) == 2
    found, far = boxed_log_sums(expert, boxes, 0.1)
    assert not far.any()
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
    assert boxes.of_nodes.all()
    assert np.count_nonzero(boxes.weights) <= ORDER**d
    expert = rng.uniform(-2, 2, (20, d))
    found, far = boxed_log_sums(expert, boxes, 0.01)
    assert not far.any()
    np.testing.assert_allclose(found, double_loop(expert, rows, weights, tasks, 1, 2.0), atol=0.01)


@pytest.mark.parametrize(("d", "condensed"), [(2, True), (3, False)])
def test_a_tolerance_that_single_precision_may_not_keep_is_not_claimed(d, condensed):
    """Each term may be wrong by 2^-19 (2 + exponent) of itself, 4e-6 at least, of rows as of nodes."""
    expert, rows, weights, tasks = problem(d, m=1000)
    boxes = Boxes.of(rows, weights, tasks, 3, 30.0)
    assert boxes.of_nodes.any() == condensed
    assert boxed_log_sums(expert, boxes, 3e-6)[1].all()
    assert not boxed_log_sums(expert, boxes, 3e-5)[1].any()


@pytest.mark.parametrize(("reach", "offset"), [(1.0, 0.0), (5.0, 20.0), (12.0, -20.0)])
def test_boxes_near_a_row_are_those_within_reach(reach, offset):
    """Found column by column of the grid, or among all boxes; and the exponents of a box are bounded by its corners."""
    expert, rows, weights, tasks = problem(2)
    boxes = Boxes.of(rows + offset, weights, tasks, 3, 0.1)
    block = _Block((expert + offset) / 0.1, boxes, boxes.on_device)
    gaps = np.abs(block.expert[:, None] - boxes.centre[None])
    nearest = (np.maximum(gaps - boxes.half, 0.0) ** 2).sum(axis=2)
    for own in (np.arange(len(expert)), np.array([3, 17])):
        found = block.near(own, reach)
        row, box = np.nonzero(nearest[own] <= reach**2)
        np.testing.assert_array_equal(np.lexsort((found.box, found.row)), np.arange(len(found.row)))
        np.testing.assert_array_equal(found.row, own[row])
        np.testing.assert_array_equal(found.box, box)
        np.testing.assert_allclose(found.nearest, nearest[own][row, box], atol=1e-9)
    corners = np.array(list(itertools.product([-1, 1], repeat=2))) * boxes.half
    away = block.expert[found.row] - boxes.centre[found.box]
    exponents = np.abs(away @ corners.T - 0.5 * (corners**2).sum(axis=1)).max(axis=1)
    np.testing.assert_allclose(block._exponent(found.row, found.box), exponents)
    np.testing.assert_allclose(block._furthest(found), ((away[:, None] - corners) ** 2).sum(axis=2).max(axis=1))


@pytest.mark.parametrize("a", [0.3, 1.0])
def test_the_remainder_is_that_of_interpolation(a):
    """Its largest derivative is found by trying; f(c + s) on [-a, a] is then interpolated no worse than it says."""
    places = (0.0, 0.4, 1.5, 3.0, 5.0, 8.0)
    far_out = np.concatenate([np.linspace(0, 15, 3001), places, roots_hermitenorm(ORDER + 1)[0]])
    derivative = np.abs(eval_hermitenorm(ORDER, far_out)) * np.exp(-0.5 * far_out**2)
    for t in places:
        bound = _remainder(np.array(t), a) * np.exp(-0.5 * t**2)
        largest = derivative[far_out >= t].max()
        assert bound == pytest.approx(2 * (a / 2) ** ORDER / factorial(ORDER) * largest, rel=1e-9)
        nodes, between = chebyshev_nodes(np.array([a]))[:, 0], np.linspace(-a, a, 501)
        polynomial = BarycentricInterpolator(nodes, np.exp(-0.5 * (t + a + nodes) ** 2))
        error = np.abs(polynomial(between) - np.exp(-0.5 * (t + a + between) ** 2)).max()
        assert error <= bound + 1e-15


def test_one_row_tasks_of_unequal_size_and_equal_rows():
    rows = np.concatenate([np.zeros((1, 2)), np.ones((500, 2))])
    tasks = np.repeat([0, 1], [1, 500])
    expert = np.array([[0.5, 0.5], [1.0, 1.0]])
    found, far = boxed_log_sums(expert, Boxes.of(rows, np.ones(501), tasks, 2, 0.3), 1e-3)
    assert not far.any()
    np.testing.assert_allclose(found, double_loop(expert, rows, np.ones(501), tasks, 2, 0.3), atol=1e-3)


def test_boxes_hold_every_row_once():
    _, rows, weights, tasks = problem(3, m=5000)
    boxes = Boxes.of(rows, weights, tasks, 3, 0.4)
    kept = boxes.weights > 0
    assert kept.sum() == len(rows)
    np.testing.assert_allclose(boxes.mass.sum(axis=0), np.bincount(tasks, weights))
    box = np.repeat(np.arange(boxes.mass.size) // 3, np.diff(boxes.starts))
    points = np.swapaxes(boxes.points[:, :3], 1, 2)
    back = 0.4 * (points + boxes.centre[box][:, None])[kept]
    np.testing.assert_allclose(np.sort(back, axis=0), np.sort(rows, axis=0), atol=1e-5)
    assert (np.abs(points) <= boxes.half + 1e-6).all()


@pytest.mark.parametrize("d", [1, 2, 3])
def test_boxes_grow_where_rows_are_sparse_so_that_padding_stays_bounded(d):
    """Hardly two rows would share a box of two bandwidths, and each box is padded to a block of 32 points."""
    _, rows, weights, tasks = problem(d, m=1000)
    boxes = Boxes.of(rows, weights, tasks, 3, 1e-4)
    assert boxes.weights.size <= FILL * len(rows)
    np.testing.assert_allclose(boxes.mass.sum(axis=0), np.bincount(tasks, weights))


@pytest.mark.parametrize("d", [1, 2, 3])
def test_nodes_have_the_moments_of_the_rows(d):
    rng = np.random.default_rng(d)
    rows, weights = rng.uniform(-1, 1, (900, d)), rng.integers(1, 5, 900).astype(float)
    found = node_weights(rows, weights, np.array([200, 700]))
    nodes = chebyshev_nodes(np.ones(d))
    for own, at in ((slice(200), 0), (slice(200, None), 1)):
        for powers in itertools.product([0, 3, ORDER - 1], repeat=d):
            expected = weights[own] @ np.prod(rows[own] ** np.array(powers), axis=1)
            assert found[at] @ np.prod(nodes ** np.array(powers), axis=1) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("h", [0.2, 0.5, 5.0])
def test_single_precision_keeps_its_bound(h):
    expert, rows, weights, tasks = problem(3)
    exact, single = (
        task_log_sums(expert, rows, weights, tasks, 3, gaussian(3), np.array([h]), single=single)
        for single in (False, True)
    )
    error = np.abs(exact - single).max()
    assert 0 < error < SINGLE_ERROR


@pytest.mark.parametrize("logs", [(-80.0, -90.0), (-86.0, -89.0), (-95.0, -96.0)])
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


def test_the_bound_is_the_one_that_is_documented():
    assert kb.KernelSums().bound == 0
    assert kb.KernelSums(precision="single").bound == 1e-5
    assert kb.KernelSums(precision="single", tolerance=0.01).bound == 0.01


@pytest.mark.parametrize("given", [{"precision": "half"}, {"tolerance": 1e-9}, {"tolerance": -1}, {"tolerance": "low"}])
def test_methods_that_do_not_exist_are_refused(given):
    with pytest.raises(InputError, match="should be"):
        kb.KernelSums(**given)
