"""The parts of tempered SMC that have an answer of their own: steps, resampling, the shape of moves."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import logsumexp

from kdbirl._jax import float64
from kdbirl.posterior.priors import Uniform
from kdbirl.posterior.smc import SMC, _batch, _correlation, _covariance, _random_walk, _Run, _step, _systematic
from kdbirl.posterior.target import NoLikelihood, Problem, Target
from kdbirl.progress import Silent

from .problems import setting


def effective_share(log_weights: np.ndarray) -> float:
    return float(np.exp(2 * logsumexp(log_weights) - logsumexp(2 * log_weights))) / len(log_weights)


@pytest.mark.parametrize("steepness", [10.0, 1e20, 1e200])
@pytest.mark.parametrize("target_ess", [0.5, 0.9])
def test_a_step_keeps_the_effective_number_that_was_asked_for(steepness: float, target_ess: float) -> None:
    """However steep the likelihood: the step may be as small as it has to be."""
    log_likelihood = -steepness * np.random.default_rng(0).chisquare(3, 1000)
    step = _step(log_likelihood, 0.8, target_ess)
    assert 0 < step < 0.8
    assert effective_share(step * log_likelihood) == pytest.approx(target_ess, rel=1e-4)


def test_a_step_is_the_whole_way_where_that_keeps_enough() -> None:
    log_likelihood = np.random.default_rng(0).normal(size=100) * 1e-3
    assert _step(log_likelihood, 0.37, 0.9) == 0.37


def test_systematic_resampling_is_within_one_of_the_weights() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        log_weights = rng.normal(size=200) * 2 - 900.0
        ancestors = _systematic(log_weights, rng)
        assert (np.diff(ancestors) >= 0).all()
        expected = 200 * np.exp(log_weights - logsumexp(log_weights))
        assert np.abs(np.bincount(ancestors, minlength=200) - expected).max() < 1


def test_moves_are_shaped_like_the_particles() -> None:
    particles = np.random.default_rng(0).multivariate_normal([3.0, -1.0], [[2.0, 0.6], [0.6, 0.5]], 4000)
    covariance = np.cov(particles.T, ddof=0)
    np.testing.assert_allclose(_covariance(particles), covariance, rtol=2e-3)
    np.testing.assert_allclose(np.diag(_covariance(particles)), np.diag(covariance))
    few = _covariance(particles[:3])
    assert np.linalg.eigvalsh(few).min() > 0
    collapsed = np.broadcast_to(particles[:1], (50, 2))
    assert np.linalg.eigvalsh(_covariance(collapsed)).min() > 0
    assert _covariance(particles[:, :1]).shape == (1, 1)


def test_the_correlation_with_where_particles_were() -> None:
    rng = np.random.default_rng(0)
    before = rng.normal(size=(500, 3)) + 7.0
    after = np.stack([before[:, 0] * 2, rng.normal(size=500) - before[:, 1], np.full(500, 4.0)], axis=1)
    first, second, third = _correlation(before, after)
    assert first == pytest.approx(1.0)
    assert second == pytest.approx(np.corrcoef(before[:, 1], after[:, 1])[0, 1])
    assert third == 1.0  # it has not moved at all: as far from mixed as can be
    np.testing.assert_allclose(_correlation(before[:, :2] * 1e-6, after[:, :2] * 1e-6), [first, second])


@pytest.mark.parametrize("value", [4.0, 4e-6, 0.1])
def test_particles_in_one_place_do_not_count_as_mixed_whatever_rounding_makes_of_their_mean(value: float) -> None:
    for shape in ((500, 1), (500, 2)):  # NumPy adds up one column and several in another order
        moving, still = np.random.default_rng(0).normal(size=shape), np.full(shape, value)
        for pair in ((moving, still), (still, moving)):
            assert (_correlation(*pair) == 1.0).all()


@float64
def test_particles_are_evaluated_together_within_a_bound_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    target = setting("corner").problem.target
    rows = target.likelihood.pointwise(target.low).shape[0]
    assert _batch(target, 1000) == 1000
    monkeypatch.setattr("kdbirl.posterior.smc.MOST_ENTRIES", 7 * rows + 1)
    assert _batch(target, 1000) == 7
    monkeypatch.setattr("kdbirl.posterior.smc.MOST_ENTRIES", 1)
    assert _batch(target, 1000) == 1
    prior = Uniform(0, 1).for_parameters(2)
    assert _batch(Target.build(prior, NoLikelihood()), 9) == 1  # no rows at all, and still a number


def test_without_data_the_prior_is_drawn_in_one_step() -> None:
    prior = Uniform(0, 1).for_parameters(2)
    result = SMC(particles=400, runs=2).sample(Problem(Target.build(prior, NoLikelihood()), prior), 0, Silent())
    assert result.facts["temperatures"] == [1, 1]
    assert result.facts["log_evidence"] == [0.0, 0.0]


@pytest.mark.parametrize(("inner", "wanted"), [("random-walk", 0.3), ("hmc", 0.8)])
def test_the_length_of_moves_is_tuned_to_its_acceptance(inner: str, wanted: float) -> None:
    """A proposal that nothing tunes would be far off at the end of a narrow ridge."""
    result = SMC(particles=400, runs=1, inner=inner).sample(setting("ridge").problem, 0, Silent())
    assert result.notes == ()
    assert result.facts["acceptance"][0] == pytest.approx(wanted, abs=0.1)


@float64
def test_moves_begin_at_the_best_size_for_a_normal_density() -> None:
    """2.38 / sqrt(q) of the particles' spread: where all moves are accepted, their covariance is 2.38^2 / q of it."""
    covariance = np.array([[2.0, 0.6, 0.0], [0.6, 0.5, 0.1], [0.0, 0.1, 1.0]])
    start, step = _random_walk(jnp.asarray(covariance), jnp.asarray(1.0), 3)

    def flat(z: jax.Array) -> jax.Array:
        return 0.0 * jnp.sum(z)

    def moved(key: jax.Array) -> jax.Array:
        return step(key, start(jnp.zeros(3), flat), flat)[0].position

    moves = np.asarray(jax.jit(jax.vmap(moved))(jax.random.split(jax.random.key(0), 20_000)))
    np.testing.assert_allclose(np.cov(moves.T), covariance * 2.38**2 / 3, atol=0.2)


class FewPlaces(Uniform):
    """A prior whose draws are twenty points again and again."""

    def sample(self, rng: np.random.Generator, n: int) -> np.ndarray:
        return super().sample(rng, 20)[np.arange(n) % 20]


@pytest.mark.parametrize(("prior", "moves"), [(FewPlaces, True), (Uniform, False)])
@float64
def test_starting_points_that_are_repeated_are_moved_apart(prior: type[Uniform], moves: bool) -> None:
    """As where a compact kernel leaves few prior draws inside; draws that are all different stay where they are."""
    problem = Problem(setting("corner").problem.target, prior(np.zeros(2), np.ones(2)))
    run = _Run(SMC(particles=400, runs=1, moves=1, sweeps=1), problem, 0, 0, 400, Silent())
    assert len(np.unique(run.particles, axis=0)) > 100
    assert run.acceptance.any() == moves


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class WithoutGradient(NoLikelihood):
    """A normal likelihood whose gradient is not a number anywhere."""

    def __call__(self, reward: jax.Array) -> jax.Array:
        return jnp.sum(jnp.sqrt(0.0 * reward) - 50.0 * (reward - 0.3) ** 2)


def test_a_random_walk_needs_no_gradient() -> None:
    """The posterior is N(0.3, 0.1^2): the mean of 200 particles is within 0.02 even if only 25 are worth something."""
    prior = Uniform(0, 1).for_parameters(1)
    problem = Problem(Target.build(prior, WithoutGradient()), prior)
    result = SMC(particles=200, runs=1, moves=2).sample(problem, 0, Silent())
    assert result.facts["acceptance"][0] > 0.1
    assert abs(result.draws.mean() - 0.3) < 0.09


def test_particles_that_cannot_move_are_said_to_be_close_to_their_ancestors() -> None:
    result = SMC(particles=400, runs=2, moves=1, sweeps=1).sample(setting("corner").problem, 0, Silent())
    assert "the particles of run 1, 2 are still close to their ancestors after 1 sweeps" in result.notes[0]
