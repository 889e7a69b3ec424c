"""`GymSepsis`: random weights in the layout of the original's files, against a plain NumPy forward pass."""

import os
from pathlib import Path

import h5py
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import chisquare

import kdbirl as kb
from kdbirl.errors import FileProblem, InputError, KDBIRLWarning
from kdbirl.worlds.sepsis.covariates import COLUMN, COVARIATES
from kdbirl.worlds.sepsis.gym_sepsis import FILES, PINNED, STARTS, GymSepsis
from kdbirl.worlds.simulator import Simulator

from .worlds import check_random_actions

SIZES = dict(zip(FILES, ((47, 46), (48, 2), (48, 2)), strict=True))
N = 5


def random_weights(rng, inputs, outputs):
    shapes = [(inputs, 200), (50, 200), (200,), (50, 128), (128,), (128, outputs), (outputs,)]
    return [rng.normal(0, 0.3, shape).astype(np.float32) for shape in shapes]


def write_keras(path: Path, weights, root="model_weights"):
    """As Keras 2.1.6 does: names as bytes in attributes, groups in groups, and one layer without weights."""
    layers = {"lstm_1": weights[:3], "dropout_1": [], "dense_1": weights[3:5], "dense_2": weights[5:]}
    kinds = {"lstm_1": ("kernel", "recurrent_kernel", "bias")}
    with h5py.File(path, "w") as file:
        group = file.create_group(root) if root else file
        group.attrs["layer_names"] = np.array([name.encode() for name in layers])
        group.attrs["keras_version"] = b"2.1.6-tf"
        for layer, arrays in layers.items():
            inside = group.create_group(layer)
            names = [f"{layer}/{kind}:0" for kind in kinds.get(layer, ("kernel", "bias"))[: len(arrays)]]
            inside.attrs["weight_names"] = np.array([name.encode() for name in names])
            for name, array in zip(names, arrays, strict=True):
                inside[name] = array


def write_all(folder, seed):
    """Three networks and starting states."""
    rng = np.random.default_rng(seed)
    for file, size in SIZES.items():
        write_keras(folder / file, random_weights(rng, *size))
    np.savez(folder / STARTS, sepsis_starting_states=rng.normal(size=(20, 47)))
    return folder


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return write_all(tmp_path_factory.mktemp("gym_sepsis"), 0)


def arrays_of(path):
    with h5py.File(path) as file:
        found = []
        file["model_weights"].visititems(lambda _, item: found.append(item) if isinstance(item, h5py.Dataset) else None)
        by_name = {item.name.rsplit("model_weights/", 1)[1].split("/", 1)[1]: item[()].astype(float) for item in found}
    names = ("lstm_1/kernel:0", "lstm_1/recurrent_kernel:0", "lstm_1/bias:0")
    return [by_name[n] for n in (*names, "dense_1/kernel:0", "dense_1/bias:0", "dense_2/kernel:0", "dense_2/bias:0")]


def forward(weights, rows):
    """Keras' LSTM by its definition, for one memory (10, inputs): gates i, f, c, o."""
    kernel, recurrent, bias, hidden, hidden_bias, output, output_bias = weights
    said, cell = np.zeros(50), np.zeros(50)
    for row in rows:
        gates = row @ kernel + said @ recurrent + bias
        enter, forget, leave = (np.clip(0.2 * gates[k : k + 50] + 0.5, 0, 1) for k in (0, 50, 150))
        cell = forget * cell + enter * np.tanh(gates[100:150])
        said = leave * np.tanh(cell)
    return np.maximum(said @ hidden + hidden_bias, 0) @ output + output_bias


def softmax(values):
    return np.exp(values - values.max()) / np.exp(values - values.max()).sum()


class Original:
    """One patient of the original, step by step in NumPy."""

    def __init__(self, directory, start, pinned, first_index):
        self.networks = [arrays_of(directory / file) for file in FILES]
        self.rows, self.now, self.start = [np.zeros(48)] * 10, start, start
        self.pinned, self.index = pinned, first_index

    def step(self, action):
        self.rows = [*self.rows[1:], np.concatenate([self.now, [action, self.index]])]
        memory = np.array(self.rows)
        self.now = forward(self.networks[0], memory[:, :47])
        for name in self.pinned:
            self.now[COVARIATES.index(name)] = self.start[COVARIATES.index(name)]
        self.index += 1
        return self.now, softmax(forward(self.networks[1], memory)), softmax(forward(self.networks[2], memory))


@pytest.mark.parametrize(("pinned", "first_index", "root"), [("original", 0, "model_weights"), ("static", 1, "")])
def test_it_is_the_plain_forward_pass(directory, tmp_path, pinned, first_index, root):
    """To 1e-6 over 13 steps, longer than the memory; also from files that hold nothing but weights."""
    for file in FILES:
        write_keras(tmp_path / file, arrays_of(directory / file), root)
    keywords = {"pinned": pinned, "first_index": first_index, "starts": directory / STARTS}
    simulator = GymSepsis(tmp_path, "outcome", termination="bernoulli", **keywords)
    rng = np.random.default_rng(1)
    with jax.enable_x64(True):
        state, seen = simulator.reset(jax.random.key(0), N)
        originals = [Original(directory, np.asarray(row), PINNED[pinned], first_index) for row in seen]
        for number in range(13):
            action = rng.integers(0, 24, N)
            outcome = simulator.step(state, jnp.asarray(action), jax.random.key(number))
            expected = [original.step(code) for original, code in zip(originals, action, strict=True)]
            following, ends, releases = (np.array(part) for part in zip(*expected, strict=True))
            np.testing.assert_allclose(outcome.observation, following, atol=1e-6)
            np.testing.assert_allclose(outcome.p_death, ends[:, 1] * releases[:, 0], atol=1e-6)
            np.testing.assert_allclose(outcome.p_release, ends[:, 1] * releases[:, 1], atol=1e-6)
            np.testing.assert_allclose(outcome.features, np.stack([outcome.p_release, outcome.p_death], axis=1))
            state = outcome.state
    assert isinstance(simulator, Simulator)
    assert len(PINNED[pinned]) == {"original": 7, "static": 18}[pinned]


def test_endings_by_argmax_or_by_chance(directory):
    certain, drawn = GymSepsis(directory), GymSepsis(directory, termination="bernoulli", horizon=1)
    state, seen = certain.reset(jax.random.key(0), 2000)
    assert seen.shape == (2000, 46)
    action = jnp.arange(2000) % 24
    one, two = certain.step(state, action, jax.random.key(1)), drawn.step(state, action, jax.random.key(1))
    _, (ends, releases) = certain.predicted(one.state.memory)
    np.testing.assert_array_equal(one.terminated, ends > 0.5)
    np.testing.assert_array_equal(one.info["released"], (ends > 0.5) & (releases > 0.5))
    np.testing.assert_array_equal(one.info["died"], (ends > 0.5) & ~(releases > 0.5))
    for name, chance in (("died", ends * (1 - releases)), ("released", ends * releases)):
        error = 5 * float(jnp.sqrt((chance * (1 - chance)).sum())) / 2000  # five standard errors
        assert abs(float(two.info[name].mean()) - float(chance.mean())) < error + 1e-6
    np.testing.assert_array_equal(two.truncated, ~two.terminated)
    assert not one.truncated.any()
    columns = [COLUMN["SOFA"], COLUMN["lactate"], COLUMN["MeanBP"]]
    np.testing.assert_array_equal(one.features, np.asarray(seen)[:, columns])


def test_starts_are_drawn_evenly(directory):
    """Chi-square of 20,000 starts over the 20 rows of the file; a false failure in 10,000."""
    _, seen = GymSepsis(directory).reset(jax.random.key(7), 20_000)
    given = np.load(directory / STARTS)["sepsis_starting_states"][:, :46]
    which = np.abs(np.asarray(seen)[:, None, 0] - given[None, :, 0]).argmin(axis=1)
    np.testing.assert_allclose(seen, given[which], rtol=1e-6)
    assert chisquare(np.bincount(which, minlength=20)).pvalue > 1e-4


def test_whole_episodes_are_those_of_the_original(tmp_path):
    """Recorded by `kb.rollout`: the row before each action, the end where it is the likelier answer, else the cut at
    the horizon, which is longer than the memory. Under these weights some episodes end and some do not."""
    directory = write_all(tmp_path, 2)
    world = GymSepsis(directory, "outcome", horizon=12)
    demos = kb.rollout(world, "random", episodes=12, horizon=12, seed=3)
    both = np.zeros(2, int)
    for episode in range(12):
        rows = demos.take(demos.episodes == episode)
        original = Original(directory, rows.states[0], PINNED["original"], 0)
        for step in range(rows.n_rows):
            np.testing.assert_allclose(rows.states[step], original.now, rtol=1e-3, atol=1e-4)  # single precision
            _, ends, _ = original.step(rows.actions[step])
            if abs(ends[1] - 0.5) > 1e-3:
                assert rows.terminated[step] == (ends[1] > 0.5)
            assert rows.truncated[step] == (step == 11 and not rows.terminated[step])
            assert (step == rows.n_rows - 1) == bool(rows.terminated[step] or rows.truncated[step])
        both += [rows.terminated[-1], rows.truncated[-1]]
    assert both.all(), "both ends and cuts are seen"


def test_other_features(directory):
    simulator = GymSepsis(directory, "sofa-fluid-vasopressor", outcome=True)
    assert simulator.feature_names == ("SOFA", "fluid", "vasopressor", "survived", "died")
    state, _ = simulator.reset(jax.random.key(0), N)
    np.testing.assert_allclose(
        simulator.step(state, jnp.full(N, 13), jax.random.key(1)).features[:, 1:3], [[0.5, 0.75]] * N
    )
    own = GymSepsis(directory, lambda seen, action: seen[:, :2], names=("a", "b"))
    np.testing.assert_array_equal(
        own.step(state, jnp.zeros(N, int), jax.random.key(1)).features, state.observation[:, :2]
    )


def test_starts_are_the_users_or_synthetic_with_a_warning(directory, tmp_path):
    for file in FILES:
        (tmp_path / file).write_bytes((directory / file).read_bytes())
    given = np.load(directory / STARTS)["sepsis_starting_states"]
    np.testing.assert_array_equal(GymSepsis(directory).starts, given[:, :46])
    with pytest.warns(KDBIRLWarning, match="standardised draws of kb.SepsisSim"):
        simulator = GymSepsis(tmp_path)
    np.testing.assert_allclose(simulator.starts.mean(axis=0), 0, atol=1e-6)
    np.testing.assert_allclose(simulator.starts.std(axis=0), 1, atol=1e-6)
    np.savez(tmp_path / "other.npz", anything=given[:, :46])
    np.testing.assert_array_equal(GymSepsis(tmp_path, starts=tmp_path / "other.npz").starts, given[:, :46])


@pytest.mark.parametrize(
    ("content", "word"),
    [
        ({"table": np.zeros((3, 40))}, r"shape \(3, 40\), expected \(n, 47\)"),
        ({"table": np.zeros((0, 47))}, r"shape \(0, 47\)"),
        ({"table": np.full((3, 47), np.nan)}, "finite"),
        ({"table": np.full((3, 47), "x")}, "finite numbers"),
        ({"one": np.zeros((3, 47)), "two": np.zeros((3, 47))}, "expected one"),
        ({"table": np.array([[None] * 47])}, "cannot be read"),
        (np.zeros((3, 47)), "cannot be read"),
        (None, "no such file"),
        (b"PK\x03\x04 nothing", "cannot be read"),
    ],
)
def test_wrong_starts_are_one_sentence(directory, tmp_path, content, word):
    path = tmp_path / "starts.npz"
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif isinstance(content, np.ndarray):
        with path.open("wb") as stream:
            np.save(stream, content)
    elif content is not None:
        np.savez(path, **content)
    with pytest.raises(FileProblem, match=word) as caught:
        GymSepsis(directory, starts=path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def damaged(path, how):
    rng = np.random.default_rng(2)
    if how == "missing":
        path.unlink()
    elif how == "text":
        path.write_text("no network")
    elif how == "cut":
        path.write_bytes(path.read_bytes()[:3000])
    elif how == "empty":
        h5py.File(path, "w").close()
    elif how == "layer":
        with h5py.File(path, "a") as file:
            del file["model_weights/dense_1"]
    elif how == "array":
        with h5py.File(path, "a") as file:
            del file["model_weights/dense_1/dense_1/kernel:0"]
    elif how == "group":
        with h5py.File(path, "a") as file:
            del file["model_weights/dense_1/dense_1/kernel:0"]
            file.create_group("model_weights/dense_1/dense_1/kernel:0")
    elif how == "shapes":
        write_keras(path, random_weights(rng, 47, 46))
    elif how == "numbers":
        write_keras(path, [np.full_like(array, np.nan) for array in random_weights(rng, 48, 2)])


@pytest.mark.parametrize(
    ("how", "word"),
    [
        ("missing", "no such file"),
        *((how, "cannot be read as a Keras 2 network") for how in ("text", "cut", "empty", "layer", "array", "group")),
        ("shapes", r"weights of shapes \[\(47, 200\), .* expected \[\(48, 200\)"),
        ("numbers", "not finite"),
    ],
)
def test_wrong_files_are_one_sentence(directory, tmp_path, how, word):
    for file in FILES:
        (tmp_path / file).write_bytes((directory / file).read_bytes())
    damaged(tmp_path / FILES[1], how)
    with pytest.raises(FileProblem, match=word) as caught:
        GymSepsis(tmp_path, starts=directory / STARTS)
    assert FILES[1] in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("keywords", "word"),
    [
        ({"discount": -1}, "discount"),
        ({"horizon": 0}, "horizon"),
        ({"pinned": "statics"}, "Did you mean 'static'"),
        ({"termination": "argmin"}, "Did you mean 'argmax'"),
        ({"first_index": 2}, "first_index"),
        ({"features": "sofa"}, "features"),
    ],
)
def test_bad_settings_are_refused(directory, keywords, word):
    with pytest.raises(InputError, match=word):
        GymSepsis(directory, **keywords)


def test_a_directory_is_needed(tmp_path):
    with pytest.raises(FileProblem, match="not a directory"):
        GymSepsis(tmp_path / "nowhere")


@pytest.mark.skipif("GYM_SEPSIS_DIR" not in os.environ, reason="GYM_SEPSIS_DIR names no directory with the real files")
def test_the_real_files():
    """Episodes end on a clock around the tenth step, whatever the patient's state: facts measured of the original."""
    simulator = GymSepsis(os.environ["GYM_SEPSIS_DIR"], termination="bernoulli")
    state, _ = simulator.reset(jax.random.key(0), 500)
    ends = []
    for number in range(10):
        action = jax.random.randint(jax.random.key(number), (500,), 0, 24)
        outcome = simulator.step(state, action, jax.random.key(number))
        state = outcome.state
        ends.append(float((outcome.p_death + outcome.p_release).mean()))
    assert np.isfinite(np.asarray(outcome.observation)).all()
    assert ends[0] < 0.1
    assert ends[-1] > 0.9


def test_the_random_agent_and_the_world_share_no_numbers(directory):
    assert check_random_actions(GymSepsis(directory)) > 100
