"""`kdbirl report` and `kdbirl studio`: the page of a run, again, and what the verbs refuse."""

import json
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from kdbirl import cli

from . import tables

FIT = "fit --training training.parquet --rewards rewards.csv --expert expert.csv --state x,y --action action"
FIT += " --prior uniform:0,1 --bandwidth 1,1 --draws 200 --chains 1 --sampler grid --quiet --no-rows --out run"
MARK = '<meta name="kdbirl-rows" content="left out">'


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A run that was fitted with --no-rows."""
    place = tmp_path_factory.mktemp("report")
    tables.write_tables(place)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        assert cli.run(FIT.split()) == 0
    return place


@pytest.fixture
def here(folder, monkeypatch):
    monkeypatch.chdir(folder)
    return folder


def text(path="run/report.html"):
    return Path(path).read_text(encoding="utf-8")


def test_fit_leaves_rows_out_on_request_and_diagnose_keeps_to_it(here):
    assert MARK in text()
    assert "Nobody has looked at whether other bandwidths" in text()
    assert cli.run(["diagnose", "run", "--sensitivity", "--quiet"]) == 0
    assert MARK in text()
    assert "sensitivity-chart" in text()


def test_the_page_can_be_written_again_and_elsewhere(here, capsys):
    before = {path: path.stat().st_mtime_ns for path in Path("run").rglob("*") if path.is_file()}
    assert cli.run(["report", "run", "--out", "page.html"]) == 0
    assert capsys.readouterr().out == "Open page.html\n"
    assert "row-influence" in text("page.html")
    assert "--training=training.parquet" in text("page.html")
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert cli.run(["report", "run", "--no-rows", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"run": "run", "file": "run/report.html", "rows": False}
    assert MARK in text()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["report", "nowhere"], "nowhere does not exist; give the run directory that kdbirl fit made."),
        (["report", "."], ". has no posterior.nc; give the run directory that kdbirl fit made."),
        (["report", "run", "--out", "none/page.html"], "none/page.html cannot be written"),
        (["studio", "nowhere"], "nowhere does not exist; give a directory that holds runs of kdbirl fit."),
        (["studio", "rewards.csv"], "rewards.csv is a file; give a directory"),
    ],
)
def test_mistakes_are_one_sentence(words, sentence, here, capsys):
    assert cli.run(words) == 2
    error = capsys.readouterr().err
    assert sentence in error
    assert error.count("\n") == 1


def test_the_studio_says_where_it_is_and_ends_with_ctrl_c(here):
    import signal

    command = [sys.executable, "-m", "kdbirl", "studio", ".", "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        lines = [process.stdout.readline() for _ in range(4)]
        address = json.loads("".join(lines))["address"]
        with urllib.request.urlopen(address, timeout=60) as answer:
            assert "run" in answer.read().decode()
    finally:
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=60)
    assert process.returncode == 130
    assert error == "kdbirl: Stopped.\n"
