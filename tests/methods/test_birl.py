"""BIRL against value iteration written out, finite differences, and an exact grid posterior of a 4-state world."""

from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from arviz_stats.base.array import array_stats

import kdbirl as kb
from kdbirl._jax import float64
from kdbirl.errors import InputError
from kdbirl.methods.birl import BIRL
from kdbirl.methods.optimal_values import BIRLLikelihood, OptimalValues
from kdbirl.posterior.result import Posterior

from .worlds import action_values, corridor, exact_moments, expert, log_densities, random_world, small

ALPHA = 3.0
Z_LIMIT = 4.5  # exceeded by a right sampler once in 150,000 comparisons; the seeds are fixed
SAMPLERS: dict[str, Any] = {
    "nuts": kb.NUTS(chains=4, warmup=400, draws=800),
    "metropolis": kb.Metropolis(chains=4, warmup=1000, draws=1000, thin=20),
}
WORLDS: dict[str, Any] = {
    "grid": lambda: kb.Gridworld(3),
    "slippery": lambda: kb.Gridworld(3, slip=0.3, walls=[4], features="xy"),
    "goal": lambda: kb.Gridworld(3, goal=8),
    "random": random_world,
    "undiscounted": corridor,
    "myopic": lambda: kb.Gridworld(2, discount=0.0),
}


@cache
def drawn(sampler: str, form: str = "policy", seed: int = 0) -> Posterior:
    model = BIRL(small(), kb.Uniform(0, 1), ALPHA, likelihood=form, sampler=SAMPLERS[sampler])
    return model.posterior(expert(small()), seed=seed)


@pytest.mark.parametrize("name", WORLDS)
@float64
def test_optimal_values_are_those_of_value_iteration(name: str) -> None:
    world = WORLDS[name]()
    values, live = OptimalValues.of(world), ~world.terminal
    rewards = np.random.default_rng(0).normal(size=(8, world.n_parameters))
    found = jax.jit(jax.vmap(values))(jnp.asarray(rewards))
    np.testing.assert_allclose(found, action_values(world, rewards, sweeps=800)[:, live], atol=1e-9)


@pytest.mark.parametrize(
    ("name", "form"), [("grid", "policy"), ("random", "joint"), ("undiscounted", "unnormalized"), ("goal", "joint")]
)
@float64
def test_the_gradient_is_that_of_finite_differences(name: str, form: Any) -> None:
    world = WORLDS[name]()
    rng, live = np.random.default_rng(3), int((~world.terminal).sum())
    visits = rng.integers(0, 4, (live, world.n_actions)).astype(float)
    likelihood = BIRLLikelihood.of(OptimalValues.of(world), 2.0, visits, form)
    both = jax.jit(jax.value_and_grad(likelihood.__call__))
    reward, small_step = rng.normal(size=world.n_parameters), 1e-6
    steps = small_step * np.eye(world.n_parameters)
    rises = [both(jnp.asarray(reward + d))[0] - both(jnp.asarray(reward - d))[0] for d in steps]
    np.testing.assert_allclose(both(jnp.asarray(reward))[1], np.array(rises) / (2 * small_step), atol=1e-5)


@pytest.mark.parametrize("form", ["policy", "joint", "unnormalized"])
@pytest.mark.parametrize("name", ["goal", "random"])
def test_log_likelihood_is_the_formula(name: str, form: str) -> None:
    world = WORLDS[name]()
    rows = expert(world)
    rewards = np.random.default_rng(1).uniform(size=(5, world.n_parameters))
    wanted = log_densities(world, rewards, ALPHA, form)[:, rows.states, rows.actions].sum(axis=1)
    model = BIRL(world, kb.Uniform(0, 1), ALPHA, likelihood=form)
    np.testing.assert_allclose(model.log_likelihood(rows, rewards), wanted, rtol=1e-9)
    assert model.log_likelihood(rows, rewards[0]) == pytest.approx(wanted[0])


@pytest.mark.parametrize(("sampler", "form"), [("nuts", "policy"), ("metropolis", "policy"), ("metropolis", "joint")])
def test_samplers_agree_with_the_exact_grid_posterior(sampler: str, form: str) -> None:
    """Moments within Monte-Carlo error; midpoints of 12 cells a side err by (1/12)^4, with the variance in a cell."""
    post = drawn(sampler, form)
    mean, variance = exact_moments(ALPHA, form, per_side=12)
    variance = variance + (1 / 12) ** 2 / 12
    for j, values in enumerate(np.moveaxis(post.draws, 2, 0)):
        squares = (values - mean[j]) ** 2
        assert abs(values.mean() - mean[j]) < Z_LIMIT * array_stats.mcse(values, method="mean")
        assert abs(squares.mean() - variance[j]) < Z_LIMIT * array_stats.mcse(squares, method="mean")
        assert array_stats.ess(values, method="bulk") > 500
    assert np.abs(mean - 0.5).max() > 0.1  # the expert moves the prior, or this would test nothing


def test_two_weights_are_drawn_from_the_grid() -> None:
    world = kb.Gridworld(2, features="xy", discount=0.7)
    rows = expert(world)
    post = BIRL(world, kb.Normal(0, 1), ALPHA).posterior(rows)
    assert post.sampler == "Grid"
    assert post.names == ("x", "y")
    points = np.random.default_rng(0).normal(size=(20_000, 2))  # importance weights of prior draws
    values = log_densities(world, points, ALPHA, "policy", sweeps=80)[:, rows.states, rows.actions].sum(axis=1)
    weights = np.exp(values - values.max())
    mean = weights @ points / weights.sum()
    error = np.sqrt((weights**2 @ (points - mean) ** 2) / weights.sum() ** 2 + post.flat.var(axis=0) / len(post.flat))
    assert (np.abs(post.mean() - mean) < Z_LIMIT * error).all()


def test_a_posterior_as_every_method_gives_it(tmp_path: Path) -> None:
    post, rows = drawn("nuts"), expert(small())
    model = BIRL(small(), kb.Uniform(0, 1), ALPHA)
    assert post.method == "BIRL"
    assert post.names == small().feature_names
    assert post.log_likelihood is not None
    per_row = post.log_likelihood[0, :5][:, post.expert_index].sum(axis=1)
    np.testing.assert_allclose(per_row, model.log_likelihood(rows, post.draws[0, :5]))
    np.testing.assert_allclose(post.sample_stats["lp"][0, :5], per_row)  # the prior's density is 1
    assert post.prior_draws.shape == (4000, 4)
    assert {"alpha", "likelihood", "prior", "world", "sampler", "expert", "versions"} <= set(post.settings)
    np.testing.assert_allclose(post.reward(rows).mean, post.mean()[rows.states])
    post.save(tmp_path / "posterior.nc")
    assert kb.load_posterior(tmp_path / "posterior.nc") == post
    assert post.convergence.ok, post.convergence.sentence


def test_same_seed_same_draws() -> None:
    again = BIRL(small(), kb.Uniform(0, 1), ALPHA, sampler=SAMPLERS["nuts"]).posterior(expert(small()), seed=0)
    assert again == drawn("nuts")
    assert not np.array_equal(drawn("nuts", seed=1).draws, again.draws)


def test_fit_takes_a_bank_and_learns_nothing() -> None:
    bank = kb.make_bank(small(), np.eye(4)[:2], episodes=2, horizon=4, seed=0)
    model = BIRL(small(), kb.Uniform(0, 1), ALPHA, sampler=SAMPLERS["nuts"])
    assert model.fit(bank) is model
    assert model.posterior(expert(small()), seed=0) == drawn("nuts")
    other = kb.make_bank(kb.Gridworld(3), np.eye(9)[:2], episodes=2, horizon=4, seed=0)
    with pytest.raises(InputError, match="9 parameters"):
        model.fit(other)
    with pytest.raises(InputError, match="TaskBank"):
        model.fit(expert(small()))


def test_text_is_looked_up_among_the_worlds_names() -> None:
    """Codes of text are in the order of the text, not of the world."""
    rows, names = expert(small()), np.array(small().action_names)
    as_text = kb.Demonstrations(states=rows.states, actions=names[rows.actions], n_states=4)
    model, reward = BIRL(small(), kb.Uniform(0, 1), ALPHA), np.array([0.1, 0.4, 0.2, 0.9])
    assert model.log_likelihood(as_text, reward) == model.log_likelihood(rows, reward)
    unknown = kb.Demonstrations(states=[0, 1], actions=["UP", "JUMP"])
    with pytest.raises(InputError, match="row 2 has action 'JUMP'"):
        model.posterior(unknown)


BAD_EXPERTS: dict[str, tuple[Any, str]] = {
    "no demonstrations": ([[0, 1]], "must be Demonstrations"),
    "no actions": (kb.Demonstrations(states=[0, 1]), "has no actions"),
    "a state too many": (kb.Demonstrations(states=[0, 3, 4], actions=[0, 0, 0]), "row 3 has state 4"),
    "an action too many": (kb.Demonstrations(states=[0, 3], actions=[0, 5]), "row 2 has action 5"),
    "vectors": (kb.Demonstrations(states=[[0.0, 1.0], [1.0, 1.0]], actions=[0, 1]), "states are vectors"),
    "fractions": (kb.Demonstrations(states=[[0.5], [1.0]], actions=[0, 1]), "states are vectors"),
}


@pytest.mark.parametrize("name", BAD_EXPERTS)
def test_bad_experts_are_refused(name: str) -> None:
    rows, message = BAD_EXPERTS[name]
    with pytest.raises(InputError, match=message):
        BIRL(small(), kb.Uniform(0, 1), ALPHA).posterior(rows)


def test_acting_at_the_end_is_refused() -> None:
    with pytest.raises(InputError, match="row 2 acts in state 5, which is terminal"):
        BIRL(random_world(), kb.Normal(0, 1), ALPHA).posterior(kb.Demonstrations(states=[1, 5], actions=[0, 1]))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"mdp": "grid"}, "kb.TabularMDP"),
        ({"mdp": kb.Gridworld(2, horizon=5)}, "horizon=5"),
        ({"prior": 1.0}, "not a prior"),
        ({"prior": kb.Uniform([0, 0], [1, 1])}, "4 parameters"),
        ({"alpha": 0.0}, "alpha"),
        ({"alpha": "1"}, "alpha"),
        ({"likelihood": "polcy"}, "Did you mean 'policy'"),
        ({"sampler": "policywlk"}, "Did you mean 'policywalk'"),
        ({"sampler": 3}, "no sampler"),
    ],
)
def test_wrong_choices(wrong: dict[str, Any], message: str) -> None:
    choices: dict[str, Any] = {"mdp": small(), "prior": kb.Uniform(0, 1), "alpha": 1.0}
    with pytest.raises(InputError, match=message):
        BIRL(**(choices | wrong))
