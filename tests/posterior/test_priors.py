"""Priors against SciPy: densities, integrals, draws, supports; and what they say when used wrongly.

The Kolmogorov-Smirnov tests fail a right sampler with probability 1e-6 each; seeds are fixed.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from kdbirl._jax import float64
from kdbirl.errors import InputError
from kdbirl.posterior.priors import Beta, Laplace, Normal, Prior, TruncatedNormal, Uniform, parse_prior, prior_points
from kdbirl.posterior.product_prior import CustomPrior, Product, parse_priors

KS_LEVEL = 1e-6
INFINITY = np.inf

FAMILIES: dict[str, tuple[Prior, Any]] = {
    "uniform": (Uniform(-1, 3), stats.uniform(-1, 4)),
    "normal": (Normal(2, 0.5), stats.norm(2, 0.5)),
    "truncated": (TruncatedNormal(0.5, 1, -1, 1), stats.truncnorm(-1.5, 0.5, loc=0.5, scale=1)),
    "half-normal": (TruncatedNormal(0, 2, 0, INFINITY), stats.halfnorm(scale=2)),
    "far tail": (TruncatedNormal(0, 1, 8, 9), stats.truncnorm(8, 9)),
    "beta": (Beta(2, 5, -1, 1), stats.beta(2, 5, loc=-1, scale=2)),
    "steep beta": (Beta(0.5, 0.7), stats.beta(0.5, 0.7)),
    "laplace": (Laplace(-1, 0.3), stats.laplace(-1, 0.3)),
}


@float64
def densities(prior: Prior, rewards: np.ndarray) -> np.ndarray:
    """log p(R) for each row."""
    numbers = jax.tree.map(lambda value: jnp.asarray(value, dtype=float), prior.parameters)
    return np.asarray(jax.vmap(lambda reward: prior.log_density(numbers, reward))(jnp.asarray(rewards)))


@pytest.mark.parametrize("name", FAMILIES)
class TestFamilies:
    def test_density_is_scipys(self, name: str) -> None:
        prior, reference = FAMILIES[name]
        rewards = reference.rvs(size=(200, 2), random_state=np.random.default_rng(0))
        expected = reference.logpdf(rewards).sum(axis=1)
        np.testing.assert_allclose(densities(prior.for_parameters(2), rewards), expected, rtol=1e-9, atol=1e-9)

    def test_density_is_zero_outside_the_support(self, name: str) -> None:
        prior = FAMILIES[name][0].for_parameters(2)
        low, high = prior.support
        inside = prior.sample(np.random.default_rng(0), 1)[0]
        for side, direction in ((low, -1), (high, 1)):
            if np.isfinite(side[0]):
                outside = inside.copy()
                outside[0] = side[0] + direction * 1e-6
                assert densities(prior, outside[None])[0] == -INFINITY
                assert not prior.contains(outside[None])[0]
        assert prior.contains(inside[None])[0]

    def test_box_holds_all_but_a_negligible_part(self, name: str) -> None:
        prior, reference = FAMILIES[name]
        low, high = prior.for_parameters(3).box
        assert low.shape == high.shape == (3,)
        assert np.isfinite([low, high]).all()
        assert reference.cdf(low[0]) + reference.sf(high[0]) < 1e-14

    def test_draws_follow_the_density(self, name: str) -> None:
        prior, reference = FAMILIES[name]
        draws = prior.for_parameters(2).sample(np.random.default_rng(1), 4000)
        assert draws.shape == (4000, 2)
        assert draws.dtype == np.float64
        for column in draws.T:
            assert stats.ks_1samp(column, reference.cdf).pvalue > KS_LEVEL
        assert abs(stats.pearsonr(*draws.T).statistic) < 5 / np.sqrt(4000)

    def test_support_is_scipys(self, name: str) -> None:
        prior, reference = FAMILIES[name]
        np.testing.assert_allclose([side[0] for side in prior.for_parameters(2).support], reference.support())

    def test_the_seed_decides(self, name: str) -> None:
        prior = FAMILIES[name][0].for_parameters(2)
        first, again, other = (prior.sample(np.random.default_rng(seed), 5) for seed in (0, 0, 1))
        np.testing.assert_array_equal(first, again)
        assert not np.isin(first, other).any()

    def test_description_parses_back(self, name: str) -> None:
        prior = FAMILIES[name][0]
        parsed = parse_prior(prior.describe())
        assert type(parsed) is type(prior)
        for key, value in prior.for_parameters(1).parameters.items():
            np.testing.assert_array_equal(parsed.for_parameters(1).parameters[key], value)


@pytest.mark.parametrize("name", ["uniform", "truncated", "half-normal", "far tail"])
def test_the_ends_of_the_support_belong_to_it(name: str) -> None:
    prior, reference = FAMILIES[name]
    ends = np.array([[float(end)] for end in reference.support() if np.isfinite(end)])
    np.testing.assert_allclose(densities(prior.for_parameters(1), ends), reference.logpdf(ends[:, 0]), rtol=1e-9)
    assert prior.for_parameters(1).contains(ends).all()


def test_priors_are_themselves_and_can_be_keys() -> None:
    """Two priors of equal numbers are two priors: arrays have no single answer to whether they are equal."""
    several = [prior.for_parameters(2) for _ in range(2) for prior, _ in FAMILIES.values()]
    several += [CustomPrior(jnp.sum, 0.0, 1.0).for_parameters(2) for _ in range(2)]
    parts = [Uniform(0, 1), Normal(0, 1)]  # the same two in both; in a list, which has no hash of its own
    several += [Product(parts), Product(parts)]
    assert len(set(several)) == len(several)
    assert all(several.index(prior) == i for i, prior in enumerate(several))


@pytest.mark.parametrize("name", ["uniform", "normal", "truncated", "half-normal", "beta", "laplace"])
def test_densities_integrate_to_one(name: str) -> None:
    prior = FAMILIES[name][0].for_parameters(1)
    low, high = prior.box
    middles = (np.arange(200_000) + 0.5) / 200_000 * (high - low) + low
    assert np.exp(densities(prior, middles[:, None])).mean() * (high - low)[0] == pytest.approx(1.0, abs=1e-5)


def test_one_value_per_parameter() -> None:
    prior = Normal([0.0, 1.0, 2.0], [1.0, 0.1, 3.0]).for_parameters(3)
    reward = np.array([[0.3, 1.1, -1.0]])
    expected = stats.norm.logpdf(reward[0], [0.0, 1.0, 2.0], [1.0, 0.1, 3.0]).sum()
    assert densities(prior, reward)[0] == pytest.approx(expected)
    assert prior.describe() == "normal:[0 1 2],[1 0.1 3]"
    assert prior.normal is not None
    np.testing.assert_array_equal(prior.normal[1], [1.0, 0.1, 3.0])


def test_only_normal_priors_call_themselves_normal() -> None:
    others = (FAMILIES[name][0].for_parameters(2) for name in FAMILIES if name != "normal")
    assert all(prior.normal is None for prior in others)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Uniform(1, 0), r"Uniform\(low=1, high=0\): low must lie below high"),
        (lambda: Uniform(0, INFINITY), "both finite"),
        (lambda: Uniform([0, 0], [1, 0]), r"high=\[1 0\]"),
        (lambda: Normal(0, 0), "sd positive"),
        (lambda: Normal(np.nan, 1), "mean must be finite"),
        (lambda: TruncatedNormal(0, -1, 0, 1), "sd positive"),
        (lambda: TruncatedNormal(0, 1, 2, 1), "low below high"),
        (lambda: TruncatedNormal(0, 1, [0, 1], 1), "low below high"),
        (lambda: TruncatedNormal(np.nan, 1, 0, 1), "mean must be finite"),
        (lambda: TruncatedNormal(0, 1, np.nan, 1), "low below high"),
        (lambda: Beta(0, 1), "a and b must be positive"),
        (lambda: Beta(1, INFINITY), "all finite"),
        (lambda: Beta(1, 1, 0, INFINITY), "all finite"),
        (lambda: Laplace(0, 0), "scale positive"),
        (lambda: Laplace(INFINITY, 1), "mean must be finite"),
        (lambda: Normal([0, 1], 1).for_parameters(3), "mean has 2 values, but the reward has 3 parameters"),
        (lambda: Normal([0, 1], 1).for_parameters(3, ("a", "b", "c")), r"\(a, b, c\)"),
        (lambda: Normal([[0.0]], 1).for_parameters(1), "mean has 1 values"),
        (lambda: Product([Normal(0, 1)]).for_parameters(2), "1 factors, but the reward has 2"),
        (lambda: CustomPrior(jnp.sum, 1, 0).for_parameters(2), "low below high"),
        (lambda: CustomPrior(jnp.sum, [0, 0, 0], 1).for_parameters(2), "each of the 2 parameters"),
    ],
)
def test_wrong_values_get_a_sentence(make, sentence: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(InputError, match=sentence):
        make()


@pytest.mark.parametrize(
    ("text", "kind", "values"),
    [
        ("uniform:0,1", Uniform, {"low": 0, "high": 1}),
        (" normal:-1,2.5 ", Normal, {"mean": -1, "sd": 2.5}),
        ("truncated-normal:0,1,-1,1", TruncatedNormal, {"low": -1, "high": 1}),
        ("TruncatedNormal:0,1,-1,1", TruncatedNormal, {"sd": 1}),
        ("truncated_normal:0,1,-1,1", TruncatedNormal, {"mean": 0}),
        ("beta:2,5", Beta, {"a": 2, "low": 0, "high": 1}),
        ("beta:2,5,-1,1", Beta, {"low": -1}),
        ("laplace:0,1e-2", Laplace, {"scale": 0.01}),
    ],
)
def test_priors_from_text(text: str, kind: type, values: dict[str, float]) -> None:
    prior = parse_prior(text)
    assert isinstance(prior, kind)
    for name, value in values.items():
        assert getattr(prior, name) == value


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("unifrom:0,1", "Did you mean 'uniform'"),
        ("uniform", "should read uniform:low,high"),
        ("uniform:0", "should read uniform:low,high"),
        ("uniform:0,1,2", "should read uniform:low,high"),
        ("normal:a,b", "should read normal:mean,sd"),
        ("uniform:1,0", "low must lie below high"),
        ("", "There is no prior called ''"),
    ],
)
def test_wrong_text_gets_a_sentence(text: str, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        parse_prior(text)


@pytest.mark.parametrize("q", [1, 2, 3])
def test_points_that_stand_for_a_prior_are_every_combination_of_its_quantiles(q: int) -> None:
    """The midpoint rule: means of functions of all parameters together are those under the prior."""
    per_axis = 8
    points = prior_points(Product([Uniform(0, 1), Normal(2, 0.5), Laplace(-1, 0.3)][:q]), per_axis**q)
    assert len(np.unique(points, axis=0)) == per_axis**q
    levels = (np.arange(per_axis) + 0.5) / per_axis
    for j, family in enumerate([stats.uniform(0, 1), stats.norm(2, 0.5), stats.laplace(-1, 0.3)][:q]):
        np.testing.assert_allclose(np.unique(points[:, j].round(12)), family.ppf(levels))
    assert np.prod(points, axis=1).mean() == pytest.approx(np.prod([0.5, 2.0, -1.0][:q]))  # all are symmetric


def test_many_parameters_get_a_sequence_that_its_seed_decides() -> None:
    prior = Normal(2, 0.5).for_parameters(5)
    points, again, other = (prior_points(prior, 1000, seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(points, again)
    assert not np.isin(points, other).any()
    assert points.shape == (1024, 5)
    np.testing.assert_allclose(points.mean(axis=0), 2.0, atol=2e-3)  # of draws it would be within 0.05
    np.testing.assert_allclose(points.std(axis=0), 0.5, atol=5e-3)


def test_a_product_is_its_factors() -> None:
    prior = Product([Uniform(0, 2), Normal(1, 3), Beta(2, 2)]).for_parameters(3)
    rewards = prior.sample(np.random.default_rng(0), 3000)
    references = [stats.uniform(0, 2), stats.norm(1, 3), stats.beta(2, 2)]
    expected = sum(reference.logpdf(rewards[:, j]) for j, reference in enumerate(references))
    np.testing.assert_allclose(densities(prior, rewards), expected, rtol=1e-9)
    for j, reference in enumerate(references):
        assert stats.ks_1samp(rewards[:, j], reference.cdf).pvalue > KS_LEVEL
    np.testing.assert_array_equal(prior.support[0], [0, -INFINITY, 0])
    np.testing.assert_array_equal(prior.box[1][[0, 2]], [2, 1])
    assert prior.describe() == "uniform:0,2 x normal:1,3 x beta:2,2,0,1"
    assert prior.normal is None


def test_a_product_of_normals_is_normal() -> None:
    prior = Product([Normal(0, 2), Normal(1, 3)]).for_parameters(2)
    assert prior.normal is not None
    np.testing.assert_array_equal(prior.normal, [[0, 1], [2, 3]])


def test_a_product_by_name() -> None:
    prior = Product.by_name({"y": Normal(1, 2)}, otherwise=Uniform(0, 1)).for_parameters(3, ("x", "y", "z"))
    assert prior.describe() == "uniform:0,1 x normal:1,2 x uniform:0,1"
    with pytest.raises(InputError, match="names 'yy', which is not among the reward parameters"):
        Product.by_name({"yy": Normal(1, 2)}, otherwise=Uniform(0, 1)).for_parameters(2, ("x", "y"))
    with pytest.raises(InputError, match="reward parameter 'x' has no prior"):
        Product.by_name({"y": Normal(1, 2)}).for_parameters(2, ("x", "y"))


@pytest.mark.parametrize(
    ("texts", "description"),
    [
        (["uniform:0,1"], "uniform:0,1"),
        (["x=normal:0,2", "beta:2,3"], "normal:0,2 x beta:2,3,0,1"),
        (["y=laplace:0,1", "x=normal:0,2"], "normal:0,2 x laplace:0,1"),
    ],
)
def test_priors_of_several_texts(texts: list[str], description: str) -> None:
    prior = parse_priors(texts).for_parameters(2, ("x", "y"))
    assert prior.describe() == description


@pytest.mark.parametrize(
    ("texts", "sentence"),
    [
        (["x=normal:0,1", "x=uniform:0,1"], "'x' has two priors"),
        (["normal:0,1", "uniform:0,1"], "2 priors without a parameter's name"),
    ],
)
def test_wrong_texts_get_a_sentence(texts: list[str], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        parse_priors(texts)


def test_equal_products_share_what_was_compiled() -> None:
    first, second = (Product([Uniform(0, high), Normal(0, 1)]).for_parameters(2) for high in (1, 2))
    assert first.log_density == second.log_density
    assert hash(first.log_density) == hash(second.log_density)


def triangle(reward: jax.Array) -> jax.Array:
    """A user's density: p(r) = 2r on [0, 1] for each parameter."""
    return jnp.sum(jnp.log(2 * reward))


class TestCustomPrior:
    def test_density_within_its_box(self) -> None:
        prior = CustomPrior(triangle, 0, 1).for_parameters(2)
        values = densities(prior, np.array([[0.5, 0.25], [0.5, 1.5], [-0.1, 0.5]]))
        np.testing.assert_allclose(values, [np.log(0.5), -INFINITY, -INFINITY])
        exponential = CustomPrior(lambda reward: -jnp.sum(reward), 0, 1).for_parameters(2)
        np.testing.assert_array_equal(densities(exponential, np.array([[0.0, 0.0], [1.0, 1.0]])), [0.0, -2.0])
        assert prior.describe() == "triangle"
        assert prior.normal is None

    def test_the_users_sampler_is_used(self) -> None:
        prior = CustomPrior(triangle, 0, 1, lambda rng, n: np.sqrt(rng.random((n, 2)))).for_parameters(2)
        draws = prior.sample(np.random.default_rng(0), 4000)
        assert stats.ks_1samp(draws[:, 1], lambda x: x**2).pvalue > KS_LEVEL

    def test_a_sampler_of_the_wrong_shape_is_named(self) -> None:
        prior = CustomPrior(triangle, 0, 1, lambda rng, n: rng.random(n)).for_parameters(2)
        with pytest.raises(InputError, match=r"shape \(7,\); \(7, 2\) was asked for"):
            prior.sample(np.random.default_rng(0), 7)

    def test_without_a_sampler_it_is_drawn_by_a_random_walk(self) -> None:
        """4,000 draws of 8 chains are not independent: the distance is judged as that of 400 independent ones."""
        draws = CustomPrior(triangle, 0, 1).for_parameters(2).sample(np.random.default_rng(0), 4000)
        assert draws.shape == (4000, 2)
        assert ((draws > 0) & (draws < 1)).all()
        for column in draws.T:
            distance = stats.ks_1samp(column, lambda x: x**2).statistic
            assert np.sqrt(400) * distance < stats.kstwobign.isf(KS_LEVEL)

    def test_an_unbounded_one_has_a_finite_box(self) -> None:
        bell = lambda reward: -0.5 * jnp.sum(reward**2)  # noqa: E731
        normal = CustomPrior(bell, -INFINITY, INFINITY, lambda rng, n: rng.normal(size=(n, 1)))
        low, high = normal.for_parameters(1).box
        assert -60 < low[0] < -8
        assert 8 < high[0] < 60

    def test_a_density_that_fails_is_named(self) -> None:
        with pytest.raises(InputError, match=r"log density failed: .* Write it with jax.numpy"):
            densities(CustomPrior(lambda r: np.log(float(r[0])), 0, 1).for_parameters(2), np.full((1, 2), 0.5))

    def test_a_density_of_the_wrong_shape_is_named(self) -> None:
        with pytest.raises(InputError, match="returns one number"):
            densities(CustomPrior(lambda r: r, 0, 1).for_parameters(2), np.full((1, 2), 0.5))

    def test_a_density_in_another_precision_is_taken_to_that_of_the_reward(self) -> None:
        prior = CustomPrior(lambda reward: jnp.float32(0.3), 0, 1).for_parameters(2)
        value = densities(prior, np.full((1, 2), 0.5))
        assert value.dtype == np.float64
        assert value[0] == np.float32(0.3)


def test_quantiles_of_a_uniform_prior_are_scipys() -> None:
    """The same formula without SciPy's checks: equal to the bit, each parameter with its own ends."""
    levels = np.random.default_rng(0).random((1000, 3))
    prior = Uniform(-1.5, [1.5, 2.0, 0.3]).for_parameters(3)
    expected = stats.uniform(-1.5, np.array([1.5, 2.0, 0.3]) + 1.5).ppf(levels)
    np.testing.assert_array_equal(prior.quantiles(levels), expected)
