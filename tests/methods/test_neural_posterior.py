"""The neural posterior against a conjugate posterior, and its parts against the same written out."""

from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import multivariate_normal, norm

import kdbirl as kb
from kdbirl.errors import InputError
from kdbirl.methods import neural_posterior_network as neural_posterior_plays
from kdbirl.methods.neural_posterior import NeuralPosterior, RewardTransform
from kdbirl.methods.neural_posterior_network import (
    MOST_CORRELATED,
    InputScale,
    Mixture,
    NeuralPosteriorNetwork,
    PlayGround,
    Sets,
    drawn,
    log_densities,
    log_density,
    mixtures,
    surprise,
)
from kdbirl.posterior.priors import Prior
from kdbirl.progress import Silent
from kdbirl.training import AVERAGED, STEEPEST, Learner, Schedule, train

ROWS = 16  # of an expert of the toy
CHOICES: dict[str, Any] = {"features": kb.Identity(), "hidden": (32, 32), "components": 2}


def toy_bank(tasks: int, rows: int = 40, q: int = 2, low: float | None = None) -> kb.TaskBank:
    """R ~ N(0, 1), or uniform from `low` to 1; every row is R + N(0, 1), an episode of its own."""
    rng = np.random.default_rng(0)
    rewards = rng.normal(size=(tasks, q)) if low is None else rng.uniform(low, 1, (tasks, q))
    of_task = np.repeat(np.arange(tasks), rows)
    states = rewards[of_task] + rng.normal(size=(len(of_task), q))
    episodes = np.tile(np.arange(rows), tasks)
    return kb.TaskBank.from_arrays(states, None, of_task, rewards, episodes=episodes)


def toy_expert(seed: int, rows: int = ROWS) -> tuple[np.ndarray, kb.Demonstrations]:
    rng = np.random.default_rng([seed, 7])
    truth = rng.normal(size=2)
    return truth, kb.Demonstrations(states=truth + rng.normal(size=(rows, 2)))


@cache
def trained() -> NeuralPosterior:
    return NeuralPosterior(kb.Normal(0, 1), steps=2000, **CHOICES).fit(toy_bank(1000), n=ROWS)


@cache
def briefly(seed: int = 0) -> NeuralPosterior:
    """Bounded rewards, any number of rows, few steps."""
    return NeuralPosterior(kb.Uniform(-1, 1), steps=200, **CHOICES).fit(toy_bank(60, low=-1.0), seed=seed)


@cache
def of_corners() -> NeuralPosterior:
    """The 2x2 grid, one task per cell."""
    bank = kb.make_bank(kb.Gridworld(2), np.eye(4), episodes=20, horizon=10, seed=0)
    return NeuralPosterior(kb.Uniform(0, 1), features=kb.OneHot(), hidden=(8,), components=2, steps=1500).fit(bank)


def test_the_posterior_is_near_the_conjugate_one() -> None:
    """R | x ~ N(sum x / (n + 1), 1 / (n + 1)). A thousand tasks leave a few hundredths of a nat; the prior is 2.2 off.

    The Monte-Carlo error of the mean of 60 differences is about 0.02.
    """
    sd, lost = (ROWS + 1) ** -0.5, []
    for seed in range(60):
        truth, rows = toy_expert(seed)
        mean = rows.states.sum(axis=0) / (ROWS + 1)
        lost.append(norm(mean, sd).logpdf(truth).sum() - trained().log_density(rows, truth))
    assert abs(np.mean(lost)) < 0.12
    errors, spreads = [], []
    for seed in range(10):
        rows = toy_expert(seed)[1]
        post = trained().posterior(rows)
        errors.append((post.mean() - rows.states.sum(axis=0) / (ROWS + 1)) / sd)
        spreads.append(post.flat.std(axis=0) / sd)
    assert np.sqrt(np.mean(np.square(errors))) < 0.4
    assert 0.85 < np.mean(spreads) < 1.2
    assert trained().learnt is not None
    assert trained()._ready().course.kept_step > 0


def test_a_posterior_as_every_method_gives_it(tmp_path: Path) -> None:
    _, rows = toy_expert(0)
    post = trained().posterior(rows, seed=3)
    assert post.method == "NeuralPosterior"
    assert post.draws.shape == (1, 4000, 2)
    assert post.names == toy_bank(2).reward_names
    np.testing.assert_allclose(post.sample_stats["lp"][0, :9], trained().log_density(rows, post.flat[:9]), atol=1e-3)
    assert post.prior_draws.shape == (4000, 2)
    assert post.task_rewards.shape == (1000, 2)
    assert {"prior", "training", "bank", "expert", "versions", "trained_for_rows"} <= set(post.settings)
    assert post.convergence.ok, post.convergence.sentence
    post.save(tmp_path / "posterior.nc")
    assert kb.load_posterior(tmp_path / "posterior.nc") == post


def test_same_seed_same_draws() -> None:
    _, rows = toy_expert(1)
    again = NeuralPosterior(kb.Uniform(-1, 1), steps=200, **CHOICES).fit(toy_bank(60, low=-1.0))
    assert again.posterior(rows, seed=4) == briefly().posterior(rows, seed=4)
    assert again.posterior(rows, seed=5) != again.posterior(rows, seed=4)
    assert briefly(seed=1).posterior(rows, seed=4) != again.posterior(rows, seed=4)


def test_the_order_of_rows_does_not_matter_and_their_number_does() -> None:
    _, rows = toy_expert(2)
    once = briefly().log_density(rows, np.zeros(2))
    assert briefly().log_density(rows.take(np.arange(ROWS)[::-1]), np.zeros(2)) == pytest.approx(once, abs=1e-4)
    twice = rows.take(np.tile(np.arange(ROWS), 2))
    assert abs(briefly().log_density(twice, np.zeros(2)) - once) > 1e-3


def test_draws_stay_in_the_support_of_the_prior() -> None:
    model, (_, rows) = briefly(), toy_expert(3)
    draws = model.posterior(rows).flat
    assert np.abs(draws).max() <= 1
    side = -1 + 2 * (np.arange(200) + 0.5) / 200
    points = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
    mass = np.exp(model.log_density(rows, points)).sum() * (2 / 200) ** 2
    assert mass == pytest.approx(1, abs=0.02)  # the grid's edges, where densities of logistic values may rise
    assert model.log_density(rows, [0.0, 1.5]) == -np.inf


def test_the_density_is_exact_up_to_the_bounds() -> None:
    """Training rewards on the bounds pull most of the mass within a hundredth of them. The density that users see is
    that of the draws there too, and integrates to one (trapezoids in logit R, which resolve the edges: 1e-4)."""
    model, rows = of_corners(), kb.rollout(kb.Gridworld(2), kb.Policy.uniform(4, 5), episodes=3, horizon=5, seed=0)
    post = model.posterior(rows, seed=0)
    assert ((post.flat < 0.01) | (post.flat > 0.99)).any(axis=1).mean() > 0.1
    np.testing.assert_allclose(post.sample_stats["lp"][0], model.log_density(rows, post.flat), atol=1e-4)
    assert model.log_density(rows, [0.0, 0, 0, 1]) == -np.inf
    plane = kb.TaskBank.from_arrays(np.arange(6.0)[:, None], None, np.arange(6), np.eye(2)[[0, 1, 0, 1, 0, 1]])
    flat = NeuralPosterior(kb.Uniform(0, 1), steps=1, **CHOICES).fit(plane)
    line = np.linspace(-40, 40, 801)
    u = np.stack(np.meshgrid(line, line), axis=-1).reshape(-1, 2)
    log_slopes = -(np.logaddexp(0, u) + np.logaddexp(0, -u)).sum(axis=1)
    inside = np.abs(u).max(axis=1) < 30  # beyond, R is a bound to rounding; there is no mass
    shown = flat.log_density(kb.Demonstrations([[1.0]]), 1 / (1 + np.exp(-u[inside])))
    assert np.exp(shown + log_slopes[inside]).sum() * 0.1**2 == pytest.approx(1, abs=1e-4)


def some_mixture(q: int, components: int = 3) -> Mixture:
    rng = np.random.default_rng(0)
    network = NeuralPosteriorNetwork(4, (8,), q, components, rng)
    sets = Sets(None, jnp.full((1, 5), 0.2), jnp.asarray([5.0]))
    return mixtures(network, jnp.asarray(30 * rng.normal(size=(5, 4)), jnp.float32), sets)


@pytest.mark.parametrize("q", [2, MOST_CORRELATED + 1])
def test_the_mixture_is_one_of_normal_distributions(q: int) -> None:
    mixture = some_mixture(q)
    weight, mean, sd = (np.asarray(part[0], dtype=float) for part in mixture[:3])
    below = np.zeros((3, q, q)) if mixture.lower is None else np.asarray(mixture.lower[0], dtype=float)
    factors = below + np.eye(q) / sd[:, None, :]
    covariances = np.linalg.inv(factors.transpose(0, 2, 1) @ factors)
    z = np.random.default_rng(1).normal(size=q)
    parts = [np.exp(w) * multivariate_normal(m, c).pdf(z) for w, m, c in zip(weight, mean, covariances, strict=True)]
    assert log_densities(mixture, z[None])[0] == pytest.approx(np.log(sum(parts)), rel=1e-6)
    in_training = jax.jit(log_density)(mixture, jnp.asarray(z[None], jnp.float32))[0]
    assert float(in_training) == pytest.approx(np.log(sum(parts)), rel=1e-4)
    draws = drawn(mixture, 40_000, np.random.default_rng(2))
    middle = np.exp(weight) @ mean
    spread = np.einsum("m,mij->ij", np.exp(weight), covariances + np.einsum("mi,mj->mij", mean - middle, mean - middle))
    error = 5 * np.sqrt(np.diag(spread) / 40_000)
    assert (np.abs(draws.mean(axis=0) - middle) < error).all()
    np.testing.assert_allclose(np.cov(draws.T), spread, atol=0.06 * np.diag(spread).max())
    assert q > MOST_CORRELATED or np.abs(spread[0, 1]) > 0.01  # or a wrong triangle would not be seen


def elu(x: np.ndarray) -> np.ndarray:
    return np.where(x > 0, x, np.exp(np.minimum(x, 0)) - 1)


def written_out(leaves: list[np.ndarray], rows: np.ndarray, q: int, components: int) -> tuple[np.ndarray, ...]:
    """Weights, means and covariances of q(z | rows) in NumPy: the mean of f over rows, their number, then g."""
    (f1, b1, f2, b2), (g1, c1, g2, c2, g3, c3) = leaves[:4], leaves[4:]
    embedding = elu(elu(rows @ f1 + b1) @ f2 + b2).mean(axis=0)
    given = np.concatenate([embedding, [np.log(len(rows)) / 3, len(rows) ** -0.5]])
    out = elu(elu(given @ g1 + c1) @ g2 + c2) @ g3 + c3
    logits, mean, spread, rest = np.split(out, np.cumsum([components, components * q, components * q]))
    factors = np.tril(rest.reshape(components, q, q), -1)
    factors += np.eye(q) / (0.01 + np.log1p((np.e - 1) * np.exp(spread.reshape(components, q))))[:, None, :]
    covariances = np.linalg.inv(factors.transpose(0, 2, 1) @ factors)
    return np.exp(logits) / np.exp(logits).sum(), mean.reshape(components, q), covariances


def mixture_density(parts: tuple[np.ndarray, ...], z: np.ndarray) -> np.ndarray:
    return np.asarray(sum(w * multivariate_normal(m, c).pdf(z) for w, m, c in zip(*parts, strict=True)))


def leaves_of(network: NeuralPosteriorNetwork) -> list[np.ndarray]:
    return [np.asarray(leaf.T, dtype=float) for leaf in jax.tree.leaves(network)]  # (inputs, outputs)


@pytest.mark.parametrize("rows", [1, 11, 16])
def test_the_density_is_that_of_the_network_written_out(rows: int) -> None:
    """From an expert's rows to log q(R): scaled as the bank's rows, not padded, through the logistic transform."""
    model, (_, expert), bank = briefly(), toy_expert(4, rows), toy_bank(60, low=-1.0)
    seen = bank.demonstrations.states
    scaled = (expert.states - seen.mean(axis=0)) / seen.std(axis=0)
    u = np.log((np.clip(bank.rewards, -0.98, 0.98) + 1) / (1 - np.clip(bank.rewards, -0.98, 0.98)))
    rewards = np.random.default_rng(0).uniform(-1, 1, (50, 2))
    z = (np.log((rewards + 1) / (1 - rewards)) - u.mean(axis=0)) / u.std(axis=0)
    slopes = np.prod(2 / (1 - rewards**2) / u.std(axis=0), axis=1)  # dz / dR
    parts = written_out(leaves_of(model._ready().network), scaled, 2, 2)
    expected = np.log(mixture_density(parts, z) * slopes)
    np.testing.assert_allclose(model.log_density(expert, rewards), expected, atol=1e-4)


def test_the_slope_of_the_loss_is_that_of_the_loss_written_out() -> None:
    """Plays of different lengths in one batch, padded in a table and as weights: central differences of 40 weights."""
    rng = np.random.default_rng(6)
    network, table = NeuralPosteriorNetwork(3, (5, 4), 2, 3, rng), rng.normal(size=(8, 3)).astype(np.float32)
    plays, z = (
        [np.array([0, 3, 5]), np.array([7]), np.array([1, 2, 4, 6, 0])],
        rng.normal(size=(3, 2)).astype(np.float32),
    )
    places = np.array([np.pad(play, (0, 5 - len(play))) for play in plays])
    weight = np.array([np.where(np.arange(5) < len(play), 1 / len(play), 0) for play in plays], np.float32)
    dense = np.array([np.bincount(play, minlength=8) / len(play) for play in plays], np.float32)
    size = jnp.asarray([3.0, 1, 5])

    def loss(leaves: list[np.ndarray]) -> float:
        found = [mixture_density(written_out(leaves, table[p], 2, 3), at) for p, at in zip(plays, z, strict=True)]
        return float(-np.mean(np.log(found)))

    leaves = leaves_of(network)
    picked = [(i, tuple(rng.integers(0, leaves[i].shape))) for i in rng.integers(0, len(leaves), 40)]
    slopes = []
    for i, place in picked:
        kept, ends = leaves[i][place], []
        for moved in (kept + 1e-5, kept - 1e-5):
            leaves[i][place] = moved
            ends.append(loss(leaves))
        leaves[i][place] = kept
        slopes.append((ends[0] - ends[1]) / 2e-5)
    assert np.abs(slopes).max() > 0.1
    for sets in (Sets(jnp.asarray(places), jnp.asarray(weight), size), Sets(None, jnp.asarray(dense), size)):
        value, slope = jax.jit(jax.value_and_grad(surprise))(network, jnp.asarray(table), (sets, jnp.asarray(z)))
        assert float(value) == pytest.approx(loss(leaves), rel=1e-5)
        ours = [leaves_of(slope)[i][place] for i, place in picked]
        np.testing.assert_allclose(ours, slopes, rtol=1e-3, atol=1e-5)


def parabola(network: Any, data: Any, batch: Any) -> Any:
    return jnp.mean(jnp.sum(data[None] * (network[None] - batch) ** 2, axis=1))


def test_the_training_loop_is_adam_with_a_running_average_written_out() -> None:
    """Of a parabola, whose slope is known: cut to length 5, Algorithm 1 of Kingma and Ba, the average that is judged on
    held-out data, the best one kept, and the stop after two blocks that were no better."""
    rng = np.random.default_rng(8)
    blocks = rng.normal([5.0, -5.0], 0.5, (12, 10, 4, 2))
    data, held, first = np.array([1.0, 3.0]), rng.normal([0.2, 0.0], 0.1, (6, 2)), np.array([-0.5, 0.5])
    left, schedule = iter(blocks), Schedule(120, 0.05, 10, 2, STEEPEST, AVERAGED)
    learner = Learner(
        jnp.asarray(first, jnp.float32), jnp.asarray(data, jnp.float32),
        lambda _: jnp.asarray(next(left), jnp.float32), rng,
        lambda network: float(parabola(network, jnp.asarray(data), jnp.asarray(held))),
    )  # fmt: skip
    ((found, course),) = train(parabola, [learner], schedule, "parabola", Silent())
    w, average, m, v, t = first, first, np.zeros(2), np.zeros(2), 0
    trial, kept = [np.mean((data * (first - held) ** 2).sum(axis=1))], [first]
    for block in blocks:
        for batch in block:
            slope, t = np.mean(2 * data * (w - batch), axis=0), t + 1
            slope = slope * min(1, 5 / np.linalg.norm(slope))
            m, v = 0.9 * m + 0.1 * slope, 0.999 * v + 0.001 * slope**2
            w = w - 0.05 * m / (1 - 0.9**t) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
            average = 0.99 * average + 0.01 * w
        trial.append(np.mean((data * (average - held) ** 2).sum(axis=1)))
        kept.append(average)
        if len(trial) - 1 - np.argmin(trial) >= 2:
            break
    best = int(np.argmin(trial))
    assert 0 < best < 10, "the best is neither the first nor the last"
    assert (course.outcome, course.steps, course.kept_step) == ("stopped early", t, 10 * best)
    np.testing.assert_allclose(course.held_out, trial, rtol=1e-4)
    np.testing.assert_allclose(found, kept[best], rtol=1e-4)


PRIORS: dict[str, Prior] = {
    "box": kb.Uniform([-1, 0], [1, 5]).for_parameters(2),
    "none": kb.Normal(0, 1).for_parameters(2),
    "one": kb.TruncatedNormal([0, 0], 1, [-1, -np.inf], [np.inf, 2]).for_parameters(2),
}


@pytest.mark.parametrize("name", PRIORS)
def test_rewards_and_their_place_on_the_line(name: str) -> None:
    prior = PRIORS[name]
    rewards = np.random.default_rng(0).uniform([-0.9, 0.1], [0.9, 1.9], (50, 2))
    transform = RewardTransform.learn(prior, rewards)
    z = transform.to_line(rewards)
    np.testing.assert_allclose(z.mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(z.std(axis=0), 1)
    np.testing.assert_allclose(transform.to_reward(z), rewards, atol=1e-12)
    step = 1e-6
    slopes = (transform.to_reward(z + step) - transform.to_reward(z - step)) / (2 * step)
    np.testing.assert_allclose(transform.log_slope(z), np.log(slopes).sum(axis=1), atol=1e-6)
    far = np.array([[-50.0, -50.0], [50.0, 50.0]])
    assert prior.contains(transform.to_reward(far)).all()


def test_a_reward_on_a_bound_is_moved_inside() -> None:
    transform = RewardTransform.learn(kb.Uniform(0, 1).for_parameters(4), np.eye(4))
    np.testing.assert_allclose(transform.inside(np.eye(4)), np.clip(np.eye(4), 0.01, 0.99))
    assert np.isfinite(transform.to_line(transform.inside(np.eye(4)))).all()
    assert (transform.to_line(np.eye(4)) == np.where(np.eye(4) == 1, np.inf, -np.inf)).all()


def episodic_bank() -> kb.TaskBank:
    """Task 0 has one episode, task 1 three, of 2, 3 and 4 rows, task 2 two; states tell the rows apart."""
    tasks = np.repeat([0, 1, 2], [5, 9, 6])
    episodes = np.concatenate([np.zeros(5), np.repeat([0, 1, 2], [2, 3, 4]), np.repeat([0, 1], 3)])
    return kb.TaskBank.from_arrays(np.arange(20.0)[:, None], None, tasks, np.eye(3), episodes=episodes.astype(int))


def test_plays_are_whole_episodes_of_one_task(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neural_posterior_plays, "DENSE", 0)
    bank = episodic_bank()
    ground = PlayGround.of(bank, kb.Identity().fit(bank), None)
    tasks = np.tile([0, 1, 2], 300)
    sets = ground.plays(tasks, np.random.default_rng(0))
    assert sets.places is not None
    for task, places, weight, size in zip(tasks, np.asarray(sets.places), sets.weight, sets.size, strict=True):
        shown = places[: int(size)]
        np.testing.assert_allclose(weight, (np.arange(len(weight)) < size) / size, rtol=1e-6)
        assert len(set(shown)) == len(shown)
        assert set(bank.tasks[shown]) == {task}
        if task == 0:  # one episode: neighbours stay neighbours
            np.testing.assert_array_equal(shown, (shown[0] + np.arange(len(shown))) % 5)
            continue
        episodes = bank.episode_index[shown]
        for episode in dict.fromkeys(episodes.tolist()):  # whole, in order, but for the last
            own, whole = shown[episodes == episode], np.flatnonzero(bank.episode_index == episode)
            np.testing.assert_array_equal(own, whole[: len(own)])
            assert len(own) == len(whole) or episode == episodes[-1]
    starts = {int(places[0]) for task, places in zip(tasks, np.asarray(sets.places), strict=True) if task == 1}
    assert starts == {5, 7, 10}
    lengths = np.asarray(sets.size)[tasks == 1]
    assert set(lengths) == set(range(1, 10))


def test_a_named_number_of_rows_is_played_where_a_task_has_them() -> None:
    bank = episodic_bank()
    sets = PlayGround.of(bank, kb.Identity().fit(bank), 6).plays(np.array([0, 1, 2]), np.random.default_rng(0))
    np.testing.assert_array_equal(sets.size, [5, 6, 6])


def test_weights_of_distinct_rows_are_the_same_as_rows_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    world = kb.Gridworld(2)
    bank = kb.make_bank(world, np.eye(4), episodes=5, horizon=6, seed=0)
    features = kb.OneHot().fit(bank)
    ground = PlayGround.of(bank, features, None)
    rows = jnp.asarray(ground.table(InputScale.learn(ground.rows, features.discrete_columns)))
    network = NeuralPosteriorNetwork(rows.shape[1], (8,), 4, 2, np.random.default_rng(0))
    tasks = np.array([0, 1, 2, 3, 3])
    together = ground.plays(tasks, np.random.default_rng(1))
    monkeypatch.setattr(neural_posterior_plays, "DENSE", 0)
    apart = ground.plays(tasks, np.random.default_rng(1))
    assert together.places is None
    assert apart.places is not None
    np.testing.assert_allclose(network.embedding(rows, together), network.embedding(rows, apart), atol=1e-5)


def test_few_tasks_are_not_learnt_by_heart() -> None:
    """Four corners: whichever is held out is no likelier for having learnt the others."""
    world = kb.Gridworld(2)
    post = of_corners().posterior(kb.rollout(world, kb.plan(world, np.eye(4)[3]), episodes=5, horizon=10, seed=1))
    assert post.settings["training"]["outcome"] == "stopped early"
    assert post.settings["training"]["kept_step"] < 500
    assert post.flat.std(axis=0).min() > 0.1
    assert post.reward_features is not None


def test_tasks_outside_the_support_are_left_out() -> None:
    model = NeuralPosterior(kb.Uniform(-1, 0.95), steps=1, **CHOICES).fit(toy_bank(60, low=-1.0))
    notes = model.posterior(toy_expert(0)[1]).settings["notes"]
    assert any("outside the prior's support" in note for note in notes)


def test_another_number_of_rows_is_noted() -> None:
    more = trained().posterior(toy_expert(0, rows=60)[1]).settings["notes"]
    assert any("up to 16 rows, the expert has 60" in note for note in more)
    fewer = trained().posterior(toy_expert(0, rows=3)[1]).settings["notes"]
    assert any("fit(bank, n=3)" in note for note in fewer)


def test_bad_inputs_are_refused() -> None:
    model = NeuralPosterior(kb.Normal(0, 1))
    with pytest.raises(InputError, match="has not been fitted"):
        model.posterior(toy_expert(0)[1])
    with pytest.raises(InputError, match="TaskBank"):
        model.fit(toy_expert(0)[1])
    with pytest.raises(InputError, match="The bank has one task"):
        model.fit(toy_bank(1))
    with pytest.raises(InputError, match="n='5'"):
        model.fit(toy_bank(2), n="5")
    with pytest.raises(InputError, match="seed"):
        model.fit(toy_bank(2), seed=-1)
    with pytest.raises(InputError, match="excludes every training reward"):
        NeuralPosterior(kb.Uniform(8, 9)).fit(toy_bank(2))
    with pytest.raises(InputError, match="must be Demonstrations"):
        briefly().posterior([[0.0, 1.0]])
    with pytest.raises(InputError, match="shape"):
        briefly().log_density(toy_expert(0)[1], [0.0, 1.0, 2.0])


def test_experts_unlike_the_bank_are_refused() -> None:
    model = of_corners()
    with pytest.raises(InputError, match="needs actions"):
        model.posterior(kb.Demonstrations(states=[0, 1], n_states=4))
    with pytest.raises(InputError, match=r"[Rr]ow 2"):
        model.posterior(kb.Demonstrations(states=[0, 9], actions=[0, 1]))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"prior": 1.0}, "not a prior"),
        ({"components": 0}, "components"),
        ({"steps": 1.5}, "steps"),
        ({"hidden": ()}, "hidden"),
        ({"held_out": 0}, "held_out=0"),
        ({"learning_rate": -1}, "learning_rate=-1"),
    ],
)
def test_wrong_choices(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        NeuralPosterior(**({"prior": kb.Uniform(0, 1)} | wrong))
