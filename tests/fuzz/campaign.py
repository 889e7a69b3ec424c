"""A campaign: many inputs for one target in a worker process, which is watched, and started again where it dies.

A find is an input at which anything but a KDBIRLError comes out, that takes more than ten seconds of the processor
(time on the clock says nothing on a busy machine), that takes memory far beyond the limits, or that kills the process.
"""

import json
import os
import random
import resource
import subprocess
import sys
import time
import traceback
from collections import Counter
from pathlib import Path
from typing import Any

from .targets import TARGETS, Target, prepared

SECONDS, CLOCK_SECONDS = float(os.environ.get("KDBIRL_FUZZ_SECONDS", "10")), 1800.0
GUARDED_SECONDS = 3.0  # where a process of its own is ended after 6
MOST_MEMORY = 2**29  # bytes above what the process had after its first inputs
WARM = 20
TICKS = os.sysconf("SC_CLK_TCK")


def rng_of(seed: int, target: str, number: int) -> random.Random:
    """Each input has its own random numbers: it can be made again alone."""
    return random.Random(f"{seed} {target} {number}")


def outcome(target: Target, data: bytes, folder: Path) -> tuple[str, str]:
    """("accepted" | "refused" | "find", what was said)."""
    from kdbirl.errors import KDBIRLError

    try:
        target.run(data, folder)
    except KDBIRLError as error:
        text = str(error)
        return ("refused", text) if text.strip() and len(text) < 5000 else ("find", f"no sentence: {text[:200]!r}")
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # panics of Rust code are no Exceptions
        frames = traceback.extract_tb(error.__traceback__)
        ours = [frame for frame in frames if "kdbirl" in frame.filename] or frames
        place = f"{Path(ours[-1].filename).name}:{ours[-1].lineno}"
        return "find", f"{type(error).__name__} at {place}: {' '.join(str(error).split())[:300]}"
    return "accepted", ""


def work(name: str, seed: int, first: int, last: int, folder: Path) -> None:
    """The worker: inputs `first` to `last`, one after the other; writes what it is at, and at the end what it saw."""
    prepared()
    target = TARGETS[name]
    os.environ["MINARI_DATASETS_PATH"] = str(folder)
    given = target.seeds(folder)
    for good in given:  # the seeds themselves are accepted, or refused in a sentence
        print(json.dumps({"seed file": outcome(target, good, folder)}), flush=True)
    counts: Counter[str] = Counter()
    slowest, base = 0.0, 0
    for number in range(first, last):
        data = target.mutate(rng_of(seed, name, number), given)
        (folder / ".current").write_bytes(data)
        (folder / ".number").write_text(str(number))
        start = time.process_time()
        kind, said = outcome(target, data, folder)
        spent = time.process_time() - start
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        base = peak if number < first + WARM else base
        if kind != "find" and peak - base > MOST_MEMORY:
            kind, said, base = "find", f"memory: {(peak - base) / 2**20:.0f} MiB more than before", peak
        counts[kind] += 1
        slowest = max(slowest, spent) if number >= first + WARM else slowest
        if kind == "find":
            print(json.dumps({"number": number, "find": said}), flush=True)
    print(json.dumps({"counts": counts, "slowest": slowest, "peak": peak, "base": base}), flush=True)


def campaign(name: str, seed: int, count: int, folder: Path, finds: Path) -> dict[str, Any]:
    """Run `count` inputs of a target; every find is kept as a file in `finds`, and listed."""
    total: Counter[str] = Counter()
    listed: dict[str, int] = {}
    slowest, peak, number, start = 0.0, 0, 0, time.monotonic()
    while number < count:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / ".number").write_text("-1")  # it has not begun: time is not counted yet
        words = ["worker", name, str(seed), str(number), str(count), str(folder)]
        with (folder / ".said").open("wb") as said, (folder / ".errors").open("wb") as errors:
            process = subprocess.Popen([sys.executable, "-m", "tests.fuzz", *words], stdout=said, stderr=errors)
            ended = _watch(process, folder, GUARDED_SECONDS if TARGETS[name].guarded else SECONDS)
        seen = [json.loads(line) for line in (folder / ".said").read_text().splitlines() if line.startswith("{")]
        for line in (line for line in seen if "find" in line):
            keep(finds / name, line["find"], mutated(name, seed, line["number"], folder), listed)
        if seen and "counts" in seen[-1]:
            total.update(seen[-1]["counts"])
            slowest, peak = max(slowest, seen[-1]["slowest"]), max(peak, seen[-1]["peak"])
            break
        at = int((folder / ".number").read_text())  # killed, or dead: everything up to this input was looked at
        last = (folder / ".errors").read_text(errors="replace")[-300:]
        if at < number:
            raise RuntimeError(f"{name}: the worker did not begin: {last}")
        known = sum("find" in line for line in seen)
        total.update(find=known, before_death=at - number - known)
        total.update({"ended by the guard" if TARGETS[name].guarded else "find": 1})
        keep(finds / name, f"{ended}: {last}", (folder / ".current").read_bytes(), listed)
        number = at + 1
    return {"target": name, "inputs": count, **total, "slowest seconds": round(slowest, 2), "peak MiB": peak >> 20,
            "minutes": round((time.monotonic() - start) / 60, 1), "listed": listed}  # fmt: skip


def mutated(name: str, seed: int, number: int, folder: Path) -> bytes:
    """The input of that number, made again."""
    target = TARGETS[name]
    os.environ["MINARI_DATASETS_PATH"] = str(folder / "again")
    (folder / "again").mkdir(exist_ok=True)
    return target.mutate(rng_of(seed, name, number), _seeds(name, folder / "again"))


_made: dict[str, Any] = {}


def _seeds(name: str, folder: Path) -> Any:
    if name not in _made:
        _made[name] = TARGETS[name].seeds(folder)
    return _made[name]


def _watch(process: "subprocess.Popen[bytes]", folder: Path, seconds: float) -> str:
    """Wait for the worker; kill it where one input takes too long. How it ended, in words."""
    number, spent, since = "", 0.0, time.monotonic()
    while process.poll() is None:
        time.sleep(0.5)
        now = (folder / ".number").read_text()
        used = _processor_seconds(process.pid)
        if now != number or now.startswith("-"):
            number, spent, since = now, used, time.monotonic()
        elif used - spent > seconds or time.monotonic() - since > CLOCK_SECONDS:
            process.kill()
            process.wait()
            return f"hang: {used - spent:.0f} s of the processor"
    return f"death: exit code {process.returncode}"


def _processor_seconds(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(int(field) for field in fields[11:15]) / TICKS


def keep(folder: Path, said: str, data: bytes, listed: dict[str, int]) -> None:
    """The first three inputs of a kind; the others are counted."""
    kind = said.partition(": ")[0]
    listed[kind] = listed.get(kind, 0) + 1
    if listed[kind] <= 3:
        folder.mkdir(parents=True, exist_ok=True)
        stem = "".join(c if c.isalnum() else "-" for c in kind)[:60]
        (folder / f"{stem}-{listed[kind]}").write_bytes(data)
        (folder / f"{stem}-{listed[kind]}.txt").write_text(said + "\n", errors="replace")
