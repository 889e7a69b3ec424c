"""`kdbirl demos --env sepsis`: the tables of a simulator, with policies from a file (learning them takes minutes)."""

import numpy as np
import pytest

import kdbirl as kb
from kdbirl import cli
from kdbirl.errors import InputError
from kdbirl.worlds.named import named_world, read_world
from kdbirl.worlds.sepsis.covariates import COVARIATES

from ..worlds.untrained import untrained

OPTIONS = ["--true-reward", "SOFA=-1", "--random-rewards", "2", "--reward-prior", "uniform:-1,1", "--episodes", "2"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    untrained(named_world("sepsis"), centre=50.0, spread=50.0).save(tmp_path / "policy.npz")
    return tmp_path


def test_it_writes_the_tables_and_the_policies(folder, capsys):
    words = ["--policy", "policy.npz", "--horizon", "4", "--expert-episodes", "3"]
    assert cli.run(["demos", "--env", "sepsis", *OPTIONS, "--out", "out", *words]) == 0
    printed = capsys.readouterr().out
    assert "46 state columns, 24 actions, 3 reward parameters" in printed
    assert all(len(line) <= 120 or "albumin" in line for line in printed.splitlines())
    bank = kb.read_task_bank("out/training.parquet", rewards="out/rewards.csv", state=list(COVARIATES), action="action")
    expert = kb.read_demonstrations("out/expert.csv", state=list(COVARIATES), action="action")
    assert (bank.n_tasks, bank.n_rows, expert.n_rows) == (2, 16, 12)  # nobody leaves before the horizon
    assert bank.reward_names == ("SOFA", "fluid", "vasopressor")
    policies, world = kb.load_conditioned("out/policy.npz"), named_world("sepsis")
    again = kb.make_bank(world, bank.rewards, episodes=2, horizon=4, seed=0, planner=policies)
    np.testing.assert_allclose(again.demonstrations.states, bank.demonstrations.states, rtol=1e-9)
    record = read_world("out")
    assert record.world() == world
    with pytest.raises(InputError, match="sepsis is a simulator"):
        record.table()
    assert record.true_reward == (-1, 0, 0)
    assert record.made["world"]["ending"] == "never"
    assert record.made["policies"] == "Not trained."


def test_names():
    assert named_world("sepsis").ending == "never"
    assert named_world("sepsis:sofa-lactate-map").feature_names == ("SOFA", "lactate", "MAP")
    ends = named_world("sepsis+outcome", discount=0.9, horizon=6)
    assert ends.feature_names[-2:] == ("survived", "died")
    assert (ends.ending, ends.discount, ends.horizon) == ("sampled", 0.9, 6)


@pytest.mark.parametrize(
    ("env", "words", "sentence"),
    [
        ("sepsis", ["--policy", "none.npz"], "there is no such file"),
        ("sepsis:sofa-lactate-map", ["--policy", "policy.npz"], "policies for other features"),
        ("icu-sepsis", ["--policy", "policy.npz"], "--policy is for simulators"),
        ("sepsis", ["--policy", "policy.npz", "--temperature", "1"], "temperature= is for tabular worlds"),
        ("sepsis:sofa", [], "is unknown"),
    ],
    ids=["no file", "other features", "a table", "temperature", "no such features"],
)
def test_a_mistake_is_one_sentence(folder, capsys, env, words, sentence):
    assert cli.run(["demos", "--env", env, *OPTIONS, "--out", "out", *words]) == 2
    message = capsys.readouterr().err
    assert sentence in " ".join(message.split())
    assert "Traceback" not in message
    assert not (folder / "out").exists()
