"""`python -m paper`: files, verdicts, going on, and mistakes in one sentence."""

import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from paper.__main__ import EXPERIMENTS, app
from paper.grid_settings import FIG1
from paper.ledger import Claim, read_ledger, update_ledger
from paper.timing import NOT_IN_QUICK

from kdbirl import cli
from kdbirl.worlds import icu_sepsis
from paper import fig3
from paper import theory as contraction

from .claims_of_the_paper import EXPECTED

FIGURES = ("lemma-4.1", "theorem-4.2", "theorem-4.2-draws")
FIRST_BYTES = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}


def run(words):
    return cli.run(words, app)


@pytest.fixture(autouse=True)
def _small_sizes(monkeypatch):
    """The sizes of a run of seconds; the last test is the real quick run."""
    small = contraction.Contraction(rows=(32, 64), expert_rows=(4, 8), seeds=2, quick=True)
    monkeypatch.setattr(contraction, "QUICK", small)


@pytest.fixture
def here(tmp_path, monkeypatch, repository):
    """A directory of its own, from which `python -m paper` finds this checkout."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", f"{repository}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    return tmp_path


def test_it_leaves_everything_and_the_same_again(here, capsys):
    """Figures, numbers, a ledger and a manifest; computed anew they are the same files, other rows stay."""
    assert run(["contraction", "--quick", "--out", "made"]) == 0
    shown = capsys.readouterr()
    assert "lemma-4.1 (ours): NOT DECIDED (QUICK)" in shown.out
    assert max(map(len, shown.out.splitlines())) <= 80
    check_files(Path("made/contraction"))
    ledger = read_ledger(Path("made/claims.csv"))
    assert len(ledger) == 9
    assert {row.verdict for row in ledger} == {"not decided (quick)"}
    other = Claim("fig1", "x", "printed", "c", "w", "s", 1.0, 0.5, 1.5, 12, "holds", "y")
    update_ledger(Path("made/claims.csv"), [other])
    before = contents(Path("made/contraction"))
    shutil.rmtree("made/contraction")
    assert run(["contraction", "--quick", "--quiet", "--out", "made"]) == 0
    assert capsys.readouterr() == ("", "")
    assert contents(Path("made/contraction")) == before
    assert read_ledger(Path("made/claims.csv")) == [other, *ledger]


def check_files(folder):
    for name in FIGURES:
        for kind, first in FIRST_BYTES.items():
            assert (folder / f"{name}.{kind}").read_bytes().startswith(first)
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["seeds"] == [0, 1]
    assert manifest["configuration"]["rows"] == [32, 64]
    assert set(manifest["timings"]) == {"seconds"}
    assert set(manifest["outputs"]) == {f"{name}.{kind}" for name in FIGURES for kind in FIRST_BYTES} | {
        "contraction.json"
    }
    assert {"python", "kdbirl"} <= set(manifest["versions"])


def contents(folder):
    """Every file but the manifest, which has the time."""
    return {path.name: path.read_bytes() for path in folder.rglob("*.*") if not path.name.startswith("manifest")}


def test_json_and_seeds(here, capsys):
    assert run(["contraction", "--quick", "--seeds", "3", "--json"]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    content = json.loads(shown.out)
    assert content["out"] == "reproduction"
    assert {row["seeds"] for row in content["claims"]} == {3}
    assert all(Path(path).is_file() for path in content["files"])


def test_a_variant_of_a_figure_alone_and_then_another(here, capsys, monkeypatch):
    """Of the figures' frame: tables, page and manifest by variant; the other variant's rows stay in the ledger.

    The 2x2 grid with the two printed tasks stands in for the 5x5 ones: one informed direction, so nothing is compiled
    for long.
    """
    monkeypatch.setattr(fig3, "FIG3", {"printed": FIG1["printed"], "ours": replace(FIG1["printed"], variant="ours")})
    asked = ["fig3", "--quick", "--out", "made"]
    assert run([*asked, "--variant", "printed"]) == 0
    shown = capsys.readouterr().out
    assert "equivalence-class (printed): NOT DECIDED (QUICK)" in shown
    folder, ledger = Path("made/fig3"), read_ledger(Path("made/claims.csv"))
    assert {row.variant for row in ledger} == {"printed"}
    assert {path.name for path in folder.iterdir()} == {
        "cells",
        "manifest-printed.json",
        *(f"fig3-printed.{kind}" for kind in ("json", "csv", "png", "svg", "pdf")),
        "fig3-printed-states.csv",
    }
    assert len((folder / "fig3-printed.csv").read_text().splitlines()) == 3
    before = contents(folder)
    assert run([*asked, "--variant", "ours", "--quiet"]) == 0
    assert [row for row in read_ledger(Path("made/claims.csv")) if row.variant == "printed"] == ledger
    assert before.items() <= contents(folder).items()
    page = Path("made/index.html").read_text()
    assert page.count("data:image/png;base64,") == 2
    shutil.rmtree(folder)
    assert run([*asked, "--variant", "printed", "--quiet"]) == 0
    assert contents(folder) == before


MISTAKES = {
    "no such variant": (
        ["fig1", "--variant", "prined"],
        "There is no variant called 'prined'. Did you mean 'printed'?",
    ),
    "no such experiment": (["contractoin"], "There is no experiment called 'contractoin'. Did you mean 'contraction'?"),
    "one seed": (["contraction", "--seeds", "1"], "seeds=1 should be at least 2"),
    "a file": (["contraction", "--out", "file"], "file already exists and is a file"),
    "a full directory": (["contraction", "--out", "full"], "full is not empty and holds no reproduction of ours"),
    "no parent": (["contraction", "--out", "no/where"], "there is no directory"),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_a_mistake_is_one_sentence_and_writes_nothing(case, here, capsys):
    Path("file").write_text("x")
    Path("full").mkdir()
    Path("full/thesis.txt").write_text("x")
    words, sentence = MISTAKES[case]
    assert run([*words, "--quick"]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.count("\n") == 1
    assert sentence in shown.err
    assert sorted(str(path) for path in Path().rglob("*")) == ["file", "full", "full/thesis.txt"]


def test_a_missing_package_is_told_before_anything_runs(here, capsys, monkeypatch):
    monkeypatch.setattr(icu_sepsis, "find_spec", lambda name: None)
    assert run(["all", "--quick", "--out", "made"]) == 2
    shown = capsys.readouterr()
    assert "pip install 'kdbirl[icu-sepsis]'" in shown.err
    assert not Path("made").exists()


def test_all_of_the_paper_in_quick(here):
    """As a user runs it, in a process of its own: every experiment and variant, and no claim is decided."""
    asked = [sys.executable, "-m", "paper", "all", "--quick", "--json", "--out", "made"]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    content = json.loads(done.stdout)
    assert {row["verdict"] for row in content["claims"]} == {"not decided (quick)"}
    assert {row["experiment"] for row in content["claims"]} == set(EXPERIMENTS)
    assert all(Path(path).is_file() for path in content["files"])
    ledger = read_ledger(Path("made/claims.csv"))
    told = {(row["experiment"], row["name"], row["variant"], row["why"]) for row in content["claims"]}
    assert {(row.experiment, row.name, row.variant, row.why) for row in ledger} == told
    assert len(ledger) == len(content["claims"]) == len(told)
    page = Path("made/index.html").read_text()
    assert page.count("data:image/png;base64,") == len(list(Path("made").glob("*/*.png")))
    assert {(row.experiment, row.name) for row in ledger} >= EXPECTED  # every claim of the paper
    assert {row.why for row in ledger if row.name == "cost-in-stan"} == {NOT_IN_QUICK}


SMALL = [sys.executable, "-m", "paper", "fig3", "contraction", "timing", "--quick", "--quiet", "--out"]


def tables(folder):
    """All files but the times of this run, and what tells them."""
    found = {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*.*") if path.is_file()}
    kept = {path: data for path, data in found.items() if "timing" not in path.parts and "manifest" not in path.name}
    rows = [claim for claim in read_ledger(folder / "claims.csv") if claim.experiment != "timing"]
    return {path: data for path, data in kept.items() if path.name not in ("claims.csv", "index.html")}, rows


@pytest.mark.long
def test_a_run_that_was_killed_goes_on_with_identical_results(here):
    """SIGKILL after the first cells, again and again; then to its end, beside a run that nobody disturbed.

    Both in processes of their own: this one has the small sizes.
    """
    assert subprocess.run([*SMALL, "whole"], check=False).returncode == 0
    asked, cells = [*SMALL, "killed"], 0
    for _ in range(3):
        run = subprocess.Popen(asked, stderr=subprocess.DEVNULL)
        while run.poll() is None and len(list(Path("killed").glob("*/cells/*.json"))) <= cells:
            time.sleep(0.01)
        run.kill()
        run.wait()
        cells = len(list(Path("killed").glob("*/cells/*.json")))
    assert 0 < cells < len(list(Path("whole").glob("*/cells/*.json")))
    assert subprocess.run(asked, check=False).returncode == 0
    assert tables(Path("killed")) == tables(Path("whole"))


@pytest.mark.long
def test_all_of_it_twice_gives_identical_tables(here):
    for name in ("once", "twice"):
        asked = [sys.executable, "-m", "paper", "all", "--quick", "--quiet", "--out", name]
        assert subprocess.run(asked, check=False).returncode == 0
    once, twice = tables(Path("once")), tables(Path("twice"))
    assert len(once[0]) > 100
    assert once == twice
