"""EVD by paired rollouts agrees with the exact one, its errors are what they say, and pairing is real."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import chi2

import kdbirl as kb
from kdbirl.errors import InputError
from kdbirl.worlds.simulator import TabularSimulator

from ..worlds.cartpole import CartPole

GRID = kb.Gridworld(3, slip=0.3, horizon=12, discount=0.9)
STILL = kb.Gridworld(3, slip=0.2, discount=0.8)  # no horizon: policies do not depend on the step
GRID_SIMULATOR, STILL_SIMULATOR = TabularSimulator(GRID), TabularSimulator(STILL)
TRUTH = np.random.default_rng(0).normal(size=9)
DRAWS = TRUTH + np.random.default_rng(1).normal(size=(30, 9))


def exactly(simulator, reward):
    return kb.plan(simulator.mdp, reward)


class Conditioned:
    """Exact policies of any number of rewards side by side: Q*(s, a, w) by value iteration in JAX."""

    def __init__(self, mdp):
        self.mdp = mdp

    def act(self, observations, rewards):
        table = jnp.asarray(self.mdp.transitions)

        def better(_, q_values):
            after = jnp.einsum("sat,nt->nsa", table, q_values.max(axis=2))
            return rewards[:, :, None] + self.mdp.discount * after

        q_values = jax.lax.fori_loop(0, 60, better, jnp.zeros((len(rewards), 9, 5)))  # 0.8^60 < 2e-6
        return jnp.argmax(jnp.einsum("ns,nsa->na", observations, q_values), axis=1)


@pytest.mark.parametrize("simulator", [GRID_SIMULATOR, STILL_SIMULATOR])
def test_it_agrees_with_the_exact_one(simulator):
    """The same draws, so that only the episodes differ: within 4.5 of their standard errors."""
    exact = kb.evd(DRAWS, simulator.mdp, TRUTH)
    found = kb.evd(DRAWS, simulator, TRUTH, planner=exactly, episodes=1500, horizon=60, seed=0)
    assert found.mean == pytest.approx(exact.mean, abs=4.5 * found.simulation_error)
    assert found.best == pytest.approx(exact.best, rel=0.1)
    assert found.random == pytest.approx(exact.random, abs=0.1 * abs(exact.best))
    assert found.of_mean == pytest.approx(exact.of_mean, abs=0.05 * (exact.best - exact.random))
    assert np.corrcoef(found.per_draw, exact.per_draw)[0, 1] > 0.98
    assert found.simulation_error < 0.05 * exact.mean
    assert found.simulation_error < found.standard_error
    assert exact.simulation_error == 0


def test_one_policy_for_all_weights_is_one_policy_for_each(monkeypatch):
    """Side by side, in blocks of which the last is not full, or one by one: the same episodes. A draw is repeated."""
    simulator, conditioned = STILL_SIMULATOR, Conditioned(STILL)
    draws, options = DRAWS[[0, 1, 0, 2]], {"episodes": 20, "horizon": 15, "seed": 3}
    together = kb.evd(draws, simulator, TRUTH, planner=conditioned, **options)

    def one(reward):
        return lambda observations: conditioned.act(observations, jnp.broadcast_to(reward[None], observations.shape))

    apart = kb.evd(draws, simulator, TRUTH, planner=one, **options)
    monkeypatch.setattr("kdbirl.worlds.simulated_rollouts.TOGETHER", 40)  # two of the five rewards at once
    blocks = kb.evd(draws, simulator, TRUTH, planner=conditioned, **options)
    for other in (apart, blocks):
        np.testing.assert_allclose(other.per_draw, together.per_draw, atol=1e-12)
        assert (other.best, other.random) == pytest.approx((together.best, together.random), abs=1e-12)
    assert together.per_draw[0] == together.per_draw[2] != together.per_draw[1]


def test_the_truth_and_its_multiples_lose_nothing_at_all():
    draws = np.stack([TRUTH, 5 * TRUTH, DRAWS[0]])
    found = kb.evd(draws, GRID_SIMULATOR, TRUTH, planner=exactly, episodes=20, seed=0)
    np.testing.assert_array_equal(found.per_draw[:2], 0.0)
    assert found.per_draw[2] != 0


def test_pairing_takes_away_noise_and_small_losses_may_be_negative():
    """A draw near the truth: over 40 seeds the paired difference varies far less than a policy's own return."""
    near = TRUTH + 0.15 * np.random.default_rng(4).normal(size=(1, 9))
    found = [kb.evd(near, GRID_SIMULATOR, TRUTH, planner=exactly, episodes=20, seed=seed) for seed in range(40)]
    lost = np.array([one.per_draw[0] for one in found])
    assert lost.std() < 0.5 * np.std([one.best for one in found])
    exact = kb.evd(near, GRID, TRUTH).mean
    assert exact > 0
    assert lost.min() < 0
    assert lost.mean() == pytest.approx(exact, abs=4.5 * lost.std(ddof=1) / np.sqrt(40))


def test_the_standard_error_is_the_spread_over_posteriors_and_episodes():
    """40 posteriors of 12 draws with 20 episodes each: the variance of their means over the claimed one is chi-square
    / 39 (two-sided at one in 10,000); the claim is up to 20 % too large in variance, as documented."""
    pool = TRUTH + np.random.default_rng(5).normal(size=(40, 12, 9))
    found = [
        kb.evd(draws, GRID_SIMULATOR, TRUTH, planner=exactly, episodes=20, seed=seed) for seed, draws in enumerate(pool)
    ]
    claimed = np.mean([one.standard_error**2 for one in found])
    ratio = np.var([one.mean for one in found], ddof=1) / claimed
    low, high = chi2.ppf([5e-5, 1 - 5e-5], 39) / 39
    assert 0.8 * low < ratio < high
    assert np.mean([one.simulation_error**2 for one in found]) > 0.1 * claimed  # both parts matter here
    low_end, high_end = found[0].interval
    assert high_end - low_end == pytest.approx(2 * 1.959964 * found[0].standard_error, rel=1e-6)


def test_posteriors_seeds_and_progress():
    draws = np.repeat(np.stack([DRAWS[:4], DRAWS[4:8]]), 5, axis=1)  # chains that stay where they are for five steps
    post = kb.Posterior(
        draws=draws,
        names=GRID.feature_names,
        method="test",
        sampler="NUTS",
        seed=0,
        sample_stats={"lp": np.arange(40.0).reshape(2, 20)},
    )

    class Recorder:
        def __init__(self):
            self.last = None

        def update(self, name, done, total, note=""):
            self.last = (name, done, total)

        def close(self):
            return None

    recorder = Recorder()
    first, again, other = (
        kb.evd(post, GRID_SIMULATOR, TRUTH, planner=exactly, episodes=20, seed=seed, progress=recorder)
        for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(first.per_draw, again.per_draw)
    assert (first.per_draw != other.per_draw).any()
    assert first.of_map == first.per_draw[-1]
    assert first.effective_size < 25
    assert recorder.last == ("paired rollouts", 10, 10)  # eight draws, their mean, and the truth


def test_cartpole_with_a_policy_of_ones_own():
    """In continuous states: whoever pushes towards the fall keeps the pole up, whoever wants it down does not."""

    def planner(simulator, reward):
        def act(observations):
            leaning = observations[:, 2] + 0.5 * observations[:, 3] > 0
            return (leaning == (reward[0] > 0)).astype(jnp.int32)

        return act

    found = kb.evd(np.array([[-1.0]]), CartPole(discount=0.99), [1.0], planner=planner, episodes=16)
    assert found.best == pytest.approx((1 - 0.99**500) / 0.01, rel=1e-3)
    assert found.per_draw[0] > 0.85 * found.best
    assert found.random < 0.3 * found.best


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({}, r"needs planner=.*plan_conditioned"),
        ({"planner": 3}, "planner=3 should be a function"),
        ({"planner": exactly, "episodes": 1}, "episodes=1 should be a whole number, at least 2"),
        ({"planner": exactly, "seed": -1}, "seed=-1"),
        ({"planner": exactly, "horizon": 0}, "horizon=0"),
        ({"planner": lambda reward: "best"}, 'only policy with a name is "random"'),
        ({"planner": lambda reward: np.ones((4, 5)) / 5}, "for 4 states and 5 actions"),
        ({"planner": lambda reward: lambda observations: jnp.ones(3, int)}, r"shape \(3,\), expected one whole"),
        ({"planner": lambda reward: lambda observations: jnp.ones(len(observations))}, "actions of shape"),
        ({"planner": lambda reward: lambda observations: jnp.full(len(observations), 5)}, "they are 0 to 4"),
        ({"planner": lambda reward: lambda o: np.asarray(o)[:, 0].astype(int)}, "must use jax.numpy"),
    ],
)
def test_bad_input_is_a_sentence(options, sentence):
    with pytest.raises(InputError, match=sentence):
        kb.evd(DRAWS[:3], GRID_SIMULATOR, TRUTH, **{"episodes": 20} | options)


def test_rewards_must_fit_and_a_horizon_is_needed():
    with pytest.raises(InputError, match=r"has 4 reward parameters, but .* has 9"):
        kb.evd(np.eye(4), GRID_SIMULATOR, TRUTH, planner=exactly)
    with pytest.raises(InputError, match="9 parameters"):
        kb.evd(DRAWS, GRID_SIMULATOR, TRUTH[:4], planner=exactly)
    with pytest.raises(InputError, match="no horizon of its own"):
        kb.evd(DRAWS, STILL_SIMULATOR, TRUTH, planner=exactly)
