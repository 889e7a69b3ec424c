"""Bandwidths from 1e-4 to 1e4 and distances up to 1e6: a number or a clear sentence, never NaN; and gradients."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kdbirl.errors import InputError
from kdbirl.likelihood.ckde import CKDE, CKDELikelihood
from kdbirl.likelihood.distances import DISTANCES
from kdbirl.likelihood.kernels import COMPACT, PROFILES, Categorical, ProductKernel

from . import direct_sum
from .problems import BOX, estimator, named, problem, values, values_and_gradients

GAUSSIAN = named("gaussian", "euclidean")


def likelihood_or_sentence(
    ckde: CKDE, expert: np.ndarray, h: float, box: tuple, form: bool | None
) -> CKDELikelihood | str:
    """With h for both bandwidths."""
    try:
        return ckde.likelihood(expert, np.array([h]), h, box, matrix_form=form)
    except InputError as refused:
        return str(refused)


@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("profile", PROFILES)
def test_never_nan(profile: str, distance: str) -> None:
    """Nine combinations of units and bandwidth; the values are those of the direct sum, the gradients finite."""
    kernel, numbers = named(profile, distance), 0
    form = None if distance == "euclidean" else False  # both forms for one distance: compiling is most of the time
    for size in (1e-2, 1.0, 2e5):  # rows are about 5 apart before they are scaled
        of = problem(seed=11).scaled(size)
        ckde = estimator(of, kernel, kernel)
        for h in (1e-4, 1.0, 1e4):
            likelihood = likelihood_or_sentence(ckde, of.expert, h, tuple(size * side for side in BOX), form)
            if isinstance(likelihood, str):
                assert profile in COMPACT
                assert "within reach of expert row" in likelihood
                continue
            value, gradient = values_and_gradients(likelihood, of.asked)
            log_kernel = direct_sum.radial(profile, distance, h)
            expected = [direct_sum.log_likelihood(*of.row_arguments, r, log_kernel, log_kernel) for r in of.asked]
            # 1 - cos and 1 - x.y are known to 1e-16 of their terms, of which u = d/h makes up to 1e4 times as much
            np.testing.assert_allclose(value, expected, rtol=1e-10, atol=1e-10)
            assert np.isfinite(gradient).all()
            assert profile in COMPACT or np.isfinite(value).all()
            numbers += np.isfinite(value).sum()
    assert numbers > 0  # the sentence is not the answer to everything


def test_the_most_extreme_numbers_asked_for() -> None:
    """Distances of 1e6 at a bandwidth of 1e-4: log K is -5e19, and still the direct sum's."""
    of = problem(seed=12).scaled(1e6)
    likelihood = estimator(of, GAUSSIAN, GAUSSIAN).likelihood(of.expert, np.array([1e-4]), 1e-4, BOX)
    log_kernel = direct_sum.radial("gaussian", "euclidean", 1e-4)
    expected = [direct_sum.log_likelihood(*of.row_arguments, r, log_kernel, log_kernel) for r in of.asked]
    assert min(expected) < -1e19
    np.testing.assert_allclose(values(likelihood, of.asked), expected, rtol=1e-10)


@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("profile", sorted(PROFILES.keys() - {"uniform"}))
def test_gradients_are_those_of_the_direct_sum(profile: str, distance: str) -> None:
    """Central differences at rewards away from kinks; with steps of 1e-5 they are right to about 1e-9."""
    of, h_reward, step = problem(seed=13), 4.0, 1e-5
    likelihood = estimator(of, GAUSSIAN, named(profile, distance)).likelihood(of.expert, np.ones(1), h_reward, BOX)
    kernels = direct_sum.radial("gaussian", "euclidean", 1.0), direct_sum.radial(profile, distance, h_reward)
    at = of.asked[3:6]
    _, gradient = values_and_gradients(likelihood, of.asked)
    for reward, actual in zip(at, gradient[3:6], strict=True):
        for p, side in enumerate(np.eye(2) * step):
            sides = (reward + side, reward - side)
            high, low = (direct_sum.log_likelihood(*of.row_arguments, r, *kernels) for r in sides)
            assert actual[p] == pytest.approx((high - low) / (2 * step), rel=1e-6, abs=1e-8)
    assert np.abs(gradient[3:6]).max() > 1e-3


@pytest.mark.parametrize("distance", DISTANCES)
def test_kernels_have_finite_gradients_everywhere(distance: str) -> None:
    """At coinciding points, at zero vectors, at the edge and beyond the reach of the kernel."""
    x = np.array([[1.0, 2.0], [0.0, 0.0], [0.0, 0.0], [3.0, 0.0], [1e6, 0.0], [0.6, 0.8], [1e-200, 0.0]])
    y = np.array([[1.0, 2.0], [0.0, 0.0], [1.0, 1.0], [2.0, 0.0], [-1e6, 0.0], [0.6, 0.8], [1e-200, 0.0]])

    @jax.jit
    def gradients(x: jax.Array, y: jax.Array, h: jax.Array) -> list[tuple[jax.Array, jax.Array]]:
        kernels = [named(profile, distance) for profile in PROFILES]
        return [jax.vmap(jax.grad(kernel.log, argnums=(0, 1)), (0, 0, None))(x, y, h) for kernel in kernels]

    with jax.enable_x64(True):
        for h in (1e-4, 1.0):
            assert all(np.isfinite(side).all() for of_kernel in gradients(x, y, jnp.asarray(h)) for side in of_kernel)


def test_out_of_reach_names_every_such_row_of_the_expert() -> None:
    of = problem(seed=14)
    expert = np.concatenate([of.rows[:1], [[50.0, 0, 0]], of.rows[2:3], [[50.0, 0, 0]], [[-9.0, 0, 0]]])
    ckde = estimator(of, named("epanechnikov", "euclidean"), GAUSSIAN)
    with pytest.raises(InputError, match=r"expert row 2, 4, 5 \(3 in all\).*h = 0\.5\. Use a wider h"):
        ckde.likelihood(expert, np.array([0.5]), 1.0, BOX)
    assert np.isfinite(values(ckde.likelihood(expert, np.array([90.0]), 1.0, BOX), of.asked)).all()
    for count, shown in ((5, r"1, 2, 3, 4, 5 \(5"), (6, r"1, 2, 3, 4, 5, \.\.\. \(6")):
        with pytest.raises(InputError, match=rf"expert row {shown} in all\)"):
            ckde.likelihood(np.repeat(expert[1:2], count, axis=0), np.array([0.5]), 1.0, BOX)


def test_out_of_reach_of_a_kernel_without_an_edge_is_another_matter() -> None:
    of = problem(seed=14)
    with pytest.raises(InputError, match=r"expert row 1 .* This kernel has no edge: these rows have numbers beyond"):
        estimator(of, GAUSSIAN, GAUSSIAN).likelihood(np.array([[1e300, 0, 0]]), np.array([0.5]), 1.0, BOX)


def test_a_label_that_no_task_has_is_out_of_reach_only_without_mismatch() -> None:
    of = problem(seed=15)
    expert = of.expert.copy()
    expert[4, 2] = 7.0
    build = partial(ProductKernel, state="gaussian")
    for mismatch in (0.0, 0.1):
        ckde = estimator(of, build(action=Categorical(mismatch)), GAUSSIAN)
        if mismatch:
            assert np.isfinite(values(ckde.likelihood(expert, np.ones(2), 1.0, BOX), of.asked)).all()
        else:
            with pytest.raises(InputError, match=r"expert row 5 \(1 in all\)"):
                ckde.likelihood(expert, np.ones(2), 1.0, BOX)


def test_an_expert_of_another_width_is_refused() -> None:
    of = problem(seed=16)
    with pytest.raises(InputError, match="The expert has 2 features, but the bank has 3"):
        estimator(of, GAUSSIAN, GAUSSIAN).likelihood(of.expert[:, :2], np.ones(1), 1.0, BOX)


def test_features_too_large_for_doubles_are_refused_with_a_sentence() -> None:
    """|x|^2 overflows from 1e154 on: the cosine is inf / inf, the Euclidean distance infinite."""
    of = problem(seed=17).scaled(1e180)
    with pytest.raises(InputError, match="NaN or infinity"):
        estimator(of, named("gaussian", "cosine"), GAUSSIAN).likelihood(of.expert, np.ones(1), 1.0, BOX)
