"""What the likelihood can see of the reward: its informed directions, and the range of the reward kernel."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from kdbirl.likelihood.ckde import CKDE, log_reward_kernel, reward_kernel_range
from kdbirl.likelihood.kernels import UserKernel, on_columns

from . import direct_sum
from .problems import named, values

GAUSSIAN = named("gaussian", "euclidean")


def with_rewards(rewards: np.ndarray, reward_kernel=GAUSSIAN) -> CKDE:
    """Two rows for each task, unlike those of the other tasks."""
    rows = np.random.default_rng(0).normal(size=(2 * len(rewards), 2))
    tasks = np.repeat(np.arange(len(rewards)), 2)
    return CKDE.from_rows(rows, tasks, rewards, on_columns(GAUSSIAN, ("x", "y"), {}), reward_kernel)


def low_rank(rank: int, q: int, n_tasks: int, offset: float = 0.0) -> np.ndarray:
    """Rewards (K, q) that span `rank` directions around a common point."""
    generator = np.random.default_rng(rank + 10 * q)
    return offset + generator.normal(size=q) + generator.normal(size=(n_tasks, rank)) @ generator.normal(size=(rank, q))


@pytest.mark.parametrize("offset", [0.0, 1000.0])
@pytest.mark.parametrize("rank", [0, 1, 2, 3, 4])
def test_the_rank_of_the_rewards(rank: int, offset: float) -> None:
    directions = with_rewards(low_rank(rank, q=4, n_tasks=7, offset=offset)).informed_directions()
    assert directions is not None
    assert directions.shape == (rank, 4)
    np.testing.assert_allclose(directions @ directions.T, np.eye(rank), atol=1e-14)


def test_few_tasks_inform_one_direction_less_than_there_are() -> None:
    for n_tasks in (1, 2, 3):
        directions = with_rewards(np.random.default_rng(0).normal(size=(n_tasks, 5))).informed_directions()
        assert directions is not None
        assert len(directions) == n_tasks - 1


def test_collinear_and_equal_rewards() -> None:
    line = np.array([0.1, 0.7]) + np.arange(5)[:, None] * np.array([[0.3, -0.1]])
    along = with_rewards(line).informed_directions()
    np.testing.assert_allclose(np.abs(along), np.abs([[0.3, -0.1]]) / np.hypot(0.3, 0.1), rtol=1e-12)
    for equal in (np.full((3, 2), 0.1), np.zeros((3, 2)), np.full((3, 2), 1e-300)):
        directions = with_rewards(equal).informed_directions()
        assert directions is not None
        assert directions.shape == (0, 2)


@pytest.mark.parametrize("size", [1e-8, 1.0, 1e8])
def test_the_rank_does_not_depend_on_the_unit(size: float) -> None:
    directions = with_rewards(size * low_rank(2, q=4, n_tasks=7)).informed_directions()
    assert directions is not None
    assert len(directions) == 2


@pytest.mark.parametrize(
    "kernel", [named("laplace", "euclidean"), named("gaussian", "manhattan"), UserKernel(lambda u: 1 / (1 + u))]
)
def test_other_kernels_make_no_such_claim(kernel) -> None:
    assert with_rewards(np.eye(3), kernel).informed_directions() is None


@pytest.mark.parametrize("matrix_form", [True, False])
def test_the_likelihood_is_constant_along_the_complement(matrix_form: bool) -> None:
    ckde = with_rewards(low_rank(2, q=4, n_tasks=7))
    informed = ckde.informed_directions()
    assert informed is not None
    complement = np.linalg.svd(informed)[2][2:]
    box = (np.full(4, -50.0), np.full(4, 50.0))
    likelihood = ckde.likelihood(ckde.rows[:4] + 0.1, np.ones(1), 0.8, box, matrix_form=matrix_form)
    steps = np.random.default_rng(1).normal(size=(6, 2)) * np.array([[0], [1], [1], [10], [10], [30]])
    at = ckde.task_rewards[0]
    along = values(likelihood, at + steps @ complement)
    # b is of size |R|^2 / 2h'^2, up to 1e3 here: 1e-13 of it is left by rounding
    np.testing.assert_allclose(along, along[0], rtol=0, atol=1e-9)
    across = values(likelihood, at + steps @ informed)
    assert np.ptp(across) > 0.1


boxes = st.tuples(st.floats(-5, 5), st.floats(0.01, 10))
kernels = st.tuples(st.sampled_from(["gaussian", "laplace"]), st.sampled_from(["euclidean", "manhattan", "cosine"]))


@settings(max_examples=80)
@given(kernel=kernels, first=boxes, second=boxes, h=st.floats(0.05, 5), seed=st.integers(0, 2**31))
def test_the_range_is_an_upper_bound(kernel, first, second, h: float, seed: int) -> None:
    """At corners of the box and inside, for tasks inside and outside of it."""
    generator = np.random.default_rng(seed)
    low = np.array([first[0], second[0]])
    high = low + np.array([first[1], second[1]])
    tasks = generator.normal(scale=generator.choice([0.1, 1, 5]), size=(4, 2))
    inside = generator.uniform(size=(20, 2))
    inside[:10] = np.round(inside[:10])
    log_kernel = direct_sum.radial(*kernel, h)
    b = np.array([[log_kernel(reward, task) for task in tasks] for reward in low + inside * (high - low)])
    bound = reward_kernel_range(named(*kernel), tasks, h, (low, high))
    assert np.ptp(b, axis=1).max() <= bound * (1 + 1e-12) + 1e-12


def test_the_range_is_not_idle() -> None:
    """Within a factor of the truth where the truth is known: two tasks at two corners of the box."""
    tasks = np.array([[0.0, 0.0], [1.0, 1.0]])
    bound = reward_kernel_range(GAUSSIAN, tasks, 0.1, (np.zeros(2), np.ones(2)))
    assert 100.0 <= bound <= 200.0  # at a corner: d^2 / 2h^2 = 100


def test_the_range_of_an_unbounded_prior() -> None:
    """Infinite, unless all tasks agree in the parameters that are unbounded."""
    box = (np.array([-np.inf, 0.0]), np.array([np.inf, 1.0]))
    assert reward_kernel_range(GAUSSIAN, np.array([[0.0, 0.0], [1.0, 1.0]]), 0.5, box) == np.inf
    assert reward_kernel_range(GAUSSIAN, np.array([[2.0, 0.0], [2.0, 1.0]]), 0.5, box) == pytest.approx(4.0)
    assert reward_kernel_range(named("laplace", "euclidean"), np.eye(2), 0.5, box) == np.inf


@pytest.mark.parametrize(
    "kernel", [named("epanechnikov", "euclidean"), named("gaussian", "dot"), UserKernel(lambda u: 1 / (1 + u))]
)
def test_no_bound_is_claimed_where_none_is_known(kernel) -> None:
    assert reward_kernel_range(kernel, np.eye(2), 0.5, (np.zeros(2), np.ones(2))) == np.inf


def test_reward_kernels_for_many_bandwidths_at_once() -> None:
    generator = np.random.default_rng(0)
    rewards, tasks, h = generator.normal(size=(3, 2)), generator.normal(size=(4, 2)), np.array([0.3, 1.0, 5.0])
    table = log_reward_kernel(named("laplace", "manhattan"), rewards, tasks, h)
    expected = [[[direct_sum.radial("laplace", "manhattan", w)(r, t) for t in tasks] for r in rewards] for w in h]
    np.testing.assert_allclose(table, expected, rtol=1e-14)
