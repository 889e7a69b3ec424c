"""Streamed banks and the disk: checkpoints, saved models, the command line, broken files, memory."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import polars as pl
import pytest

import kdbirl as kb
from kdbirl import cli
from kdbirl.data import large_pieces as piece_summary
from kdbirl.data import large_rows as row_source
from kdbirl.data import large_samples as row_sampling
from kdbirl.data.large_pass import summarise
from kdbirl.errors import FileProblem, InputError
from kdbirl.likelihood import large_sums as streamed_rows

from .streamed import CONTINUOUS, REWARDS, expert, table, written

POINTS = np.random.default_rng(3).random((4, 2))


@pytest.fixture
def large(monkeypatch):
    """Limits that make a thousand rows a bank of ten pieces that does not fit into memory."""
    monkeypatch.setattr(row_source, "PIECE_ROWS", 100)
    monkeypatch.setattr(row_sampling, "ROWS_SAMPLED", 300)
    monkeypatch.setattr(row_sampling, "FEWEST_OF_A_TASK", 5)
    monkeypatch.setattr(piece_summary, "DISTINCT_KEPT", 100)


@pytest.fixture
def frame():
    return table(1000)


@pytest.fixture
def directory(tmp_path, frame):
    return written(tmp_path / "rows", frame, files=2)


def fitted(directory, **columns):
    bank = kb.stream_task_bank(directory, **CONTINUOUS, block_rows=50, **columns)
    return kb.KDBIRL(prior=kb.Uniform(0, 1), bandwidth=(0.5, 0.3)).fit(bank)


def kept_sums(directory, kept, shown):
    """The likelihood at some points, with kernel sums in progress kept."""
    with kb.keep_checkpoints(kept, every=0.0):
        return fitted(directory).log_likelihood(shown, POINTS)


class Counting:
    """Kernel sums of blocks that end with Ctrl-C after `alive` of them."""

    def __init__(self, alive):
        self.alive, self.calls, self.real = alive, 0, streamed_rows.task_log_sums

    def __call__(self, *arguments):
        self.calls += 1
        if self.calls > self.alive:
            raise KeyboardInterrupt
        return self.real(*arguments)


def test_killed_and_resumed_is_uninterrupted_to_the_bit(large, directory, frame, tmp_path, monkeypatch):
    shown, kept = expert(frame), tmp_path / "sums"
    expected = fitted(directory).log_likelihood(shown, POINTS)
    dying = Counting(alive=8)
    monkeypatch.setattr(streamed_rows, "task_log_sums", dying)
    with pytest.raises(KeyboardInterrupt):
        kept_sums(directory, kept, shown)
    assert len(list(kept.glob("kernel-sums-*.checkpoint"))) == 1
    going_on = Counting(alive=10**6)
    going_on.real = dying.real
    monkeypatch.setattr(streamed_rows, "task_log_sums", going_on)
    np.testing.assert_array_equal(kept_sums(directory, kept, shown), expected)
    assert going_on.calls == 20 - 8  # blocks in all, and those done before
    np.testing.assert_array_equal(kept_sums(directory, kept, shown), expected)
    assert going_on.calls == 20 - 8


def test_a_checkpoint_is_never_used_for_something_else(large, directory, frame, tmp_path):
    kept = tmp_path / "sums"
    for rows in (15, 10):
        shown = expert(frame, rows=rows)
        with_file = kept_sums(directory, kept, shown)
        np.testing.assert_array_equal(with_file, fitted(directory).log_likelihood(shown, POINTS))
    for path in kept.glob("*.checkpoint"):
        path.write_bytes(b"broken")
    shown = expert(frame, rows=10)
    with pytest.warns(kb.KDBIRLWarning, match="is damaged and is not used"):
        with_file = kept_sums(directory, kept, shown)
    np.testing.assert_array_equal(with_file, fitted(directory).log_likelihood(shown, POINTS))


def test_a_saved_model_finds_its_rows_or_says_that_they_are_gone(large, directory, frame, tmp_path):
    model, shown = fitted(directory), expert(frame)
    model.save(tmp_path / "model.npz")
    loaded = kb.load_model(tmp_path / "model.npz")
    np.testing.assert_array_equal(loaded.log_likelihood(shown, POINTS), model.log_likelihood(shown, POINTS))
    shutil.move(directory, tmp_path / "elsewhere")
    gone = kb.load_model(tmp_path / "model.npz")
    assert gone.identifiability().rank == 2
    with pytest.raises(FileProblem, match=r"needs its training rows.*part-0\.parquet"):
        gone.log_likelihood(shown, POINTS)
    written(directory, table(1000, seed=9), files=2)
    with pytest.raises(FileProblem, match="not the rows that the model was fitted on"):
        kb.load_model(tmp_path / "model.npz").log_likelihood(shown, POINTS)


def changed(source, target, **fields):
    """A model file that says something else about where its rows are."""
    with np.load(source) as file:
        arrays = {name: file[name] for name in file.files}
    record = json.loads(arrays["record"].tobytes())
    record["streamed"] |= fields
    np.savez(target, **arrays | {"record": np.frombuffer(json.dumps(record).encode(), np.uint8)})
    return target


def test_a_model_file_names_no_place_to_write(large, directory, frame, tmp_path):
    """Files of 0.1 could name a place for kernel sums in progress."""
    fitted(directory).save(tmp_path / "model.npz")
    evil = changed(tmp_path / "model.npz", tmp_path / "evil.npz", checkpoint=str(tmp_path / "owned"))
    before = set(tmp_path.iterdir())
    found = kb.load_model(evil).log_likelihood(expert(frame), POINTS)
    assert set(tmp_path.iterdir()) == before
    np.testing.assert_array_equal(found, fitted(directory).log_likelihood(expert(frame), POINTS))


@pytest.mark.parametrize("path", ["rows/part-0.parquet", "s3:/bucket/part-0.parquet", "hdfs:/part-0.parquet"])
def test_a_relative_path_in_a_model_file_is_not_looked_for(large, directory, frame, tmp_path, monkeypatch, path):
    """It could be any file of that name; pyarrow even takes one that is not there for an address on a network."""
    fitted(directory).save(tmp_path / "model.npz")
    evil = changed(tmp_path / "model.npz", tmp_path / "evil.npz", files=[[path, {}]])
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        FileProblem, match=r"relative path '.*part-0\.parquet', which could be any file; expected an abs"
    ):
        kb.load_model(evil).log_likelihood(expert(frame), POINTS)


def test_a_model_file_whose_rows_are_a_pipe_is_a_sentence(large, directory, frame, tmp_path):
    fitted(directory).save(tmp_path / "model.npz")
    os.mkfifo(tmp_path / "pipe.parquet")
    evil = changed(tmp_path / "model.npz", tmp_path / "evil.npz", files=[[str(tmp_path / "pipe.parquet"), {}]])
    with pytest.raises(FileProblem, match=r"pipe\.parquet: there is no such file"):
        kb.load_model(evil).log_likelihood(expert(frame), POINTS)


@pytest.mark.parametrize("rows", [0, -1])
def test_block_rows_are_a_whole_number(large, directory, frame, tmp_path, rows):
    with pytest.raises(InputError, match=r"block_rows=.* should be a whole number of rows, at least 1"):
        kb.stream_task_bank(directory, **CONTINUOUS, block_rows=rows)
    fitted(directory).save(tmp_path / "model.npz")
    evil = changed(tmp_path / "model.npz", tmp_path / "evil.npz", block_rows=rows)
    with pytest.raises(FileProblem, match=r"needs its training rows.*block_rows"):
        kb.load_model(evil).log_likelihood(expert(frame), POINTS)


def test_the_command_line_streams(large, directory, frame, tmp_path, capsys):
    rewards = pl.DataFrame([{"task": name, "w0": w[0], "w1": w[1]} for name, w in REWARDS.items()])
    rewards.write_csv(tmp_path / "rewards.csv")
    frame.filter(pl.col("task") == "t1").head(12).write_csv(tmp_path / "expert.csv")
    given = ["fit", "--training", str(directory), "--rewards", str(tmp_path / "rewards.csv"), "--state", "x,y"]
    given += ["--action", "action", "--expert", str(tmp_path / "expert.csv"), "--prior", "uniform:0,1"]
    given += ["--bandwidth", "0.5,0.3", "--draws", "100", "--json"]
    means = {}
    for flag in ("--stream", "--no-stream"):
        assert cli.run([*given, flag, "--out", str(tmp_path / f"run{flag}")]) == 0
        found = json.loads(capsys.readouterr().out)
        means[flag] = [row["mean"] for row in found["summary"]]
    np.testing.assert_allclose(means["--stream"], means["--no-stream"], rtol=1e-8)
    assert not list(tmp_path.glob(".*sums"))


def test_files_that_are_not_alike_or_broken_are_named(directory, frame):
    odd = directory / "part-9.parquet"
    for change, message in [
        (frame.drop("y"), r"part-9\.parquet has no column 'y', but .*part-0\.parquet has"),
        (frame.with_columns(pl.col("x").cast(pl.String)), r"part-9\.parquet: the column 'x' is String, but Float64"),
    ]:
        change.write_parquet(odd)
        with pytest.raises(InputError, match=message):
            kb.stream_task_bank(directory, **CONTINUOUS)
    odd.write_bytes((directory / "part-0.parquet").read_bytes()[:-100])
    with pytest.raises(FileProblem, match=r"part-9\.parquet: the Parquet file is damaged"):
        kb.stream_task_bank(directory, **CONTINUOUS)
    odd.unlink()
    with pytest.raises(InputError, match="has no column 'z'"):
        kb.stream_task_bank(directory, **{**CONTINUOUS, "state": ["x", "z"]})
    frame.write_csv(directory / "more.csv")
    with pytest.raises(InputError, match=r"more\.csv: only Parquet files can be streamed"):
        kb.stream_task_bank(directory, **CONTINUOUS)


def test_bytes_that_break_after_opening_are_named(large, directory, frame):
    bank = kb.stream_task_bank(directory, **CONTINUOUS)
    place = directory / "part-1.parquet"
    content = bytearray(place.read_bytes())
    content[4 : len(content) // 2] = bytes(len(content) // 2 - 4)
    place.write_bytes(bytes(content))
    with pytest.raises(FileProblem, match=r"part-1\.parquet: the Parquet file is damaged"):
        summarise(bank, 0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": pl.when(pl.int_range(pl.len()) != 712).then(pl.col("x"))}, r"row 213 of .*part-1\.parquet, column 'x'"),
        ({"task": pl.col("task").replace({"t3": "t9"})}, "task 't9' is in"),
    ],
)
def test_rows_that_cannot_be_used_are_named(directory, frame, change, message):
    written(directory, frame.with_columns(**change), files=2)
    with pytest.raises(InputError, match=message):
        summarise(kb.stream_task_bank(directory, **CONTINUOUS), 0)


PROGRAM = """
import sys, numpy as np, kdbirl as kb
rewards = {str(k): v for k, v in enumerate(np.random.default_rng(1).normal(size=(10, 2)))}
bank = kb.stream_task_bank(sys.argv[1], rewards=rewards, state=["x", "y"])
model = kb.KDBIRL(prior=kb.Normal(0, 1), bandwidth=(0.5, 0.5)).fit(bank)
shown = kb.Demonstrations(states=np.random.default_rng(2).normal(size=(200, 2)), state_names=("x", "y"))
print("fitted", flush=True)
with kb.keep_checkpoints(sys.argv[2], every=0.2):
    print(model.log_likelihood(shown, np.zeros((1, 2))).tobytes().hex())
with open("/proc/self/status") as status:  # ru_maxrss begins with that of the process that started this one
    print(next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 2**20)
"""


@pytest.mark.long
def test_a_large_file_needs_little_memory_and_survives_kills(tmp_path):
    """Four gigabytes would be needed for 6*10^7 rows in memory: rows, features, tiles; a kill costs nothing."""
    rows, rng = 10_000_000, np.random.default_rng(0)
    directory = tmp_path / "rows"
    directory.mkdir()
    for part in range(6):
        task = np.repeat(rng.integers(10, size=rows // 100), 100)
        xy = rng.normal(size=(rows, 2)) + task[:, None] / 5
        columns = {"task": task, "x": xy[:, 0], "y": xy[:, 1]}
        pl.DataFrame(columns).write_parquet(directory / f"p{part}.parquet", row_group_size=2_000_000)

    def run(kept):
        command = [sys.executable, "-c", PROGRAM, str(directory), str(tmp_path / kept)]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ})

    whole, killed = run("a"), run("b")
    assert killed.stdout.readline() == "fitted\n"
    while not list((tmp_path / "b").glob("*.checkpoint")):
        time.sleep(0.05)
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    outputs = [process.communicate()[0].split() for process in (whole, run("b"))]
    assert outputs[0][1] == outputs[1][1]
    assert max(float(output[2]) for output in outputs) < 1.5  # GiB
