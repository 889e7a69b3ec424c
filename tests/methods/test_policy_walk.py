"""PolicyWalk: its lattice, its policies, and the exact posterior on that lattice as the judge."""

import re
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from arviz_stats.base.array import array_stats
from scipy.integrate import quad

import kdbirl as kb
from kdbirl._jax import float64
from kdbirl.errors import InputError
from kdbirl.methods.birl import BIRL
from kdbirl.methods.optimal_values import OptimalValues
from kdbirl.methods.policy_walk import Lattice, PolicyWalk
from kdbirl.posterior.result import Posterior
from kdbirl.posterior.target import NoLikelihood, Problem, Target
from kdbirl.progress import Silent

from .worlds import action_values, exact_moments, expert, random_world, small

ALPHA = 3.0
Z_LIMIT = 4.5  # exceeded by a right sampler once in 150,000 comparisons; the seeds are fixed


@cache
def walked(seed: int = 0) -> Posterior:
    sampler = PolicyWalk(chains=4, warmup=300, draws=2000, step=0.1, thin=40)
    return BIRL(small(), kb.Uniform(0, 1), ALPHA, sampler=sampler).posterior(expert(small()), seed=seed)


def test_moments_are_those_of_the_exact_posterior_on_the_lattice() -> None:
    post = walked()
    mean, variance = exact_moments(ALPHA, "policy", per_side=10)
    for j, values in enumerate(np.moveaxis(post.draws, 2, 0)):
        squares = (values - mean[j]) ** 2
        assert abs(values.mean() - mean[j]) < Z_LIMIT * array_stats.mcse(values, method="mean")
        assert abs(squares.mean() - variance[j]) < Z_LIMIT * array_stats.mcse(squares, method="mean")
    assert array_stats.ess(post.draws[..., 3], method="bulk") > 1000  # the comparison has teeth


def test_draws_lie_on_the_lattice_and_say_so() -> None:
    post = walked()
    places = (post.draws - 0.05) / 0.1
    assert np.abs(places - np.round(places)).max() < 1e-9
    assert post.draws.min() > 0
    assert post.draws.max() < 1
    assert post.sampler == "PolicyWalk"
    assert "step 0.1" in post.settings["notes"][0]
    assert post.settings["sampler_facts"]["lattice_step"] == pytest.approx([0.1] * 4)
    assert 0 < post.sample_stats["acceptance_rate"].mean() < 1
    assert post.sample_stats["policy_changes"].sum() > 0


def test_its_log_density_carried_along_is_that_of_each_draw() -> None:
    """The warm-started policies are optimal: the density kept by the walk equals one computed from nothing."""
    post = walked()
    np.testing.assert_allclose(post.sample_stats["log_density"], post.sample_stats["lp"], atol=1e-9)


def test_same_seed_same_draws() -> None:
    sampler = PolicyWalk(chains=4, warmup=300, draws=60, step=0.1, thin=40)
    again = BIRL(small(), kb.Uniform(0, 1), ALPHA, sampler=sampler).posterior(expert(small()), seed=0)
    np.testing.assert_array_equal(again.draws, walked().draws[:, :60])
    other = BIRL(small(), kb.Uniform(0, 1), ALPHA, sampler=sampler).posterior(expert(small()), seed=1)
    assert not np.array_equal(other.draws, again.draws)


@pytest.mark.parametrize("world", [kb.Gridworld(3), random_world()], ids=["certain", "random"])
@float64
def test_any_policy_is_a_start(world: kb.TabularMDP) -> None:
    values, rng = OptimalValues.of(world), np.random.default_rng(1)
    live, warm = np.flatnonzero(~world.terminal), jax.jit(values.warm)
    for _ in range(5):
        reward = rng.normal(size=world.n_parameters)
        start = jnp.asarray(rng.integers(0, world.n_actions, len(live)), dtype=jnp.int32)
        q_values, policy = warm(jnp.asarray(reward), start)
        wanted = action_values(world, reward[None], sweeps=1000)[0][live]
        np.testing.assert_allclose(q_values, wanted, atol=1e-9)
        chosen = np.take_along_axis(wanted, np.asarray(policy)[:, None], axis=1)[:, 0]  # several may be best
        np.testing.assert_allclose(chosen, wanted.max(axis=1), atol=1e-9)


@float64
def test_lattices() -> None:
    mixed = kb.Product([kb.Uniform(-1, 1), kb.Normal(0, 1), kb.TruncatedNormal(0, 1, 0, np.inf)]).for_parameters(3)
    lattice = Lattice.over(mixed, 0.3)
    np.testing.assert_allclose(lattice.step, [2 / 7, 0.3, 0.3])  # seven whole cells fill [-1, 1]
    np.testing.assert_allclose(lattice.origin, [-1 + 1 / 7, 0.0, 0.15])
    assert lattice.first.tolist()[0] == lattice.first.tolist()[2] == 0
    assert lattice.last.tolist()[0] == 6
    reached = lattice.reward(lattice.nearest(jnp.asarray([5.0, 0.95, -3.0])))
    np.testing.assert_allclose(reached, [1 - 1 / 7, 0.9, 0.15])
    usual = Lattice.over(kb.Uniform(0, 1).for_parameters(2), None)
    np.testing.assert_allclose(usual.step, 0.1)


def two_choices(rows: tuple[int, int]) -> tuple[kb.TabularMDP, kb.Demonstrations]:
    """Two states, a weight each: p(first action) = 1 / (1 + e^{-alpha w_j}), and it is always taken."""
    transitions, features = np.zeros((3, 2, 3)), np.zeros((3, 2, 2))
    transitions[:, :, 2] = features[0, 0, 0] = features[1, 0, 1] = 1.0
    world = kb.TabularMDP(transitions, "uniform", 0.9, features, terminal=np.arange(3) == 2)
    return world, kb.Demonstrations(states=np.repeat([0, 1], rows), actions=np.zeros(sum(rows), int))


def exact_choice(rows: int) -> tuple[float, float]:
    """Mean and sd of p(w) ~ (1 + e^{-alpha w})^-rows on [0, 1]."""

    def moment(k: int) -> float:
        return quad(lambda w: w**k * ((1 + np.exp(-ALPHA)) / (1 + np.exp(-ALPHA * w))) ** rows, 0, 1, points=[0.9])[0]

    mean = moment(1) / moment(0)
    return mean, np.sqrt(moment(2) / moment(0) - mean**2)


def test_a_lattice_coarser_than_the_posterior_is_not_green_and_names_the_step_that_is() -> None:
    world, rows = two_choices((300, 12))  # both weights run to their bound, one of them far closer
    exact = np.array([exact_choice(300), exact_choice(12)])

    def post(step: float, thin: int) -> Posterior:
        return BIRL(world, kb.Uniform(0, 1), ALPHA, sampler=PolicyWalk(step=step, thin=thin)).posterior(rows)

    coarse = post(0.1, 40)
    assert coarse.mean()[0] < exact[0, 0] - exact[0, 1]  # more than a whole sd off
    assert coarse.convergence.colour == "red"
    found = re.search(r"too coarse for 'phi0': .* take step=([0-9.]+) or less", coarse.convergence.sentence)
    assert found is not None, coarse.convergence.sentence
    step = float(found.group(1))
    assert 0.3 * exact[0, 1] < step < exact[0, 1]
    fine = post(step, 200)
    assert fine.convergence.colour == "green", fine.convergence.sentence
    # at this step the mean is off by 0.04 sd, the sd by 2 %; 4.5 standard errors of 400 effective draws add 0.23 sd
    assert (np.abs(fine.mean() - exact[:, 0]) < 0.28 * exact[:, 1]).all()
    np.testing.assert_allclose(fine.flat.std(axis=0), exact[:, 1], rtol=0.3)
    middling = post(1 / 32, 40)  # its sd is 0.57 of a step: off by 0.2 sd
    assert middling.convergence.colour == "amber", middling.convergence.sentence
    assert "too coarse for 'phi0'" in middling.convergence.sentence


def test_a_ridge_thinner_than_the_lattice_is_not_green() -> None:
    """One choice between two weights, taken evenly: only their difference is known, and it is a logistic one."""
    transitions, features = np.zeros((2, 2, 2)), np.zeros((2, 2, 2))
    transitions[:, :, 1] = features[0, 0, 0] = features[0, 1, 1] = 1.0
    world = kb.TabularMDP(transitions, np.array([1.0, 0]), 0.9, features, terminal=np.arange(2) == 1)
    rows = kb.Demonstrations(states=np.zeros(30, int), actions=np.arange(30) % 2)

    def weight(d: float, k: int) -> float:  # of the difference d, under a uniform prior on the square
        return (1 - abs(d)) * d**k * (np.exp(10 * d / 2) + np.exp(-10 * d / 2)) ** -30.0 * 2**30

    exact = np.sqrt(quad(weight, -1, 1, args=(2,), points=[0])[0] / quad(weight, -1, 1, args=(0,), points=[0])[0])

    def post(step: float, thin: int) -> tuple[Posterior, float]:
        found = BIRL(world, kb.Uniform(0, 1), 10.0, sampler=PolicyWalk(step=step, thin=thin)).posterior(rows)
        return found, float((found.flat @ [1, -1]).std())

    coarse, narrow = post(0.1, 400)
    assert narrow < 0.7 * exact
    assert coarse.convergence.colour != "green"
    found = re.search(r"coarse for 'phi0' - 'phi1': .* take step=([0-9.]+) or less", coarse.convergence.sentence)
    assert found is not None, coarse.convergence.sentence
    fine, width = post(float(found.group(1)), 100)  # too few steps along the ridge, but enough across it
    assert "coarse" not in fine.convergence.sentence
    assert width == pytest.approx(exact, rel=0.1)


def test_a_walk_that_stays_at_one_point_of_its_lattice_is_told_so() -> None:
    world, rows = two_choices((2000, 4))
    post = BIRL(world, kb.Uniform(0, 1), ALPHA, sampler=PolicyWalk(step=0.1)).posterior(rows)
    assert np.ptp(post.draws[..., 0]) == 0
    found = re.search(r"too coarse for 'phi0': .* take step=([0-9.]+) or less", post.convergence.sentence)
    assert found is not None
    assert "never moved" not in post.convergence.sentence
    assert exact_choice(2000)[1] < float(found.group(1)) < 0.02  # all that can be said of it from one point


@pytest.mark.parametrize("wrong", [{"step": 0}, {"step": -0.1}, {"thin": 0}, {"draws": 0}, {"warmup": -1}])
def test_wrong_settings(wrong: dict[str, float]) -> None:
    with pytest.raises(InputError, match=next(iter(wrong))):
        PolicyWalk(**wrong)


def test_only_for_birl() -> None:
    prior = kb.Uniform(0, 1).for_parameters(2)
    problem = Problem(Target.build(prior, NoLikelihood()), prior)
    with pytest.raises(InputError, match=r"kb\.BIRL only"):
        PolicyWalk().sample(problem, 0, Silent())
