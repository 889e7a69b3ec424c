"""The ways around underflow and cancellation are really taken, and right: compared with 60 decimal digits."""

from decimal import Decimal, localcontext
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kdbirl.errors import InputError
from kdbirl.likelihood import ckde as ckde_module
from kdbirl.likelihood import sums as kernel_sums
from kdbirl.likelihood.ckde import CKDE, TaskMixture
from kdbirl.likelihood.kernels import PairKernel, UserKernel, on_columns
from kdbirl.likelihood.sums import task_log_sums

from . import direct_sum
from .problems import named, values

BOX = (np.full(2, -1.0), np.full(2, 1.0))
REWARDS = np.array([[0.0, 0.0], [1.0, 0.0], [0.2, -1.0]])
TASKS = np.repeat(np.arange(3), 4)


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The ways (`_loop_sums`, `_plain`, `_scaled`) that were taken, in order."""
    ways: list[str] = []
    for name in ("_loop_sums", "_plain", "_scaled"):

        def spy(original, name, *arguments):
            ways.append(name)
            return original(*arguments)

        monkeypatch.setattr(kernel_sums, name, partial(spy, getattr(kernel_sums, name), name))
    return ways


@pytest.fixture(params=["processor", "gpu"])
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The loops of the Gaussian, or what a GPU does in their place, which XLA compiles for this processor, too."""
    if request.param == "gpu":
        monkeypatch.setattr(kernel_sums, "_looped", lambda *_: False)
    return request.param


def both(
    profile: str, rows: np.ndarray, expert: np.ndarray, h: float, h_reward: float
) -> tuple[np.ndarray, list[float]]:
    """log p(expert | R) at five rewards by the library, and in 60 digits."""
    kernel = named(profile, "euclidean")
    ckde = CKDE.from_rows(rows, TASKS, REWARDS, on_columns(kernel, ("x", "y"), {}), kernel)
    asked = np.concatenate([REWARDS, [[0.5, 0.4], [-0.9, 0.9]]])
    likelihood = ckde.likelihood(expert, np.array([h]), h_reward, BOX)
    expected = [direct_sum.exactly(expert, rows, TASKS, REWARDS, reward, profile, h, h_reward) for reward in asked]
    return values(likelihood, asked), expected


def rows_around(centre: float, spread: float) -> np.ndarray:
    """Twelve rows."""
    return centre + spread * np.random.default_rng(0).normal(size=(12, 2))


def test_near_rows_need_no_scaling(taken: list[str], device: str) -> None:
    actual, expected = both("gaussian", rows_around(0, 1), rows_around(0.5, 1)[:3], 0.5, 0.4)
    assert taken == {"processor": ["_loop_sums"], "gpu": ["_plain"]}[device]
    np.testing.assert_allclose(actual, expected, rtol=1e-12)


SCALED = {"processor": ["_loop_sums"], "gpu": ["_plain", "_scaled"]}


def test_far_rows_underflow_and_are_scaled(taken: list[str], device: str) -> None:
    """Expert rows 50 h and more away: exp(-1250) is zero, its log is not."""
    rows, expert = rows_around(0, 0.01), np.array([[0.0, 0.0], [3.0, 4.0], [-6.0, 2.0]])
    actual, expected = both("gaussian", rows, expert, 0.1, 0.4)
    assert taken == SCALED[device]
    np.testing.assert_allclose(actual, expected, rtol=1e-12)


def test_one_task_underflows_while_another_does_not(taken: list[str], device: str) -> None:
    """The sum of a task out of reach is scaled too: it may matter for rewards near that task's."""
    rows = rows_around(0, 0.05)
    rows[TASKS == 2] += 4.5
    actual, expected = both("gaussian", rows, np.array([[0.0, 0.1]]), 0.1, 0.05)
    assert taken == SCALED[device]
    np.testing.assert_allclose(actual, expected, rtol=1e-12)


def test_sums_of_which_some_terms_underflow_are_scaled_too(taken: list[str], device: str) -> None:
    """One term of e^-707 in each task, and three of e^-709 that XLA takes for zero: the sum is positive, and wrong."""
    distances = np.sqrt(2 * np.where(np.arange(12) % 4 == 0, 707.0, 709.0))
    rows = np.column_stack([distances, np.zeros(12)])
    actual, expected = both("gaussian", rows, np.zeros((1, 2)), 1.0, 0.4)
    assert taken == SCALED[device]
    np.testing.assert_allclose(actual, expected, rtol=1e-13)


def test_plain_sums_of_other_kernels_underflow_and_are_scaled(taken: list[str]) -> None:
    actual, expected = both("laplace", rows_around(0, 0.1), np.array([[900.0, 0.0], [0.0, 0.5]]), 1.0, 0.4)
    assert taken == ["_plain", "_scaled"]
    np.testing.assert_allclose(actual, expected, rtol=1e-12)


def test_differences_are_those_of_the_rows_as_they_are(device: str) -> None:
    """Rows 1e6 apart, with close neighbours at both ends: expanding would lose every digit of |x - y|^2 / h^2.

    Nor may rows be centred: 1 - 5e5 rounds to 6e-11, a part in 1e6 of the bandwidth.
    """
    ends = np.where(np.arange(12) % 2 == 0, 1.0, 1e6)[:, None]
    rows = ends + 1e-4 * np.random.default_rng(1).normal(size=(12, 2))
    expert = np.array([[1.0001, 1.0], [1e6, 1e6 + 1e-4]])
    actual, expected = both("gaussian", rows, expert, 1e-4, 0.4)
    np.testing.assert_allclose(actual, expected, rtol=1e-12)


@pytest.mark.parametrize("whose", ["expert", "rows"])
@pytest.mark.parametrize("where", [(1e3, 0.0), (0.0, -1e3)], ids=str)
def test_one_row_far_from_all_others(device: str, whose: str, where: tuple[float, float]) -> None:
    rows, expert = rows_around(0, 1), rows_around(0.5, 1)[:3]
    {"expert": expert, "rows": rows}[whose][1] = where
    actual, expected = both("gaussian", rows, expert, 1.0, 0.4)
    np.testing.assert_allclose(actual, expected, rtol=1e-12)


def test_a_large_offset_alone_does_no_harm(device: str) -> None:
    actual, expected = both("gaussian", rows_around(1e6, 0.1), rows_around(1e6, 0.1)[:3] + 0.05, 0.05, 0.4)
    np.testing.assert_allclose(actual, expected, rtol=1e-11)


@pytest.mark.parametrize("distances", [(3000, 40, 0), (30, 20, 10), (0, 40, 3000), (8, 9, 9)], ids=str)
@pytest.mark.parametrize("of_each", [1, 700])  # rows: all in one block of the loops, or in several
def test_sums_are_scaled_whichever_row_comes_first(distances: tuple[float, ...], of_each: int) -> None:
    """The first row's kernel may be e^-4500000 of the others', or the other way round."""
    rows = np.repeat(np.asarray(distances, dtype=float), of_each)[:, None]
    found = task_log_sums(
        np.zeros((1, 1)), rows, np.ones(len(rows)), np.zeros(len(rows), int), 1, gaussian_of(1), np.ones(1)
    )
    expected = np.logaddexp.reduce([-(distance**2) / 2 for distance in distances]) + np.log(of_each)
    np.testing.assert_allclose(found[0, 0], expected, rtol=1e-13)


@pytest.mark.parametrize("scale", [1e-290, 1e-160, 1e160, 1e290])
def test_any_unit_of_measurement(scale: float) -> None:
    """Rows and bandwidth in units so small or so large that squares are no numbers."""
    expert, rows = rows_around(0.5, 1)[:3], rows_around(0, 1)
    given = np.ones(12), TASKS, 3, gaussian_of(2)
    expected = task_log_sums(expert, rows, *given, np.array([0.5]))
    found = task_log_sums(scale * expert, scale * rows, *given, np.array([scale * 0.5]))
    np.testing.assert_allclose(found, expected, rtol=1e-13)


def test_rows_beyond_the_range_of_the_loops(taken: list[str]) -> None:
    """In bandwidths they are so far apart that a square is no number: XLA does these, and equal rows are 1."""
    rows = np.array([[0.0], [1.0], [1.0]])
    found = task_log_sums(rows[:2], rows, np.ones(3), np.arange(3) // 2, 2, gaussian_of(1), np.array([1e-200]))
    assert "_loop_sums" not in taken
    np.testing.assert_array_equal(found, [[0.0, -np.inf], [0.0, 0.0]])


@pytest.mark.parametrize("whose", ["expert", "rows"])
def test_a_value_that_is_no_number_is_refused(whose: str) -> None:
    given = {"expert": rows_around(0.5, 1)[:3], "rows": rows_around(0, 1)}
    given[whose][1, 0] = np.nan
    with pytest.raises(InputError, match="gives NaN"):
        task_log_sums(given["expert"], given["rows"], np.ones(12), TASKS, 3, gaussian_of(2), np.array([0.5]))


def gaussian_of(columns: int) -> PairKernel:
    return on_columns(named("gaussian", "euclidean"), [f"x{i}" for i in range(columns)], {})


def test_a_users_kernel_that_overflows_is_scaled(taken: list[str]) -> None:
    def exponential_of_dot(x: jax.Array, y: jax.Array, h: jax.Array) -> jax.Array:
        return jnp.sum(x * y) / h**2

    kernel = on_columns(UserKernel(exponential_of_dot, log_space=True), ("x", "y"), {})
    rows, expert = rows_around(30, 1), np.array([[40.0, 1.0]])
    table = task_log_sums(expert, rows, np.ones(12), TASKS, 3, kernel, np.ones(1))
    expected = [direct_sum.log_sum(list(rows[4 * k : 4 * k + 4] @ expert[0])) for k in range(3)]
    assert taken == ["_plain", "_scaled"]
    np.testing.assert_allclose(table[0], expected, rtol=1e-13)


def test_the_matrix_form_is_refused_where_it_would_underflow() -> None:
    """A row that only task 0 explains, asked about a reward near task 1's: exp(-1800) times 1 + 1 times exp(-1250)."""
    rows = np.zeros((12, 2))
    rows[TASKS == 1] = 6.0
    rows[TASKS == 2] = -6.0
    expert, kernel = np.zeros((1, 2)), named("gaussian", "euclidean")
    ckde = CKDE.from_rows(rows, TASKS, REWARDS, on_columns(kernel, ("x", "y"), {}), kernel)
    reward = np.array([[1.0, 0.0]])
    safe = ckde.likelihood(expert, np.array([0.1]), 0.02, BOX)
    forced = ckde.likelihood(expert, np.array([0.1]), 0.02, BOX, matrix_form=True)
    expected = direct_sum.exactly(expert, rows, TASKS, REWARDS, reward[0], "gaussian", 0.1, 0.02)
    assert not safe.numerator.matrix_form
    np.testing.assert_allclose(values(safe, reward), expected, rtol=1e-13)
    assert values(forced, reward) == -np.inf  # what the refusal protects from


@pytest.mark.parametrize(("h", "h_reward"), [(0.1, 5.0), (5.0, 0.02)])
def test_the_matrix_form_is_taken_where_either_range_is_small(h: float, h_reward: float) -> None:
    rows = np.zeros((12, 2))
    rows[TASKS == 1] = 6.0
    expert, kernel = np.zeros((1, 2)), named("gaussian", "euclidean")
    ckde = CKDE.from_rows(rows, TASKS, REWARDS, on_columns(kernel, ("x", "y"), {}), kernel)
    likelihood = ckde.likelihood(expert, np.array([h]), h_reward, BOX)
    expected = [direct_sum.exactly(expert, rows, TASKS, REWARDS, r, "gaussian", h, h_reward) for r in REWARDS]
    assert likelihood.numerator.matrix_form
    np.testing.assert_allclose(values(likelihood, REWARDS), expected, rtol=1e-10, atol=1e-13)


def test_the_matrix_form_is_taken_where_rows_are_far_from_all_tasks_alike() -> None:
    """One expert row has sums of about 1, another of e^-2500: what matters is how much the tasks of each differ."""
    expert, kernel = np.array([[0.0, 0.0], [5.0, 5.0]]), named("gaussian", "euclidean")
    rows = np.where(TASKS[:, None] == 1, 0.05, 0.0) * np.ones(2)
    ckde = CKDE.from_rows(rows, TASKS, REWARDS, on_columns(kernel, ("x", "y"), {}), kernel)
    likelihood = ckde.likelihood(expert, np.array([0.1]), 0.02, BOX)
    expected = [direct_sum.exactly(expert, rows, TASKS, REWARDS, r, "gaussian", 0.1, 0.02) for r in REWARDS]
    assert likelihood.numerator.matrix_form
    np.testing.assert_allclose(values(likelihood, REWARDS), expected, rtol=1e-10)


@pytest.mark.parametrize("b", [-640.0, -700.0, -705.0, -712.0, -740.0, -800.0])
def test_the_matrix_form_at_the_edge_of_its_range(b: float) -> None:
    """A table that spans just less than the limit: what XLA flushes to zero (from e^-708 down) must not matter."""
    edge = -(ckde_module.LARGEST_SAFE_RANGE - 1.0)
    with jax.enable_x64(True):
        actual = float(TaskMixture.from_logs(np.array([[0.0, edge]]), True)(jnp.array([b, 0.0]))[0])
    with localcontext() as context:
        context.prec = 60
        expected = float(direct_sum.exact_log_sum([Decimal(b), Decimal(edge)]))
    assert abs(actual - expected) < 1e-12


@pytest.mark.parametrize("form", [True, False])
@pytest.mark.parametrize("b", [-5000.0, -600.0, 0.0, 600.0])
def test_a_mixture_at_rewards_far_from_all_tasks_alike(form: bool, b: float) -> None:
    """exp(b) itself is zero or nearly infinite; only how much the tasks differ matters."""
    with jax.enable_x64(True):
        actual = TaskMixture.from_logs(np.array([[0.0, -3.0], [-7.0, 2.0]]), form)(jnp.array([b, b - 1.0]))
    np.testing.assert_allclose(actual, b + np.log([1 + np.exp(-4.0), np.exp(-7.0) + np.exp(1.0)]), rtol=1e-14)
