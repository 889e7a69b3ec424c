"""Work on all cores, and on one."""

import json
import subprocess
import sys
import threading

import pytest

from kdbirl import _jax as threads
from kdbirl._jax import cores, on_all_cores, one_core


@pytest.fixture(autouse=True)
def two_cores(monkeypatch):
    monkeypatch.setattr(threads.os, "sched_getaffinity", lambda _: {0, 1}, raising=False)


def names(count):
    return on_all_cores(lambda _: threading.current_thread().name, range(count))


def test_results_come_in_order():
    assert on_all_cores(lambda value: 2 * value, iter(range(20))) == [2 * value for value in range(20)]
    assert on_all_cores(len, []) == []


def test_work_that_is_done_on_all_cores_starts_no_more_threads():
    both = threading.Barrier(2)

    def inner(_):
        both.wait(timeout=30)  # both threads are at work
        return threading.current_thread().name, cores(), names(3)

    found = on_all_cores(inner, range(2))
    assert {own for own, _, _ in found}.isdisjoint({threading.current_thread().name})
    assert len({own for own, _, _ in found}) == 2
    assert all(inside == [own] * 3 and count == 1 for own, count, inside in found)
    assert cores() == 2


def test_a_single_item_has_all_cores():
    assert on_all_cores(lambda _: (threading.current_thread().name, cores()), [0]) == [
        (threading.current_thread().name, 2)
    ]


def test_one_core_ends_with_its_block():
    with one_core():
        assert cores() == 1
        assert names(3) == [threading.current_thread().name] * 3
    assert cores() == 2


FORKED = """
import json, os, signal, sys, time, warnings
warnings.simplefilter("ignore")  # of JAX and Polars, at every fork
import numpy as np
import kdbirl as kb

tasks = np.repeat(np.arange(3), 6)
def model():
    states, rewards = np.random.default_rng(0).normal(size=(18, 2)), np.array([[0.1, 0.2], [0.9, 0.1], [0.5, 0.9]])
    bank = kb.TaskBank.from_arrays(states=states, actions=tasks % 2, tasks=tasks, rewards=rewards)
    return kb.KDBIRL(prior=kb.Uniform(0, 1), bandwidth=(0.7, 0.6)).fit(bank)
expert = kb.Demonstrations(np.zeros((4, 2)), np.zeros(4, int))

def forked(work):
    read, write = os.pipe()
    start, child = time.monotonic(), os.fork()
    if child == 0:
        signal.alarm(20)  # what hangs is ended
        try:
            said = "done " + str(work())
        except kb.KDBIRLError as error:
            said = str(error)
        os.write(write, said.encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as stream:
        said = stream.read()
    os.waitpid(child, 0)
    return said, time.monotonic() - start

found = {"before": forked(lambda: model().log_likelihood(expert, np.zeros(2)))}
fitted = model()
found["own"] = fitted.log_likelihood(expert, np.zeros(2))
kb.write_demonstrations(expert, "expert.csv")
found["likelihood"] = forked(lambda: fitted.log_likelihood(expert, np.zeros(2)))
found["posterior"] = forked(lambda: fitted.posterior(expert, seed=0))
found["fit"] = forked(model)
found["read"] = forked(lambda: kb.read_demonstrations("expert.csv", state=["s0", "s1"]))
found["write"] = forked(lambda: kb.write_demonstrations(expert, "again.csv"))
found["process"] = os.getpid()
print(json.dumps(found))
"""


def test_a_fork_of_a_process_that_has_computed_is_refused_at_once(tmp_path):
    """Without its threads JAX would wait for ever; a fork from before the first use computes as any other process."""
    done = subprocess.run([sys.executable, "-c", FORKED], capture_output=True, text=True, cwd=tmp_path, timeout=200)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found.pop("before")[0] == f"done {found.pop('own')}"
    process = found.pop("process")
    for name, (said, seconds) in found.items():
        library = "JAX" if name in ("likelihood", "posterior") else "Polars"
        assert said.startswith(f"This process is a fork of process {process}, where kdbirl has used {library},"), name
        assert said.endswith('start workers with the spawn method, multiprocessing.get_context("spawn").')
        assert seconds < 5  # of milliseconds: a hang is ended after 20
