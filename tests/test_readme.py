"""README's examples are executed as they are printed, and the example that `make demo` runs finds what it should."""

import importlib.util
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import kdbirl as kb

from .cli.tables import write_tables

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def examples(kind):
    """The blocks that follow `<!-- example: kind -->`."""
    return re.findall(rf"<!-- example: {kind} -->\n```\w+\n(.*?)```", README, flags=re.DOTALL)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_tables(tmp_path)
    return tmp_path


def test_readme_has_an_example_of_each_kind():
    assert len(examples("python")) >= 1
    assert len(examples("shell")) >= 1
    assert README.count("<!-- example:") == len(examples("python")) + len(examples("shell"))


def test_the_python_example_is_six_lines():
    assert len([line for line in examples("python")[0].splitlines() if line.strip()]) <= 7  # with printing the summary


@pytest.mark.parametrize("program", examples("python"))
def test_python_example(program, folder, capsys):
    namespace = {}
    exec(compile(program, "README.md", "exec"), namespace)
    assert isinstance(namespace["post"], kb.Posterior)
    assert namespace["post"].names == ("w_x", "w_y")
    assert namespace["post"].convergence.ok
    assert "w_x" in capsys.readouterr().out


@pytest.mark.parametrize("block", examples("shell"))
def test_shell_example(block, folder):
    commands = re.sub(r"^\$ ", "", block, flags=re.MULTILINE)
    assert commands != block, "a command starts with $"
    done = subprocess.run(
        ["bash", "-euc", commands], capture_output=True, text=True, check=False, env=os.environ | {"PATH": path(folder)}
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert kb.load_posterior("run/posterior.nc").convergence.ok


def path(folder):
    """Where `kdbirl` is found: beside the Python that runs the tests or, if it is not installed there, a stand-in."""
    beside = Path(sys.executable).parent
    if not (beside / "kdbirl").exists():
        beside = folder / "bin"
        beside.mkdir()
        (beside / "kdbirl").write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m kdbirl "$@"\n')
        (beside / "kdbirl").chmod(0o755)
    return f"{beside}{os.pathsep}{os.environ['PATH']}"


def test_the_demo_finds_the_cell_that_the_expert_wants(tmp_path, capfd):
    spec = importlib.util.spec_from_file_location("two_by_two", ROOT / "examples" / "two_by_two.py")
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    mean = example.main(tmp_path)
    assert np.argmax(mean) == 3
    assert mean[3] > 0.5
    shown = capfd.readouterr()
    assert shown.err == ""
    assert f"Open {tmp_path / 'run-1' / 'report.html'}" in shown.out
    assert (tmp_path / "run-1" / "report.html").is_file()
