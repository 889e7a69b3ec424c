"""The VAE: its loss by hand, what it finds, when it stops, and that it is a feature map like any other."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy.stats import norm

import kdbirl as kb
from kdbirl.data.demonstrations import Demonstrations, TaskBank
from kdbirl.errors import InputError
from kdbirl.features import PCA, VAE, FeatureMap, Fixed, Function, OneHotActions, Standardize, from_spec
from kdbirl.features.in_jax import in_jax
from kdbirl.features.vae import _aside
from kdbirl.features.vae_network import AutoencoderNetwork, loss, loss_terms, stored
from kdbirl.methods.fitted import TrainingRows
from kdbirl.progress import Course
from kdbirl.random_streams import stream
from kdbirl.training import Schedule, State, begin, learn

random = np.random.default_rng(0)
FACTORS = random.normal(size=(1500, 3))
OBSERVED = FACTORS @ random.normal(size=(3, 12)) + 0.3 * random.normal(size=(1500, 12))
ACTIONS = random.integers(0, 4, 1500)
ROWS = Demonstrations(7 + 5 * OBSERVED, ACTIONS, episodes=np.arange(1500) // 10, n_actions=4)
# Networks of one size (13 or 12 inputs, 16 hidden units, 3 latents) share one compiled program.
QUICK = VAE(hidden=(16,), steps=250, held_out=0)  # of linear rows the start would be kept


@pytest.fixture(scope="module")
def quick() -> VAE:
    return QUICK.fit(ROWS)


def by_hand() -> AutoencoderNetwork:
    """Two inputs, two hidden units, one latent: mean = h1 + 2 h2, log variance = log 4 for every row."""
    values = (np.eye(2), np.zeros(2)), (np.array([[1.0, 0], [2, 0]]), np.array([0, np.log(4)]))
    back = (np.array([[1.0, -1]]), np.zeros(2)), (np.eye(2), np.array([0, 0.5]))
    network = AutoencoderNetwork(2, (2,), 1, random)
    leaves = [jnp.asarray(part.T, dtype=jnp.float32) for layer in values + back for part in layer]  # as Equinox has it
    return jax.tree.unflatten(jax.tree.structure(network), leaves)


def test_the_terms_of_the_loss_are_those_worked_out_by_hand() -> None:
    # x = (1, -1): h = (1, -.2), mean = 1 - .4 = .6, sd = 2, z = .6 + 2 * .5 = 1.6;
    # back: (1.6, -.32) + (0, .5) = (1.6, .18), so the error is .6^2 + 1.18^2; KL = (.36 + 4 - 1 - log 4) / 2
    x, noise = jnp.array([[1.0, -1.0]]), jnp.array([[0.5]])
    squared_error, kl = loss_terms(by_hand(), x, noise)
    np.testing.assert_allclose(squared_error, [0.36 + 1.3924], rtol=1e-6)
    np.testing.assert_allclose(kl, [[(3.36 - np.log(4)) / 2]], rtol=1e-6)
    mean, log_variance = stored(by_hand()).encode(np.array([[1.0, -1.0]]))
    np.testing.assert_allclose([mean[0, 0], log_variance[0, 0]], [0.6, np.log(4)], rtol=1e-7)
    # decoded from the mean: (.6, -.12 + .5), error .4^2 + 1.38^2
    np.testing.assert_allclose(stored(by_hand()).reconstruction_error(np.array([[1.0, -1.0]])), 0.16 + 1.9044)


def learnt(network: AutoencoderNetwork, batches: np.ndarray, noise: np.ndarray) -> tuple[State, jax.Array]:
    """Three steps with KL weight 0.7 and rate 0.01."""
    schedule = Schedule(3, 0.01)
    return learn(loss, begin(network, schedule), jnp.float32(0.7), (batches, noise), 3, schedule)


def test_a_compiled_block_is_adam_step_by_step() -> None:
    network, rng = by_hand(), np.random.default_rng(1)
    batches, noise = (rng.normal(size=(5, 8, width)).astype(np.float32) for width in (2, 1))
    found, mean_loss = learnt(network, batches, noise)
    optimizer = optax.adam(0.01)
    state, losses = optimizer.init(network), []

    def summed(network: AutoencoderNetwork, x: jax.Array, noise: jax.Array) -> jax.Array:
        squared_error, kl = loss_terms(network, x, noise)
        return (squared_error + 0.7 * kl[:, 0]).sum() / 8

    step, update = jax.jit(jax.value_and_grad(summed)), jax.jit(optimizer.update)
    for i in range(3):
        value, slope = step(network, batches[i], noise[i])
        change, state = update(slope, state)
        network, losses = eqx.apply_updates(network, change), [*losses, float(value)]
    for ours, theirs in zip(jax.tree.leaves(found.network), jax.tree.leaves(network), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6)  # single precision, other order of sums
    np.testing.assert_allclose(mean_loss, np.mean(losses), rtol=1e-5)


def rival(leaves: list[np.ndarray], x: np.ndarray, noise: np.ndarray, kl_weight: float) -> float:
    """The loss in NumPy, from the definition: layers of weight and bias, two to encode and two to decode; the KL as the
    integral of q log(q / p) by Gauss-Hermite quadrature, which is exact for this quadratic."""
    (w1, b1, w2, b2), (w3, b3, w4, b4) = leaves[:4], leaves[4:]
    hidden = x @ w1 + b1
    out = np.where(hidden < 0, 0.2 * hidden, hidden) @ w2 + b2
    mean, sd = out[:, : noise.shape[1]], np.exp(out[:, noise.shape[1] :] / 2)
    hidden = (mean + sd * noise) @ w3 + b3
    back = np.where(hidden < 0, 0.2 * hidden, hidden) @ w4 + b4
    points, weights = np.polynomial.hermite_e.hermegauss(5)
    at = mean[..., None] + sd[..., None] * points
    ratio = norm.logpdf(at, mean[..., None], sd[..., None]) - norm.logpdf(at)
    kl = (ratio * weights).sum(axis=-1) / weights.sum()
    return float(np.mean(((back - x) ** 2).sum(axis=1) + kl_weight * kl.sum(axis=1)))


def test_learning_is_adam_on_the_loss_written_out() -> None:
    """Three steps of Kingma and Ba's Algorithm 1 in NumPy, gradients by central differences, on a random network.

    Of a loss with six digits; each step moves a weight by about 0.01, and steps agree to a hundredth of that where
    slopes are above their rounding, as here.
    """
    rng = np.random.default_rng(3)
    network = AutoencoderNetwork(4, (5,), 2, rng)
    batches, noise = (rng.normal(size=(3, 16, width)).astype(np.float32) for width in (4, 2))
    found, mean_loss = learnt(network, batches, noise)
    leaves = [np.asarray(leaf.T, dtype=float) for leaf in jax.tree.leaves(network)]
    first, second = ([np.zeros_like(leaf) for leaf in leaves] for _ in range(2))
    losses = []
    for t in range(3):
        losses.append(rival(leaves, batches[t], noise[t], 0.7))
        slopes = [np.zeros_like(leaf) for leaf in leaves]
        for leaf, slope in zip(leaves, slopes, strict=True):
            for place in np.ndindex(leaf.shape):
                kept, ends = leaf[place], []
                for moved in (kept + 1e-5, kept - 1e-5):
                    leaf[place] = moved
                    ends.append(rival(leaves, batches[t], noise[t], 0.7))
                leaf[place], slope[place] = kept, (ends[0] - ends[1]) / 2e-5
        first = [0.9 * m + 0.1 * g for m, g in zip(first, slopes, strict=True)]
        second = [0.999 * v + 0.001 * g**2 for v, g in zip(second, slopes, strict=True)]
        for leaf, m, v in zip(leaves, first, second, strict=True):
            leaf -= 0.01 * m / (1 - 0.9 ** (t + 1)) / (np.sqrt(v / (1 - 0.999 ** (t + 1))) + 1e-8)
    assert float(mean_loss) == pytest.approx(np.mean(losses), rel=1e-5)
    for ours, theirs in zip(jax.tree.leaves(found.network), leaves, strict=True):
        np.testing.assert_allclose(ours.T, theirs, atol=1e-4)


def test_features_are_the_forward_pass_written_out() -> None:
    """Standardised once, by all rows; the mean of q; and the variance, in double precision."""
    fitted = VAE(hidden=(7, 5), steps=20, held_out=0.2).fit(ROWS)
    inputs = np.column_stack([ROWS.states, ACTIONS])
    x = (inputs - inputs.mean(axis=0)) / inputs.std(axis=0)
    assert fitted.network is not None
    for place, layer in enumerate(fitted.network.encoder):
        x = np.where(x < 0, 0.2 * x, x) if place else x
        x = x @ np.asarray(layer.weight.values, dtype=float) + np.asarray(layer.bias.values, dtype=float)
    np.testing.assert_allclose(fitted(ROWS), x[:, :3], rtol=0, atol=1e-12)
    np.testing.assert_allclose(fitted.encode(ROWS)[1], np.exp(x[:, 3:]), rtol=1e-10)


def test_the_defaults_are_the_papers_architecture() -> None:
    rows = Demonstrations(random.normal(size=(60, 46)), random.integers(0, 24, 60), n_actions=24)
    network = VAE(steps=1).fit(rows).network
    assert network is not None
    assert [layer.weight.shape for layer in network.encoder] == [(47, 100), (100, 100), (100, 6)]
    assert [layer.weight.shape for layer in network.decoder] == [(3, 100), (100, 100), (100, 47)]
    default = VAE()
    assert (default.learning_rate, default.kl_weight, default.actions) == (1e-3, 1.0, None)


def test_the_factors_of_a_linear_model_are_found_up_to_rotation() -> None:
    fitted = VAE(hidden=(16,), steps=3000, actions="leave-out", seed=3).fit(ROWS)
    design = np.column_stack([fitted(ROWS), np.ones(len(FACTORS))])
    left = FACTORS - design @ np.linalg.lstsq(design, FACTORS, rcond=None)[0]
    assert (1 - left.var(axis=0) / FACTORS.var(axis=0) > 0.9).all()
    # q(z | x) tells how sure it is: three factors seen through twelve columns are sure
    assert (fitted.encode(ROWS)[1].mean(axis=0) < 0.3).all()


def test_the_same_seed_gives_the_same_numbers_whatever_the_users_precision(quick: VAE) -> None:
    with jax.enable_x64(True):
        again = QUICK.fit(ROWS)
    assert again == quick
    assert (again.names, again.groups) == (("z1", "z2", "z3"), {"mixed": (0, 1, 2)})
    np.testing.assert_array_equal(again(ROWS), quick(ROWS))
    assert not np.allclose(replace(QUICK, seed=1).fit(ROWS)(ROWS), quick(ROWS))


def test_a_saved_map_is_equal_and_small(quick: VAE) -> None:
    text = json.dumps(quick.to_spec(), allow_nan=False)
    loaded = from_spec(json.loads(text))
    assert loaded == quick
    np.testing.assert_array_equal(loaded(ROWS), quick(ROWS))
    weights = 13 * 16 + 16 + 16 * 6 + 6 + 3 * 16 + 16 + 16 * 13 + 13
    assert len(text) < 6 * weights + 6000  # 4 bytes a weight, a third more as base64


def test_a_map_of_version_0_1_is_read(quick: VAE) -> None:
    """Its record of the training, key by key as it was written then."""
    spec = json.loads(json.dumps(quick.to_spec()))
    names = ("steps", "kept_step", "outcome", "loss", "held_out", "held_out_rows")
    values: tuple[object, ...] = (500, 250, "finished", [4.5, 4.25], [2.5, 1.5, 1.75], 80)
    spec["course"] = {"kind": "vae_course", **dict(zip(names, values, strict=True))}
    loaded = from_spec(spec)
    assert isinstance(loaded, VAE)
    assert loaded.course == Course(500, 250, "finished", (4.5, 4.25), (2.5, 1.5, 1.75), 80)
    assert json.loads(json.dumps(loaded.to_spec())) == spec
    np.testing.assert_array_equal(loaded(ROWS), quick(ROWS))


def test_a_damaged_file_is_refused(quick: VAE) -> None:
    spec = json.loads(json.dumps(quick.to_spec()))
    spec["network"]["encoder"][0]["weight"]["base64"] = "AAAA"
    with pytest.raises(InputError, match=r"array of shape \(13, 16\) in a feature map is damaged"):
        from_spec(spec)(ROWS)


def test_using_a_saved_map_needs_no_jax(quick: VAE, repository: Path) -> None:
    program = (
        "import json, sys\nfrom kdbirl.data.demonstrations import Demonstrations\n"
        "from kdbirl.features import from_spec\n"
        "spec, states, actions = json.load(sys.stdin)\nimport numpy as np\n"
        "rows = Demonstrations(np.array(states), np.array(actions), n_actions=4)\n"
        "print(json.dumps([from_spec(spec)(rows).tolist(), 'jax' in sys.modules]))"
    )
    some = ROWS.take(slice(5))
    given = json.dumps([quick.to_spec(), some.states.tolist(), some.actions.tolist()])
    command, environment = [sys.executable, "-c", program], {"PYTHONPATH": str(repository / "src")}
    done = subprocess.run(command, input=given, capture_output=True, text=True, env=environment, check=True)
    features, jax_loaded = json.loads(done.stdout)
    np.testing.assert_array_equal(features, quick(some))
    assert not jax_loaded


def test_each_row_is_mapped_by_itself_to_the_bit(quick: VAE) -> None:
    everything = quick(ROWS)
    for index in ([3], [1400, 2, 2], np.arange(1499, -1, -1), np.arange(1, 1100)):
        np.testing.assert_array_equal(quick(ROWS.take(np.array(index))), everything[index])


def test_learning_stops_when_held_out_rows_are_reconstructed_no_better() -> None:
    noise = Demonstrations(random.normal(size=(60, 12)), episodes=np.arange(60))
    fitted = VAE(hidden=(16,), steps=20_000, patience=3, held_out=0.3).fit(noise)
    course = fitted.course
    assert course is not None
    assert course.outcome == "stopped early"
    assert course.steps == course.kept_step + 3 * 250 < 20_000
    assert int(np.argmin(course.held_out)) == course.kept_step // 250
    own = stream(0, "rows held out of the VAE")
    held_out = fitted.inputs_of(noise)[_aside(noise, 0.3, np.random.default_rng(own))]
    assert fitted.network is not None
    np.testing.assert_allclose(fitted.network.reconstruction_error(held_out), min(course.held_out), rtol=1e-12)
    assert "its start is kept" in course.sentence  # of noise there is nothing to learn
    assert "18 held-out rows" in course.sentence


def test_whole_episodes_are_held_out() -> None:
    aside = _aside(ROWS, 0.1, np.random.default_rng(0))
    assert aside.sum() == 150
    assert len(np.unique(ROWS.episodes[aside])) == 15
    one_episode = Demonstrations(OBSERVED)
    assert _aside(one_episode, 0.1, np.random.default_rng(0)).sum() == 150
    assert not _aside(one_episode, 0.0, np.random.default_rng(0)).any()


def test_tasks_that_number_their_episodes_alike_are_held_out_by_episode() -> None:
    """20 tasks with episodes 0 to 3: a fifth of 80 episodes, not of the rows, of which others of the same episode would
    still be learnt from. By itself, beside other features, and as methods fit it."""
    tasks, episode = np.repeat(np.arange(20), 40), np.repeat(np.arange(80), 10)
    states = np.random.default_rng(0).normal(size=(80, 12))[episode]
    bank = TaskBank.from_arrays(states, None, tasks, np.eye(20), episodes=episode % 4)
    phi = VAE(hidden=(16,), steps=1)
    known = phi.fit(Demonstrations(states, episodes=episode))
    assert phi.fit(bank) == known
    assert (phi + PCA(2)).fit(bank).parts[0] == known  # type: ignore[attr-defined]
    assert TrainingRows.of(bank, 0, None).features(phi, None) == known


def test_divergence_is_told_and_leaves_finite_features() -> None:
    fitted = VAE(hidden=(16,), steps=500, learning_rate=1e4).fit(ROWS)
    assert fitted.course is not None
    assert fitted.course.outcome == "diverged"
    assert "lower learning_rate" in fitted.course.sentence
    assert np.isfinite(fitted(ROWS)).all()


class Heard:
    def __init__(self) -> None:
        self.updates: list[tuple[str, int, int]] = []

    def update(self, name: str, done: int, total: int, note: str = "") -> None:
        self.updates.append((name, done, total))

    def close(self) -> None:
        raise AssertionError("who opens it closes it")


def test_progress_is_told_after_every_block() -> None:
    heard = Heard()
    VAE(hidden=(16,), steps=600, held_out=0).fit(ROWS, progress=heard)
    assert heard.updates == [("VAE", 250, 600), ("VAE", 500, 600), ("VAE", 600, 600)]


def test_how_the_action_stands_among_the_inputs() -> None:
    """Shared with PCA, which has nothing to compile."""
    standardized, one_hot, without, heavy = (
        PCA(3, **options).fit(ROWS)
        for options in ({}, {"actions": "one-hot"}, {"actions": "leave-out"}, {"action_weight": 3.0})
    )
    code = (ACTIONS - ACTIONS.mean()) / ACTIONS.std()
    np.testing.assert_allclose(standardized.inputs_of(ROWS)[:, 12], code, rtol=1e-12)
    np.testing.assert_allclose(standardized.inputs_of(ROWS).std(axis=0), 1, rtol=1e-12)
    np.testing.assert_array_equal(one_hot.inputs_of(ROWS)[:, 12:], np.eye(4)[ACTIONS])
    assert without.inputs_of(ROWS).shape == (1500, 12)
    np.testing.assert_allclose(heavy.inputs_of(ROWS)[:, 12], 3 * code, rtol=1e-12)
    assert (standardized.groups, without.groups) == ({"mixed": (0, 1, 2)}, {"state": (0, 1, 2)})
    labelled = Demonstrations(OBSERVED, np.array(["left", "right"])[ACTIONS % 2])
    with pytest.raises(InputError, match=r'actions are labels \(left, right\).*give actions="one-hot"'):
        PCA(3, actions="standardize").fit(labelled)
    assert PCA(3).fit(labelled).input_names[12:] == ("action=left", "action=right", "action=<other>")
    with pytest.raises(InputError, match="fitted on rows without actions, and these rows have"):
        QUICK.fit(Demonstrations(OBSERVED))(ROWS)


def test_other_inputs_may_be_compressed() -> None:
    table = random.normal(size=(9, 9))
    rows = Demonstrations(ACTIONS + 2, ACTIONS, n_states=9, n_actions=4)
    inputs = Standardize(Function(lambda states: table[states], name="centres")) + OneHotActions()
    fitted = VAE(hidden=16, steps=1, inputs=inputs).fit(rows)
    assert fitted.inputs_of(rows).shape == (1500, 13)
    loaded = from_spec(json.loads(json.dumps(fitted.to_spec())), {"centres": lambda states: table[states]})
    np.testing.assert_array_equal(loaded(rows), fitted(rows))
    features, index = fitted.distinct(rows)
    assert len(features) == 4
    np.testing.assert_array_equal(features[index], fitted(rows))


@pytest.mark.parametrize(
    "phi",
    [QUICK, PCA(3), PCA(2, actions="one-hot", action_weight=2.0), PCA(3, actions="leave-out")],
    ids=["vae", "pca", "one-hot", "leave-out"],
)
def test_phi_in_jax_is_the_same_phi(phi: FeatureMap) -> None:
    fitted = phi.fit(ROWS)
    with jax.enable_x64(True):
        compiled = jax.jit(in_jax(Fixed(fitted), 4))(jnp.asarray(ROWS.states), jnp.asarray(ACTIONS))
    np.testing.assert_allclose(compiled, fitted(ROWS), rtol=0, atol=1e-12)
    single = jax.jit(in_jax(fitted, 4))(jnp.asarray(ROWS.states, dtype=jnp.float32), jnp.asarray(ACTIONS))
    assert single.dtype == jnp.float32
    np.testing.assert_allclose(single, fitted(ROWS), rtol=0, atol=1e-4)


def test_phi_in_jax_of_actions_with_labels() -> None:
    labelled = replace(ROWS, action_labels=("none", "low", "high", "most"))
    fitted = PCA(2).fit(labelled)
    compiled = in_jax(fitted, 4)(jnp.asarray(ROWS.states, dtype=jnp.float32), jnp.asarray(ACTIONS))
    np.testing.assert_allclose(compiled, fitted(labelled), rtol=0, atol=1e-4)


def test_phi_in_jax_needs_default_inputs_of_numbers() -> None:
    with pytest.raises(InputError, match="takes a fitted VAE or PCA with its default inputs"):
        in_jax(QUICK, 4)
    with pytest.raises(InputError, match="columns of numbers as states"):
        in_jax(PCA(2).fit(Demonstrations(ACTIONS, n_states=4)), 4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"latents": 0}, r"latents=0\) should be a whole number, 1 or more"),
        ({"hidden": ()}, r"hidden=\(\)\) should give the units"),
        ({"hidden": (10, 0.5)}, "should give the units"),
        ({"kl_weight": -1}, "one that is not negative"),
        ({"learning_rate": 0}, "should be a positive number"),
        ({"held_out": 1}, "share of the rows"),
        ({"seed": 1.5}, "seed=1.5"),
        ({"actions": "raw"}, '"standardize", "one-hot" or "leave-out"'),
        ({"action_weight": 0}, "action_weight=0"),
        ({"inputs": np.sin}, "takes a feature map"),
        ({"steps": True}, "steps=True"),
    ],
)
def test_wrong_settings_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        VAE(**options)  # type: ignore[arg-type]


def test_a_fixed_map_does_not_learn_again(quick: VAE) -> None:
    other = Demonstrations(OBSERVED[:50], ACTIONS[:50], n_actions=4)
    fixed = Fixed(quick)
    np.testing.assert_array_equal(fixed.fit(other)(other), quick(other))
    assert (fixed.names, fixed.groups, from_spec(fixed.to_spec())) == (quick.names, quick.groups, fixed)
    with pytest.raises(InputError, match="fitted on 12 state columns"):
        fixed.fit(Demonstrations(OBSERVED[:, :3], ACTIONS))
    with pytest.raises(InputError, match="this VAE is not: give what its"):
        Fixed(VAE())


def test_kdbirl_with_learnt_features(tmp_path: Path) -> None:
    """Nine tasks push two hidden factors; the posterior of an expert finds where it pushes them."""
    rng, rewards = np.random.default_rng(5), np.array([[x, y] for x in (0.0, 0.5, 1.0) for y in (0.0, 0.5, 1.0)])
    loadings = rng.normal(size=(2, 12))

    def play(reward: np.ndarray, n: int) -> np.ndarray:
        return (3 * reward + 0.5 * rng.normal(size=(n, 2))) @ loadings + 0.1 * rng.normal(size=(n, 12))

    states = np.concatenate([play(reward, 60) for reward in rewards])
    bank = TaskBank.from_arrays(states=states, actions=None, tasks=np.repeat(np.arange(9), 60), rewards=rewards)
    phi = VAE(hidden=(16,), steps=1000)
    model = kb.KDBIRL(prior=kb.Uniform(0, 1), features=phi, bandwidth="median", sampler=kb.Grid()).fit(bank)
    expert, truth = Demonstrations(play(np.array([0.9, 0.2]), 40)), np.array([0.9, 0.2])
    posterior = model.posterior(expert, seed=0)
    error = np.linalg.norm(posterior.flat - truth, axis=1).mean()
    assert error < 0.5 * np.linalg.norm(rng.uniform(size=(4000, 2)) - truth, axis=1).mean()
    model.save(tmp_path / "model")
    again = kb.load_model(tmp_path / "model").posterior(expert, seed=0)
    np.testing.assert_array_equal(again.draws, posterior.draws)
