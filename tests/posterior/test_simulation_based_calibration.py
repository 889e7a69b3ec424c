"""Simulation-based calibration (Talts et al. 2018, arXiv:1804.06788) of every sampler that claims to be exact.

R ~ prior, x ~ p(x | R), draws of the posterior given x: the rank of R among independent draws is uniform, and so is
that of any function of R and x. The functions are each parameter, and log p(x | R), without which a sampler that
ignores the data would pass (Modrak et al. 2023, arXiv:2211.02383). Chains are thinned until draws are as good as
independent.

The judge is Pearson's chi-square over eight bins, Bonferroni over the functions: a right sampler fails one in 10,000
comparisons with fresh seeds. The seeds are fixed, so a run passes or fails for good.
"""

from dataclasses import replace
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from kdbirl._jax import float64
from kdbirl.posterior.auto import Auto
from kdbirl.posterior.grid import Grid
from kdbirl.posterior.independence import Independence
from kdbirl.posterior.mcmc import HMC, NUTS, Metropolis
from kdbirl.posterior.smc import SMC
from kdbirl.posterior.target import NoLikelihood, Sampler, Target
from kdbirl.progress import Silent

from .generative import MODELS
from .replicates import Replicates, chains_together, posterior_draws

FALSE_FAILURES = 1e-4
QUICK_SETS, LONG_SETS = 160, 4000
DRAWS, BINS = 31, 8  # 32 possible ranks, four in a bin

SAMPLERS: dict[str, Sampler] = {
    "nuts": NUTS(chains=1, warmup=200, draws=DRAWS, thin=3),
    "hmc": HMC(chains=1, warmup=200, draws=DRAWS, thin=6),
    "metropolis": Metropolis(chains=1, warmup=400, draws=DRAWS, thin=40),
    "smc": SMC(particles=8 * DRAWS, runs=1),
    "smc by gradients": SMC(particles=8 * DRAWS, runs=1, moves=3, inner="hmc"),
    "grid": Grid(draws=DRAWS, chains=1),
    "independence": Independence(chains=1, draws=DRAWS, thin=8),
    "auto": Auto(chains=1, draws=DRAWS),
}
ONE_BY_ONE = ("smc", "smc by gradients", "grid", "auto")  # no vectorised form: fewer data sets
IN_LONG_ALONE = ("hmc", "smc by gradients", "auto")  # programs that take long to compile, and a second way of the same
QUICK = [(name, "bounded") for name in SAMPLERS if name not in IN_LONG_ALONE] + [("auto", "normal complement")]


@cache
def replicates(model: str, count: int) -> Replicates:
    """Data sets of a model, for all samplers."""
    return Replicates.of(MODELS[model](), count, seed=0)


def uniform_ranks(given: Replicates, draws: np.ndarray) -> list[float]:
    """The p-value of uniform ranks of each parameter, and of the log likelihood."""
    thinned = draws[:, :: draws.shape[1] // DRAWS][:, :DRAWS]
    truth_log, logs = given.log_likelihoods(given.truths[:, None]), given.log_likelihoods(thinned)
    ranks = np.sum(thinned < given.truths[:, None], axis=1)
    ranks = np.concatenate([ranks, np.sum(logs < truth_log, axis=1)[:, None]], axis=1)
    counts = [np.bincount(column * BINS // (DRAWS + 1), minlength=BINS) for column in ranks.T]
    return [float(stats.chisquare(count).pvalue) for count in counts]


def blamed(given: Replicates, draws: np.ndarray) -> bool:
    """Whether the judge says that these draws are not from the posteriors."""
    found = uniform_ranks(given, draws)
    return min(found) * len(found) < FALSE_FAILURES


def assert_calibrated(sampler: str, model: str, count: int) -> None:
    given = replicates(model, count)
    draws = posterior_draws(SAMPLERS[sampler], given)
    assert not blamed(given, draws), f"{sampler} on {model}: p = {np.round(uniform_ranks(given, draws), 6)}"


@pytest.mark.parametrize(("sampler", "model"), QUICK)
def test_ranks_are_uniform(sampler: str, model: str) -> None:
    assert_calibrated(sampler, model, QUICK_SETS // 4 if sampler in ONE_BY_ONE else QUICK_SETS)


@pytest.mark.long
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_ranks_of_many_data_sets_are_uniform(sampler: str, model: str) -> None:
    assert_calibrated(sampler, model, LONG_SETS // 4 if sampler in ONE_BY_ONE else LONG_SETS)


def too_sure(target: Target) -> Target:
    """The likelihood counted twice."""
    return replace(target, power=2.0 * target.power)


def narrow_prior(target: Target) -> Target:
    """Another prior than the truths are from."""
    return replace(target, prior_parameters={"low": 0.15 + target.low, "high": target.high - 0.15})


def without_slope(target: Target) -> Target:
    """The logistic transform without its Jacobian."""
    return _Slopeless(**vars(target))


def deaf(target: Target) -> Target:
    """A posterior that never hears the data: only the log likelihood's rank can tell."""
    return replace(target, likelihood=NoLikelihood())


@jax.tree_util.register_dataclass
class _Slopeless(Target):
    def constrain(self, z: jax.Array) -> tuple[jax.Array, jax.Array]:
        return super().constrain(z)[0], jnp.zeros((), z.dtype)


LONG = pytest.mark.long
WRONG = [too_sure, deaf, pytest.param(narrow_prior, marks=LONG), pytest.param(without_slope, marks=LONG)]


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: wrong.__name__)
def test_the_judge_blames_a_wrong_posterior(wrong) -> None:  # type: ignore[no-untyped-def]
    given = replicates("bounded", QUICK_SETS)
    assert blamed(given, chains_together(SAMPLERS["metropolis"], replace(given, believed=wrong)))


@pytest.mark.parametrize("sampler", [pytest.param("nuts", marks=LONG), "metropolis"])
def test_chains_together_are_the_chains_of_sample(sampler: str) -> None:
    """What is calibrated is the sampler that users call: the same draws, up to rounding."""
    few, configured = (
        replicates("bounded", QUICK_SETS).first(3),
        replace(SAMPLERS[sampler], warmup=30, draws=20, thin=1),
    )
    together = chains_together(configured, few)
    for t, target in enumerate(few.each()):
        alone = configured.sample(few.model.problem(target), t, Silent()).draws[0]
        np.testing.assert_allclose(together[t], alone, atol=1e-6)


@pytest.mark.parametrize("model", MODELS)
def test_the_model_is_the_estimators(model: str) -> None:
    """The likelihood that data sets are judged by is that of the package's estimator for the same rows."""
    given = MODELS[model]()
    rows = np.random.default_rng(0).normal(size=(8, given.rows.shape[1]))
    own = given.likelihood(rows)
    theirs = given.estimator.likelihood(rows, np.array([given.h]), given.h_reward, given.prior.box)
    at = given.prior.sample(np.random.default_rng(1), 5)
    values = [float64(jax.vmap(likelihood))(at) for likelihood in (own, theirs)]
    np.testing.assert_allclose(values[0], values[1], rtol=1e-12)
