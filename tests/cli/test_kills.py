"""Fifty kills at random moments across the verbs: every resumed run ends in the same bytes, no file is half-written."""

import hashlib
import json
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pytest

import kdbirl as kb
from kdbirl.report.run_manifest import require_intact

from . import tables
from .test_fit import words

KILLS = 50
# states are written all the time, so that a kill finds them, and finds them being written
COMMAND = "from kdbirl import checkpoints, cli; checkpoints.EVERY, checkpoints.SHARE = 0.05, 0.5; cli.main()"


@dataclass(frozen=True)
class Work:
    """A command, the place that it makes, and what of it must be the same."""

    command: list[str]
    out: str
    content: Callable[[Path], bytes]


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


@pytest.mark.long
def test_fifty_kills_lose_nothing(tmp_path: Path) -> None:
    rng, kills, resumed = random.Random(0), 0, 0
    tables.write_tables(tmp_path)
    finished(Work(words(sampler="grid", bandwidth="0.3,0.3", draws=200), "run", draws), tmp_path)
    whole, seconds = {}, {}
    for name, work in WORKS.items():
        finished(work, tmp_path)  # once for the cache of compiled programs
        shutil.rmtree(tmp_path / work.out)
        began = time.monotonic()
        whole[name] = finished(work, tmp_path)
        seconds[name] = time.monotonic() - began
        shutil.rmtree(tmp_path / work.out)
    while kills < KILLS:
        for name, work in WORKS.items():
            for _ in range(3):
                process = start(work, tmp_path)
                try:
                    process.wait(rng.uniform(0.2, 1.0) * seconds[name])
                    process.communicate()
                    break  # it was quicker than before
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.communicate()
                    kills += 1
                no_half_written_file(tmp_path)
            if not (tmp_path / work.out).exists() or name == "compare":
                resumed += 1
                assert finished(work, tmp_path) == whole[name], name
            assert work.content(tmp_path / work.out) == whole[name], name
            assert not [path for path in tmp_path.rglob("*.unfinished") if path.name.startswith(f".{work.out}.")]
            shutil.rmtree(tmp_path / work.out)
            shutil.rmtree(tmp_path / f"{work.out}.unfinished", ignore_errors=True)
    print(f"{kills} kills, {resumed} resumed runs, all with the same bytes")
