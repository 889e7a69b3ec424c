"""`kdbirl evaluate`: EVD of a run, and the whole way from a Gymnasium world to a verdict."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import kdbirl as kb
from kdbirl import cli
from kdbirl.errors import InputError
from kdbirl.evaluation.judgement import PRIOR_DRAWS, judge
from kdbirl.posterior.result import Posterior

TRUTH = [1.0, -0.5]


def run(*words):
    assert cli.run([str(word) for word in words]) == 0


def fit(folder, *more):
    tables = [f"--{name}={folder / file}" for name, file in TABLES.items()]
    run("fit", *tables, "--state=state", "--action=action", "--quiet", *more)


TABLES = {"training": "training.parquet", "rewards": "rewards.csv", "expert": "expert.csv"}


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """A small grid, its tables and a run."""
    folder = tmp_path_factory.mktemp("evaluate")
    world = ["--env=gridworld-xy:4", "--random-rewards=20", "--reward-prior=uniform:-1,1", "--true-reward=1,-0.5"]
    run("demos", *world, "--episodes=5", f"--out={folder / 'grid'}", "--quiet")
    choices = ["--n-states=16", "--features=grid:4+onehot-actions", "--prior=uniform:-1,1", "--draws=200", "--chains=1"]
    fit(folder / "grid", *choices, f"--out={folder / 'run'}")
    return folder


@pytest.fixture
def folder(original, tmp_path, monkeypatch):
    """A copy of it, in the current directory."""
    shutil.copytree(original, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def evaluation():
    return json.loads(Path("run/evaluation.json").read_text(), parse_constant=lambda name: pytest.fail(name))


def test_the_numbers_are_those_of_the_library(folder):
    run("evaluate", "run", "--world", "grid/world.json", "--quiet")
    post, world = kb.load_posterior("run/posterior.nc"), kb.Gridworld(4, features="xy")
    found, content = kb.evd(post, world, TRUTH), evaluation()
    assert content["posterior"]["mean"] == found.mean
    assert content["posterior"]["standard_error"] == found.standard_error
    assert content["posterior"]["interval_95"] == list(found.interval)
    assert content["posterior"]["of_mean_reward"] == found.of_mean
    assert content["posterior"]["of_most_probable_reward"] == found.of_map
    assert content["posterior"]["normalised_regret"] == found.regret
    assert content["posterior"]["quantiles_of_draws"]["q95"] == found.quantile(0.95)
    assert (content["best_value"], content["random_value"]) == (found.best, found.random)
    assert content["prior"]["mean"] == kb.evd(post.prior_draws[:PRIOR_DRAWS], world, TRUTH).mean
    assert content["posterior"]["mean"] < content["prior"]["mean"]
    policy = kb.plan(world, post.mean())
    assert content["value_at_risk"]["bound"] == kb.value_at_risk(post, world, policy).bound
    assert content["true_reward"] == {"x": 1.0, "y": -0.5}
    assert content["versions"]["kdbirl"] == kb.__version__


def test_the_text_fits_a_terminal(folder, capsys):
    run("evaluate", "run", "--world", "grid")  # the directory will do
    shown = capsys.readouterr().out
    assert max(len(line) for line in shown.splitlines()) <= 80
    assert f"{evaluation()['posterior']['mean']:.4g}" in shown
    assert f"{evaluation()['prior']['mean']:.4g}" in shown
    assert "run/evaluation.json" in shown


def test_json_is_the_file(folder, capsys):
    run("evaluate", "run", "--world", "grid", "--json")
    shown = json.loads(capsys.readouterr().out)
    assert shown.pop("file") == "run/evaluation.json"
    assert shown == evaluation()


def test_another_true_reward(folder):
    run("evaluate", "run", "--world", "grid", "--true-reward", "-1,0.5", "--quiet")
    assert evaluation()["true_reward"] == {"x": -1.0, "y": 0.5}
    assert evaluation()["posterior"]["normalised_regret"] > 1  # the opposite of what the expert wanted


def test_an_evaluation_is_only_replaced_on_demand(folder, capsys):
    run("evaluate", "run", "--world", "grid", "--quiet")
    before = Path("run/evaluation.json").read_bytes()
    assert cli.run(["evaluate", "run", "--world", "grid", "--true-reward", "y=1"]) == 2
    assert "run/evaluation.json already exists; --force replaces it." in capsys.readouterr().err
    assert Path("run/evaluation.json").read_bytes() == before
    run("evaluate", "run", "--world", "grid", "--true-reward", "y=1", "--force", "--quiet")
    assert evaluation()["true_reward"] == {"x": 0.0, "y": 1.0}


def test_the_other_files_of_the_run_stay_as_they_are(folder):
    before = {path: path.read_bytes() for path in Path("run").iterdir()}
    run("evaluate", "run", "--world", "grid", "--quiet")
    after = {path: path.read_bytes() for path in Path("run").iterdir()}
    assert set(after) - set(before) == {Path("run/evaluation.json")}
    changed = {path.name for path in before if after[path] != before[path]}
    assert changed == {"report.html", "manifest.json"}  # the page is written again, with its hash
    assert b"Expected value difference" in after[Path("run/report.html")]


MISTAKES = {
    "no run": (["rn"], "rn does not exist; give the run directory that kdbirl fit made."),
    "a file": (["grid/world.json"], "grid/world.json is a file; give the run directory"),
    "no posterior": (["grid"], "grid has no posterior.nc; give the run directory"),
    "no world": (["run", "--world", "none.json"], "none.json: there is no such file; expected a world.json"),
    "no world there": (["run", "--world", "run"], "run/world.json: there is no such file"),
    "a table": (["run", "--world", "grid/expert.csv"], "grid/expert.csv cannot be read as JSON"),
    "other JSON": (["run", "--world", "run/manifest.json"], "'env' is missing or of the wrong kind"),
    "a short reward": (["run", "--true-reward", "1"], "a reward of this world has 2 parameters (x, y)"),
    "policies of a table": (["run", "--policy", "p.npz"], "--policy is for simulators"),
    "no such parameter": (["run", "--true-reward", "z=1"], "'z', which is not among this world's parameters"),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_a_mistake_is_one_sentence_and_writes_nothing(case, folder, capsys):
    words, sentence = MISTAKES[case]
    words = words if "--world" in words else [*words, "--world", "grid"]
    assert cli.run(["evaluate", *words]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.count("\n") == 1
    assert sentence in shown.err
    assert not Path("run/evaluation.json").exists()


def changed_world(**changes):
    content = json.loads(Path("grid/world.json").read_text()) | changes
    Path("grid/world.json").write_text(json.dumps(content))
    return cli.run(["evaluate", "run", "--world", "grid"])


def test_another_world_is_refused(folder, capsys):
    assert changed_world(env="gridworld:2") == 2
    assert "made by another version of that world" in capsys.readouterr().err
    cells = [f"cell {s}" for s in range(4)]
    assert changed_world(env="gridworld:2", reward_parameters=cells, true_reward=[0, 0, 0, 1]) == 2
    assert "The posterior has 2 reward parameters, but this world's rewards 4." in capsys.readouterr().err


def test_a_damaged_world_is_refused(folder, capsys):
    assert changed_world(true_reward=["a", 1]) == 2
    assert "'true_reward' should be a list of numbers" in capsys.readouterr().err
    assert changed_world(true_reward=[1, 2], horizon=None) == 2
    assert "'horizon' is missing or of the wrong kind" in capsys.readouterr().err


def posterior(names):
    draws = np.random.default_rng(0).uniform(-1, 1, (1, 15, 2))
    return Posterior(draws=draws, names=names, method="KDBIRL", sampler="Grid", seed=0)


def test_parameters_in_another_order_are_refused_and_other_names_are_noted():
    world = kb.Gridworld(3, features="xy")
    with pytest.raises(InputError, match="in another order"):
        judge(posterior(("y", "x")), world, TRUTH)
    judgement = judge(posterior(("a", "b")), world, TRUTH)
    assert "a as x, b as y" in judgement.notes[0]
    assert judgement.prior is None  # this posterior has no prior draws
    assert judgement.to_dict()["value_at_risk"]["bound"] is None  # 15 draws are too few


def test_a_gymnasium_world_goes_all_the_way(tmp_path, monkeypatch):
    """FrozenLake made by Gymnasium alone: demos, fit, evaluate, and the posterior is far better than the prior."""
    monkeypatch.chdir(tmp_path)
    world = ["--env=FrozenLake-v1:next-state", "--discount=0.95", "--one-per-state", "--true-reward=state 14=1"]
    run("demos", *world, "--expert-episodes=10", "--horizon=50", "--out=lake", "--quiet")
    choices = ["--n-states=16", "--features=onehot", "--bandwidth=0.5,0.5", "--prior=uniform:0,1"]
    fit(Path("lake"), *choices, "--sampler=nuts", "--chains=2", "--warmup=300", "--draws=300", "--out=run")
    run("evaluate", "run", "--world", "lake", "--quiet")
    # 0.3 % against 61 %; over six other seeds of demonstrations and sampler the first was 0.4 to 1.9 %
    assert evaluation()["posterior"]["normalised_regret"] < 0.1
    assert evaluation()["prior"]["normalised_regret"] > 0.5
