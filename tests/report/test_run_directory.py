"""A run directory is there whole or not at all, and its JSON is JSON."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

import kdbirl as kb
from kdbirl.errors import FileProblem
from kdbirl.report import run as run_directory
from kdbirl.report.run import FILES, as_json, diagnosis, refuse_existing, run_json, write_run
from kdbirl.report.terminal import files_text, posterior_text

from .posteriors import posterior


@pytest.fixture(scope="module")
def model():
    """A fitted model; no likelihood is evaluated, so that nothing is compiled."""
    rng = np.random.default_rng(0)
    bank = kb.TaskBank.from_arrays(rng.normal(size=(20, 2)), None, np.repeat([0, 1], 10), [[0.0, 1.0], [1.0, 0.0]])
    return kb.KDBIRL(prior=kb.Uniform(0, 1), bandwidth=(1.0, 1.0)).fit(bank)


@pytest.fixture
def quick_page(monkeypatch):
    """No figures, where a test is not about the page."""
    monkeypatch.setattr(run_directory, "report_page", lambda run, rows: run.name)


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("a\n1\n")
    return path


def write(directory, model, table):
    write_run(directory, posterior(), model, [table], {"seed": 0}, {"fit": 1.23456})


def test_everything_is_there_and_nothing_else(tmp_path, model, table):
    write(tmp_path / "run", model, table)
    assert {path.name for path in (tmp_path / "run").iterdir()} == set(FILES)
    assert {path.name for path in tmp_path.iterdir()} == {"run", "table.csv"}
    assert kb.load_posterior(tmp_path / "run" / "posterior.nc") == posterior()


@pytest.mark.parametrize("step", ["report_page", "package_versions", "diagnosis", "_hashes"])
@pytest.mark.parametrize(
    ("failure", "raised"),
    [
        (OSError(28, "No space left on device"), FileProblem),
        (KeyboardInterrupt(), KeyboardInterrupt),
        (ZeroDivisionError("a fault of ours"), ZeroDivisionError),
    ],
    ids=["disk", "interrupt", "fault"],
)
def test_a_failure_on_the_way_leaves_nothing_behind(
    step, failure, raised, tmp_path, model, table, quick_page, monkeypatch
):
    def fail(*arguments):
        raise failure

    monkeypatch.setattr(run_directory, step, fail)
    with pytest.raises(raised):
        write(tmp_path / "run", model, table)
    assert [path.name for path in tmp_path.iterdir()] == ["table.csv"]


def test_a_failure_names_the_directory_that_the_user_named(tmp_path, model, table, quick_page, monkeypatch):
    def full(self, path):
        raise FileProblem(f"{path} cannot be written: No space left on device; choose another place.")

    monkeypatch.setattr(kb.Posterior, "save", full)
    with pytest.raises(FileProblem) as problem:
        write(tmp_path / "run", model, table)
    assert str(problem.value).startswith(f"{tmp_path}/run/posterior.nc cannot be written: No space left")


def test_a_run_that_another_process_finished_first_stays(tmp_path, model, table, quick_page, monkeypatch):
    """The check at the beginning has passed, the work is done, and only then is the place found taken."""
    monkeypatch.setattr(run_directory, "refuse_existing", lambda directory: None)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "theirs").write_text("first")
    with pytest.raises(FileProblem, match="run cannot be written: Directory not empty"):
        write(tmp_path / "run", model, table)
    assert (tmp_path / "run" / "theirs").read_text() == "first"
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["run", "table.csv", "theirs"]


def test_places_that_are_refused(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    (tmp_path / "full" / "inside").mkdir(parents=True)
    (tmp_path / "empty").mkdir()
    for place, reason in {"file": "is a file", "full": "is not empty", "nowhere/run": "there is no directory"}.items():
        with pytest.raises(FileProblem, match=reason):
            refuse_existing(tmp_path / place)
    refuse_existing(tmp_path / "empty")
    refuse_existing(tmp_path / "new")
    monkeypatch.chdir(tmp_path)
    refuse_existing(Path("new"))
    assert not (tmp_path / "new").exists()


def test_json_has_no_number_that_json_has_not():
    content = {"a": [1.0, math.nan, (math.inf, {"b": -math.inf})], "c": True, "d": "NaN", "é": None}
    read = json.loads(as_json(content), parse_constant=pytest.fail)
    assert read == {"a": [1.0, None, [None, {"b": None}]], "c": True, "d": "NaN", "é": None}


def test_a_parameter_without_r_hat_is_null_in_json(tmp_path):
    draws = np.random.default_rng(0).normal(size=(4, 250, 2))
    draws[:, :, 0] = 1.0
    stuck = posterior(draws=draws)
    assert not math.isfinite(diagnosis(stuck)["r_hat"]["w_x"])
    read = json.loads(run_json(stuck, tmp_path), parse_constant=pytest.fail)
    assert read["r_hat"]["w_x"] is None
    assert read["summary"][0]["r_hat"] is None
    assert read["converged"] is False


@pytest.mark.parametrize("scale", [1e-7, 1.0, 1e7])
def test_the_text_fits_a_terminal(scale):
    names = [f"the reward of being in the {i}th state of the world" for i in range(40)]
    draws = -scale * np.random.default_rng(0).uniform(1, 2, size=(4, 250, 40))
    wide = posterior(names=names, draws=draws)
    text = posterior_text(wide)
    assert max(len(line) for line in text.splitlines()) <= 80
    assert "... and 10 more parameters" in text
    row = next(line for line in text.splitlines() if line.startswith("the reward"))
    assert len(row.removeprefix(names[0][:10]).split()) == 9, row  # no two numbers run together
    assert max(len(line) for line in files_text(Path("run"), FILES).splitlines()) <= 80
