"""`kdbirl diagnose`: the report card of a run, its figures, and what it says to mistakes."""

import json
import shutil
from pathlib import Path

import pytest

from kdbirl import cli
from kdbirl.archive import write_text


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """A small grid, its tables and a run with fixed bandwidths."""
    folder = tmp_path_factory.mktemp("diagnose")
    world = ["--env=gridworld-xy:4", "--random-rewards=8", "--reward-prior=uniform:-1,1", "--true-reward=1,-0.5"]
    assert cli.run(["demos", *world, "--episodes=5", f"--out={folder / 'grid'}", "--quiet"]) == 0
    names = {"training": "training.parquet", "rewards": "rewards.csv", "expert": "expert.csv"}
    tables = [f"--{name}={folder / 'grid' / file}" for name, file in names.items()]
    choices = ["--n-states=16", "--features=grid:4", "--prior=uniform:-1,1", "--draws=200", "--bandwidth=1.2,0.5"]
    assert cli.run(["fit", *tables, "--state=state", "--action=action", *choices, f"--out={folder / 'run'}", "-q"]) == 0
    return folder


@pytest.fixture
def folder(original, tmp_path, monkeypatch):
    shutil.copytree(original, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_card_findings_and_figures(folder, capsys):
    before = {path.name: path.read_bytes() for path in Path("run").iterdir()}
    assert cli.run(["diagnose", "run", "--calibrate", "--sensitivity", "--world", "grid"]) == 0
    text = capsys.readouterr().out
    for words in ("convergence", "identifiability", "Tasks with known rewards", "Other choices", "Policies"):
        assert words in text
    assert max(map(len, text.splitlines())) <= 80
    place = Path("run/diagnosis")
    assert {path.name for path in place.iterdir()} == {
        "findings.json",
        *(f"{name}.png" for name in ("identifiability", "support", "predictive", "calibration", "sensitivity")),
        "policies.png",
    }
    found = json.loads((place / "findings.json").read_text(), parse_constant=lambda name: pytest.fail(name))
    assert set(found["report_card"]) == {"convergence", "identifiability", "support", "calibration", "sensitivity"}
    after = {name: (Path("run") / name).read_bytes() for name in before}
    changed = {name for name in before if before[name] != after[name]}
    assert changed == {"report.html", "manifest.json"}  # the page is written again, with its hash
    assert b"sensitivity-chart" in after["report.html"]


def test_json_and_a_second_diagnosis_beside_the_first(folder, capsys):
    assert cli.run(["diagnose", "run", "--quiet"]) == 0
    assert capsys.readouterr().out == ""
    assert cli.run(["diagnose", "run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["report_card"]["calibration"][0] == "not assessed"
    assert Path("run/diagnosis-2/findings.json").is_file()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["nowhere"], "nowhere does not exist; give the run directory that kdbirl fit made."),
        (["grid"], "grid has no posterior.nc; give the run directory that kdbirl fit made."),
        (["run", "--world", "nowhere.json"], "nowhere.json: there is no such file"),
    ],
)
def test_mistakes_are_one_sentence(folder, capsys, words, sentence):
    assert cli.run(["diagnose", *words]) == 2
    assert sentence in capsys.readouterr().err
    assert not Path("run/diagnosis").exists()


def test_a_damaged_model_is_named(folder, capsys):
    write_text(Path("run/model.npz"), "nonsense")
    assert cli.run(["diagnose", "run"]) == 2
    assert "run/model.npz is damaged" in capsys.readouterr().err


def test_fit_shows_the_card(folder, capsys):
    tables = ["--training=grid/training.parquet", "--rewards=grid/rewards.csv", "--expert=grid/expert.csv"]
    choices = ["--n-states=16", "--features=grid:4", "--prior=uniform:-1,1", "--draws=100", "--bandwidth=1.2,0.5"]
    assert cli.run(["fit", *tables, "--state=state", "--action=action", *choices, "--out=other"]) == 0
    text = capsys.readouterr().out
    assert "Can it be trusted?" in text
    assert "not assessed" in text
