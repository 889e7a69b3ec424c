"""`kdbirl studio` as a process of its own, asked by 200 at once: everyone gets the same page, and it stays small."""

import http.client
import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import kdbirl as kb
from kdbirl import cli

AT_ONCE = 200
MEBIBYTE = 2**20
LISTENING = "0A"  # the state of a socket in /proc/net/tcp


@dataclass(frozen=True)
class Served:
    """A studio in a process of its own."""

    process: subprocess.Popen[str]
    port: int

    def ask(self, path: str) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def asked_at_once(self, paths: list[str]) -> Counter[tuple[str, int, bytes]]:
        """How often each path was answered how; nobody asks before everybody is ready to."""
        gate = threading.Barrier(len(paths))

        def one(path: str) -> tuple[str, int, bytes]:
            gate.wait()
            return path, *self.ask(path)

        with ThreadPoolExecutor(len(paths)) as people:
            return Counter(people.map(one, paths))

    def bytes_of_memory(self) -> int:
        """Resident in the server and in the processes that it has started."""
        family = [self.process.pid, *_children(self.process.pid)]
        return sum(_resident(pid) for pid in family)


def _children(pid: int) -> list[int]:
    try:
        threads = list(Path(f"/proc/{pid}/task").iterdir())
        return [int(child) for thread in threads for child in (thread / "children").read_text().split()]
    except OSError:
        return []  # it has just ended


def _resident(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs as `kdbirl fit` makes them."""
    root = tmp_path_factory.mktemp("runs")
    for seed in ("0", "1"):
        sampler = ["--sampler", "grid", "--draws", "200", "--bandwidth", "0.3,0.3", "--seed", seed]
        _write_tables(root.parent)
        files = [f"--{name}={root.parent / file}" for name, file in FILES.items()]
        fit = ["fit", *files, "--state", "x", "--prior", "uniform:0,1", *sampler, "--quiet"]
        assert cli.run([*fit, "--out", str(root / f"seed-{seed}")]) == 0
    return root


FILES = {"training": "training.csv", "rewards": "rewards.csv", "expert": "expert.csv"}


def _write_tables(folder: Path) -> None:
    """Three tasks on a line, and an expert who does as the second does."""
    rng = np.random.default_rng(0)
    rows = [f"{task},{x:.4f}" for task, goal in enumerate((0.1, 0.5, 0.9)) for x in goal + 0.1 * rng.normal(size=8)]
    (folder / "training.csv").write_text("\n".join(["task,x", *rows]) + "\n")
    (folder / "rewards.csv").write_text("task,w\n0,0.1\n1,0.5\n2,0.9\n")
    (folder / "expert.csv").write_text("\n".join(["x", *(f"{x:.4f}" for x in 0.5 + 0.1 * rng.normal(size=6))]) + "\n")


STARTED = "from kdbirl import cli; cli.main()"
LEAKING = f"""
from http.server import BaseHTTPRequestHandler
parse, lost = BaseHTTPRequestHandler.parse_request, []
def parse_request(self):
    lost.append(b"x" * 2**18)
    return parse(self)
BaseHTTPRequestHandler.parse_request = parse_request
{STARTED}
"""


@contextmanager
def served(runs: Path, program: str = STARTED) -> Iterator[Served]:
    command = [sys.executable, "-c", program, "studio", str(runs), "--json"]
    environment = os.environ | {"PYTHONPATH": str(Path(kb.__file__).parents[1]), "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        said = json.loads("".join(iter(process.stdout.readline, "}\n")) + "}")
        try:
            yield Served(process, int(said["address"].rstrip("/").rpartition(":")[2]))
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(60)


@pytest.fixture(scope="module")
def studio(runs: Path) -> Iterator[Served]:
    with served(runs) as one:
        yield one


CHEAP = ["/", "/report?run=seed-0", "/report?run=seed-1", "/tasks?run=seed-0"]
COMPARED = ["/compare?one=seed-0&other=seed-1"]


def assert_everyone_is_served(studio: Served, paths: list[str]) -> None:
    asked = [paths[number % len(paths)] for number in range(AT_ONCE)]
    alone = {path: studio.ask(path) for path in paths}
    assert {status for status, _ in alone.values()} == {200}
    answers = studio.asked_at_once(asked)
    assert answers == Counter({(path, *alone[path]): count for path, count in Counter(asked).items()})
    assert studio.process.poll() is None


def memory_after_waves(studio: Served) -> list[int]:
    """Waves of requests, at least three and at most nine, until one of them adds less than 8 MiB.

    The first ones make threads' stacks and the allocator's arenas, more of them the busier the machine is.
    """
    memory = [studio.bytes_of_memory()]
    while len(memory) < 4 or (memory[-1] - memory[-2] >= 8 * MEBIBYTE and len(memory) < 10):
        assert_everyone_is_served(studio, CHEAP)
        memory.append(studio.bytes_of_memory())
    return memory


def test_200_at_once_get_the_same_pages_and_memory_settles(studio: Served) -> None:
    memory = memory_after_waves(studio)
    assert memory[-1] - memory[-2] < 8 * MEBIBYTE, memory
    assert memory[-1] - memory[0] < 192 * MEBIBYTE, memory  # ten waves of 100 kB lost with each request


def test_a_leak_of_256_kilobytes_a_request_would_be_seen(runs: Path) -> None:
    """The control: a server that keeps so much of each request does not settle, whatever the allocator gives back."""
    with served(runs, LEAKING) as leaking:
        memory = memory_after_waves(leaking)
    assert len(memory) == 10
    assert memory[-1] - memory[-2] >= 8 * MEBIBYTE, memory


@pytest.mark.long
def test_200_comparisons_at_once_do_not_fill_the_memory(studio: Served) -> None:
    """Each reads two posteriors in processes of their own, of which there must not be 200 at once."""
    before, peak, over = studio.bytes_of_memory(), [0], threading.Event()

    def watch() -> None:
        while not over.wait(0.05):
            peak[0] = max(peak[0], studio.bytes_of_memory())

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        assert_everyone_is_served(studio, COMPARED)
    finally:
        over.set()
        watcher.join()
    print(f"\n{before / MEBIBYTE:.0f} MiB before, {peak[0] / MEBIBYTE:.0f} MiB at most")
    assert peak[0] - before < 1024 * MEBIBYTE  # 200 readers of 40 MiB would be 8,000


def test_nobody_else_can_reach_it(studio: Served) -> None:
    """The kernel's table of sockets: that port listens on 127.0.0.1 and nowhere else."""
    sockets = [
        line.split() for table in ("tcp", "tcp6") for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]
    ]
    places = [words[1] for words in sockets if words[3] == LISTENING and words[1].endswith(f":{studio.port:04X}")]
    assert places == [f"0100007F:{studio.port:04X}"]
