"""The notebooks in examples/ are plain scripts in cells, and run from top to bottom to the numbers that they should."""

import runpy
from pathlib import Path

import matplotlib.pyplot as plt
import pytest

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_every_example_is_in_cells(path):
    text = path.read_text(encoding="utf-8")
    assert text.count("\n# %% ") + text.startswith("# %% ") >= 4
    compile(text, str(path), "exec")


@pytest.fixture
def numbers(tmp_path, monkeypatch, capfd):
    """`numbers(name)`: what an example finds, run in an empty directory."""
    monkeypatch.chdir(tmp_path)
    yield lambda name: runpy.run_path(str(EXAMPLES / f"{name}.py"))["numbers"]
    plt.close("all")
    assert "kdbirl: " not in capfd.readouterr().err


def test_gridworld(numbers):
    found = numbers("gridworld")
    assert found["degrees_from_truth"] < 45
    assert found["lost_by_the_mean"] < 0.1 * found["lost_by_draws"]
    assert found["green"] >= 3


def test_your_own_csv_files(numbers):
    found = numbers("your_own_csv_files")
    assert found["inside_90"] == 2
    assert found["error"] < 0.2
    assert found["megabytes"] < 5


def test_is_my_posterior_good(numbers):
    found = numbers("is_my_posterior_good")
    assert found["covered_by_loto"] > 0.75
    assert found["covered_by_too_narrow"] < 0.6
    assert found["largest_shift"] > 0
