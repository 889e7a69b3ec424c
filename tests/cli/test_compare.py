"""`kdbirl compare`: files, going on, and mistakes in one sentence."""

import csv
import json
from pathlib import Path

import pytest

from kdbirl import cli

SMALL = ["--env", "gridworld:2", "--methods", "prior,cloning,maxent", "--rows", "5,20", "--seeds", "2", "--quick"]
FIRST_BYTES = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_it_leaves_a_table_a_figure_and_the_budget_and_goes_on(capsys):
    assert cli.run(["compare", *SMALL, "--out", "made"]) == 0
    shown = capsys.readouterr().out
    assert "gridworld:2: means over 2 seeds ± standard errors" in shown
    assert "Behaviour cloning" in shown
    for kind, first in FIRST_BYTES.items():
        assert Path(f"made/comparison.{kind}").read_bytes().startswith(first)
    page = Path("made/comparison.html").read_text(encoding="utf-8")
    assert "3 methods on the same demonstrations" in page
    assert "<script" not in page
    table = Path("made/comparison.csv").read_bytes()
    rows = list(csv.DictReader(table.decode().splitlines()))
    assert len(rows) == 3 * 2 * 2
    assert {row["method"] for row in rows} == {"prior", "cloning", "maxent"}
    manifest = json.loads(Path("made/manifest.json").read_text())
    assert manifest["configuration"]["budget"] == {"draws": 1000, "warmup": 500, "steps": 200, "planned": 100}
    assert manifest["configuration"]["methods"]["maxent"]["sees"] == ["the expert's rows", "transition probabilities"]
    assert (manifest["configuration"]["training_tasks"], manifest["seeds"]) == (12, [0, 1])
    assert cli.run(["compare", *SMALL, "--quiet", "--out", "made"]) == 0
    assert capsys.readouterr() == ("", "")
    assert Path("made/comparison.csv").read_bytes() == table  # times too: nothing was computed again


def test_json(capsys):
    assert cli.run(["compare", *SMALL, "--seeds", "1", "--json", "--out", "made"]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    content = json.loads(shown.out)
    assert all(Path(path).is_file() for path in content["files"])
    assert [row["method"] for row in content["summary"]] == ["prior"] * 2 + ["cloning"] * 2 + ["maxent"] * 2
    assert content["summary"][0]["regret_error"] is None


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--methods", "kdbril"], "no method called 'kdbril'. Did you mean 'kdbirl'"),
        (["--methods", ","], "Give at least one method"),
        (["--rows", "10,many"], "--rows '10,many' should be whole numbers"),
        (["--rows", "0"], "--rows '0' should be whole numbers"),
        (["--seeds", "0"], "seeds=0"),
        (["--tasks", "0"], "tasks=0"),
        (["--training-tasks", "1"], "training-tasks=1"),
        (["--draws", "1"], "draws=1"),
        (["--env", "gridword:2"], "no world called 'gridword:2'"),
        (["--env", "gridworld"], "cells on a side"),
        (["--prior", "unifrom:0,1"], "unifrom"),
        (["--out", "nowhere/made"], "there is no directory"),
    ],
)
def test_a_mistake_is_one_sentence(arguments, sentence, capsys):
    assert cli.run(["compare", *SMALL, "--out", "made", *arguments]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert sentence in shown.err
    assert len(shown.err.splitlines()) == 1
    assert not Path("made").exists()


def test_a_directory_of_something_else_is_left_alone(capsys):
    Path("other").mkdir()
    Path("other/thesis.txt").write_text("mine")
    assert cli.run(["compare", *SMALL, "--out", "other"]) == 2
    assert "holds no comparison" in capsys.readouterr().err
    assert [path.name for path in Path("other").iterdir()] == ["thesis.txt"]


def test_another_world_needs_another_directory(capsys):
    assert cli.run(["compare", *SMALL, "--quiet", "--seeds", "1", "--rows", "5", "--out", "made"]) == 0
    assert cli.run(["compare", *SMALL, "--env", "gridworld:3", "--out", "made"]) == 2
    assert "holds a comparison in gridworld:2" in capsys.readouterr().err
