"""Kernels and distances one pair at a time: constants, strictness, users' functions, and sentences for mistakes."""

import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate

from kdbirl.errors import InputError
from kdbirl.likelihood.distances import DISTANCES, UserDistance, as_distance, distance_name, euclidean
from kdbirl.likelihood.kernels import (
    PROFILES,
    Categorical,
    PairKernel,
    ProductKernel,
    RadialKernel,
    UserKernel,
    as_kernel,
    on_columns,
    sigma_from_paper,
)

from . import direct_sum
from .problems import BOX, GROUPS, NAMES, estimator, named, problem

GAUSSIAN = named("gaussian", "euclidean")
REACH = {"gaussian": 12.0, "laplace": 45.0, "uniform": 1.0, "triangular": 1.0, "epanechnikov": 1.0}


@pytest.mark.parametrize("d", [1, 2, 3])
@pytest.mark.parametrize("distance", ["euclidean", "manhattan"])
@pytest.mark.parametrize("profile", PROFILES)
def test_log_constant_is_the_integral(profile: str, distance: str, d: int) -> None:
    """Integrated over the positive part of the ball, coordinate by coordinate, and multiplied by 2^d."""
    power = 2 if distance == "euclidean" else 1
    reach = REACH[profile]

    def density(*x: float) -> float:
        u = sum(value**power for value in x) ** (1 / power)
        return math.exp(direct_sum.LOG_PROFILES[profile](min(u, reach)))

    def limits(*others: float) -> tuple[float, float]:
        return 0.0, max(reach**power - sum(value**power for value in others), 0.0) ** (1 / power)

    options = {"epsabs": 1e-9, "epsrel": 1e-7, "limit": 60}
    integral = integrate.nquad(density, [limits] * d, opts=options)[0] * 2**d
    h = 0.37
    assert named(profile, distance).log_constant(d, h) == pytest.approx(math.log(integral) + d * math.log(h), abs=1e-5)


def test_constants_that_are_not_known_are_none() -> None:
    assert named("gaussian", "cosine").log_constant(2, 1.0) is None
    assert named("gaussian", "dot").log_constant(2, 1.0) is None
    assert RadialKernel("gaussian", lambda x, y: jnp.max(jnp.abs(x - y))).log_constant(2, 1.0) is None
    assert UserKernel(lambda u: jnp.exp(-u)).log_constant(1, 1.0) is None
    assert Categorical(0.2).log_constant(1, 1.0) is None
    assert Categorical(0.2, levels=4).log_constant(1, 1.0) == pytest.approx(math.log(1 + 3 * 0.2))


def test_the_constant_of_a_product_is_that_of_its_parts() -> None:
    kernel = on_columns(ProductKernel(state="laplace", action=Categorical(0.2, levels=4)), NAMES, GROUPS)
    expected = named("laplace", "euclidean").log_constant(2, 0.5) + math.log(1.6)
    assert kernel.log_constant([0.5, 1.0]) == pytest.approx(expected)
    unknown = on_columns(ProductKernel(state="laplace", action=Categorical(0.2)), NAMES, GROUPS)
    assert unknown.log_constant([0.5, 1.0]) is None


@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("profile", PROFILES)
def test_strict_promotion(profile: str, distance: str) -> None:
    """No implicit conversion of type or rank in kernels, densities and gradients; traced only, so it is quick."""
    of, kernel = problem(), named(profile, distance)
    product = ProductKernel(state=kernel, action=Categorical(0.1))
    likelihood = estimator(of, GAUSSIAN, kernel).likelihood(of.expert, np.ones(1), 9.0, BOX)
    with jax.enable_x64(True), jax.numpy_dtype_promotion("strict"), jax.numpy_rank_promotion("raise"):
        row, reward = jax.ShapeDtypeStruct((3,), jnp.float64), jax.ShapeDtypeStruct((2,), jnp.float64)
        h = jax.ShapeDtypeStruct((2,), jnp.float64)
        traced = [
            jax.eval_shape(on_columns(product, NAMES, GROUPS).log, row, row, h),
            jax.eval_shape(likelihood.pointwise, reward),
            *jax.eval_shape(jax.value_and_grad(lambda r: likelihood(r)), reward),
        ]
    assert [(result.shape, str(result.dtype)) for result in traced] == [
        ((), "float64"),
        ((8,), "float64"),
        ((), "float64"),
        ((2,), "float64"),
    ]


@pytest.mark.parametrize("d", [1, 3, 40])  # few columns are summed in another way than many
@pytest.mark.parametrize("distance", DISTANCES)
def test_distances_of_one_pair(distance: str, d: int) -> None:
    generator = np.random.default_rng(0)
    pairs = [*generator.normal(size=(5, 2, d)), np.zeros((2, d)), np.ones((2, d)), np.stack([np.zeros(d), np.ones(d)])]
    with jax.enable_x64(True):
        actual = jax.vmap(DISTANCES[distance])(*np.swapaxes(np.asarray(pairs), 0, 1))
    expected = [direct_sum.DISTANCES[distance](*pair) for pair in pairs]
    np.testing.assert_allclose(actual, expected, rtol=1e-14, atol=1e-15)
    assert (np.asarray(actual) >= 0).all()


def test_kernels_by_name_function_or_object() -> None:
    assert as_kernel("laplace", "manhattan") == named("laplace", "manhattan")
    assert as_kernel(GAUSSIAN, "manhattan") is GAUSSIAN
    own = as_kernel(direct_sum.log_sum, "cosine")
    assert isinstance(own, UserKernel)
    assert own.distance is DISTANCES["cosine"]
    assert as_distance(euclidean) is euclidean
    assert as_distance(as_distance(direct_sum.log_sum)) == UserDistance(direct_sum.log_sum)


def test_names_for_the_record() -> None:
    product = ProductKernel(state="gaussian", action=Categorical(0.1))
    assert product.describe() == "gaussian on euclidean distance (state) x categorical with mismatch 0.1 (action)"
    assert UserKernel(direct_sum.log_sum).describe() == "log_sum"
    assert UserKernel(partial(max)).describe() == "user's kernel"
    assert distance_name(as_distance(direct_sum.log_sum)) == "log_sum"
    assert [distance_name(DISTANCES[name]) for name in DISTANCES] == list(DISTANCES)


def test_what_a_kernel_says_of_itself() -> None:
    assert [profile for profile in PROFILES if named(profile, "euclidean").compact] == [
        "uniform",
        "triangular",
        "epanechnikov",
    ]
    assert [profile for profile in PROFILES if not named(profile, "euclidean").differentiable] == ["uniform"]
    assert Categorical(0.0).compact
    assert not Categorical(0.1).compact
    assert Categorical(0.1).differentiable
    products = [ProductKernel(state="laplace", action=Categorical(mismatch)) for mismatch in (0.0, 0.5)]
    assert [on_columns(product, NAMES, GROUPS).compact for product in products] == [True, False]


def test_only_a_gaussian_of_the_euclidean_distance_is_a_squared_exponential() -> None:
    def whole(kernel: RadialKernel) -> PairKernel:
        return on_columns(kernel, NAMES, GROUPS)

    assert whole(GAUSSIAN).squared_exponential
    assert not whole(named("gaussian", "manhattan")).squared_exponential
    assert not whole(named("laplace", "euclidean")).squared_exponential
    assert not on_columns(ProductKernel(state="gaussian", action="gaussian"), NAMES, GROUPS).squared_exponential


def test_the_papers_bandwidth_is_a_variance() -> None:
    """exp(-d^2 / (2h)) of the paper is ours with sigma = sqrt(h)."""
    with jax.enable_x64(True):
        ours = float(GAUSSIAN.log(jnp.array([0.0]), jnp.array([1.3]), jnp.asarray(sigma_from_paper(0.4))))
    assert ours == pytest.approx(-(1.3**2) / (2 * 0.4))
    for wrong in (0.0, -1.0, math.nan):
        with pytest.raises(InputError, match="must be positive"):
            sigma_from_paper(wrong)


def vector(x: jax.Array, y: jax.Array) -> jax.Array:
    """Not one number."""
    return x - y


def silent_failure(u: jax.Array) -> jax.Array:
    """An error without a message."""
    raise RuntimeError


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: as_kernel("gausian"), "no kernel called 'gausian'. Did you mean 'gaussian'"),
        (lambda: as_kernel(3.0), "A kernel is a name .* not 3.0"),
        (lambda: as_kernel("gaussian", "euclidian"), "no distance called 'euclidian'. Did you mean 'euclidean'"),
        (lambda: Categorical(1.0), r"mismatch=1.0\) must lie in \[0, 1\)"),
        (lambda: Categorical(-0.1), "mismatch=-0.1"),
        (lambda: Categorical(math.nan), "mismatch=nan"),
        (ProductKernel, "at least one factor"),
        (lambda: ProductKernel(state=ProductKernel(state="laplace")), "'state' of a ProductKernel is itself a product"),
        (lambda: on_columns(ProductKernel(state="laplace"), NAMES, GROUPS), "covers the feature 'a'"),
        (lambda: on_columns(ProductKernel(a="laplace"), "abcdefg", {}), "the feature 'b', 'c', 'd', 'e', 'f'; add"),
        (lambda: on_columns(ProductKernel(stat="laplace"), NAMES, GROUPS), "factor for 'stat'.*Did you mean 'state'"),
        (
            lambda: on_columns(ProductKernel(x="laplace"), ["s0"], {"x": ()}),
            "factor for 'x', but the features have none",
        ),
    ],
)
def test_mistakes_get_one_sentence(make, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (RadialKernel("gaussian", vector), "The distance vector failed on one pair of points"),
        (UserKernel(lambda x, y, h: x), "failed on one pair of points"),
        (UserKernel(lambda u: float(u)), "failed on one pair of points"),  # not written with jax.numpy
        (UserKernel(silent_failure), "silent_failure failed on one pair of points: RuntimeError"),
        (UserKernel(lambda u: u - u / 0 * 0, log_space=True), "gives NaN or infinity"),
        (UserKernel(lambda u: jnp.log(1 / u), log_space=True), "gives NaN or infinity"),  # infinite for equal rows
        (UserKernel(lambda u: -jnp.ones(())), "No training row is within reach"),  # a kernel is not negative
    ],
)
def test_users_functions_that_fail(kernel, message: str) -> None:
    of = problem()
    with pytest.raises(InputError, match=message):
        estimator(of, kernel, GAUSSIAN).likelihood(of.expert, np.ones(1), 1.0, BOX)


def test_a_users_kernel_may_have_options_with_defaults() -> None:
    def kernel(u: jax.Array, power: float = 3.0) -> jax.Array:
        return jnp.exp(-(u**power))

    with jax.enable_x64(True):
        value = UserKernel(kernel).log(jnp.zeros(1), jnp.full(1, 2.0), jnp.asarray(4.0))
    assert float(value) == pytest.approx(-(0.5**3))


def test_a_users_kernel_in_another_precision_is_taken_to_that_of_the_points() -> None:
    """Its value is what it is, here 0.3 to 24 bits; nothing more is lost on the way to its logarithm."""
    with jax.enable_x64(True):
        value = UserKernel(lambda u: jnp.float32(0.3)).log(jnp.zeros(1), jnp.ones(1), jnp.asarray(1.0))
    assert value.dtype == np.float64
    assert float(value) == pytest.approx(math.log(float(np.float32(0.3))), rel=1e-15)
