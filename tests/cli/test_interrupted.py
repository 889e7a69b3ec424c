"""Verbs that are interrupted, started twice, given a damaged file or a full disk: nothing is lost or half-written."""

import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import kdbirl as kb
from kdbirl import cli
from kdbirl.errors import FileProblem, Interrupted
from kdbirl.store import resumable, sole_user

from .test_fit import everything, folder, words  # noqa: F401  (`folder` is a fixture)

SLOW = {"sampler": "metropolis", "chains": 2, "warmup": 60_000, "draws": 200, "bandwidth": "0.3,0.3"}
QUICK = {"sampler": "metropolis", "chains": 2, "warmup": 200, "draws": 50, "bandwidth": "0.3,0.3"}


# a shell starts background jobs with Ctrl-C ignored, and the test may be in one; states are written at once
COMMAND = """
import signal
from kdbirl import cli, store
signal.signal(signal.SIGINT, signal.default_int_handler)
store.EVERY = 0.0
cli.main()
"""


def started(*arguments):
    return subprocess.Popen([sys.executable, "-c", COMMAND, *arguments], stderr=subprocess.PIPE, text=True)


def wait_for(condition, process):
    for _ in range(6000):
        if condition():
            return
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.05)
    pytest.fail("nothing happened in five minutes")


@pytest.mark.usefixtures("folder")
def test_ctrl_c_ends_with_a_sentence_and_the_same_command_goes_on(capsys):
    process = started(*words(**SLOW))
    wait_for(lambda: list(Path("run.unfinished").glob("asked.json")), process)
    process.send_signal(signal.SIGSTOP)  # it waits for us, however busy the machine is
    assert cli.run(words(**SLOW)) == 2
    assert "run.unfinished is in use: another process is writing there" in capsys.readouterr().err
    process.send_signal(signal.SIGCONT)
    wait_for(lambda: list(Path("run.unfinished").glob("metropolis-*.checkpoint")), process)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate()
    assert process.returncode == 130
    assert "kdbirl: Stopped. What was done is in run.unfinished: the same command goes on from there." in said
    assert "Traceback" not in said
    assert not Path("run").exists()
    assert list(Path("run.unfinished").glob("metropolis-*.checkpoint"))

    assert cli.run(words(**SLOW | {"seed": 1})) == 2
    assert "work that was asked for otherwise: seed was 0, and now is 1. Give the same" in capsys.readouterr().err
    assert cli.run(words(**SLOW | {"draws": None})) == 2
    assert "draws was 200, and now is not given" in capsys.readouterr().err
    assert cli.run(words(**SLOW)) == 0
    assert "kdbirl: Going on from run.unfinished." in capsys.readouterr().err
    assert not Path("run.unfinished").exists()
    assert cli.run(words(**SLOW | {"out": "whole"})) == 0
    draws = [kb.load_posterior(f"{run}/posterior.nc").draws.tobytes() for run in ("run", "whole")]
    assert draws[0] == draws[1]


@pytest.fixture
def run(folder):  # noqa: F811
    assert cli.run(words(**QUICK, quiet=True)) == 0
    return folder / "run"


def test_damaged_files_are_named_by_every_verb(run, capsys):
    for name in ("posterior.nc", "model.npz", "diagnosis.json", "summary.csv"):
        whole = (run / name).read_bytes()
        damaged = bytearray(whole)
        damaged[len(whole) // 2] ^= 4
        (run / name).write_bytes(damaged)
        for verb in (["report", "run"], ["diagnose", "run"], ["evaluate", "run", "--world", "world.json"]):
            assert cli.run(verb) == 2
            assert f"run/{name} is damaged" in capsys.readouterr().err
        (run / name).write_bytes(whole)
    assert cli.run(["report", "run", "--quiet"]) == 0
    (run / "report.html").write_text("half a pa")
    assert cli.run(["report", "run"]) == 2
    assert "run/report.html is damaged" in capsys.readouterr().err


def test_a_second_process_is_refused_on_a_run_directory(run, capsys):
    with sole_user(run):
        for verb in (["report", "run"], ["diagnose", "run"]):
            assert cli.run(verb) == 2
            assert "run is in use" in capsys.readouterr().err
        assert cli.run(["report", "run", "--out", "elsewhere.html", "--quiet"]) == 0
    assert cli.run(["report", "run", "--quiet"]) == 0


def test_a_diagnosis_is_recorded_with_its_hashes(run):
    assert cli.run(["diagnose", "run", "--quiet"]) == 0
    outputs = json.loads((run / "manifest.json").read_text())["outputs"]
    assert {"diagnosis/findings.json", "diagnosis/support.png", "report.html"} <= set(outputs)
    assert not list(run.glob("*.unfinished"))


def test_a_full_disk_is_a_sentence_and_leaves_what_was_there(run):
    before = everything(run)
    for verb in (["report", "run"], words(**QUICK | {"out": "another"})):
        # files may not grow beyond 20 kB: as on a full disk, writing fails half-way
        limit = f"ulimit -f 20; exec {sys.executable} -m kdbirl " + " ".join(verb)
        environment = os.environ | {"JAX_COMPILATION_CACHE_DIR": "", "JAX_ENABLE_COMPILATION_CACHE": "false"}
        done = subprocess.run(["bash", "-c", limit], capture_output=True, text=True, env=environment)
        assert done.returncode == 2, done.stderr
        assert "cannot be written" in done.stderr
        assert "Traceback" not in done.stderr
    assert everything(run) == before
    assert not Path("another").exists()
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY


def test_a_mistake_leaves_nothing_behind(folder):  # noqa: F811
    before = everything(folder)
    assert cli.run(words(state="x,nowhere")) == 2
    assert everything(folder) == before


def test_who_has_a_directory_alone_removes_what_a_killed_process_was_writing(tmp_path):
    left, deeper = tmp_path / ".index.html.0a1b2c3d.unfinished", tmp_path / "fig3" / ".fig3.svg.0a1b2c3d.unfinished"
    kept = [tmp_path / "index.html", tmp_path / "fig3" / "fig3.svg"]
    (tmp_path / "fig3").mkdir()
    for path in (left, deeper, *kept):
        path.write_text("x")
    with sole_user(tmp_path):  # others may be at work in the subdirectories
        assert not left.exists()
        assert deeper.exists()
    with sole_user(tmp_path, below=True):
        assert not deeper.exists()
    assert all(path.exists() for path in kept)


def test_what_a_killed_process_was_writing_is_swept(tmp_path):
    (tmp_path / ".run.0a1b2c3d.unfinished").mkdir()
    (tmp_path / ".other.0a1b2c3d.unfinished").mkdir()
    with resumable(tmp_path / "run", {"seed": 0}):
        assert not (tmp_path / ".run.0a1b2c3d.unfinished").exists()
        assert (tmp_path / ".other.0a1b2c3d.unfinished").exists()
        (tmp_path / "run").mkdir()
    assert sorted(path.name for path in tmp_path.iterdir()) == [".other.0a1b2c3d.unfinished", "run"]


def test_a_damaged_request_is_named(tmp_path):
    (tmp_path / "run.unfinished").mkdir()
    (tmp_path / "run.unfinished" / "asked.json").write_text('{"seed')
    (tmp_path / "run.unfinished" / "x.checkpoint").write_text("")
    damaged = pytest.raises(FileProblem, match=r"asked.json is damaged; remove .*run.unfinished to start again")
    with damaged, resumable(tmp_path / "run", {"seed": 0}):
        pass


def test_stopped_before_there_was_anything_to_keep(tmp_path):
    with (
        pytest.raises(Interrupted, match="Stopped early: the same command does it again"),
        resumable(tmp_path / "run", {"seed": 0}),
    ):
        raise KeyboardInterrupt
    assert not list(tmp_path.iterdir())
    told = []
    stopped = pytest.raises(Interrupted, match=r"What was done is in .*run.unfinished: the same")
    with stopped, resumable(tmp_path / "run", {"seed": 0}, told.append):
        (tmp_path / "run.unfinished" / "x.checkpoint").write_text("")
        raise KeyboardInterrupt
    assert told == []
    with resumable(tmp_path / "run", {"seed": 0}, told.append):
        assert told == [f"Going on from {tmp_path / 'run.unfinished'}."]
