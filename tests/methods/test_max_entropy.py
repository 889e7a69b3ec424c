"""Maximum causal entropy against finite differences, sweeps of soft value iteration, and known experts."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import logsumexp

import kdbirl as kb
from kdbirl.errors import InputError
from kdbirl.methods.max_entropy import (
    Matching,
    MaxCausalEntropy,
    Objective,
    of_episodes,
    of_expectations,
    of_rows,
    soft_optimum,
)
from kdbirl.worlds.dynamics import dynamics_of

from .worlds import corridor, expert, random_world, small

WORLDS: dict[str, Any] = {
    "grid": lambda: kb.Gridworld(3),
    "slippery": lambda: kb.Gridworld(3, slip=0.3, walls=[4], features="xy"),
    "goal": lambda: kb.Gridworld(3, goal=8),
    "random": random_world,
    "undiscounted": corridor,
}


@pytest.mark.parametrize("name", ["grid", "slippery", "goal", "random"])
@pytest.mark.parametrize("temperature", [0.1, 2.0])
def test_soft_optimum_is_the_fixed_point_of_sweeps(name: str, temperature: float) -> None:
    world = WORLDS[name]()
    reward = np.random.default_rng(0).normal(size=world.n_parameters)
    slow = kb.soft_value_iteration(world, reward[None], temperature)
    dynamics = dynamics_of(world)
    table = dynamics.tables(reward[None])[:, :, 0]
    values, chances, _ = soft_optimum(dynamics, table, temperature, np.zeros(dynamics.n))
    np.testing.assert_allclose(values, slow.values[0, dynamics.live], atol=1e-7)
    np.testing.assert_allclose(chances, slow.policies[0, dynamics.live], atol=1e-7)


@pytest.mark.parametrize("name", WORLDS)
@pytest.mark.parametrize("match", [of_episodes, of_rows])
def test_the_gradient_is_that_of_finite_differences(name: str, match: Any) -> None:
    world = WORLDS[name]()
    objective = Objective(dynamics_of(world), match(world, expert(world)), 0.7, 0.01)
    w, small_step = np.random.default_rng(1).normal(size=world.n_parameters), 1e-5
    rises = [objective(w + d)[0] - objective(w - d)[0] for d in small_step * np.eye(len(w))]
    np.testing.assert_allclose(objective(w)[1], np.array(rises) / (2 * small_step), atol=1e-6)


def test_the_gradient_is_the_difference_of_feature_expectations() -> None:
    world = WORLDS["random"]()
    w, mu = np.random.default_rng(2).normal(size=(2, world.n_parameters))
    slope = Objective(dynamics_of(world), of_expectations(world, mu), 1.0, 1e-9)(w)[1]
    policy = MaxCausalEntropy(world).soft_policy(w)
    np.testing.assert_allclose(slope, kb.feature_expectations(world, policy) - mu, atol=1e-6)


@pytest.mark.parametrize("name", WORLDS)
def test_rows_are_the_likelihood_of_the_actions(name: str) -> None:
    world = WORLDS[name]()
    rows, temperature = expert(world), 0.7
    w = np.random.default_rng(3).normal(size=world.n_parameters)
    found = Objective(dynamics_of(world), of_rows(world, rows), temperature, 1e-12)(w)[0]
    chances = MaxCausalEntropy(world, temperature=temperature).soft_policy(w).probabilities
    per_episode = -np.log(chances[rows.states, rows.actions]).sum() / rows.n_episodes
    assert found == pytest.approx(per_episode, rel=1e-8)


def test_episodes_are_the_discounted_likelihood_where_nothing_is_left_to_chance() -> None:
    """V(s_0) - sum_t d^t w.phi_t - d^T V(s_T) = -sum_t d^t log pi(a_t | s_t), cut or ended; rows in any order."""
    world = kb.Gridworld(3, goal=8)
    rows = kb.rollout(world, kb.Policy.uniform(world.n_states, world.n_actions), episodes=8, horizon=6, seed=1)
    assert rows.terminated is not None
    assert 0 < rows.terminated.sum() < 8  # some episodes end, some are cut
    w = np.random.default_rng(4).normal(size=9)
    logs = np.log(MaxCausalEntropy(world).soft_policy(w).probabilities[rows.states, rows.actions])
    step = np.concatenate([np.arange((rows.episodes == e).sum()) for e in np.unique(rows.episodes)])
    mixed = rows.take(np.lexsort((rows.episodes, step)))  # all first rows, then all second rows, ...
    for shown in (rows, mixed):
        found = Objective(dynamics_of(world), of_episodes(world, shown), 1.0, 1e-12)(w)[0]
        assert found == pytest.approx(-(world.discount**step @ logs) / 8, rel=1e-8)


@pytest.mark.parametrize("name", ["slippery", "random"])
def test_exact_feature_expectations_give_the_weights_back(name: str) -> None:
    """Weights of features that no shaping can imitate are identified: they are found, with the temperature's scale."""
    world = WORLDS[name]()
    truth = np.random.default_rng(5).normal(size=world.n_parameters)
    model = MaxCausalEntropy(world, l2=1e-9, temperature=0.5)
    mu = kb.feature_expectations(world, model.soft_policy(truth))
    np.testing.assert_allclose(model.weights_from(mu), truth, atol=1e-3)


@pytest.mark.parametrize("name", ["grid", "goal"])
def test_exact_feature_expectations_give_the_policy_back(name: str) -> None:
    """A reward for each state is found only up to what does not change the policy, such as a constant."""
    world = WORLDS[name]()
    truth = np.random.default_rng(6).normal(size=world.n_parameters)
    model = MaxCausalEntropy(world, l2=1e-9)
    policy = model.soft_policy(truth)
    again = model.soft_policy(model.weights_from(kb.feature_expectations(world, policy)))
    np.testing.assert_allclose(again.probabilities, policy.probabilities, atol=1e-4)


@pytest.mark.parametrize("match", ["episodes", "rows"])
def test_a_boltzmann_experts_policy_is_recovered(match: str) -> None:
    """From 2,000 episodes, mostly cut: chances err by a few times sqrt(1 / (4 * visits)), about 0.01."""
    world = kb.Gridworld(3, slip=0.2)
    truth = np.random.default_rng(7).normal(size=9)
    model = MaxCausalEntropy(world, match=match)
    rows = kb.rollout(world, model.soft_policy(truth), episodes=2000, horizon=10, seed=0)
    found, wanted = model.policy(rows), model.soft_policy(truth)
    assert np.abs(found.probabilities - wanted.probabilities).max() < 0.05
    assert np.abs(wanted.probabilities - 1 / world.n_actions).max() > 0.2  # the random agent would fail
    assert kb.evd(model.posterior(rows), world, truth).regret < 0.02


def soft_values(world: kb.TabularMDP, w: np.ndarray, temperature: float) -> np.ndarray:
    """V of Ziebart's soft Bellman equation, by sweeps over the world's arrays; an ended episode earns nothing."""
    reward = np.einsum("saq,q->sa", world.features, w)
    values = np.zeros(world.n_states)
    for _ in range(250):  # 0.9^250 = 4e-12
        q_values = reward + world.discount * np.einsum("sat,t->sa", world.transitions, values)
        values = np.where(world.terminal, 0.0, temperature * logsumexp(q_values / temperature, axis=1))
    return values


def discounted_loss(world: kb.TabularMDP, rows: kb.Demonstrations, w: np.ndarray, temperature: float) -> float:
    """The mean over episodes of V(s_0) - sum_t d^t w.phi_t - d^T E[V(s_T) | the episode goes on], over temperature.

    The last is 0 where the episode ended, which is all that is known of s_T, and where it was cut an average over the
    states that do not end it.
    """
    values, total = soft_values(world, w, temperature), 0.0
    live = ~world.terminal
    for episode in np.unique(rows.episodes):
        own = np.flatnonzero(rows.episodes == episode)
        states, actions = rows.states[own], rows.actions[own]
        total += values[states[0]]
        for t, (s, a) in enumerate(zip(states, actions, strict=True)):
            total -= world.discount**t * world.features[s, a] @ w
        if not rows.terminated[own[-1]]:
            chances = world.transitions[s, a] * live
            total -= world.discount ** len(own) * chances @ values / chances.sum()
    return total / len(np.unique(rows.episodes)) / temperature


def test_episodes_against_an_implementation_of_loops() -> None:
    """Objective to rounding, and the weights where SciPy's own search, with slopes by differences, ends."""
    world, temperature, l2 = random_world(), 0.7, 0.3
    rows = kb.rollout(world, "random", episodes=25, horizon=3, seed=3)
    assert rows.terminated is not None
    assert 5 < rows.terminated.sum() < 20  # some ended by chance, others were cut
    objective = Objective(dynamics_of(world), of_episodes(world, rows), temperature, l2)
    for w in np.random.default_rng(8).normal(size=(4, world.n_parameters)):
        slow = discounted_loss(world, rows, w, temperature) + l2 / 2 * w @ w
        assert objective(w)[0] == pytest.approx(slow, rel=1e-9)
    found = minimize(lambda w: discounted_loss(world, rows, w, temperature) + l2 / 2 * w @ w, np.zeros(4))
    post = MaxCausalEntropy(world, l2, temperature).posterior(rows)
    np.testing.assert_allclose(post.flat[0], found.x, atol=1e-5)
    assert -post.sample_stats["lp"][0, 0] == pytest.approx(found.fun, rel=1e-9)


@pytest.mark.parametrize("horizon", [1, 2])
def test_weights_are_recovered_where_chance_ends_episodes(horizon: int) -> None:
    """A cut episode is one that chance did not end; to forget that halves the weights at horizon 1.

    Standard errors with 20,000 episodes are at most .03 (over 20 seeds): 5 of them, one false failure in 1e5.
    """
    world, truth = random_world(), np.array([1.0, -0.7, 0.5, 0.3])
    model = MaxCausalEntropy(world, l2=1e-9)
    rows = kb.rollout(world, model.soft_policy(truth), episodes=20_000, horizon=horizon, seed=1)
    np.testing.assert_allclose(model.posterior(rows).flat[0], truth, atol=0.15)


def test_episodes_that_nobody_says_how_they_ended_are_named() -> None:
    world = random_world()
    rows = kb.rollout(world, "random", episodes=9, horizon=2, seed=0)
    unsaid = MaxCausalEntropy(world).posterior(replace(rows, terminated=None, truncated=None))
    assert any("No row says how 9 episodes ended" in note for note in unsaid.settings["notes"])
    cut_only = MaxCausalEntropy(world).posterior(replace(rows, terminated=None))
    assert any(f"how {rows.terminated.sum()} episode" in note for note in cut_only.settings["notes"])
    for certain in (MaxCausalEntropy(world).posterior(rows), MaxCausalEntropy(small()).posterior(expert(small()))):
        assert not any("No row says" in note for note in certain.settings["notes"])


def test_chances_sum_to_one_for_huge_rewards() -> None:
    """They were exp((Q - V) / temperature), which rounding of V spoils by 1e-4 at rewards of 1e12."""
    chances = MaxCausalEntropy(small()).soft_policy(np.full(4, 1e12)).probabilities
    np.testing.assert_allclose(chances.sum(axis=1), 1, rtol=1e-12)


def test_an_expert_who_never_errs_has_finite_weights() -> None:
    world = small()
    rows = kb.rollout(world, kb.plan(world, [0.0, 0.0, 0.0, 1.0]), episodes=20, horizon=5, seed=0)
    post = MaxCausalEntropy(world).posterior(rows)
    assert post.settings["search"]["converged"]
    assert kb.evd(post, world, [0.0, 0.0, 0.0, 1.0]).mean < 1e-9


def test_a_posterior_of_one_draw(tmp_path: Path) -> None:
    rows = expert(small())
    model = MaxCausalEntropy(small())
    post = model.fit(kb.make_bank(small(), np.eye(4)[:2], episodes=2, horizon=4, seed=0)).posterior(rows, seed=3)
    assert post.draws.shape == (1, 1, 4)
    assert post.method == "MaxCausalEntropy"
    assert post == model.posterior(rows, seed=3)
    np.testing.assert_array_equal(post.map(), post.flat[0])
    assert post.summary()["mean"].to_list() == pytest.approx(post.flat[0].tolist())
    np.testing.assert_allclose(post.reward(rows).mean, post.flat[0][rows.states])
    assert np.isfinite(kb.evd(post, small(), [0.0, 0.0, 0.0, 1.0]).mean)
    post.save(tmp_path / "point.nc")
    assert kb.load_posterior(tmp_path / "point.nc") == post


def test_convexity_is_known() -> None:
    assert Matching(np.array([1.0, 0.0]), np.zeros(1)).convex
    assert not of_episodes(kb.Gridworld(2), expert(kb.Gridworld(2))).convex  # cut after five steps
    assert of_episodes(corridor(), kb.Demonstrations([0, 1, 2], [0, 0, 0])).convex  # ends, though no row says so


BAD_EXPERTS: dict[str, tuple[Any, str]] = {
    "no demonstrations": ([[0, 1]], "must be Demonstrations"),
    "no actions": (kb.Demonstrations(states=[0, 1]), "has no actions"),
    "a state too many": (kb.Demonstrations(states=[0, 3, 4], actions=[0, 0, 0]), "row 3 has state 4"),
    "an action too many": (kb.Demonstrations(states=[0, 3], actions=[0, 5]), "row 2 has action 5"),
}


@pytest.mark.parametrize("name", BAD_EXPERTS)
def test_bad_experts_are_refused(name: str) -> None:
    rows, message = BAD_EXPERTS[name]
    with pytest.raises(InputError, match=message):
        MaxCausalEntropy(small()).posterior(rows)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"mdp": "grid"}, "kb.TabularMDP"),
        ({"mdp": kb.Gridworld(2, horizon=5)}, "horizon=5"),
        ({"l2": 0.0}, "l2=0.0 should be a positive"),
        ({"temperature": "1"}, "temperature='1'"),
        ({"match": "episods"}, "Did you mean 'episodes'"),
    ],
)
def test_wrong_choices(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        MaxCausalEntropy(**({"mdp": small()} | wrong))


def test_wrong_banks_and_seeds() -> None:
    with pytest.raises(InputError, match="TaskBank"):
        MaxCausalEntropy(small()).fit(expert(small()))
    with pytest.raises(InputError, match="9 parameters"):
        MaxCausalEntropy(small()).fit(kb.make_bank(kb.Gridworld(3), np.eye(9)[:2], episodes=2, horizon=4, seed=0))
    with pytest.raises(InputError, match="seed"):
        MaxCausalEntropy(small()).posterior(expert(small()), seed="0")
