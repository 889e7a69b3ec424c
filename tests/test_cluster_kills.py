"""Workers of a cluster that die at random, again and again, while kernel sums are made: the table is the same."""

import os
import random
import signal
import threading

import dask
import distributed  # noqa: F401  its settings must be there before any is changed
import numpy as np
import pytest

from kdbirl.data.cluster import Cluster, local_client
from kdbirl.data.large_pass import summarise
from kdbirl.likelihood.large_sums import ClusterRows, StreamedRows

from .methods.streamed import expert, table, written
from .test_cluster import Slow, fitted, streamed

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")

DEATHS, PIECES = 6, 60


class Reaper:
    """Kills a random worker at random moments, whatever it is doing, until it has killed enough or is told to stop."""

    def __init__(self, nannies, seed: int) -> None:
        self._nannies, self._random, self._over = nannies, random.Random(seed), threading.Event()
        self._thread = threading.Thread(target=self._reap)
        self.killed: list[int] = []

    def __enter__(self) -> "Reaper":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _reap(self) -> None:
        while len(self.killed) < DEATHS and not self._over.wait(self._random.uniform(0.5, 2.5)):
            living = [nanny.pid for nanny in self._nannies() if nanny.pid and nanny.pid not in self.killed]
            if living:
                victim = self._random.choice(living)
                os.kill(victim, signal.SIGKILL)
                self.killed.append(victim)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
def test_workers_that_die_at_random_change_nothing(tmp_path, monkeypatch, seed):
    monkeypatch.setattr("kdbirl.data.large_rows.PIECE_ROWS", 20)
    bank = streamed(written(tmp_path, table(1200), files=6, row_group=20))
    assert bank.source.n_pieces >= PIECES
    model = fitted(bank)
    rows = StreamedRows(summarise(bank, 0).coded, model.fitted.features)
    asked = model.fitted.features(expert(table(1200))), model.fitted.ckde.kernel, np.array([0.5])
    columns = tuple(range(asked[0].shape[1]))
    patience = {"distributed.scheduler.allowed-failures": DEATHS}  # all may hit the same piece of work
    with dask.config.set(patience), local_client(2, memory_limit=0) as client:
        cluster = Cluster.of(client)
        quiet = ClusterRows(rows, bank.source.n_pieces, cluster).task_log_sums(*asked, columns)
        with Reaper(lambda: list(client.cluster.workers.values()), seed) as reaper:
            while len(reaper.killed) < DEATHS:  # the sums again and again, until enough have died in them
                before = len(reaper.killed)
                again = ClusterRows(Slow(rows), bank.source.n_pieces, cluster).task_log_sums(*asked, columns)
                np.testing.assert_array_equal(again, quiet)
                print(f"{len(reaper.killed) - before} workers died")
    assert len(set(reaper.killed)) == DEATHS
    np.testing.assert_allclose(quiet, rows.task_log_sums(*asked, columns), rtol=1e-12, atol=1e-12)
