"""Support against direct sums, and each finding made to appear and to go away."""

import json

import jax.numpy as jnp
import numpy as np
import pytest

from kdbirl.likelihood.ckde import CKDE
from kdbirl.likelihood.kernels import Categorical, ProductKernel, RadialKernel, as_kernel, on_columns
from kdbirl.trust.support import FEWEST_ROWS, Support, assess_support, squared, training_densities, unseen_labels

NAMES = ("x", "y")


def bank(rows_per_task: tuple[int, ...] = (60, 60, 60), kernel: object = "gaussian", seed: int = 0) -> CKDE:
    rng = np.random.default_rng(seed)
    tasks = np.repeat(np.arange(len(rows_per_task)), rows_per_task)
    rows = rng.normal(size=(len(tasks), 2))
    pair = on_columns(as_kernel(kernel), NAMES, {"left": (0,), "right": (1,)})
    return CKDE.from_rows(rows, tasks, np.eye(len(rows_per_task)), pair, RadialKernel())


def assessed(ckde: CKDE, expert: np.ndarray, h: float = 0.4, **choices: object) -> Support:
    widths = np.full(len(ckde.kernel.parts), h)
    names = tuple(f"task {k}" for k in range(ckde.n_tasks))
    return assess_support(ckde, np.asarray(expert, dtype=float), widths, NAMES, names, **choices)


def direct_kernels(kernel: str, expert: np.ndarray, rows: np.ndarray, h: float) -> np.ndarray:
    u = np.linalg.norm(expert[:, None] - rows, axis=2) / h
    return {"gaussian": np.exp(-(u**2) / 2), "laplace": np.exp(-u), "epanechnikov": np.maximum(1 - u**2, 0)}[kernel]


@pytest.mark.parametrize(("kernel", "h"), [("gaussian", 0.9), ("laplace", 0.9), ("epanechnikov", 3.0)])
def test_effective_rows_equal_the_direct_sums_with_repeated_rows_counted(kernel, h):
    rng = np.random.default_rng(1)
    few = np.repeat(rng.normal(size=(20, 2)), rng.integers(1, 6, 20), axis=0)  # repeated rows are collapsed
    tasks = np.sort(rng.integers(0, 3, len(few)))
    ckde = CKDE.from_rows(few, tasks, np.eye(3), on_columns(as_kernel(kernel), NAMES, {}), RadialKernel())
    assert len(ckde.rows) < len(few)
    expert = np.concatenate([few[:3], few[:3], rng.normal(size=(10, 2))])
    table = direct_kernels(kernel, expert, few, h)
    found = assessed(ckde, expert, h)
    np.testing.assert_allclose(found.effective_rows, table.sum(axis=1) ** 2 / (table**2).sum(axis=1), rtol=1e-10)
    others = [np.log(direct_kernels(kernel, few[[j]], few[tasks != tasks[j]], h).mean()) for j in range(len(few))]
    assert set(np.round(training_densities(ckde, np.array([h]), 0), 9)) <= set(np.round(others, 9))
    middle = np.median(training_densities(ckde, np.array([h]), 0))
    np.testing.assert_allclose(found.relative_density, np.log(table.mean(axis=1)) - middle, rtol=1e-9)


def test_a_squared_kernel_is_the_square():
    product = on_columns(ProductKernel(left="laplace", right=Categorical(0.2)), NAMES, {"left": (0,), "right": (1,)})
    for kernel in (product, on_columns(as_kernel("gaussian"), NAMES, {})):
        h = np.full(len(kernel.parts), 0.7)
        twice, widths = squared(kernel, h)
        for x, y in jnp.asarray(np.random.default_rng(2).normal(size=(5, 2, 2))):  # in single precision here
            expected = 2 * float(kernel.log(x, y, jnp.asarray(h)))
            assert float(twice.log(x, y, jnp.asarray(widths))) == pytest.approx(expected, rel=1e-5)


def test_rows_like_the_training_rows_are_inside():
    expert = np.random.default_rng(3).normal(size=(60, 2)).clip(-1.5, 1.5)
    found = assessed(bank(), expert)
    assert found.share_outside == 0
    assert found.sentence.startswith("All 60 expert rows lie within what the training tasks show")
    assert (found.effective_rows > FEWEST_ROWS).all()
    assert found.describe() == [found.sentence]


def test_a_far_row_is_outside_at_any_distance_and_is_named():
    for far in (6.0, 60.0, 6e4):
        found = assessed(bank(), [[0, 0], [far, 0], [0.2, 0.1], [0.3, 0.3]])
        assert found.outside.tolist() == [False, True, False, False]
        assert found.effective_rows[1] < 2
        assert "1 of 4 expert rows (25%) lie outside what the training tasks show: row 2;" in found.sentence
    lines = found.describe()
    assert any("effective training rows behind them: 1." in line for line in lines)


def test_a_far_row_with_many_equal_rows_behind_it_is_outside_by_its_density():
    """All training rows of one place: their kernels are equal, so every one of them counts behind a far row."""
    rows = np.repeat([[0.0, 0], [0.1, 0], [0, 0.1]], 30, axis=0)
    tasks = np.tile([0, 1, 2], 30)
    order = np.argsort(tasks, kind="stable")
    kernel = on_columns(as_kernel("gaussian"), NAMES, {})
    ckde = CKDE.from_rows(rows[order], tasks[order], np.eye(3), kernel, RadialKernel())
    found = assessed(ckde, [[0.0, 0], [8.0, 8.0]], h=2.0)
    assert found.effective_rows[1] > 50
    assert not found.few.any()
    assert found.unusual.tolist() == found.outside.tolist() == [False, True]
    assert any("a lower density than nearly every training row: 1." in line for line in found.describe())


def test_nothing_within_reach_of_a_compact_kernel():
    found = assessed(bank(kernel="epanechnikov"), [[0, 0], [50.0, 0]], h=1.0)
    assert found.effective_rows[1] == 0
    assert found.outside.tolist() == [False, True]
    assert json.loads(json.dumps(found.to_dict(), allow_nan=False))["relative_density"][1] is None


def test_units_change_nothing():
    ckde, expert = bank(), np.random.default_rng(4).normal(size=(30, 2)) * 2
    kernel = on_columns(as_kernel("gaussian"), NAMES, {})
    larger = CKDE.from_rows(ckde.rows * 1e3, ckde.tasks, ckde.task_rewards, kernel, RadialKernel())
    plain, scaled = assessed(ckde, expert), assessed(larger, expert * 1e3, h=400.0)
    assert 0 < plain.share_outside < 1
    np.testing.assert_array_equal(plain.outside, scaled.outside)
    np.testing.assert_allclose(plain.effective_rows, scaled.effective_rows, rtol=1e-8)


def test_small_tasks_and_imbalance():
    expert = np.zeros((20, 2))
    assert assessed(bank((30, 40, 50)), expert).small_tasks == ()
    found = assessed(bank((4, 400, 30)), expert)
    assert found.small_tasks == ("task 0",)
    assert found.imbalance == 100
    lines = " ".join(found.describe())
    assert "Tasks with fewer than 10 rows, too few to tell a task by: task 0." in lines
    assert 'task_weights="equal" stops it' in lines
    assert "times the rows" not in " ".join(assessed(bank((30, 40, 50)), expert).describe())
    assert assessed(bank((30, 400)), np.zeros((200, 2))).small_tasks == ()  # a long expert makes no task small


def test_a_row_that_training_shows_seldom_is_thin_and_not_outside():
    """Three twins of the expert's row, among training rows with three twins each: rare, but where tasks have been."""
    cells = np.arange(40.0)
    rows = np.repeat(np.stack([cells, cells], axis=1), 3, axis=0)
    tasks = np.tile([0, 1, 2], 40)
    order = np.argsort(tasks, kind="stable")
    kernel = on_columns(as_kernel("gaussian"), NAMES, {})
    ckde = CKDE.from_rows(rows[order], tasks[order], np.eye(3), kernel, RadialKernel())
    found = assess_support(ckde, np.array([[7.0, 7.0], [7.5, 700.0]]), np.array([0.05]), NAMES, ("a", "b", "c"))
    assert found.outside.tolist() == [False, True]
    assert found.thin.tolist() == [True, False]


def test_labels_that_no_training_task_shows():
    names = ("x", "a=up", "a=<other>")
    rows = np.array([[0.0, 1, 0], [0, 0, 1], [1, 1, 0]])
    assert unseen_labels(rows, names).tolist() == [False, True, False]
    assert unseen_labels(rows, ("x", "y", "z")).tolist() == [False] * 3


def test_the_seed_decides_the_sample_and_nothing_else():
    ckde = bank((3000, 3000))
    h = np.array([0.4])
    first, again, other = (training_densities(ckde, h, seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert len(first) == 2000
    assert not np.array_equal(first, other)
    assert np.median(first) == pytest.approx(np.median(other), abs=0.1)
