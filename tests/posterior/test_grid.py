"""Exact draws beyond three parameters, where three directions or fewer are informed; and how they are accepted."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import i0, i1

from kdbirl._jax import float64
from kdbirl.errors import SamplingError
from kdbirl.posterior.auto import Auto
from kdbirl.posterior.cells import CellTree
from kdbirl.posterior.grid import (
    BATCH,
    LARGEST_ERROR,
    MISFIT,
    Grid,
    GridUnsuitable,
    _all_parameters,
    _bound,
    _Density,
    _tree,
)
from kdbirl.posterior.mcmc import NUTS
from kdbirl.posterior.priors import Laplace, Normal, Prior, Uniform
from kdbirl.posterior.target import Draws, NoLikelihood, Problem, Target
from kdbirl.progress import Silent

from .problems import setting

Z_LIMIT = 4.5  # of a few dozen comparisons of means and variances: a right sampler is blamed once in 5,000 fresh seeds
DIRECTIONS = np.linalg.qr(np.array([[1.0, 0.4], [0.0, 1.0], [0.5, -0.3], [-1.0, 0.2], [0.3, 0.3]]))[0].T


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Informed(NoLikelihood):
    """log L = -|A (U R - centre)|^2 / 2: it sees R only through U R, two of five directions."""

    directions: jax.Array
    centre: jax.Array
    root: jax.Array

    def __call__(self, reward: jax.Array) -> jax.Array:
        return -0.5 * jnp.sum((self.root @ (self.directions @ reward - self.centre)) ** 2)


CENTRE, ROOT = np.array([0.3, -0.2]), np.array([[3.0, 0.0], [1.0, 4.0]])


def problem_of(prior: Prior, power: float = 1.0) -> Problem:
    own = prior.for_parameters(5)
    return Problem(Target.build(own, Informed(DIRECTIONS, CENTRE, ROOT), power), own, DIRECTIONS)


def assert_moments(draws: np.ndarray, mean: np.ndarray, covariance: np.ndarray) -> None:
    """Means and all second moments of independent draws, in standard errors of the draws' own spread."""
    flat = draws.reshape(-1, len(mean)) - mean
    products = flat[:, :, None] * flat[:, None, :]
    for values, expected in ((flat, np.zeros_like(mean)), (products, covariance)):
        errors = values.std(axis=0) / np.sqrt(len(values))
        assert np.abs((values.mean(axis=0) - expected) / errors).max() < Z_LIMIT


@pytest.mark.parametrize("power", [1.0, 0.3, 0.02])
def test_a_normal_prior_is_completed_exactly(power: float) -> None:
    """The posterior is normal: precision D^-1 + power (A U)' A U; with little power it is nearly the prior."""
    mean, sd = np.array([0.5, 0.0, -0.3, 1.0, 0.2]), np.array([0.5, 1.0, 2.0, 0.7, 0.4])
    seen = ROOT @ DIRECTIONS
    covariance = np.linalg.inv(np.diag(sd**-2) + power * seen.T @ seen)
    expected = covariance @ (mean / sd**2 + power * seen.T @ ROOT @ CENTRE)
    result = Grid(draws=3000, chains=2).sample(problem_of(Normal(mean, sd), power), 0, Silent())
    assert result.draws.shape == (2, 3000, 5)
    assert result.facts["grid_error"] < LARGEST_ERROR
    assert 0.4 < result.facts["acceptance"] <= 1
    assert result.facts["cells"] >= 1000
    assert_moments(result.draws, expected, covariance)


@pytest.mark.parametrize("prior", [Uniform(-1, 1), Laplace(0.1, 0.4)])
def test_any_other_prior_is_drawn_and_accepted_by_its_likelihood(prior: Prior) -> None:
    """Against prior draws weighted by the likelihood: 400,000 of them, of which thousands are effective."""
    problem = problem_of(prior)
    rewards = problem.prior.sample(np.random.default_rng(9), 400_000)
    logs = -0.5 * (((rewards @ DIRECTIONS.T - CENTRE) @ ROOT.T) ** 2).sum(axis=1)
    weights = np.exp(logs - logs.max())
    weights /= weights.sum()
    result = Grid(draws=2000, chains=2).sample(problem, 0, Silent())
    flat = result.draws.reshape(-1, 5)
    for ours, theirs in ((flat, rewards), (flat**2, rewards**2), (flat[:, :1] * flat, rewards[:, :1] * rewards)):
        expected = weights @ theirs
        error = np.sqrt(theirs.var(axis=0) * (weights**2).sum() + ours.var(axis=0) / len(ours))
        assert np.abs((ours.mean(axis=0) - expected) / error).max() < Z_LIMIT
    highest = logs.max()
    assert result.facts["acceptance"] == pytest.approx(np.exp(logs - highest).mean(), rel=0.35)


def test_the_priors_box_may_lie_anywhere() -> None:
    """Rewards and all that is known of them are 40 larger, and so are the draws."""
    draws = []
    for shift in (0.0, 40.0):
        own = Uniform(shift - 1, shift + 1).for_parameters(5)
        seen = Informed(DIRECTIONS, CENTRE + DIRECTIONS @ np.full(5, shift), ROOT)
        result = Grid(draws=100, chains=1).sample(Problem(Target.build(own, seen), own, DIRECTIONS), 0, Silent())
        draws.append(result.draws - shift)
    np.testing.assert_allclose(draws[0], draws[1], atol=1e-9)


def test_a_likelihood_that_is_highest_outside_of_the_priors_box_is_bounded_inside() -> None:
    """Draws lie in the box, and so must the bound: one from the peak outside would refuse nearly all of them."""
    own = Uniform(-1, 1).for_parameters(5)
    seen = Informed(np.eye(5)[:2], np.array([3.0, 0.2]), 2.0 * np.eye(2))
    result = Grid(draws=500, chains=1).sample(Problem(Target.build(own, seen), own, np.eye(5)[:2]), 0, Silent())
    line = (np.arange(2000) + 0.5) / 1000 - 1
    expected = np.exp(-2 * (line - 3) ** 2 + 8).mean() * np.exp(-2 * (line - 0.2) ** 2).mean()
    assert result.facts["acceptance"] == pytest.approx(expected, rel=0.35)


@pytest.mark.parametrize("prior", [Uniform(-1, 1), Normal(0.0, 1.0)])
def test_where_nothing_is_informed_the_prior_is_drawn(prior: Prior) -> None:
    own = prior.for_parameters(5)
    problem = Problem(Target.build(own, NoLikelihood()), own, np.zeros((0, 5)))
    result = Grid(draws=1000, chains=2).sample(problem, 0, Silent())
    sd = 1.0 if isinstance(prior, Normal) else 1 / np.sqrt(3)
    assert_moments(result.draws, np.zeros(5), np.eye(5) * sd**2)
    assert result.facts == {"grid_error": 0.0, "acceptance": 1.0, "cells": 0}


@float64
def test_a_density_is_evaluated_at_any_number_of_points_and_counts_them() -> None:
    seen: list[tuple[str, int, int]] = []

    class Recorder(Silent):
        def update(self, name: str, done: int, total: int, note: str = "") -> None:
            seen.append((name, done, total))

    problem = problem_of(Uniform(-1, 1))
    density = _Density(problem.target, _all_parameters(problem), "likelihood", Recorder())
    points = problem.prior.sample(np.random.default_rng(0), 3 * BATCH // 2)
    expected = -0.5 * (((points @ DIRECTIONS.T - CENTRE) @ ROOT.T) ** 2).sum(axis=1)
    for part in (slice(None, 7), slice(7, None)):
        np.testing.assert_allclose(density(points[part]), expected[part], rtol=1e-10)
    assert seen == [("grid", 7, 7), ("grid", len(points), len(points))]


def test_prior_draws_of_which_just_enough_are_accepted_are_all_that_is_drawn() -> None:
    """The first 4096 give the acceptance whether one draw is asked of them or as many as were accepted."""
    one = Grid(draws=1, chains=1).sample(problem_of(Uniform(-1, 1)), 0, Silent())
    all_of_them = round(one.facts["acceptance"] * 8 * BATCH)
    for draws, the_same in ((all_of_them, True), (all_of_them + 1, False)):
        result = Grid(draws=draws, chains=1).sample(problem_of(Uniform(-1, 1)), 0, Silent())
        assert (result.facts["acceptance"] == one.facts["acceptance"]) is the_same


def test_rejection_gives_up_where_hardly_a_draw_is_accepted() -> None:
    own = Uniform(-1, 1).for_parameters(5)
    narrow = Informed(DIRECTIONS, CENTRE, 60 * ROOT)
    with pytest.raises(GridUnsuitable, match="draws from the prior were accepted"):
        Grid().sample(Problem(Target.build(own, narrow), own, DIRECTIONS), 0, Silent())


def test_more_than_three_directions_are_refused() -> None:
    own = Uniform(-1, 1).for_parameters(5)
    for informed, rank in ((np.eye(5)[:4], 4), (None, 5)):
        with pytest.raises(GridUnsuitable, match=f"here {rank} of 5 directions are informed"):
            Grid().sample(Problem(Target.build(own, NoLikelihood()), own, informed), 0, Silent())


def test_auto_takes_the_grid_where_it_is_exact_and_says_why_where_it_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    def named(self: object, problem: Problem, seed: int, progress: object) -> Draws:
        return Draws(np.zeros((1, 1, problem.target.size)), {}, type(self).__name__, (), {"as": self})

    for module in ("mcmc.NUTS", "smc.SMC"):
        monkeypatch.setattr(f"kdbirl.posterior.{module}.sample", named)
    own = Uniform(-1, 1).for_parameters(5)
    small = Auto(chains=2, warmup=70, draws=50)
    exact = small.sample(problem_of(Uniform(-1, 1)), 0, Silent())
    assert exact.sampler == "Grid"
    assert exact.draws.shape == (2, 50, 5)
    three = Problem(Target.build(own, NoLikelihood()), own, np.eye(5)[:3])
    assert small.sample(three, 0, Silent()).sampler == "Grid"
    full = Problem(Target.build(own, NoLikelihood()), own, None)
    smooth = small.sample(full, 0, Silent())
    assert smooth.facts["as"] == NUTS(chains=2, warmup=70, draws=50)
    assert smooth.notes == ("NUTS instead of the grid: more than three reward directions are informed",)
    rough = small.sample(Problem(full.target, own, np.eye(5), differentiable=False), 0, Silent())
    assert rough.sampler == "SMC"
    three = Uniform(-1, 1).for_parameters(3)
    assert small.sample(Problem(Target.build(three, NoLikelihood()), three, None), 0, Silent()).sampler == "Grid"


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Waves(NoLikelihood):
    """log L = sin(2 pi 300 R): finer than the first cells, of which there are 256."""

    def __call__(self, reward: jax.Array) -> jax.Array:
        return jnp.sin(600 * jnp.pi * reward[0])


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Spike(NoLikelihood):
    """A plateau, and a spike on it that is narrower than the first cells and between their points."""

    def __call__(self, reward: jax.Array) -> jax.Array:
        return 8.0 * jnp.exp(-0.5 * ((reward[0] - 1024.5 / 2048) / 1e-4) ** 2)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Window(NoLikelihood):
    """Zero but for a small part of the unit interval."""

    half: jax.Array

    def __call__(self, reward: jax.Array) -> jax.Array:
        return jnp.where(jnp.abs(reward[0] - 0.5) < self.half, 0.0, -jnp.inf)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Undefined(NoLikelihood):
    """Not a number in a tenth of the unit interval."""

    def __call__(self, reward: jax.Array) -> jax.Array:
        return jnp.where(reward[0] > 0.9, jnp.nan, 0.0)


def test_a_density_that_is_somewhere_not_a_number_is_refused() -> None:
    own = Uniform(0, 1).for_parameters(1)
    with pytest.raises(SamplingError, match="The posterior density is not a number somewhere"):
        Grid().sample(Problem(Target.build(own, Undefined()), own), 0, Silent())


def on_the_unit_interval(likelihood: NoLikelihood) -> _Density:
    prior = Uniform(0, 1).for_parameters(1)
    problem = Problem(Target.build(prior, likelihood), prior)
    return _Density(problem.target, _all_parameters(problem), "posterior", Silent())


@float64
def test_what_the_grid_misses_and_the_prior_finds_is_mended() -> None:
    probes = (np.arange(2048)[:, None] + 0.5) / 2048
    density, low, high = on_the_unit_interval(Spike()), np.zeros(1), np.ones(1)
    before = CellTree(low, high, probes, density)
    before.refine(10_000)
    after = _tree(Grid(), low, high, density, probes)
    short = [(density(probes) - tree.predict(tree.find(probes), probes)).max() for tree in (before, after)]
    assert short[0] > 5
    assert short[1] <= MISFIT
    assert len(before.leaves) < len(after.leaves) < len(before.leaves) + 50  # only there


@float64
def test_a_density_that_only_the_grid_finds_is_not_called_zero() -> None:
    low, high = np.zeros(1), np.ones(1)
    probes = np.concatenate([np.linspace(0.0, 0.48, 150), np.linspace(0.52, 1.0, 150)])[:, None]
    tree = _tree(Grid(), low, high, on_the_unit_interval(Window(np.float64(0.01))), probes)
    assert tree.values.max() == 0.0
    with pytest.raises(GridUnsuitable, match="is zero at each of"):
        _tree(Grid(), low, high, on_the_unit_interval(Window(np.float64(0.0))), probes)


def test_a_grid_that_fits_badly_is_corrected_by_rejection() -> None:
    """Without leave to split, most draws are refused and more are drawn; E[sin] = I1(1) / I0(1) all the same."""
    prior = Uniform(0, 1).for_parameters(1)
    result = Grid(draws=1500, chains=2, max_cells=1).sample(Problem(Target.build(prior, Waves()), prior), 0, Silent())
    assert result.draws.shape == (2, 1500, 1)
    assert 0.02 < result.facts["acceptance"] < 0.8
    waves = np.sin(600 * np.pi * result.draws)
    assert abs(waves.mean() - i1(1) / i0(1)) < Z_LIMIT * waves.std() / np.sqrt(waves.size)


def test_a_single_draw_can_be_asked_for() -> None:
    prior = Uniform(0, 1).for_parameters(1)
    result = Grid(draws=1, chains=1).sample(Problem(Target.build(prior, NoLikelihood()), prior), 0, Silent())
    assert result.draws.shape == (1, 1, 1)
    assert 0 <= result.draws[0, 0, 0] <= 1
    assert _bound(np.array([-3.0])) == (-3.0, 1.0)


@pytest.mark.parametrize(("highest", "above"), [(2.0, 0), (0.9, 3)])
def test_the_bound_is_the_lowest_that_costs_a_tenth_of_the_allowed_error(highest: float, above: int) -> None:
    """Found by trying every ratio: what lies above the bound is a share of all weights, which must stay small."""
    ratios = np.concatenate([np.random.default_rng(0).normal(0, 0.3, 3000), [-np.inf, highest]])
    finite = ratios[np.isfinite(ratios)]

    def lost(bound: float) -> float:
        weights = np.exp(finite - bound)
        return float(np.maximum(weights - 1, 0).sum() / weights.sum())

    bound, share = _bound(ratios)
    allowed = [ratio for ratio in finite if lost(ratio) <= 0.1 * LARGEST_ERROR]
    assert bound == min(allowed)
    assert (ratios > bound).sum() == above
    assert share == pytest.approx(np.minimum(np.exp(ratios - bound), 1).mean())
    with pytest.raises(GridUnsuitable, match="zero at every draw"):
        _bound(np.full(3, -np.inf))


@pytest.mark.parametrize("draws", [1, 5, 60])
def test_few_draws_are_as_many_as_asked_for(draws: int) -> None:
    """Where the acceptance falls as more is drawn, at least some more are."""
    for seed in range(6):
        found = Grid(draws=draws, chains=1).sample(setting("compact").problem, seed, Silent())
        assert found.draws.shape == (1, draws, setting("compact").problem.target.size)
