"""The whole way from a bank to a posterior."""

import jax
import jax.numpy as jnp
import numpy as np
import polars as pl
import pytest
from scipy.special import logsumexp
from scipy.stats import ks_2samp

import kdbirl as kb
from kdbirl.errors import IdentifiabilityWarning, InputError, SamplingError

from .banks import continuous, corners

FEW = kb.NUTS(chains=2, warmup=200, draws=200)


def direct(bank, expert_features, bank_features, rewards, h, h_reward):
    """Eq. 6 as printed, row by row (in logs)."""
    of_row = bank.rewards[bank.tasks]
    result = []
    for reward in rewards:
        log_reward = -((reward - of_row) ** 2).sum(1) / (2 * h_reward**2)
        squares = ((expert_features[:, None] - bank_features[None]) ** 2).sum(2)
        terms = -squares / (2 * h**2) + log_reward[None]
        result.append((logsumexp(terms, axis=1) - logsumexp(log_reward)).sum())
    return np.array(result)


def test_log_likelihood_is_equation_6():
    bank, expert = continuous()
    model = kb.KDBIRL(prior=kb.Uniform(-2, 2), features=kb.Identity(), bandwidth=(0.4, 0.3)).fit(bank)
    rewards = np.random.default_rng(2).uniform(-2, 2, (40, 2))
    expected = direct(bank, expert.states, bank.demonstrations.states, rewards, 0.4, 0.3)
    np.testing.assert_allclose(model.log_likelihood(expert, rewards), expected, rtol=1e-10)
    assert model.log_likelihood(expert, rewards).dtype == np.float64


def test_log_likelihood_ignores_power_and_one_reward_gives_one_number():
    bank, expert = continuous()
    plain = kb.KDBIRL(prior=kb.Uniform(-2, 2), bandwidth=(0.4, 0.3)).fit(bank)
    powered = kb.KDBIRL(prior=kb.Uniform(-2, 2), bandwidth=(0.4, 0.3), power=0.25).fit(bank)
    value = plain.log_likelihood(expert, bank.rewards[0])
    assert np.ndim(value) == 0
    assert value == powered.log_likelihood(expert, bank.rewards[0])


TRACED = {
    "gaussian": {"bandwidth": (0.4, 0.3)},
    "loto, which searches as it is traced": {},
    "laplace": {"bandwidth": (0.4, 0.3), "kernel": "laplace", "reward_kernel": "laplace"},
    "direction": {"bandwidth": (0.4, 0.3), "reward_distance": "cosine"},
    "compact": {"bandwidth": (3.0, 9.0), "reward_kernel": "epanechnikov"},
    "equal weights": {"bandwidth": (0.4, 0.3), "task_weights": "equal"},
}


@pytest.mark.parametrize("settings", TRACED.values(), ids=TRACED)
def test_log_likelihood_may_be_traced(settings):
    """In jit first, so that nothing is ready yet. One arithmetic in doubles: rounding alone, and central differences
    over 1e-5 err by 1e-10 times the third derivative and 2e-16 / 1e-5 of the value."""
    bank, expert = continuous()
    model = kb.KDBIRL(prior=kb.Uniform(-2, 2), **settings).fit(bank)
    rewards = np.random.default_rng(2).uniform(-1, 1, (5, 2))

    def value(reward):
        return model.log_likelihood(expert, reward)

    with jax.enable_x64(True):
        found = jax.jit(value)(jnp.asarray(rewards))
        assert found.dtype == np.float64
        one_by_one = [jax.jit(value)(rewards[0]), jax.jit(lambda x, y: value([x, y]))(*rewards[0])]
        mapped = jax.vmap(value)(jnp.asarray(rewards)), jax.jit(jax.vmap(value))(jnp.asarray(rewards))
        slopes = jax.jit(jax.vmap(jax.grad(value)))(jnp.asarray(rewards))
        np.testing.assert_allclose(jax.grad(value)(jnp.asarray(rewards[0])), slopes[0], rtol=1e-12)
    expected = model.log_likelihood(expert, rewards)
    assert isinstance(expected, np.ndarray)
    for same in (found, *mapped):
        np.testing.assert_allclose(same, expected, rtol=1e-12)
    np.testing.assert_allclose(one_by_one, expected[[0, 0]], rtol=1e-12)
    steps = 1e-5 * np.eye(2)
    differences = [(value(rewards + step) - value(rewards - step)) / 2e-5 for step in steps]
    np.testing.assert_allclose(slopes, np.transpose(differences), rtol=1e-6, atol=1e-6 * np.abs(expected).max())


def test_log_likelihood_of_a_streamed_bank_may_be_traced(tmp_path):
    bank, expert = continuous()
    kb.write_task_bank(bank, tmp_path / "rows.parquet", tmp_path / "rewards.csv")
    streamed = kb.stream_task_bank(tmp_path / "rows.parquet", rewards=tmp_path / "rewards.csv", state=["s0", "s1"])
    model = kb.KDBIRL(prior=kb.Uniform(-2, 2), bandwidth=(0.4, 0.3)).fit(streamed)
    with jax.enable_x64(True):
        found = jax.jit(lambda reward: model.log_likelihood(expert, reward))(jnp.asarray([0.2, 0.3]))
    np.testing.assert_allclose(found, model.log_likelihood(expert, [0.2, 0.3]), rtol=1e-12)


def test_traced_out_of_reach_of_every_task_is_minus_infinity():
    bank, expert = continuous()
    model = kb.KDBIRL(prior=kb.Uniform(-2, 2), reward_kernel="epanechnikov", bandwidth=(0.5, 0.5)).fit(bank)
    with jax.enable_x64(True):
        assert jax.jit(lambda reward: model.log_likelihood(expert, reward))(jnp.full(2, 50.0)) == -np.inf


def test_tracing_in_single_precision_or_in_a_wrong_shape_is_refused_with_what_to_do():
    bank, expert = continuous()
    model = kb.KDBIRL(prior=kb.Uniform(-2, 2), bandwidth=(0.4, 0.3)).fit(bank)

    def value(reward):
        return model.log_likelihood(expert, reward)

    for trace in (jax.jit, jax.grad, lambda function: jax.vmap(function, 0)):
        with pytest.raises(
            InputError, match=r"rewards are traced by JAX in float32, .* `with jax\.enable_x64\(True\):`"
        ):
            trace(value)(jnp.zeros((3, 2)))
    assert value(jnp.zeros((3, 2))).shape == (3,)  # numbers in single precision are numbers
    with jax.enable_x64(True):
        with pytest.raises(InputError, match=r"in int64, in which"):
            jax.jit(value)(jnp.zeros(2, int))
        for shape in ((3,), (2, 3), (1, 1, 2), ()):
            with pytest.raises(InputError, match="expected one row per reward and one column for each of r0, r1"):
                jax.jit(value)(jnp.zeros(shape))


def test_what_is_not_computed_in_jax_says_so_when_it_is_traced():
    world = kb.Gridworld(2)
    shown = kb.rollout(world, kb.plan(world, np.eye(4)[3]), episodes=2, horizon=3, seed=0)
    birl = kb.BIRL(world, prior=kb.Uniform(0, 1), alpha=1.0)
    for what, work in {
        "rewards": lambda reward: birl.log_likelihood(shown, reward),
        "reward": lambda reward: kb.value(world, kb.plan(world, np.eye(4)[3]), reward),
        "policy": lambda reward: kb.value(world, jnp.outer(reward, reward), np.eye(4)[3]),
    }.items():
        with pytest.raises(InputError, match=rf"^{what}: traced by JAX .*; call it outside of them, or by jax\."):
            jax.jit(work)(jnp.zeros(4))


def test_default_is_the_exact_grid_and_says_so():
    bank, expert = continuous()
    post = kb.KDBIRL(prior=kb.Uniform(-2, 2)).fit(bank).posterior(expert, seed=0)
    assert post.sampler == "Grid"
    assert post.bandwidth_rule == "loto"
    assert set(post.report_card()) == {"convergence", "identifiability", "support", "calibration", "sensitivity"}
    assert post.draws.shape == (4, 1000, 2)
    assert post.draws.dtype == np.float64
    assert post.convergence.ok
    assert any("total-variation error" in note for note in post.settings["notes"])


@pytest.mark.parametrize("sampler", [kb.NUTS(), kb.Metropolis(), kb.SMC()], ids=lambda s: s.name)
def test_samplers_agree_with_the_grid(sampler):
    """Two-sample KS per parameter on nearly independent draws; false failures below 1e-4 per parameter."""
    bank, expert = continuous()
    model = kb.KDBIRL(prior=kb.Normal(0, 1), bandwidth=(0.4, 0.5)).fit(bank)
    exact = model.posterior(expert, seed=1).flat
    model.sampler = sampler
    other = model.posterior(expert, seed=2)
    thinned = other.flat[:: max(1, int(np.ceil(len(other.flat) / other.convergence.ess_bulk.min())))]
    for j in range(2):
        assert ks_2samp(exact[:, j], thinned[:, j]).pvalue > 1e-4


def test_same_seed_same_draws_another_seed_others():
    bank, expert = continuous()
    for sampler in ("grid", FEW):
        model = kb.KDBIRL(prior=kb.Uniform(-2, 2), sampler=sampler).fit(bank)
        first, again, other = (model.posterior(expert, seed=seed) for seed in (3, 3, 4))
        assert np.array_equal(first.draws, again.draws)
        assert not np.array_equal(first.draws, other.draws)
        assert first == again


def test_lp_is_the_log_posterior_of_each_draw():
    bank, expert = continuous()
    model = kb.KDBIRL(prior=kb.Normal(0.1, 0.8), bandwidth=(0.4, 0.5), power=0.5).fit(bank)
    post = model.posterior(expert, seed=0)
    draws = post.flat[:50]
    prior = (-0.5 * ((draws - 0.1) / 0.8) ** 2 - np.log(0.8 * np.sqrt(2 * np.pi))).sum(1)
    expected = prior + 0.5 * model.log_likelihood(expert, draws)
    np.testing.assert_allclose(post.sample_stats["lp"].ravel()[:50], expected, rtol=1e-9)
    np.testing.assert_allclose(
        post.log_likelihood.reshape(len(post.flat), -1)[:50][:, post.expert_index].sum(1),
        model.log_likelihood(expert, draws),
        rtol=1e-9,
    )


def test_power_widens_the_posterior():
    bank, expert = continuous()
    widths = []
    for power in (1.0, 0.2):
        model = kb.KDBIRL(prior=kb.Uniform(-2, 2), bandwidth=(0.4, 0.5), power=power).fit(bank)
        widths.append(model.posterior(expert, seed=0).flat.std(axis=0))
    assert (widths[1] > 1.2 * widths[0]).all()


def test_two_corner_tasks_leave_the_other_cells_at_the_prior():
    """K tasks inform K-1 directions: with the paper's two printed tasks, cells 2 and 3 keep U(0, 1)."""
    bank, expert = corners(2)
    with pytest.warns(IdentifiabilityWarning, match="inform 1 of 4 reward directions; r2 and r3"):
        model = kb.KDBIRL(prior=kb.Uniform(0, 1), features=kb.OneHot(), bandwidth=(0.7, 0.63)).fit(bank)
    draws = model.posterior(expert, seed=0).flat
    for cell in (2, 3):
        assert ks_2samp(draws[:, cell], np.random.default_rng(0).random(20_000)).pvalue > 1e-4


def test_four_corner_tasks_find_the_expert_goal():
    bank, expert = corners(4)
    model = kb.KDBIRL(prior=kb.Uniform(0, 1), features=kb.OneHot(), bandwidth=(0.7, 0.63)).fit(bank)
    mean = model.posterior(expert, seed=0).mean()
    assert mean.argmax() == 3
    assert mean[3] > 0.8 > 0.5 > mean[:3].max()


def test_conditional_action_ignores_where_the_expert_starts():
    """Both states see the same actions in every task, so an expert's states say nothing about its reward."""
    tasks = np.repeat([0, 1, 2], 40)
    states = np.tile([0, 1], 60)
    share = np.repeat(np.array([2, 10, 18]), 40)  # of the 20 rows per state that take action 1
    actions = (np.tile(np.repeat(np.arange(20), 2), 3) < share).astype(int)
    bank = kb.TaskBank.from_arrays(
        states=states, actions=actions, tasks=tasks, rewards=np.array([[0.0], [0.5], [1.0]]), n_states=2, n_actions=2
    )
    model = kb.KDBIRL(prior=kb.Uniform(0, 1), features=kb.OneHot(), bandwidth=(0.3, 0.2), conditional="action").fit(
        bank
    )
    rewards = np.linspace(0, 1, 5)[:, None]
    rows = {"actions": np.array([1, 1, 0, 1]), "n_states": 2, "n_actions": 2}
    one = model.log_likelihood(kb.Demonstrations(states=np.array([0, 0, 0, 0]), **rows), rewards)
    many = model.log_likelihood(kb.Demonstrations(states=np.array([0, 1, 0, 1]), **rows), rewards)
    np.testing.assert_allclose(one - one[0], many - many[0], rtol=1e-9)
    assert one[3] > one[0]
    with pytest.raises(InputError, match="state alone or from the action"):
        kb.KDBIRL(prior=kb.Uniform(-2, 2), conditional="action").fit(continuous()[0])


def test_equal_task_weights_undo_imbalance():
    """Repeating one task's rows changes nothing with equal weights, and something with the paper's."""
    bank, expert = continuous(tasks=3)
    first = bank.tasks == 0
    order = np.concatenate([np.flatnonzero(first)] * 5 + [np.flatnonzero(~first)])
    repeated = kb.TaskBank.from_arrays(
        states=bank.demonstrations.states[order], actions=None, tasks=bank.tasks[order], rewards=bank.rewards
    )
    settings = {"prior": kb.Uniform(-2, 2), "features": kb.Identity(), "bandwidth": (0.4, 0.5)}
    equal = [kb.KDBIRL(**settings, task_weights="equal").fit(b) for b in (bank, repeated)]
    rows = [kb.KDBIRL(**settings).fit(b) for b in (bank, repeated)]
    point = np.array([[0.3, -0.2]])
    np.testing.assert_allclose(*(m.log_likelihood(expert, point) for m in equal), rtol=1e-10)
    assert abs(np.subtract(*(m.log_likelihood(expert, point)[0] for m in rows))) > 1e-3


def test_product_kernel_and_user_functions():
    rng = np.random.default_rng(0)
    bank = kb.TaskBank.from_arrays(
        states=rng.normal(size=(60, 1)),
        actions=rng.integers(0, 3, 60),
        tasks=np.repeat([0, 1, 2], 20),
        rewards=np.array([[0.0], [0.5], [1.0]]),
        n_actions=3,
    )
    expert = kb.Demonstrations(states=rng.normal(size=(9, 1)), actions=rng.integers(0, 3, 9), n_actions=3)
    kernel = kb.ProductKernel(state="laplace", action=kb.Categorical(0.1, levels=3))
    model = kb.KDBIRL(prior=kb.Uniform(0, 1), features=kb.Identity(), kernel=kernel, bandwidth=(0.5, 0.3)).fit(bank)
    x, y = expert, bank.demonstrations
    log_kernel = -np.abs(x.states - y.states.T) / 0.5 + np.where(x.actions[:, None] == y.actions[None], 0, np.log(0.1))
    log_reward = -((0.25 - bank.rewards[bank.tasks, 0]) ** 2) / (2 * 0.3**2)
    expected = (logsumexp(log_kernel + log_reward, axis=1) - logsumexp(log_reward)).sum()
    np.testing.assert_allclose(model.log_likelihood(x, np.array([[0.25]])), [expected], rtol=1e-10)


def test_uniform_reward_kernel_samples_without_a_gradient():
    bank, expert = continuous()
    model = kb.KDBIRL(prior=kb.Uniform(-1, 1), bandwidth=(0.5, 1.0), reward_kernel="uniform").fit(bank)
    post = model.posterior(expert, seed=0)
    assert post.sampler in ("Grid", "SMC", "Metropolis")
    model.sampler = FEW
    with pytest.raises(SamplingError, match="gradient"):
        model.posterior(expert, seed=0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"bandwidth": (0.0, 1.0)}, "bandwidth h = 0 must be a positive"),
        ({"bandwidth": (1.0, -2.0)}, "bandwidth h_reward = -2 must be a positive"),
        ({"bandwidth": "medain"}, "Did you mean 'median'"),
        ({"kernel": "gausian"}, "Did you mean 'gaussian'"),
        ({"distance": "euclid"}, "Did you mean 'euclidean'"),
        ({"prior": kb.Uniform(5, 6)}, "excludes every training reward"),
        ({"prior": kb.Normal([0, 0, 0], 1)}, "mean has 3 values, but the reward has 2"),
        (
            {"kernel": "triangular", "bandwidth": (1e-3, 1.0), "features": kb.Identity()},
            "No training row is within reach",
        ),
        ({"power": 0}, "power=0 should be a positive number"),
        ({"sampler": "nutz"}, "Did you mean 'nuts'"),
        ({"conditional": "actions"}, "should be"),
    ],
)
def test_bad_settings_are_one_sentence(change, message):
    bank, expert = continuous()
    settings = {"prior": kb.Uniform(-2, 2), **change}
    with pytest.raises(InputError, match=message):
        kb.KDBIRL(**settings).fit(bank).log_likelihood(expert, bank.rewards)


def test_bad_data_is_one_sentence():
    bank, expert = continuous()
    model = kb.KDBIRL(prior=kb.Uniform(-2, 2))
    with pytest.raises(InputError, match="has one task"):
        model.fit(bank.select([0]))
    with pytest.raises(InputError, match="has not been fitted"):
        model.posterior(expert, seed=0)
    model.fit(bank)
    with pytest.raises(InputError, match=r"3.*2|2.*3"):
        model.posterior(kb.Demonstrations(states=np.zeros((4, 3))), seed=0)
    with pytest.raises(InputError, match="whole number"):
        model.posterior(expert, seed=-1)
    with pytest.raises(InputError, match="one column for each of"):
        model.log_likelihood(expert, np.zeros((3, 5)))


def test_reward_of_new_rows_uses_columns_named_like_the_parameters():
    rng = np.random.default_rng(0)
    bank = kb.TaskBank.from_arrays(
        states=rng.normal(size=(40, 2)),
        actions=None,
        tasks=np.repeat([0, 1, 2, 3], 10),
        rewards=rng.normal(size=(4, 2)),
        state_names=("x", "y"),
        reward_names=("w_x", "w_y"),
    )
    expert = kb.Demonstrations(states=rng.normal(size=(10, 2)), state_names=("x", "y"))
    post = kb.KDBIRL(prior=kb.Normal(0, 1)).fit(bank).posterior(expert, seed=0)
    rows = kb.Demonstrations(states=np.array([[1.0, 0.0], [0.0, 2.0]]), state_names=("x", "y"))
    np.testing.assert_allclose(post.reward(rows).mean, [post.mean()[0], 2 * post.mean()[1]])


@pytest.mark.parametrize(
    ("rewards", "message"),
    [([[np.nan, 0.5]], "row 1, 'r0' is nan"), ([[0.1, np.inf]], "must be finite"), ("hi", "not numbers")],
)
def test_rewards_that_are_not_finite_numbers_are_refused(rewards, message):
    bank, expert = continuous()
    model = kb.KDBIRL(prior=kb.Uniform(-2, 2)).fit(bank)
    with pytest.raises(InputError, match=message):
        model.log_likelihood(expert, rewards)


def test_rewards_as_a_frame_are_found_by_name_and_none_gives_none():
    bank, expert = continuous()
    model = kb.KDBIRL(prior=kb.Uniform(-2, 2)).fit(bank)
    swapped = pl.DataFrame({"r1": [0.9], "r0": [0.1]})
    assert model.log_likelihood(expert, swapped)[0] == model.log_likelihood(expert, [[0.1, 0.9]])[0]
    with pytest.raises(InputError, match="'r0'"):
        model.log_likelihood(expert, pl.DataFrame({"r1": [0.9]}))
    assert model.log_likelihood(expert, np.zeros((0, 2))).shape == (0,)


def test_out_of_reach_of_a_compact_reward_kernel_is_minus_infinity():
    bank, expert = continuous()
    model = kb.KDBIRL(prior=kb.Uniform(-2, 2), reward_kernel="epanechnikov", bandwidth=(0.5, 0.5)).fit(bank)
    assert model.log_likelihood(expert, [[50.0, 50.0]])[0] == -np.inf


def test_an_unseen_action_is_a_note_not_an_error():
    rng = np.random.default_rng(0)
    bank = kb.TaskBank.from_arrays(
        states=rng.normal(size=(30, 1)),
        actions=rng.integers(0, 2, 30),
        tasks=np.repeat([0, 1, 2], 10),
        rewards=np.array([[0.0], [0.5], [1.0]]),
    )
    expert = kb.Demonstrations(states=rng.normal(size=(4, 1)), actions=np.array([0, 1, 7, 0]))
    post = kb.KDBIRL(prior=kb.Uniform(0, 1)).fit(bank).posterior(expert, seed=0)
    assert post.settings["diagnosis"]["support"]["unseen_labels"] == 1
    colour, sentence = post.report_card()["support"]
    assert colour in ("amber", "red")
    assert "row 3" in sentence


@pytest.mark.parametrize(
    "mistake",
    [
        lambda: kb.KDBIRL(prior=kb.Uniform(0, 1), sampler=kb.NUTS),
        lambda: kb.KDBIRL(prior=kb.Uniform(0, 1), power="1"),
        lambda: kb.NUTS(draws=0),
        lambda: kb.Normal("a", 1),
        lambda: kb.Uniform("0", 1),
        lambda: kb.Demonstrations(np.zeros((3, 1)), ["a", None, "b"]),
        lambda: kb.Demonstrations(np.zeros((3, 1)), ["a", np.nan, "b"]),
    ],
)
def test_wrong_types_are_one_sentence(mistake):
    with pytest.raises(InputError):
        mistake()
