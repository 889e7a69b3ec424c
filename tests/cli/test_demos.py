"""`kdbirl demos`: the tables and the world's record that it writes, and one sentence for every mistake."""

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import kdbirl as kb
from kdbirl import cli
from kdbirl.worlds.named import named_world, read_world

FILES = ["expert.csv", "rewards.csv", "training.parquet", "world.json"]
PLAIN = {"--env": "gridworld:2", "--true-reward": "0,0,0,1", "--one-per-state": True, "--out": "grid"}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def words(**changes):
    """A small command; `env="..."` changes an option, None leaves it out, True is a flag."""
    options = PLAIN | {f"--{name.replace('_', '-')}": value for name, value in changes.items()}
    found = ["demos"]
    for option, value in options.items():
        found += [] if value is None else [option] if value is True else [option, str(value)]
    return found


def demos(**changes):
    assert cli.run(words(quiet=True, **changes)) == 0
    return Path(changes.get("out", "grid"))


def training(out, **declared):
    columns = {"state": "state", "action": "action"} | declared
    return kb.read_task_bank(out / "training.parquet", rewards=out / "rewards.csv", **columns)


def test_it_writes_the_tables_of_the_library(folder):
    out = demos(episodes=3, horizon=4, seed=7)
    assert sorted(path.name for path in out.iterdir()) == FILES
    assert [path.name for path in folder.iterdir()] == ["grid"]
    world = kb.Gridworld(2)
    tasks = dict(zip(world.feature_names, np.eye(4), strict=True))
    assert training(out).fingerprint() == kb.make_bank(world, tasks, episodes=3, horizon=4, seed=7).fingerprint()
    expert = kb.read_demonstrations(out / "expert.csv", state="state", action="action", n_states=4)
    assert expert.n_episodes == 5
    assert expert.n_rows == 20
    assert set(expert.states[expert.episodes >= 0][3::4]) == {3}  # after three steps everyone is there


def test_the_record_gives_the_world_back(folder):
    record = read_world(demos(discount=0.8, planning_horizon=6))
    assert record.world().describe() == kb.Gridworld(2, discount=0.8, horizon=6).describe()
    assert record.true_reward == (0, 0, 0, 1)
    assert record.horizon == 10
    assert record.made["seed"] == 0
    assert len(set(record.made["seeds"].values())) == 3
    assert record.made["versions"]["kdbirl"] == kb.__version__


def test_the_same_seed_gives_the_same_files(folder):
    first, again, other = demos(out="first"), demos(out="again"), demos(out="other", seed=1)
    for name in FILES[:3]:
        assert (first / name).read_bytes() == (again / name).read_bytes()
    assert (first / "expert.csv").read_bytes() != (other / "expert.csv").read_bytes()


def test_the_expert_has_random_numbers_of_its_own(folder):
    """The task with the expert's reward is not the expert: the same policy, other episodes."""
    out = demos(episodes=50, expert_episodes=50)
    expert = kb.read_demonstrations(out / "expert.csv", state="state", action="action", n_states=4)
    twin = training(out).task("cell 3")
    assert (expert.states[::10] != twin.states[::10]).any()


def test_rewards_from_a_table_by_name_and_by_position(folder):
    pl.DataFrame({"task": ["a", "b"], "y": [0.0, 1.0], "x": [1.0, 0.0]}).write_csv("named.csv")
    pl.DataFrame({"task": ["a", "b"], "w1": [1.0, 0.0], "w2": [0.0, 1.0]}).write_csv("other.csv")
    options = {"env": "gridworld-xy:3", "one_per_state": None, "true_reward": "1,-1"}
    for table in ("named", "other"):
        bank = training(demos(rewards=f"{table}.csv", out=table, **options))
        assert bank.names == ("a", "b")
        assert bank.reward_names == ("x", "y")
        assert bank.rewards.tolist() == [[1, 0], [0, 1]]


def test_random_rewards(folder):
    options = {"env": "gridworld-xy:3", "one_per_state": None, "true_reward": "-1,1", "random_rewards": 40}
    bank = training(demos(reward_prior="uniform:-1,1", **options))
    assert bank.n_tasks == 40
    assert (np.abs(bank.rewards) <= 1).all()
    assert (bank.rewards < 0).any()
    default = training(demos(out="default", **options))
    assert (default.rewards >= 0).all()
    assert "40 drawn from uniform:0,1" in read_world("default").made["rewards"]


def test_the_quality_of_the_demonstrators(folder):
    """Optimal ones never leave the best cell; noisy ones do, and the expert can be worse alone."""

    def leaves(**changes):
        out = demos(episodes=200, expert_episodes=200, out="-".join(changes) or "plain", **changes)
        expert = kb.read_demonstrations(out / "expert.csv", state="state", action="action", n_states=4)
        return [np.mean(rows.states[9::10] != 3) for rows in (training(out).task("cell 3"), expert)]

    assert leaves() == [0, 0]
    assert min(leaves(noise=0.5)) > 0.1
    assert min(leaves(temperature=10)) > 0.1
    assert leaves(expert_noise=0.5)[0] == 0 < leaves(expert_temperature=10)[1]


def test_a_gymnasium_world(folder):
    out = demos(env="FrozenLake-v1:next-state", discount=0.9, true_reward="state 14=1", episodes=2)
    bank = training(out)
    assert (bank.n_tasks, bank.demonstrations.n_states, bank.demonstrations.n_actions) == (16, 16, 4)
    assert read_world(out).true_reward == tuple(np.eye(16)[14])
    assert read_world(out).world().discount == 0.9


@pytest.mark.parametrize(
    ("text", "parameters"),
    [
        ("icu-sepsis", ("SOFA", "fluid", "vasopressor")),
        ("icu-sepsis:sofa-lactate-map+outcome", ("SOFA", "lactate", "MAP", "survived", "died")),
        ("icu-sepsis+outcome", ("SOFA", "fluid", "vasopressor", "survived", "died")),
        ("gridworld-xy:3", ("x", "y")),
        ("CliffWalking-v1:env-reward", ("env reward",)),
    ],
)
def test_named_worlds(text, parameters):
    world = named_world(text, discount=0.9)
    assert world.feature_names == parameters
    assert world.discount == 0.9


def test_text_fits_a_terminal_and_its_command_works(folder, capsys):
    assert cli.run(words(env="gridworld-xy:2", one_per_state=None, random_rewards=8, true_reward="1,1")) == 0
    shown = capsys.readouterr().out
    assert max(len(line) for line in shown.splitlines()) <= 80
    assert "discount 0.95" in shown  # defaults are told
    command = shown.split("with a prior of yours:\n")[1].replace("\\\n", " ").split()
    assert command == read_world("grid").made["fit"]
    assert cli.run([*command[1:], "--quiet", "--sampler", "grid", "--draws", "50"]) == 0


def test_json_is_json(folder, capsys):
    assert cli.run(words(json=True)) == 0
    content = json.loads(capsys.readouterr().out)
    assert sorted(content["files"]) == FILES
    assert all(Path(path).is_file() for path in content["files"].values())
    assert content["made"]["demonstrators"] == "optimal"


def test_quiet_prints_nothing(folder, capsys):
    demos()
    assert tuple(capsys.readouterr()) == ("", "")


XY = {"env": "gridworld-xy:3", "true_reward": "1,1"}
LAKE = {"env": "FrozenLake-v1", "true_reward": "state 3=1"}
MISTAKES = {
    "near a world": ({"env": "FrozenLak-v1"}, "no world called 'FrozenLak-v1'. Did you mean 'FrozenLake-v1'?"),
    "near one of ours": ({"env": "gridwrld:5"}, "no world called 'gridwrld:5'. Did you mean 'gridworld:5'?"),
    "no world": ({"env": "zzz"}, "no world called 'zzz'. There are gridworld:5"),
    "no side": ({"env": "gridworld"}, "The world 'gridworld' should give the cells on a side, such as gridworld:5."),
    "no features": ({"env": "icu-sepsis:sofa-lactat"}, "Did you mean 'sofa-lactate-map'?"),
    "no lake's features": (LAKE | {"env": "FrozenLake-v1:next-stat", "discount": 0.9}, "Did you mean 'next-state'?"),
    "no discount": (LAKE, "FrozenLake-v1 names no discount: give one, such as 0.95"),
    "a wrong discount": ({"discount": 1.5}, "discount=1.5 should be a number from 0 to 1"),
    "a discount of 1": ({"discount": 1}, "discount=1: a policy can stay for ever"),
    "continuous actions": ({"env": "Pendulum-v1", "discount": 0.9}, "only discrete actions can be demonstrated"),
    "no table": ({"env": "CartPole-v1", "discount": 0.9}, "CartPoleEnv has no table of transitions"),
    "a short reward": ({"true_reward": "0,1"}, "a reward of this world has 4 parameters (cell 0, cell 1,"),
    "words as a reward": ({"true_reward": "a,b,c,d"}, "should be numbers separated by commas"),
    "an infinite reward": ({"true_reward": "inf,0,0,0"}, "every entry must be a finite number"),
    "another's name": ({"true_reward": "cel 3=1"}, "'cel 3', which is not among this world's parameters. Did you mean"),
    "both kinds": ({"true_reward": "0,cell 3=1"}, "mixes numbers and name=number"),
    "no reward": ({"true_reward": None}, "Missing option '--true-reward'"),
    "no tasks": ({"one_per_state": None}, "one of --rewards TABLE, --one-per-state or --random-rewards K"),
    "two kinds of tasks": ({"random_rewards": 3}, "one of --rewards TABLE, --one-per-state or --random-rewards K"),
    "no random tasks": ({"one_per_state": None, "random_rewards": 0}, "a number of tasks, at least 1"),
    "a prior for nothing": ({"reward_prior": "uniform:0,1"}, "--reward-prior is for --random-rewards"),
    "no prior": ({"one_per_state": None, "random_rewards": 2, "reward_prior": "unifrm:0,1"}, "Did you mean 'uniform'?"),
    "not a parameter per state": (XY, "one reward parameter per state, but this world's are x, y"),
    "no file": ({"one_per_state": None, "rewards": "none.csv"}, "none.csv: there is no such file"),
    "no episodes": ({"episodes": 0}, "episodes=0 should be a whole number, at least 1"),
    "no steps": ({"horizon": 0}, "horizon=0 should be a whole number, at least 1"),
    "no planning steps": ({"planning_horizon": 0}, "horizon=0 should be a whole number of steps"),
    "no temperature": ({"temperature": 0}, "temperature=0.0 should be a positive number"),
    "too much noise": ({"noise": 2}, "noise=2.0 should be the fraction of random actions"),
    "a negative seed": ({"seed": -1}, "seed=-1 should be a whole number, at least 0"),
    "nowhere": ({"out": "no/where"}, "there is no directory"),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_a_mistake_is_one_sentence_and_writes_nothing(case, folder, capsys):
    changes, sentence = MISTAKES[case]
    assert cli.run(words(**changes)) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.count("\n") == 1
    assert sentence in shown.err
    assert list(folder.iterdir()) == []


def test_a_table_of_another_world(folder, capsys):
    pl.DataFrame({"task": ["a"], "x": [1.0]}).write_csv("short.csv")
    pl.DataFrame({"task": ["a"], "x": [1.0], "why": [1.0]}).write_csv("mixed.csv")
    assert cli.run(words(one_per_state=None, rewards="short.csv", **XY)) == 2
    assert (
        "short.csv has 1 reward columns, but a reward of this world has 2 parameters (x, y)" in capsys.readouterr().err
    )
    assert cli.run(words(one_per_state=None, rewards="mixed.csv", **XY)) == 2
    assert "the column 'why' is no parameter of this world. There are: 'y'." in capsys.readouterr().err


def test_nothing_is_overwritten(folder, capsys):
    out = demos()
    before = {path: path.read_bytes() for path in out.iterdir()}
    assert cli.run(words(seed=1)) == 2
    assert "grid already exists and is not empty" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in out.iterdir()} == before


def test_a_disk_that_fails_leaves_nothing_behind(folder, monkeypatch, capsys):
    def full(*arguments, **options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("kdbirl.archive.os.fsync", full)
    assert cli.run(words()) == 2
    assert "No space left on device" in capsys.readouterr().err
    assert list(folder.iterdir()) == []
