"""One contract for all samplers, and the exact posterior as the judge.

Tolerances. A mean, a variance or the share of draws below an exact quantile has the standard error sd / sqrt(ESS), with
ArviZ's effective sample size of just that quantity over all chains. A z-score above 4.5 happens to a right sampler once
in 150,000; with the Kolmogorov-Smirnov distances (limit: once in 100,000) all comparisons here together would blame
right samplers in about one of 300 runs with fresh seeds. The seeds are fixed, so a run passes or fails for good.
"""

from dataclasses import dataclass, fields, replace
from functools import cache
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from arviz_stats.base.array import array_stats
from scipy import stats

from kdbirl._jax import float64
from kdbirl.errors import InputError, SamplingError
from kdbirl.posterior import smc
from kdbirl.posterior.auto import Auto
from kdbirl.posterior.grid import Grid
from kdbirl.posterior.independence import Independence
from kdbirl.posterior.mcmc import DENSE_UP_TO, HMC, NUTS, Chain, Metropolis
from kdbirl.posterior.priors import Normal, Uniform
from kdbirl.posterior.product_prior import CustomPrior
from kdbirl.posterior.smc import SMC
from kdbirl.posterior.target import Draws, NoLikelihood, Problem, Sampler, Target, log_posteriors
from kdbirl.posterior.vi import VI, _first_state, _pareto_k
from kdbirl.progress import Silent

from .problems import Exact, Traces, mixed, setting

Z_LIMIT = 4.5
KS_LIMIT = 2.47  # sqrt(n) D above this: 2 exp(-2 * 2.47^2) = 1e-5
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)

SAMPLERS: dict[str, Sampler] = {
    "nuts": NUTS(chains=4, warmup=500, draws=1000),
    "hmc": HMC(chains=4, warmup=500, draws=1000),
    "metropolis": Metropolis(chains=4, warmup=1000, draws=1000, thin=20),
    "smc": SMC(particles=1000, runs=4),
    "grid": Grid(draws=1000, chains=4),
    "independence": Independence(chains=4, draws=1000),
    "vi": VI(steps=2000, draws=2000),
}
ASYMPTOTICALLY_EXACT = ("nuts", "hmc", "metropolis", "smc", "grid", "independence")
EXACT = [(name, problem) for name in ASYMPTOTICALLY_EXACT for problem in ("corner", "ridge", "mixed")]
EXACT += [(name, "normal") for name in ("nuts", "smc", "grid", "independence")]
EXACT += [(name, "bimodal") for name in ("smc", "grid", "independence")]
EXACT += [(name, "compact") for name in ("metropolis", "smc", "grid", "independence")]


TRACES: dict[tuple[str, str], int] = {}


@cache
def drawn(sampler: str, problem: str) -> Draws:
    """Draws of a sampler on a problem; each pair runs once for all tests. How often it traced the density is kept."""
    before = Traces.count
    result = SAMPLERS[sampler].sample(setting(problem).problem, 0, Silent())
    TRACES[sampler, problem] = Traces.count - before
    return result


def z_score(values: np.ndarray, expected: float, variance: float) -> float:
    """How many standard errors the mean of (chain, draw) values lies from what it should be."""
    error = float(values.mean()) - expected
    return error / np.sqrt(variance / float(array_stats.ess(values, method="mean")))


def z_scores(draws: np.ndarray, exact: Exact) -> dict[str, float]:
    """z of each parameter's mean, variance and quantiles."""
    scores = {}
    for j in range(draws.shape[-1]):
        values, mean, variance = draws[..., j], exact.mean(j), exact.central_moment(j, 2)
        scores[f"mean of {j}"] = z_score(values, mean, variance)
        spread = exact.central_moment(j, 4) - variance**2
        scores[f"variance of {j}"] = z_score((values - mean) ** 2, variance, spread)
        for share, below in _below_quantiles(values, exact, j):
            scores[f"quantile {share} of {j}"] = z_score(below, share, share * (1 - share))
    return scores


def _below_quantiles(values: np.ndarray, exact: Exact, j: int) -> list[tuple[float, np.ndarray]]:
    """For each share, which draws lie below the exact quantile."""
    probabilities = exact.cdf(j, values)
    return [(share, (probabilities <= share).astype(float)) for share in QUANTILES]


def ks_scores(draws: np.ndarray, exact: Exact) -> list[float]:
    """sqrt(ESS) times the Kolmogorov-Smirnov distance of each marginal; the ESS is the least of those of quantiles."""
    scores = []
    for j in range(draws.shape[-1]):
        values = draws[..., j]
        ess = min(float(array_stats.ess(below, method="mean")) for _, below in _below_quantiles(values, exact, j))
        distance = stats.ks_1samp(values.ravel(), lambda x, j=j: exact.cdf(j, x)).statistic
        scores.append(float(np.sqrt(min(ess, values.size)) * distance))
    return scores


@pytest.mark.parametrize(("sampler", "problem"), EXACT)
def test_reproduces_the_exact_posterior(sampler: str, problem: str) -> None:
    draws, exact = drawn(sampler, problem).draws, setting(problem).exact
    scores = z_scores(draws, exact)
    worst = max(scores, key=lambda name: abs(scores[name]))
    assert abs(scores[worst]) < Z_LIMIT, f"{worst}: {scores[worst]:.2f} standard errors from the exact value"
    assert max(ks_scores(draws, exact)) < KS_LIMIT


@pytest.mark.parametrize(("sampler", "problem"), EXACT)
def test_draws_are_worth_something(sampler: str, problem: str) -> None:
    """The judge above is only as sharp as the effective number of draws, so that must not be small."""
    for values in np.moveaxis(drawn(sampler, problem).draws, -1, 0):
        assert array_stats.ess(values) > 400
        assert array_stats.rhat(values) < (1.02 if problem == "bimodal" else 1.01)


@pytest.mark.parametrize("wrong", ["shifted", "wider", "one mode"])
def test_the_judge_blames_a_wrong_posterior(wrong: str) -> None:
    exact = setting("bimodal").exact
    draws = drawn("grid", "bimodal").draws
    if wrong == "one mode":
        flat = draws.reshape(-1, 2)
        draws = flat[flat.sum(axis=1) > 1][:2400].reshape(4, 600, 2)
    else:
        draws = draws + 0.03 if wrong == "shifted" else 0.5 + 1.1 * (draws - 0.5)
    assert max(abs(score) for score in z_scores(draws, exact).values()) > Z_LIMIT


@pytest.mark.parametrize("sampler", SAMPLERS)
class TestContract:
    """What every sampler promises, on a problem that all of them can run."""

    def test_shapes_and_types(self, sampler: str) -> None:
        result, configured = drawn(sampler, "corner"), SAMPLERS[sampler]
        chains = getattr(configured, "chains", getattr(configured, "runs", 1))
        per_chain = getattr(configured, "draws", getattr(configured, "particles", 0))
        assert result.draws.shape == (chains, per_chain, 2)
        assert result.draws.dtype == np.float64
        assert result.sampler == configured.name
        for name, values in result.stats.items():
            assert values.shape == (chains, per_chain), name
            assert np.isfinite(values).all(), name

    def test_inside_the_support(self, sampler: str) -> None:
        draws = drawn(sampler, "corner").draws
        assert np.isfinite(draws).all()
        assert draws.min() >= 0
        assert draws.max() <= 1

    def test_the_seed_decides(self, sampler: str) -> None:
        first = drawn(sampler, "corner")
        again = SAMPLERS[sampler].sample(setting("corner").problem, 0, Silent())
        other = SAMPLERS[sampler].sample(setting("corner").problem, 1, Silent())
        np.testing.assert_array_equal(first.draws, again.draws)
        for name, values in first.stats.items():
            np.testing.assert_array_equal(values, again.stats[name])
        assert not np.isin(other.draws[..., 0], first.draws[..., 0]).any()

    def test_chains_differ(self, sampler: str) -> None:
        draws = drawn(sampler, "corner").draws
        assert len(np.unique(draws[:, 0, 0])) == len(draws)

    def test_reports_progress(self, sampler: str) -> None:
        seen: list[tuple[str, int, int, str]] = []

        class Recorder(Silent):
            def update(self, name: str, done: int, total: int, note: str = "") -> None:
                seen.append((name, done, total, note))

        configured = SAMPLERS[sampler]
        configured.sample(setting("corner").problem, 0, Recorder())
        assert seen
        assert seen[-1][1] == seen[-1][2]
        assert all(earlier[1] <= later[1] for earlier, later in pairwise(seen))
        if isinstance(configured, Chain):
            assert configured.warmup in {done for _, done, _, _ in seen}
            assert all((note == "warm-up") == (done <= configured.warmup) for _, done, _, note in seen)


@pytest.mark.parametrize("sampler", ["nuts", "hmc", "metropolis", "smc", "vi"])
@float64
def test_the_log_density_is_that_of_the_draws_on_the_whole_space(sampler: str) -> None:
    result, target = drawn(sampler, "corner"), setting("corner").problem.target
    rewards, found = result.draws.reshape(-1, 2)[::20], result.stats["log_density"].reshape(-1)[::20]
    density = jax.jit(jax.vmap(lambda reward: target.on_whole_space(target.unconstrain(reward))))
    np.testing.assert_allclose(found, density(jnp.asarray(rewards)), atol=1e-6)


def test_the_acceptance_of_independence_is_how_often_draws_move() -> None:
    """A draw is that before it where none of the proposals in between was accepted; these are nearly independent."""
    result = drawn("independence", "corner")
    stays = (1 - result.facts["acceptance"]) ** Independence().thin
    assert np.mean(np.diff(result.draws[..., 0], axis=1) == 0) == pytest.approx(stays, abs=0.03)


@pytest.mark.parametrize("family", ["full-rank", "mean-field"])
@float64
def test_vi_starts_where_it_is_told(family: str) -> None:
    mean = np.array([0.7, -3.0])
    state = _first_state(VI(family=family), jnp.asarray(mean))
    np.testing.assert_array_equal(state.mu, mean)


@pytest.mark.parametrize(("warmup", "draws", "thin"), [(500, 30, 1), (500, 130, 7), (0, 20, 1), (37, 250, 2)])
def test_thinning_and_fewer_draws_only_leave_draws_out(warmup: int, draws: int, thin: int) -> None:
    """Whatever the block of iterations that they fall in: the same chains, seen less often."""
    problem = setting("corner").problem
    whole = drawn("hmc", "corner") if warmup == 500 else HMC(warmup=warmup, draws=500).sample(problem, 0, Silent())
    part = HMC(warmup=warmup, draws=draws, thin=thin).sample(problem, 0, Silent())
    expected = whole.draws[:, thin - 1 : draws * thin : thin]
    np.testing.assert_array_equal(part.draws, expected)
    assert part.stats["diverging"].shape == (4, draws)


@pytest.mark.parametrize("sampler", ASYMPTOTICALLY_EXACT)
def test_the_density_is_traced_a_few_times_and_then_never_again(sampler: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another seed and other numbers of the same shape must not compile anything anew."""
    monkeypatch.setattr("kdbirl._jax.SHARE", np.inf)  # nothing is forgotten meanwhile
    drawn(sampler, "mixed")
    assert 1 <= TRACES[sampler, "mixed"] <= 8
    SAMPLERS[sampler].sample(setting("mixed").problem, 0, Silent())  # what was drawn first may be forgotten by now
    other = replace(mixed(seed=7), power=0.9, h=0.6).problem
    before = Traces.count
    SAMPLERS[sampler].sample(other, 1, Silent())
    assert Traces.count == before


@pytest.mark.parametrize("sampler", [NUTS(), HMC(), VI(), SMC(inner="hmc")], ids=lambda s: s.name)
def test_a_kernel_without_gradient_is_refused(sampler: Sampler) -> None:
    with pytest.raises(SamplingError, match="gradient, and the uniform kernel has none"):
        sampler.sample(setting("compact").problem, 0, Silent())


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Constant(NoLikelihood):
    """A likelihood that is the same everywhere: zero, or not a number."""

    log_value: jax.Array

    def __call__(self, reward: jax.Array) -> jax.Array:
        return self.log_value + 0.0 * jnp.sum(reward)


@pytest.mark.parametrize(("value", "sentence"), [(-np.inf, "is zero at each of"), (np.nan, "is not a number")])
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_useless_density_is_named_before_sampling(sampler: str, value: float, sentence: str) -> None:
    prior = Uniform(0, 1).for_parameters(2)
    problem = Problem(Target.build(prior, Constant(np.float64(value))), prior)
    with pytest.raises(SamplingError, match=sentence):
        SAMPLERS[sampler].sample(problem, 0, Silent())


def test_smc_finds_the_share_of_each_mode() -> None:
    draws = drawn("smc", "bimodal").draws
    exact = setting("bimodal").exact
    above = exact.centres(0)[:, None] + exact.centres(1)[None] > 1
    share = float(exact.mass[above].sum())
    assert abs(z_score((draws.sum(axis=-1) > 1).astype(float), share, share * (1 - share))) < Z_LIMIT


@pytest.mark.parametrize("problem", ["corner", "bimodal", "compact"])
def test_smc_estimates_the_evidence(problem: str) -> None:
    """log of the prior's mean of L, from the same grid; the runs' own spread is the standard error (t, 3 d.o.f.)."""
    given = setting(problem)
    centres = np.stack(np.meshgrid(*[given.exact.centres(j) for j in (0, 1)], indexing="ij"), axis=-1)
    log_posterior = given.log_posterior(centres.reshape(-1, 2))
    expected = float(np.log(np.mean(np.exp(log_posterior))))
    runs = np.array(drawn("smc", problem).facts["log_evidence"])
    assert abs(runs.mean() - expected) < 22.2 * max(runs.std(ddof=1), 0.002) / np.sqrt(
        len(runs)
    )  # 1e-4 for a right one


def test_smc_by_gradients_agrees() -> None:
    draws = SMC(particles=500, runs=2, moves=3, inner="hmc").sample(setting("corner").problem, 3, Silent()).draws
    assert max(abs(score) for score in z_scores(draws, setting("corner").exact).values()) < Z_LIMIT


def test_smc_in_batches_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many expert rows: particles are evaluated in parts, of which the last is smaller."""
    sampler, problem = SMC(particles=1000, runs=1), setting("compact").problem
    whole = sampler.sample(problem, 0, Silent())
    monkeypatch.setattr(smc, "MOST_ENTRIES", 300 * 12)
    parts = sampler.sample(problem, 0, Silent())
    np.testing.assert_allclose(parts.draws, whole.draws, rtol=1e-8)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Quadratic(NoLikelihood):
    """log L = -(R - centre)' precision (R - centre) / 2: with a normal prior, a normal posterior."""

    centre: jax.Array
    precision: jax.Array

    def __call__(self, reward: jax.Array) -> jax.Array:
        away = reward - self.centre
        return -0.5 * away @ self.precision @ away


def gaussian_problem() -> tuple[Problem, np.ndarray, np.ndarray]:
    """A correlated normal posterior, its mean and its precision."""
    prior = Normal([0.0, 3.0], [1.0, 0.1]).for_parameters(2)
    centre, precision = np.array([0.7, 2.9]), np.array([[4.0, 15.0], [15.0, 100.0]])
    total = precision + np.diag([1.0, 100.0])
    mean = np.linalg.solve(total, precision @ centre + np.array([0.0, 300.0]))
    return Problem(Target.build(prior, Quadratic(centre, precision)), prior), mean, total


@pytest.mark.parametrize("family", ["full-rank", "mean-field"])
def test_vi_is_right_on_a_normal_target(family: str) -> None:
    """The full-rank answer is exact; the mean-field one has the right mean and the variances 1 / precision_jj."""
    problem, mean, precision = gaussian_problem()
    result = VI(family=family, steps=3000, draws=4000).sample(problem, 0, Silent())
    covariance = np.linalg.inv(precision) if family == "full-rank" else np.diag(1 / np.diag(precision))
    draws = result.draws[0]
    errors = (draws.mean(axis=0) - mean) / np.sqrt(np.diag(covariance) / len(draws))
    assert np.abs(errors).max() < Z_LIMIT
    sizes = np.sqrt(np.diag(covariance))
    relative = (np.cov(draws.T) - covariance) / np.outer(sizes, sizes)
    assert np.abs(relative).max() < Z_LIMIT * np.sqrt(2 / len(draws))
    with jax.enable_x64(True):
        at_mean = float(log_posteriors(problem.target, mean[None])[0])
    log_volume = np.log(2 * np.pi) + 0.5 * np.linalg.slogdet(covariance)[1]
    # E_q[log p] - E_q[log q]: both are normal with the same mean, and q has the precision's diagonal
    assert result.facts["elbo"] == pytest.approx(at_mean + log_volume, abs=0.1)  # a mean of hundreds of ELBOs
    assert result.facts["family"] == family
    if family == "full-rank":
        assert result.facts["pareto_k"] < 0.3
        assert result.notes == ()


def test_log_ratios_that_differ_by_rounding_have_no_tail() -> None:
    """A Pareto tail cannot be fitted to them: all of its values may be the same."""
    ratios = np.where(np.arange(4000) % 2, -1.25, np.nextafter(-1.25, -2.0))
    assert _pareto_k(ratios) == 0.0


def test_vi_does_not_mind_the_units_of_the_reward() -> None:
    """In units of 1/1024 every number is 1024 times as large, and nothing else is different."""
    draws = []
    for unit in (1.0, 1024.0):
        prior = Normal([0.0, 3.0 * unit], [unit, 0.1 * unit]).for_parameters(2)
        likelihood = Quadratic(unit * np.array([0.7, 2.9]), np.array([[4.0, 15.0], [15.0, 100.0]]) / unit**2)
        result = VI(steps=700, draws=50).sample(Problem(Target.build(prior, likelihood), prior), 0, Silent())
        draws.append(result.draws / unit)
    np.testing.assert_allclose(draws[0], draws[1], rtol=1e-6)


def test_vi_reports_no_more_steps_than_it_takes() -> None:
    seen: list[tuple[int, int]] = []

    class Recorder(Silent):
        def update(self, name: str, done: int, total: int, note: str = "") -> None:
            seen.append((done, total))

    VI(steps=700, draws=50).sample(gaussian_problem()[0], 0, Recorder())
    assert seen == [(500, 700), (700, 700)]


@pytest.mark.parametrize("k", [0.2, 0.5, 1.0])
def test_k_hat_is_the_tail_of_the_weights(k: float) -> None:
    """Weights u^-k have a Pareto tail of just that k; the 190 largest estimate it within (1 + k) / sqrt(190)."""
    log_ratios = -k * np.log(np.random.default_rng(0).random(4000))
    for given in (log_ratios, log_ratios + 800.0, np.concatenate([log_ratios, np.full(50, -np.inf)])):
        assert abs(_pareto_k(given) - k) < 3 * (1 + k) / np.sqrt(190)


@pytest.mark.parametrize("count", [0, 1, 19, 20, 24, 25])
def test_k_hat_of_few_weights_is_infinite_and_never_an_error(count: int) -> None:
    ratios = np.concatenate([np.random.default_rng(0).normal(size=count), np.full(30, -np.inf)])
    assert np.isfinite(_pareto_k(ratios)) == (count == 25)


def test_vi_says_where_it_is_biased() -> None:
    def cauchy(reward: jax.Array) -> jax.Array:
        return -jnp.sum(jnp.log1p(reward**2))

    prior = CustomPrior(cauchy, -np.inf, np.inf, lambda rng, n: rng.standard_cauchy((n, 2))).for_parameters(2)
    result = VI(steps=2000).sample(Problem(Target.build(prior, NoLikelihood()), prior), 0, Silent())
    assert result.facts["pareto_k"] > 0.7
    assert "VI is biased here" in result.notes[0]
    assert "use NUTS" in result.notes[0]


def test_vi_refuses_a_density_with_holes() -> None:
    given = replace(setting("compact"), reward_profile="epanechnikov")
    with pytest.raises(SamplingError, match="compact kernel needs Grid, SMC or Metropolis"):
        VI(steps=500).sample(given.problem, 0, Silent())


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: NUTS(chains=0), r"NUTS\(chains=0\)"),
        (lambda: NUTS(target_acceptance=1.0), "target_acceptance"),
        (lambda: HMC(steps=0), r"HMC\(steps=0\)"),
        (lambda: Metropolis(thin=0), r"Metropolis\(thin=0\)"),
        (lambda: SMC(particles=0), r"SMC\(particles=0\)"),
        (lambda: NUTS(target_acceptance=0.0), "target_acceptance"),
        (lambda: NUTS(warmup=-1), "warmup must not be negative"),
        (lambda: SMC(target_ess=1.0), "target_ess"),
        (lambda: SMC(target_ess=0.0), "target_ess"),
        (lambda: SMC(inner="nuts"), "random-walk, hmc"),
        (lambda: VI(family="diagonal"), "full-rank or mean-field"),
        (lambda: VI(learning_rate=0.0), "learning_rate"),
    ],
)
def test_wrong_settings_are_refused(make, sentence: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(InputError, match=sentence):
        make()


COUNTS = [
    (sampler, name)
    for sampler in (*SAMPLERS.values(), Auto())
    for name in (item.name for item in fields(sampler))  # type: ignore[arg-type]
    if type(getattr(sampler, name)) is int and not (isinstance(sampler, Chain) and name == "warmup")
]


@pytest.mark.parametrize(("sampler", "name"), COUNTS, ids=lambda part: getattr(part, "name", part))
@pytest.mark.parametrize("value", [0, -3, True])
def test_every_count_of_every_sampler_is_at_least_one(sampler: Sampler, name: str, value: object) -> None:
    with pytest.raises(InputError, match=rf"\({name}={value!r}\): a whole number of at least 1"):
        replace(sampler, **{name: value})  # type: ignore[type-var]
    assert getattr(replace(sampler, **{name: 1}), name) == 1  # type: ignore[type-var]


def test_samplers_give_the_same_number_of_draws_unless_told() -> None:
    several = (Auto(), NUTS(), HMC(), Metropolis(), Grid(), Independence())
    assert {(sampler.chains, sampler.draws) for sampler in several} == {(4, VI().draws // 4)}
    assert NUTS().warmup == HMC().warmup == Auto().warmup  # which is that of the chains that it would run


def test_so_many_draws_that_they_cannot_fit_are_refused() -> None:
    for make in (lambda: NUTS(chains=10**6, draws=10**6), lambda: SMC(particles=10**7, runs=10**6)):
        with pytest.raises(InputError, match="so many draws do not fit"):
            make()


def test_the_mass_matrix_is_dense_up_to_a_number_of_parameters_unless_told() -> None:
    assert not NUTS().diagonal(DENSE_UP_TO)
    assert NUTS().diagonal(DENSE_UP_TO + 1)
    assert NUTS(mass_matrix="diagonal").diagonal(2)
    assert not NUTS(mass_matrix="dense").diagonal(10_000)
    unknown = NUTS()
    object.__setattr__(unknown, "mass_matrix", "dens")  # the constructor's types are checked in tests, for users not
    with pytest.raises(InputError, match=r"NUTS\(mass_matrix='dens'\) must be one of auto, dense, diagonal"):
        unknown._check()


def test_trajectories_have_between_one_and_all_steps() -> None:
    """Each length is as likely as the others: 4000 draws miss one of ten with probability 1e-182."""
    np.testing.assert_array_equal(np.unique(drawn("hmc", "corner").stats["n_steps"]), np.arange(1, HMC().steps + 1))


def test_chains_learn_their_step_size_in_warm_up_and_keep_it() -> None:
    result = drawn("hmc", "corner")
    sizes = result.stats["step_size"]
    assert (sizes == sizes[:, :1]).all()
    assert len(np.unique(sizes)) == len(sizes)
    assert result.facts["step_size"] == pytest.approx(sizes.mean())
    assert 0.1 < drawn("metropolis", "corner").stats["acceptance_rate"].mean() < 0.5  # 0.3 is asked for
