"""How the sums are laid out changes nothing: order, collapsing, tiles, blocks, forms, compilation."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kdbirl.errors import FileProblem
from kdbirl.likelihood import large_sums as cluster_rows
from kdbirl.likelihood import sums as kernel_sums
from kdbirl.likelihood.ckde import CKDE, TaskMixture
from kdbirl.likelihood.kernels import on_columns
from kdbirl.likelihood.large_sums import MissingRows, RowsInMemory
from kdbirl.likelihood.sums import (
    collapse_by_task,
    distinct_rows,
    padded_size,
    rounded_up,
    task_log_sums,
    tile_width,
    tiled,
)

from .problems import BOX, estimator, named, problem, values

ROUNDING = 1e-13  # sums of a few hundred positive terms in another order
GAUSSIAN, LAPLACE = named("gaussian", "euclidean"), named("laplace", "euclidean")
H = np.array([0.7])


def bank(m: int = 150, n: int = 21) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Expert rows, training rows, weights and sorted tasks; most rows in task 0, two in task 2, none in task 3."""
    generator = np.random.default_rng(0)
    rows, expert = generator.normal(size=(m, 2)), generator.normal(size=(n, 2))
    tasks = np.repeat([0, 1, 2], [m - 42, 40, 2])
    return expert, rows, generator.integers(1, 6, size=m).astype(float), tasks


def table_directly(profile: str) -> np.ndarray:
    """S (n, 4) of the bank without tiles: log of a plain sum."""
    expert, rows, weights, tasks = bank()
    distances = np.linalg.norm(expert[:, None] - rows[None], axis=2) / H[0]
    terms = weights * np.exp(-(distances**2) / 2 if profile == "gaussian" else -distances)
    with np.errstate(divide="ignore"):
        return np.log(np.stack([terms[:, tasks == k].sum(axis=1) for k in range(4)], axis=1))


@pytest.mark.parametrize(
    ("profile", "sizes"),
    [
        ("gaussian", {}),
        ("laplace", {}),
        ("gaussian", {"TILE": 1, "EXPERT_BLOCK": 8}),
        ("laplace", {"TILE": 4, "PAIRS_PER_STEP": 200}),
        ("gaussian", {"TILE": 2, "PAIRS_PER_STEP": 1, "ROWS_PER_CALL": 64}),
        ("laplace", {"ROWS_PER_CALL": 37, "EXPERT_BLOCK": 16}),
        ("gaussian", {"ROWS_PER_CALL": 7, "EXPERT_BLOCK": 16}),
        ("laplace", {"ROWS_PER_CALL": 149, "EXPERT_BLOCK": 20}),
    ],
    ids=str,
)
def test_any_block_size(profile: str, sizes: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in sizes.items():
        monkeypatch.setattr(kernel_sums, name, value)
    kernel = on_columns(named(profile, "euclidean"), ("x", "y"), {})
    table = task_log_sums(*bank(), 4, kernel, H)
    np.testing.assert_allclose(table, table_directly(profile), rtol=0, atol=100 * ROUNDING)
    assert (table[:, 3] == -np.inf).all()


def test_tables_of_parts_merge_with_logaddexp() -> None:
    expert, rows, weights, tasks = bank()
    kernel = on_columns(LAPLACE, ("x", "y"), {})
    odd = np.arange(len(rows)) % 2 == 1
    halves = [task_log_sums(expert, rows[part], weights[part], tasks[part], 4, kernel, H) for part in (odd, ~odd)]
    whole = task_log_sums(expert, rows, weights, tasks, 4, kernel, H)
    np.testing.assert_allclose(np.logaddexp(*halves), whole, rtol=0, atol=100 * ROUNDING)


class Recorder:
    """Steps that were reported."""

    def __init__(self) -> None:
        self.steps: list[tuple[int, int]] = []

    def update(self, name: str, done: int, total: int, note: str = "") -> None:
        self.steps.append((done, total))

    def close(self) -> None: ...


def test_progress_is_reported_to_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_sums, "EXPERT_BLOCK", 8)
    recorder = Recorder()
    task_log_sums(*bank(), 4, on_columns(LAPLACE, ("x", "y"), {}), H, recorder)
    assert recorder.steps == [(150 * 8, 150 * 21), (150 * 16, 150 * 21), (150 * 21, 150 * 21)]


def test_progress_is_reported_to_the_end_where_rows_need_several_calls(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kernel_sums, "ROWS_PER_CALL", 64)
    recorder = Recorder()
    task_log_sums(*bank(), 4, on_columns(LAPLACE, ("x", "y"), {}), H, recorder)
    assert recorder.steps == [(64 * 21, 150 * 21), (128 * 21, 150 * 21), (150 * 21, 150 * 21)]


@pytest.mark.parametrize("repeats", [1, 20])  # 20 times as many rows a task: the other way of copying them
def test_tiles_hold_every_row_once_and_pad_with_weight_zero(repeats: int) -> None:
    _, rows, weights, tasks = bank()
    rows, weights, tasks = (np.repeat(array, repeats, axis=0) for array in (rows, weights, tasks))
    tiles = tiled(rows, weights, tasks, width=16, n=21)
    assert tiles.rows.shape[2:] == (16, 2)
    real = tiles.log_weights > -np.inf
    np.testing.assert_array_equal(tiles.rows[real], rows)
    np.testing.assert_allclose(np.exp(tiles.log_weights[real]), weights, rtol=1e-15)
    per_tile = real.reshape(-1, 16)[: len(tiles.tasks)]
    np.testing.assert_array_equal(np.repeat(tiles.tasks, 16).reshape(-1, 16)[per_tile], tasks)
    assert not real.reshape(-1, 16)[len(tiles.tasks) :].any()


@pytest.mark.parametrize(("m", "n"), [(150, 21), (20_000, 512), (20_000, 8)])
def test_a_step_of_the_scan_is_no_larger_than_it_may_be_and_few_tiles_are_padding(m: int, n: int) -> None:
    _, rows, weights, tasks = bank(m)
    tiles = tiled(rows, weights, tasks, width=16, n=n)
    steps, group = tiles.rows.shape[:2]
    assert group * 16 * n <= kernel_sums.PAIRS_PER_STEP
    assert len(tiles.tasks) <= steps * group <= (len(tiles.tasks) + group) * (1 + 2**-5)
    assert steps == 1 or 2 * group * 16 * n > kernel_sums.PAIRS_PER_STEP  # and no smaller than it need be


def test_padding_wastes_little() -> None:
    sizes = [padded_size(n) for n in range(1, 2000)]
    assert all(n <= size <= max(8, 1.5 * n) for n, size in enumerate(sizes, start=1))
    assert len(set(sizes)) < 20  # few sizes, so that few programs are compiled
    assert all(padded_size(size) == size for size in sizes)
    for bits in (4, 6):
        rounded = [rounded_up(n, bits) for n in range(1, 2000)]
        assert all(n <= size <= n * (1 + 2 ** (1 - bits)) for n, size in enumerate(rounded, start=1))
        assert len(set(rounded)) <= 11 * 2**bits  # of eleven powers of two, each in at most so many steps
    assert tile_width(10_000_000, 5) == kernel_sums.TILE
    assert tile_width(3, 3) == 1
    assert all(8 * tile_width(100 * k, k) <= 100 for k in (1, 7, 1000))


def test_pieces_of_rows_in_memory_hold_every_row_once_and_merge(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a cluster's workers get: pieces of 7 of 152 rows, the last one shorter."""
    expert, rows, weights, tasks = bank(m=152)
    kernel = on_columns(GAUSSIAN, ["x", "y"], {})
    held = RowsInMemory(rows, weights, tasks, 4)
    monkeypatch.setattr(cluster_rows, "PIECE_BYTES", 7 * 8 * (held.rows.shape[1] + 2))
    pieces = [held.part(i) for i in range(held.n_pieces)]
    assert [len(piece.rows) for piece in pieces[:-1]] == [7] * (held.n_pieces - 1)
    np.testing.assert_array_equal(np.concatenate([piece.rows for piece in pieces]), held.rows)
    np.testing.assert_array_equal(sum(piece.rows_per_task for piece in pieces), held.rows_per_task)
    parts = [held.piece_log_sums(i, expert, kernel, H, (0, 1)) for i in range(held.n_pieces)]
    expected = task_log_sums(expert, rows, weights, tasks, 4, kernel, H)
    np.testing.assert_allclose(np.logaddexp.reduce(parts), expected, rtol=1e-12)


def test_pieces_of_rows_in_memory_are_some_megabytes() -> None:
    """Small enough to be sent to a worker and held there, large enough to be worth it."""
    for columns in (1, 20):
        piece = RowsInMemory(np.zeros((1, columns)), np.ones(1), np.zeros(1, int), 1).size * (columns + 2) * 8
        assert 2**20 <= piece <= 2**25


@pytest.mark.parametrize("kernel", [GAUSSIAN, LAPLACE], ids=lambda kernel: kernel.profile)
def test_the_order_of_rows_does_not_matter(kernel) -> None:
    of = problem()
    first = values(estimator(of, kernel, kernel).likelihood(of.expert, H, 0.5, BOX), of.asked)
    for seed in range(3):
        expert = of.expert[np.random.default_rng(seed).permutation(len(of.expert))]
        again = estimator(of.shuffled(seed), kernel, kernel).likelihood(expert, H, 0.5, BOX)
        np.testing.assert_allclose(values(again, of.asked), first, rtol=100 * ROUNDING)


def test_weights_are_repetition() -> None:
    """A bank of which every row is there three times, and an expert that says everything twice."""
    of = problem()
    thrice = replace(of, rows=np.tile(of.rows, (3, 1)), tasks=np.tile(of.tasks, 3))
    once = estimator(of, GAUSSIAN, GAUSSIAN)
    again = estimator(thrice, GAUSSIAN, GAUSSIAN)
    np.testing.assert_array_equal(again.rows, once.rows)
    np.testing.assert_array_equal(again.weights, 3 * once.weights)
    np.testing.assert_array_equal(again.rows_per_task, 3 * np.bincount(of.tasks))
    expected = 2 * values(once.likelihood(of.expert, H, 0.5, BOX), of.asked)
    actual = values(again.likelihood(np.tile(of.expert, (2, 1)), H, 0.5, BOX), of.asked)
    np.testing.assert_allclose(actual, expected, rtol=100 * ROUNDING)


def test_uncollapsed_rows_give_the_same() -> None:
    of = problem()
    order = np.argsort(of.tasks, kind="stable")
    kernel = on_columns(LAPLACE, ("a", "b", "c"), {})
    full = CKDE(of.rows[order], np.ones(len(order)), of.tasks[order], of.rewards, kernel, LAPLACE)
    collapsed = estimator(of, LAPLACE, LAPLACE)
    assert len(collapsed.rows) < len(full.rows)
    both = [values(ckde.likelihood(of.expert, H, 0.5, BOX), of.asked) for ckde in (full, collapsed)]
    np.testing.assert_allclose(both[0], both[1], rtol=100 * ROUNDING)


@pytest.mark.parametrize("order", ["C", "F"])
def test_collapsing_takes_rows_as_rows(order: str) -> None:
    """As many rows as columns, in either memory layout: nothing must be transposed."""
    rows = np.array([[1.0, 2.0, 3.0], [1.0, 2.0, 3.0], [7.0, 8.0, -0.0]], order=order)
    distinct, weights, tasks = collapse_by_task(rows, np.array([1, 1, 0]))
    np.testing.assert_array_equal(distinct, [[7.0, 8.0, 0.0], [1.0, 2.0, 3.0]])
    np.testing.assert_array_equal(weights, [1.0, 2.0])
    np.testing.assert_array_equal(tasks, [0, 1])


def test_zeros_have_no_sign() -> None:
    """Not even for a user's kernel that divides by them, and whichever of equal rows comes first."""
    rows = np.array([[-0.0, 1.0], [0.0, 1.0], [-0.0, -0.0]])
    for found in (collapse_by_task(rows, np.zeros(3, int))[0], distinct_rows(rows)[0]):
        assert len(found) == 2
        assert not np.signbit(found).any()


def test_rows_known_to_repeat_need_not_be_written_out() -> None:
    """Each row once, with an index, is the same as every row written out; equal rows under two numbers are one."""
    of = problem()
    rows = np.concatenate([of.rows, of.rows[:2]])
    index = np.random.default_rng(0).integers(0, len(rows), size=60)
    tasks = np.arange(60) % 3
    short, full = collapse_by_task(rows, tasks, index), collapse_by_task(rows[index], tasks)

    def as_dict(collapsed: tuple) -> dict:
        return {(int(task), *row): weight for row, weight, task in zip(*collapsed, strict=True)}

    assert as_dict(short) == as_dict(full)
    assert len(as_dict(full)) == len(full[0])
    assert (np.diff(short[2]) >= 0).all()
    kernel = on_columns(LAPLACE, ("a", "b", "c"), {})
    ckde = CKDE.from_rows(rows, tasks, of.rewards, kernel, LAPLACE, index=index)
    np.testing.assert_array_equal(ckde.rows_per_task, [20, 20, 20])


def test_equal_rows_of_two_tasks_are_kept_apart() -> None:
    distinct, weights, tasks = collapse_by_task(np.zeros((5, 2)), np.array([2, 0, 2, 0, 2]))
    np.testing.assert_array_equal(distinct, np.zeros((2, 2)))
    np.testing.assert_array_equal(weights, [2.0, 3.0])
    np.testing.assert_array_equal(tasks, [0, 2])


def test_distinct_rows_can_be_put_back() -> None:
    rows = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, -0.0], [1.0, 1e-300]])
    values_, index, counts = distinct_rows(rows)
    np.testing.assert_array_equal(values_[index], rows)
    assert len(values_) == 3
    assert counts.sum() == 4
    assert counts[index[0]] == 2  # minus zero is zero


@pytest.mark.parametrize("profile", ["gaussian", "laplace", "epanechnikov"])
def test_matrix_form_equals_log_sum_exp_form(profile: str) -> None:
    of, kernel = problem(), named(profile, "euclidean")
    ckde = estimator(of, kernel, kernel)
    forms = [ckde.likelihood(of.expert, np.array([3.0]), 1.5, BOX, matrix_form=form) for form in (True, False)]
    assert [likelihood.numerator.matrix_form for likelihood in forms] == [True, False]
    first, second = (values(likelihood, of.asked) for likelihood in forms)
    np.testing.assert_allclose(first, second, rtol=1e-12)


@pytest.mark.parametrize("matrix_form", [True, False])
def test_compiled_equals_not_compiled(matrix_form: bool) -> None:
    of = problem()
    likelihood = estimator(of, LAPLACE, GAUSSIAN).likelihood(of.expert, H, 0.5, BOX, matrix_form=matrix_form)
    with jax.enable_x64(True), jax.disable_jit():
        plain = [float(likelihood(jnp.asarray(reward))) for reward in of.asked[2:4]]
    np.testing.assert_allclose(values(likelihood, of.asked)[2:4], plain, rtol=100 * ROUNDING)


def test_kernel_sums_without_compilation() -> None:
    of = problem()
    kernel = on_columns(LAPLACE, ("a", "b", "c"), {})
    arguments = of.expert, *collapse_by_task(of.rows, of.tasks), len(of.rewards), kernel, H
    with jax.disable_jit():
        plain = task_log_sums(*arguments)
    np.testing.assert_allclose(task_log_sums(*arguments), plain, rtol=100 * ROUNDING)


def test_the_sum_over_rows_of_the_pointwise_density() -> None:
    """Padding rows count for nothing, and the counts are those of the expert's distinct rows."""
    of = problem()
    likelihood = estimator(of, GAUSSIAN, GAUSSIAN).likelihood(of.expert, H, 0.5, BOX)
    distinct, index, _ = distinct_rows(of.expert)
    with jax.enable_x64(True):
        pointwise = np.asarray(jax.jit(type(likelihood).pointwise)(likelihood, jnp.asarray(of.asked[0])))
    assert len(pointwise) == padded_size(len(distinct))
    assert float(np.asarray(likelihood.counts).sum()) == len(of.expert)
    np.testing.assert_allclose(pointwise[index].sum(), values(likelihood, of.asked[:1])[0], rtol=1e-13)


def test_a_mixture_out_of_reach_is_minus_infinity_with_gradient_zero() -> None:
    with jax.enable_x64(True):
        for form in (True, False):
            mixture = TaskMixture.from_logs(np.array([[0.0, -3.0]]), form)
            value, gradient = jax.jit(jax.value_and_grad(lambda b, mixture=mixture: mixture(b)[0]))(np.full(2, -np.inf))
            assert value == -np.inf
            assert np.isfinite(gradient).all()


def test_searches_over_bandwidths_do_not_ask_for_all_rows() -> None:
    """Of a bank that is too large for memory they see the rows that are held, which need not be all."""
    of = problem()
    held = estimator(of, GAUSSIAN, GAUSSIAN)
    large = replace(held, all_rows=MissingRows(np.array([70, 20, 40]), "they are gone"))
    np.testing.assert_array_equal(large.rows_per_task, [70, 20, 40])
    with pytest.raises(FileProblem, match="they are gone"):
        large.likelihood(of.expert, H, 0.5, BOX)
    np.testing.assert_array_equal(large.in_memory.rows_per_task, held.rows_per_task)
    found, expected = (values(ckde.likelihood(of.expert, H, 0.5, BOX), of.asked) for ckde in (large.in_memory, held))
    np.testing.assert_array_equal(found, expected)
    assert held.in_memory is held
