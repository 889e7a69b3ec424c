"""Fifty kills at random moments across the verbs: every resumed run ends in the same bytes, no file is half-written.

Moments are drawn in processor time, from a fifth of what the whole run took to all of it: on a busy machine a clock
would kill everything before it has begun. What is told in the end: kills by verb, and how many found a checkpoint.
"""

import hashlib
import itertools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pytest

import kdbirl as kb
from kdbirl.report.run_files import require_intact

from . import tables
from .test_fit import words

KILLS, IN_A_ROW = 50, 5
# states are written all the time, so that a kill finds them, and finds them being written
COMMAND = "from kdbirl import cli, store; store.EVERY, store.SHARE = 0.05, 0.5; cli.main()"


@dataclass(frozen=True)
class Work:
    """A command, the place that it makes, what of it must be the same; last: its last file, if others come before."""

    command: list[str]
    out: str
    content: Callable[[Path], bytes]
    last: str = ""


def draws(run: Path) -> bytes:
    require_intact(run)
    posterior = kb.load_posterior(run / "posterior.nc")
    return posterior.draws.tobytes() + repr((posterior.h, posterior.h_reward, posterior.power)).encode()


def findings(run: Path) -> bytes:
    require_intact(run.parent)
    content = json.loads((run / "findings.json").read_text())
    return json.dumps({name: value for name, value in content.items() if name != "versions"}, sort_keys=True).encode()


def demonstrations(folder: Path) -> bytes:
    return b"".join((folder / name).read_bytes() for name in ("training.parquet", "rewards.csv", "expert.csv"))


def answers(folder: Path) -> bytes:
    table = pl.read_csv(folder / "comparison.csv")
    return table.select([name for name in table.columns if "seconds" not in name]).write_csv().encode()


def ledger_and_tables(folder: Path) -> bytes:
    """Without manifests, which have the time, and cells, which are named by what decides them."""
    found = sorted(path for path in folder.rglob("*") if path.suffix in (".csv", ".svg", ".pdf"))
    return b"".join(path.name.encode() + path.read_bytes() for path in found)


CHAINS = {"sampler": "nuts", "chains": 2, "warmup": 1500, "draws": 1500, "bandwidth": "0.3,0.3", "out": "nuts"}
WORKS = {
    "fit with NUTS": Work(words(**CHAINS), "nuts", draws),
    "fit with SMC": Work(words(sampler="smc", chains=3, draws=400, bandwidth="0.3,0.3", out="smc"), "smc", draws),
    "fit with a VAE": Work(words(features="vae:2", sampler="grid", bandwidth="median", out="vae"), "vae", draws),
    "diagnose": Work(["diagnose", "run", "--sensitivity"], "run/diagnosis", findings),
    "demos": Work(
        ["demos", "--env", "gridworld:3", "--one-per-state", "--true-reward", "cell 8=1", "--out", "demos"],
        "demos",
        demonstrations,
    ),
    "compare": Work(
        [
            "compare",
            "--env",
            "gridworld:2",
            "--methods",
            "kdbirl,avril",
            "--quick",
            "--rows",
            "10",
            "--seeds",
            "1",
            "--tasks",
            "2",
            "--out",
            "comparison",
        ],
        "comparison",
        answers,
        last="manifest.json",
    ),
}


def start(work: Work, folder: Path) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-c", COMMAND, *work.command, "--quiet"], cwd=folder, stderr=subprocess.PIPE, text=True
    )


def finished(work: Work, folder: Path) -> bytes:
    process = start(work, folder)
    _, said = process.communicate()
    assert process.returncode == 0, f"{work.command}: {said}"
    return work.content(folder / work.out)


def no_half_written_file(folder: Path) -> None:
    """Every file under a name of its own can be read whole; what is not whole has a name that says so."""
    for path in folder.rglob("*"):
        if not path.is_file() or any(part.startswith(".") for part in path.relative_to(folder).parts):
            continue
        if path.suffix == ".json":
            json.loads(path.read_text())
        elif path.suffix == ".checkpoint":
            digest, _, content = path.read_bytes().partition(b"\n")
            assert hashlib.sha256(content).hexdigest().encode() == digest, path
        elif path.suffix == ".nc":
            kb.load_posterior(path)
        else:
            assert path.stat().st_size, path


def processor_seconds(pid: int) -> float:
    """Of a process and of its children that have ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def whole_run(work: Work, folder: Path) -> tuple[bytes, float]:
    """What a run without any kill makes, and its processor time."""
    before = os.times()
    content = finished(work, folder)
    after = os.times()
    shutil.rmtree(folder / work.out)
    return content, after.children_user + after.children_system - before.children_user - before.children_system


def killed(work: Work, folder: Path, seconds: float) -> bool:
    """Start it, and kill it after so much processor time; False if it ended before."""
    process = start(work, folder)
    while process.poll() is None:
        if processor_seconds(process.pid) > seconds:
            process.kill()
            break
        time.sleep(0.01)
    _, said = process.communicate()
    assert process.returncode in (0, -signal.SIGKILL), said
    return process.returncode != 0


@pytest.mark.long
def test_fifty_kills_lose_nothing(tmp_path: Path) -> None:
    rng, kills, resumed, found = random.Random(0), Counter[str](), Counter[str](), 0
    tables.write_tables(tmp_path)
    finished(Work(words(sampler="grid", bandwidth="0.3,0.3", draws=200), "run", draws), tmp_path)
    for work in WORKS.values():
        whole_run(work, tmp_path)  # once for the cache of compiled programs
    whole = {name: whole_run(work, tmp_path) for name, work in WORKS.items()}
    for name, work in itertools.cycle(WORKS.items()):
        expected, seconds = whole[name]
        for _ in range(IN_A_ROW):
            if not killed(work, tmp_path, rng.uniform(0.2, 1.0) * seconds):
                break  # it goes on from where it was, and so ends sooner
            kills[name] += 1
            found += any(tmp_path.rglob("*.checkpoint"))
            no_half_written_file(tmp_path)
            if is_whole(work, tmp_path):
                break  # killed between its last file and its end: the same command would refuse to write it again
        resumed[name] += 1
        if not is_whole(work, tmp_path):
            assert finished(work, tmp_path) == expected, name
        assert work.content(tmp_path / work.out) == expected, name
        assert not left_behind(tmp_path / work.out)
        shutil.rmtree(tmp_path / work.out)
        shutil.rmtree(tmp_path / f"{work.out}.unfinished", ignore_errors=True)
        print(f"{name}: {kills[name]} kills, {resumed[name]} times the same bytes", flush=True)
        if kills.total() >= KILLS:
            break
    print(f"{kills.total()} kills, {found} with a checkpoint there, {resumed.total()} resumed runs with the same bytes")
    assert min(kills[name] for name in WORKS) > 0


def left_behind(out: Path) -> list[Path]:
    """What a killed process was writing, in a directory or to be it."""
    return [*out.parent.glob(f".{out.name}.*.unfinished"), *out.rglob("*.unfinished")]


def is_whole(work: Work, folder: Path) -> bool:
    """Whether the command has ended."""
    return (folder / work.out / work.last).exists()
