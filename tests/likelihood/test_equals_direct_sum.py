"""`CKDE.likelihood` is equal to the paper's double sum over rows (Eq. 6), whatever the kernel, distance or layout."""

from dataclasses import replace

import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings

from kdbirl.likelihood.distances import DISTANCES
from kdbirl.likelihood.kernels import PROFILES, Categorical, ProductKernel, UserKernel

from . import direct_sum
from .problems import BOX, GROUPS, Problem, estimator, named, problem, values

RELATIVE = 1e-10  # asked of the library
ABSOLUTE = 1e-12  # log p is a difference of two log sums of size log(m): for wide kernels nothing but rounding is left
WIDE = {"euclidean": 2.5, "manhattan": 3.5, "cosine": 0.9, "dot": 3.0}  # compact kernels reach some rows and not others
GAUSSIAN = named("gaussian", "euclidean")


def agree(actual: np.ndarray, expected: list[float]) -> None:
    """Equal to 1e-10, infinities included."""
    np.testing.assert_allclose(actual, expected, rtol=RELATIVE, atol=ABSOLUTE)


def directly(of: Problem, log_kernel: direct_sum.LogKernel, log_reward_kernel: direct_sum.LogKernel, **options) -> list:
    """The double sum at every reward asked for."""
    return [
        direct_sum.log_likelihood(*of.row_arguments, reward, log_kernel, log_reward_kernel, **options)
        for reward in of.asked
    ]


@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("profile", PROFILES)
def test_every_feature_kernel(profile: str, distance: str) -> None:
    of, h = problem(seed=1), WIDE[distance]
    likelihood = estimator(of, named(profile, distance), GAUSSIAN).likelihood(of.expert, np.array([h]), 0.7, BOX)
    expected = directly(of, direct_sum.radial(profile, distance, h), direct_sum.radial("gaussian", "euclidean", 0.7))
    assert np.isfinite(expected).all()
    agree(values(likelihood, of.asked), expected)


@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("profile", PROFILES)
def test_every_reward_kernel(profile: str, distance: str) -> None:
    of, h_reward = problem(seed=2), WIDE[distance]
    reward_kernel = named(profile, distance)
    likelihood = estimator(of, GAUSSIAN, reward_kernel).likelihood(of.expert, np.array([0.8]), h_reward, BOX, False)
    kernels = direct_sum.radial("gaussian", "euclidean", 0.8), direct_sum.radial(profile, distance, h_reward)
    expected = directly(of, *kernels)
    assert np.isfinite(expected[: len(of.rewards)]).all()  # a task's own reward is always in reach
    agree(values(likelihood, of.asked), expected)


def test_a_reward_out_of_reach_of_every_task_has_likelihood_zero() -> None:
    of = problem(seed=2)
    far = np.array([[50.0, 50.0]])
    likelihood = estimator(of, GAUSSIAN, named("triangular", "euclidean")).likelihood(of.expert, np.ones(1), 1.0, BOX)
    assert values(likelihood, far) == -np.inf


@pytest.mark.parametrize("mismatch", [0.0, 0.2])
def test_product_with_labels(mismatch: float) -> None:
    of = problem(seed=3)
    kernel = ProductKernel(state="laplace", action=Categorical(mismatch))
    likelihood = estimator(of, kernel, GAUSSIAN).likelihood(of.expert, np.array([0.6, 1.0]), 0.5, BOX)
    log_kernel = direct_sum.product(
        [
            (GROUPS["state"], direct_sum.radial("laplace", "euclidean", 0.6)),
            (GROUPS["action"], direct_sum.categorical(mismatch)),
        ]
    )
    agree(values(likelihood, of.asked), directly(of, log_kernel, direct_sum.radial("gaussian", "euclidean", 0.5)))


def test_product_with_a_bandwidth_for_each_column() -> None:
    of = problem(seed=4)
    kernel = ProductKernel(s1="gaussian", s0=named("epanechnikov", "manhattan"), a="laplace")
    likelihood = estimator(of, kernel, GAUSSIAN).likelihood(of.expert, np.array([0.4, 4.0, 0.9]), 0.5, BOX)
    log_kernel = direct_sum.product(
        [
            ([1], direct_sum.radial("gaussian", "euclidean", 0.4)),
            ([0], direct_sum.radial("epanechnikov", "manhattan", 4.0)),
            ([2], direct_sum.radial("laplace", "euclidean", 0.9)),
        ]
    )
    agree(values(likelihood, of.asked), directly(of, log_kernel, direct_sum.radial("gaussian", "euclidean", 0.5)))


def rational(u: jax.Array) -> jax.Array:
    """A user's kernel of the scaled distance."""
    return 1 / (1 + u**2)


def anisotropic(x: jax.Array, y: jax.Array, h: jax.Array) -> jax.Array:
    """A user's kernel of one pair, as a log."""
    return -jnp.sum(jnp.abs(x - y) * jnp.arange(1.0, len(x) + 1)) / h


def chebyshev(x: jax.Array, y: jax.Array) -> jax.Array:
    """A user's distance."""
    return jnp.max(jnp.abs(x - y))


def test_users_kernels_for_features_and_rewards() -> None:
    of = problem(seed=5)
    kernel, reward_kernel = UserKernel(anisotropic, log_space=True), UserKernel(rational)
    likelihood = estimator(of, kernel, reward_kernel).likelihood(of.expert, np.array([0.7]), 0.4, BOX)
    expected = directly(
        of,
        lambda x, y: -float(np.abs(x - y) @ np.arange(1.0, len(x) + 1)) / 0.7,
        lambda x, y: -float(np.log1p((np.linalg.norm(x - y) / 0.4) ** 2)),
    )
    agree(values(likelihood, of.asked), expected)


def test_users_distances_for_features_and_rewards() -> None:
    of = problem(seed=6)
    kernel, reward_kernel = UserKernel(rational, chebyshev), replace(GAUSSIAN, distance=chebyshev)
    likelihood = estimator(of, kernel, reward_kernel).likelihood(of.expert, np.array([0.7]), 0.4, BOX)
    expected = directly(
        of,
        lambda x, y: -float(np.log1p((np.abs(x - y).max() / 0.7) ** 2)),
        lambda x, y: -float((np.abs(x - y).max() / 0.4) ** 2 / 2),
    )
    agree(values(likelihood, of.asked), expected)


def test_equal_task_weights() -> None:
    of = problem(seed=7)
    likelihood = estimator(of, GAUSSIAN, GAUSSIAN, task_weights="equal").likelihood(of.expert, np.ones(1), 0.5, BOX)
    weights = -np.log(np.bincount(of.tasks))[of.tasks]
    kernels = direct_sum.radial("gaussian", "euclidean", 1.0), direct_sum.radial("gaussian", "euclidean", 0.5)
    agree(values(likelihood, of.asked), directly(of, *kernels, log_row_weights=weights))
    assert not np.allclose(values(likelihood, of.asked), directly(of, *kernels))


@pytest.mark.parametrize("task_weights", ["rows", "equal"])
@pytest.mark.parametrize("split", [True, False])
def test_density_of_the_action_given_the_state(split: bool, task_weights: str) -> None:
    of = problem(seed=8)
    kernel = ProductKernel(action=Categorical(0.3), state="laplace") if split else named("laplace", "euclidean")
    h = np.array([1.0, 0.6]) if split else np.array([0.6])
    options = {"conditional": "action", "task_weights": task_weights, "state_columns": GROUPS["state"]}
    likelihood = estimator(of, kernel, GAUSSIAN, **options).likelihood(of.expert, h, 0.5, BOX)
    state = (GROUPS["state"], direct_sum.radial("laplace", "euclidean", 0.6))
    whole = (range(3), direct_sum.radial("laplace", "euclidean", 0.6))
    weights = -np.log(np.bincount(of.tasks))[of.tasks] if task_weights == "equal" else None
    expected = directly(
        of,
        direct_sum.product([state, (GROUPS["action"], direct_sum.categorical(0.3))] if split else [whole]),
        direct_sum.radial("gaussian", "euclidean", 0.5),
        log_state_kernel=direct_sum.product([state]),
        log_row_weights=weights,
    )
    agree(values(likelihood, of.asked), expected)


lattice = st.tuples(*[st.sampled_from([-1.0, 0.0, 0.5])] * 3)


@settings(max_examples=40)
@given(data=st.data(), profile=st.sampled_from(["gaussian", "laplace"]))
def test_any_bank_with_repeated_rows(data: st.DataObject, profile: str) -> None:
    """Rows on a coarse lattice, repeated at will, that coincide between tasks and with the expert's."""
    per_task = [data.draw(st.lists(lattice, min_size=3, max_size=3, unique=True)) for _ in range(3)]
    repeats = data.draw(st.lists(st.integers(1, 4), min_size=9, max_size=9))
    rows = np.repeat(np.concatenate(per_task), repeats, axis=0)
    tasks = np.repeat(np.arange(9) // 3, repeats)
    expert = np.array(data.draw(st.lists(lattice, min_size=6, max_size=6)))
    generator = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    of = Problem(rows, tasks, generator.normal(size=(3, 2)), expert, generator.normal(size=(7, 2))).shuffled(seed=0)
    h, h_reward = (10 ** data.draw(st.floats(-1, 1)) for _ in range(2))
    kernel = named(profile, "euclidean")
    likelihood = estimator(of, kernel, kernel).likelihood(expert, np.array([h]), h_reward, BOX)
    kernels = direct_sum.radial(profile, "euclidean", h), direct_sum.radial(profile, "euclidean", h_reward)
    agree(values(likelihood, of.asked), directly(of, *kernels))
