"""README's examples are executed as they are printed, and the example that `make demo` runs finds what it should."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

import kdbirl as kb

from .cli.tables import training, write_tables
from .printed_examples import all_examples, examples, run_python, run_shell

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_tables(tmp_path)
    training().write_csv(tmp_path / "training.csv")
    return tmp_path


def test_readme_has_an_example_of_each_kind():
    assert {kind for kind, _ in all_examples(README)} == {"python", "shell"}


def test_the_python_example_is_six_lines():
    lines = examples(README, "python")[0].splitlines()
    assert len([line for line in lines if line.strip()]) <= 7  # with printing the summary


@pytest.mark.parametrize("program", examples(README, "python"))
def test_python_example(program, folder, capsys):
    namespace = {}
    run_python(program, "README.md", namespace)
    assert isinstance(namespace["post"], kb.Posterior)
    assert namespace["post"].names == ("w_x", "w_y")
    assert namespace["post"].convergence.ok
    assert capsys.readouterr().out.strip()


def test_shell_examples_one_after_another(folder, monkeypatch):
    """From the tables to an opened report, with README's commands and nothing else."""
    opened = folder / "opened"
    browser = folder / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" >>"{opened}"\n')
    browser.chmod(0o755)
    monkeypatch.setenv("BROWSER", f"{browser} %s")
    for block in examples(README, "shell"):
        done = run_shell(block, folder)
        assert done.returncode == 0, done.stderr
    report = folder / "run" / "report.html"
    assert opened.read_text().split() == [report.as_uri()]
    assert "<h2>What is and is not informed</h2>" in report.read_text(encoding="utf-8")
    assert kb.load_posterior("run/posterior.nc").convergence.ok
    assert (folder / "run" / "diagnosis" / "sensitivity.png").is_file()


def test_the_demo_finds_the_cell_that_the_expert_wants(tmp_path, capfd):
    spec = importlib.util.spec_from_file_location("two_by_two", ROOT / "examples" / "two_by_two.py")
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    mean = example.main(tmp_path)
    assert np.argmax(mean) == 3
    assert mean[3] > 0.5
    shown = capfd.readouterr()
    assert all("points evaluated" in line or "chains" in line for line in shown.err.splitlines())  # progress at most
    assert f"Open {tmp_path / 'run-1' / 'report.html'}" in shown.out
    assert (tmp_path / "run-1" / "report.html").is_file()
