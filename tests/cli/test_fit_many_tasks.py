"""`kdbirl fit --expert-task`: many new tasks in one run, and every verb that can be asked about one of them."""

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import kdbirl as kb
from kdbirl import cli
from kdbirl.report.studio.server import NotThere, Studio
from kdbirl.report.tasks import file_name
from kdbirl.report.terminal import _counted, tasks_text


def run(*words):
    assert cli.run([str(word) for word in words]) == 0


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A small grid world, its training tables, three test tasks in one table, and their run."""
    folder = tmp_path_factory.mktemp("many")
    world = ["--env=gridworld-xy:4", "--random-rewards=20", "--reward-prior=uniform:-1,1", "--true-reward=1,-0.5"]
    run("demos", *world, "--episodes=5", f"--out={folder / 'grid'}", "--quiet")
    rows = pl.read_csv(folder / "grid" / "expert.csv")
    names = np.array(["first", "a/b", "patient <3>"])[np.arange(len(rows)) // 4 % 3]
    rows.with_columns(pl.Series("patient", names)).write_csv(folder / "experts.csv")
    tables = [f"--training={folder / 'grid/training.parquet'}", f"--rewards={folder / 'grid/rewards.csv'}"]
    choices = ["--n-states=16", "--features=grid:4+onehot-actions", "--prior=uniform:-1,1", "--draws=100"]
    more = [f"--expert={folder / 'experts.csv'}", "--expert-task=patient", "--bandwidth=median", "--chains=2"]
    run("fit", *tables, *more, *choices, "--state=state", "--action=action", "--quiet", f"--out={folder / 'run'}")
    return folder


def test_the_run_has_every_task(folder):
    files = {path.name for path in (folder / "run").iterdir()}
    assert files == {
        *("report.html", "tasks.csv", "summary.csv", "posteriors.nc"),
        *("diagnosis.json", "model.npz", "manifest.json"),
    }
    table, rows = pl.read_csv(folder / "run/tasks.csv"), pl.read_csv(folder / "experts.csv")
    counted = {name: len(rows.filter(pl.col("patient") == name)) for name in table["task"]}
    assert dict(zip(table["task"], table["rows"], strict=True)) == counted
    page = (folder / "run/report.html").read_text()
    assert "patient &lt;3&gt;" in page
    assert "<3>" not in page
    manifest = json.loads((folder / "run/manifest.json").read_text())
    assert manifest["test_tasks"] == 3
    assert len(manifest["inputs"]) == 3


def test_the_terminal_tells_the_choices_and_how_the_tasks_fare(folder):
    directory = folder / "run"
    stored = kb.load_posteriors(directory / "posteriors.nc", kb.load_model(directory / "model.npz"))
    text = tasks_text(stored)
    assert text.startswith("The rewards of 3 test tasks.\n")
    for choice in ("uniform:-1,1", "h' = ", "bandwidths", "median", "seed"):
        assert choice in text
    found = json.loads((directory / "diagnosis.json").read_text())
    for part, colours in found["colours"].items():
        line = next(line for line in text.splitlines() if line.startswith(f"  {part} "))
        for colour, count in colours.items():
            assert f"{count} {colour}" in line
            assert all(name in line for name in found.get(colour, {}).get(part, []))
    assert _counted(["p1", "p2", "p3", "p4"], "amber", 4) == "4 amber (p1, p2, p3, ...)"
    assert _counted(["p1"], "red", 1) == "1 red (p1)"
    assert _counted([], "green", 7) == "7 green"


def test_report_diagnose_and_evaluate_of_one_task(folder, capsys):
    directory, task = folder / "run", "a/b"
    own = directory / "tasks" / file_name(task)
    run("report", directory, "--task", task, "--quiet")
    assert (own / "report.html").is_file()
    posterior = kb.load_posterior(own / "posterior.nc")
    stored = kb.load_posteriors(directory / "posteriors.nc", kb.load_model(directory / "model.npz"))
    assert posterior == stored[task]
    run("diagnose", directory, "--task", task, "--quiet")
    assert (own / "diagnosis/findings.json").is_file()
    run("evaluate", directory, "--task", task, "--world", folder / "grid/world.json", "--json")
    assert json.loads(capsys.readouterr().out)["posterior"]["mean"] >= 0
    run("report", directory, "--json")
    assert json.loads(capsys.readouterr().out)["file"] == str(directory / "report.html")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["diagnose", "run"], "holds 3 test tasks; choose one with --task, for example first, a/b"),
        (["report", "run", "--task", "firts"], "There is no test task 'firts' in run. Did you mean 'first'?"),
        (["report", "grid", "--task", "first"], "is no run of many test tasks"),
    ],
)
def test_mistakes_are_a_sentence(folder, monkeypatch, capsys, words, sentence):
    monkeypatch.chdir(folder)
    assert cli.run(words) == 2
    assert sentence in capsys.readouterr().err


def test_the_studio_shows_all_tasks(folder):
    studio = Studio(folder)
    assert "its tasks" in studio.answer("/")[0]
    assert "/report?run=run&amp;task=a%2Fb" in studio.answer("/tasks?run=run")[0]
    assert "report card" in studio.answer("/report?run=run&task=a%2Fb")[0].lower()
    assert "Test tasks of each colour" in studio.answer("/report?run=run")[0]
    with pytest.raises(NotThere):
        studio.answer("/report?run=run&task=nobody")


@pytest.mark.parametrize("name", ["a/b", "..", ".hidden", "x" * 300, "ü%2F", "C:\\x"])
def test_any_name_is_one_directory(name):
    text = file_name(name)
    assert Path(text).name == text
    assert not text.startswith(".")
    assert len(text) < 130
