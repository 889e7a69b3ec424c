"""`kdbirl evaluate` in a simulator: the numbers of `kb.evd` by paired rollouts, with policies from a file or learnt."""

import json
import shutil
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import kdbirl as kb
from kdbirl import cli
from kdbirl.worlds.named import named_world
from kdbirl.worlds.sepsis import deep_q
from kdbirl.worlds.sepsis.covariates import COVARIATES

from ..worlds.untrained import untrained

TRUTH = np.array([-1.0, 0.2, -0.3])
TINY = {"hidden": (8,), "updates": 20, "evaluate_every": 10, "environments": 4, "batch": 8, "evaluation_episodes": 4}


def run(*words):
    assert cli.run([str(word) for word in words]) == 0


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """Tables of a few patients, treated by policies that nobody trained, and a run."""
    folder = tmp_path_factory.mktemp("evaluate")
    untrained(named_world("sepsis"), centre=50.0, spread=50.0).save(folder / "untrained.npz")
    made, policy = folder / "demos", f"--policy={folder / 'untrained.npz'}"
    tasks = ["--random-rewards=4", "--reward-prior=uniform:-1,1", "--true-reward=-1,0.2,-0.3", "--episodes=2"]
    run("demos", "--env=sepsis", *tasks, "--horizon=4", policy, f"--out={made}", "--quiet")
    tables = [f"--training={made / 'training.parquet'}", f"--rewards={made / 'rewards.csv'}"]
    columns = [f"--state={','.join(COVARIATES)}", "--action=action", "--bandwidth=5,0.5", "--prior=uniform:-1,1"]
    sizes = ["--draws=30", "--chains=1", "--quiet", f"--out={folder / 'run'}"]
    run("fit", *tables, f"--expert={made / 'expert.csv'}", *columns, *sizes)
    return folder


@pytest.fixture
def folder(original, tmp_path, monkeypatch):
    """A copy of it, in the current directory."""
    shutil.copytree(original, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def evaluation():
    return json.loads(Path("run/evaluation.json").read_text(), parse_constant=lambda name: pytest.fail(name))


def test_the_numbers_are_those_of_the_library(folder, capsys):
    run("evaluate", "run", "--world", "demos", "--episodes", "6", "--seed", "5")
    shown, content = capsys.readouterr().out, evaluation()
    assert max(len(line) for line in shown.splitlines()) <= 80
    assert "Values are means over 6 simulated episodes" in shown
    post, world = kb.load_posterior("run/posterior.nc"), named_world("sepsis")
    options = {"planner": kb.load_conditioned("demos/policy.npz"), "episodes": 6, "seed": 5}
    for side, draws in (("posterior", post), ("prior", post.prior_draws[:1000])):
        found = kb.evd(draws, world, TRUTH, **options)
        pairs = {"mean": found.mean, "standard_error": found.standard_error, "of_mean_reward": found.of_mean}
        assert {name: content[side][name] for name in pairs} == pytest.approx(pairs, rel=1e-6)
        assert (content["best_value"], content["random_value"]) == pytest.approx((found.best, found.random), rel=1e-6)
    assert content["posterior"]["mean"] != content["prior"]["mean"]
    assert content["episodes"] == 6
    assert content["true_reward"] == dict(zip(world.feature_names, TRUTH.tolist(), strict=True))


def test_the_value_at_risk_is_that_of_the_draws_own_rewards(folder):
    run("evaluate", "run", "--world", "demos", "--episodes", "6", "--quiet")
    post, world = kb.load_posterior("run/posterior.nc"), named_world("sepsis")
    rewards = np.vstack([post.flat, post.mean()])
    mu = kb.policy_features(world, kb.load_conditioned("demos/policy.npz"), rewards, episodes=6)
    lost = np.sum(post.flat * (mu[:-1] - mu[-1]), axis=1)
    assert evaluation()["value_at_risk"]["estimate"] == pytest.approx(np.quantile(lost, 0.95), rel=1e-6)


def test_without_a_file_policies_are_learnt_and_kept_in_the_run(folder, monkeypatch):
    Path("demos/policy.npz").unlink()
    monkeypatch.setattr(deep_q, "DeepQ", partial(kb.DeepQ, **TINY))
    run("evaluate", "run", "--world", "demos/world.json", "--episodes", "2")
    first, policies = evaluation(), kb.load_conditioned("run/policy.npz")
    assert policies.values.limit == named_world("sepsis").horizon
    monkeypatch.setattr(deep_q, "DeepQ", lambda: pytest.fail("learnt again"))
    run("evaluate", "run", "--world", "demos/world.json", "--episodes", "2", "--force", "--quiet")
    assert evaluation() == first


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--policy", "none.npz"], "none.npz: there is no such file"),
        (["--episodes", "1"], "episodes=1 should be a whole number, at least 2"),
        (["--policy", "other.npz"], "policies for other features"),
        (["--true-reward", "1"], "a reward of this world has 3 parameters"),
    ],
)
def test_a_mistake_is_one_sentence_and_writes_nothing(folder, capsys, words, sentence):
    untrained(named_world("sepsis:sofa-lactate-map")).save("other.npz")
    assert cli.run(["evaluate", "run", "--world", "demos", *words]) == 2
    shown = capsys.readouterr()
    assert sentence in shown.err
    assert "Traceback" not in shown.err
    assert not Path("run/evaluation.json").exists()
