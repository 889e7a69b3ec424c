"""`kdbirl fit --features vae:2` on tables with 46 covariates; the model that it saves maps rows as it did."""

import numpy as np
import pytest
from typer.testing import CliRunner

import kdbirl as kb
from kdbirl.cli import app
from kdbirl.worlds.sepsis.covariates import COVARIATES


def play(reward, rows, rng):
    """Two factors that a reward pushes, seen through 46 covariates; the action is the larger of its weights."""
    loadings = np.random.default_rng(0).normal(size=(2, 46))
    states = (3 * reward + rng.normal(size=(rows, 2))) @ loadings + 0.3 * rng.normal(size=(rows, 46))
    actions = np.where(rng.random(rows) < 0.8, reward.argmax(), 2)
    episodes = np.arange(rows) // 10
    return kb.Demonstrations(states, actions, episodes=episodes, state_names=COVARIATES, n_actions=3)


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    folder, rng = tmp_path_factory.mktemp("tables"), np.random.default_rng(1)
    rewards = np.array([[x, y] for x in (0.1, 0.5, 0.9) for y in (0.0, 0.4, 1.0)])
    bank = kb.TaskBank.from_tasks({str(k): (play(w, 40, rng), w) for k, w in enumerate(rewards)})
    kb.write_task_bank(bank, folder / "training.csv", folder / "rewards.csv")
    kb.write_demonstrations(play(np.array([0.9, 0.1]), 30, rng), folder / "expert.csv")
    return folder


@pytest.mark.parametrize("features", ["vae:2", "pca:2+onehot-actions"])
def test_a_fit_on_tables_learns_saves_and_loads_phi(features, tables, tmp_path):
    command = ["fit", "--training", "training.csv", "--rewards", "rewards.csv", "--expert", "expert.csv"]
    given = [str(tables / word) if word.endswith(".csv") else word for word in command]
    chosen = ["--state", ",".join(COVARIATES), "--action", "action", "--n-actions", "3", "--features", features]
    rest = ["--prior", "uniform:0,1", "--bandwidth", "median", "--sampler", "grid", "--out", str(tmp_path / "run")]
    done = CliRunner().invoke(app, [*given, *chosen, *rest, "--quiet"])
    assert done.exit_code == 0, done.output
    post = kb.load_posterior(tmp_path / "run" / "posterior.nc")
    assert len(post.feature_names) == {"vae:2": 2, "pca:2+onehot-actions": 5}[features]
    mean = post.mean()
    assert mean[0] > mean[1] + 0.1
    expert = kb.read_demonstrations(tables / "expert.csv", state=COVARIATES, action="action", n_actions=3)
    model = kb.load_model(tmp_path / "run" / "model.npz")
    np.testing.assert_array_equal(model.posterior(expert, seed=0).draws, post.draws)


class Heard:
    def __init__(self):
        self.names = set()

    def update(self, name, done, total, note=""):
        self.names.add(name)

    def close(self):
        pass


def test_the_fit_of_a_model_tells_how_far_the_network_is():
    rng, heard = np.random.default_rng(2), Heard()
    bank = kb.TaskBank.from_tasks({str(k): (play(np.eye(2)[k], 30, rng), np.eye(2)[k]) for k in range(2)})
    phi = kb.Standardize(kb.VAE(2, hidden=(8,), steps=1)) + kb.OneHotActions()
    kb.KDBIRL(prior=kb.Uniform(0, 1), features=phi, bandwidth=(1.0, 1.0)).fit(bank, progress=heard)
    assert "VAE" in heard.names
