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


def test_two_tables_are_enough_where_the_training_table_has_the_rewards(tmp_path, monkeypatch, capsys):
    import polars as pl

    tables.write_tables(tmp_path)
    rewards = pl.read_csv(tmp_path / "rewards.csv").with_columns(pl.col("task").cast(pl.String))
    rows = tables.training().with_columns(pl.col("task").cast(pl.String))
    rows.join(rewards, on="task", how="left", maintain_order="left").write_csv(tmp_path / "both.csv")
    monkeypatch.chdir(tmp_path)
    command = FIT.replace("training.parquet", "both.csv").replace("--rewards rewards.csv ", "").split()
    assert cli.run(command) == 2
    assert "Where are the known rewards?" in capsys.readouterr().err
    assert cli.run([*command, "--reward", "w_x,w_y"]) == 0
    assert "--rewards" not in text("run/report.html").split("kdbirl fit")[1].split("--out")[0]


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
    assert cli.run(["report", "run", "--rows", "--out", "page.html"]) == 0
    assert capsys.readouterr().out == "Open page.html\n"
    assert "row-influence" in text("page.html")
    assert "--training=training.parquet" in text("page.html")
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert cli.run(["report", "run", "--no-rows", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"run": "run", "file": "run/report.html", "rows": False}
    assert MARK in text()


def test_rows_that_the_fit_left_out_stay_left_out(here, capsys):
    """By the record of the run, even where no page is there to tell."""
    assert cli.run(["report", "run", "--out", "elsewhere.html", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"] is False
    assert MARK in text("elsewhere.html")
    assert "row-influence" not in text("elsewhere.html")
    Path("run/report.html").unlink()
    assert cli.run(["report", "run"]) == 0
    assert MARK in text()


@pytest.fixture
def browser(tmp_path, monkeypatch):
    """A browser that writes down what it was asked to open."""
    program = tmp_path / "browser"
    program.write_text(f'#!/bin/sh\necho "$1" >>"{tmp_path}/opened"\n')
    program.chmod(0o755)
    monkeypatch.setenv("BROWSER", f"{program} %s")
    return tmp_path / "opened"


def fresh_webbrowser(monkeypatch):
    """The module looks for browsers once."""
    monkeypatch.setattr("webbrowser._tryorder", None)
    monkeypatch.setattr("webbrowser._browsers", {})


def test_open_opens_the_page(here, browser, capsys, monkeypatch):
    fresh_webbrowser(monkeypatch)
    assert cli.run(["report", "run", "--open"]) == 0
    assert browser.read_text().split() == [(here / "run" / "report.html").as_uri()]
    assert capsys.readouterr().out == "Opened run/report.html\n"


def test_without_a_browser_open_says_where_the_page_is(here, capsys, monkeypatch):
    fresh_webbrowser(monkeypatch)
    for name in ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(here))
    assert cli.run(["report", "run", "--open"]) == 0
    shown = capsys.readouterr()
    assert f"There is no browser here. The page is {here / 'run' / 'report.html'}" in shown.out
    assert shown.err == ""
    assert cli.run(["report", "run", "--open", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["opened"] is False


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
