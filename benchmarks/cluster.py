"""(i) A Dask cluster on this machine: two one-thread workers over one, and the unit costs behind the sizing table.

The table of kernel sums of 500 expert rows with a Parquet bank of 100 tasks and 3 features, through `ClusterRows`, on
clusters of one and of two worker *processes* of one thread each. They take turns, so that a slow moment of the machine
falls on both. That they have one thread is measured: the processor time of a worker over the wall-clock time of the
sums. The same processor time also says what the speed-up would be on a machine that does nothing else: the busiest of
two workers against the only one. The tables are held against those of this process (1e-12).
"""

import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import kdbirl as kb
from benchmarks.measuring import Spread, seconds_of
from kdbirl.data.cluster import Cluster, local_client
from kdbirl.data.large import StreamedBank
from kdbirl.likelihood.large_sums import ClusterRows, StreamedRows

ROWS, TASKS, FEATURES, EXPERT = 36 * 2**20, 100, 3, 500
SIZES, WORKERS = (10**8, 10**9, 10**10), (1, 10, 100)
NOTHINGS = 2000  # tasks that do nothing, for the cost of a task itself
NETWORK = 1.25e9  # bytes per second between machines: ten gigabits
PIECE = 2**20  # rows


def compare(quick: bool, repeats: int) -> dict[str, Any]:
    """Speed-up, processor time, agreement, unit costs and what they mean for large banks."""
    rows = 2 * 2**20 if quick else ROWS
    with tempfile.TemporaryDirectory() as directory:
        bank = _bank(Path(directory), rows)
        features = kb.Identity().fit(bank.summary(0).fit_rows)
        streamed = StreamedRows(bank.summary(0).coded, features)
        question = _question(features)
        here = streamed.task_log_sums(*question)
        one, two = _in_turns(streamed, question, here, repeats)
        reading = _reading(streamed)
    seconds = {workers: Spread(tuple(found["seconds"])) for workers, found in ((1, one), (2, two))}
    per_row = seconds[1].median / rows
    units = {
        "seconds_per_row": per_row,
        "pairs_per_second_and_worker": EXPERT / per_row,
        "seconds_per_row_of_reading": reading / rows,
        "seconds_per_task": two["seconds_per_task"],
        "bytes_of_a_table": EXPERT * TASKS * 8,
        "seconds_of_a_merge": _merging(),
    }
    return {
        "problem": {
            "rows": rows,
            "tasks": TASKS,
            "features": FEATURES,
            "expert": EXPERT,
            "pieces": bank.source.n_pieces,
        },
        "seconds": {f"{workers} workers": spread.record() for workers, spread in seconds.items()},
        "processor_time_over_time": {"1 worker": one["share"], "2 workers": two["share"]},
        "largest_difference": max(one["difference"], two["difference"]),
        "processor_seconds_of_the_busiest_worker": {"1 worker": one["used"], "2 workers": two["used"]},
        "ratios": {
            "two workers over one": seconds[1].over(seconds[2]).record(),
            "two workers over one, by processor time": Spread((one["used"] / two["used"],)).record(),
        },
        "units": units,
        "expected_seconds": {
            f"{size:.0e} rows": {f"{w} workers": round(expected(size, w, units), 1) for w in WORKERS} for size in SIZES
        },
        "workers_beyond_which_the_scheduler_is_the_limit": int(per_row * PIECE / (2 * units["seconds_per_task"])),
    }


def expected(rows: int, workers: int, units: dict[str, float]) -> float:
    """Seconds: the rows shared out in whole pieces, or the scheduler's time for all tasks; then the last merges."""
    pieces = -(-rows // PIECE)
    work = -(-pieces // workers) * PIECE * units["seconds_per_row"]
    scheduling = 2 * pieces * units["seconds_per_task"]  # as many merges as pieces
    moved = units["bytes_of_a_table"] / NETWORK + units["seconds_of_a_merge"]
    return max(work, scheduling) + np.ceil(np.log2(max(workers, 2))) * moved


def _bank(directory: Path, rows: int) -> StreamedBank:
    rng = np.random.default_rng(0)
    rewards = rng.uniform(-1, 1, (TASKS, FEATURES))
    for number in range(rows // PIECE):
        task = np.repeat(np.arange(TASKS), -(-PIECE // TASKS))[:PIECE]
        x = rewards[task] + rng.normal(0, 0.7, (PIECE, FEATURES))
        columns = {"task": [f"t{k}" for k in range(TASKS)]}
        names = pl.DataFrame(columns)["task"].gather(task)
        frame = pl.DataFrame({"task": names, **{f"x{i}": x[:, i] for i in range(FEATURES)}})
        frame.write_parquet(directory / f"{number:04}.parquet", row_group_size=PIECE)
    known = {f"t{k}": rewards[k] for k in range(TASKS)}
    return kb.stream_task_bank(directory, rewards=known, state=[f"x{i}" for i in range(FEATURES)])


def _question(features: Any) -> tuple[Any, ...]:
    from kdbirl.likelihood.kernels import as_kernel, on_columns

    kernel = on_columns(as_kernel("gaussian", "euclidean"), features.names, features.groups)
    expert = np.random.default_rng(1).normal(0, 0.7, (EXPERT, FEATURES))
    return expert, kernel, np.array([0.3]), tuple(range(FEATURES))


def _in_turns(rows: StreamedRows, question: tuple[Any, ...], here: np.ndarray, repeats: int) -> list[dict[str, Any]]:
    """What a cluster of one worker, and one of two, take for the same sums."""
    with local_client(1, memory_limit=0) as alone, local_client(2, memory_limit=0) as both:
        sides = [_Side(client, ClusterRows(rows, rows.coded.n_pieces, Cluster.of(client))) for client in (alone, both)]
        for side in sides:
            side.difference = float(np.abs(side.rows.task_log_sums(*question) - here).max())  # compiles, and checks
        for _ in range(repeats):
            for side in sides:
                side.measure(question)
        return [side.found() for side in sides]


@dataclass
class _Side:
    """A cluster, and what was measured on it."""

    client: Any
    rows: ClusterRows
    seconds: list[float] = field(default_factory=list)
    used: Counter[str] = field(default_factory=Counter)
    difference: float = 0.0

    def measure(self, question: tuple[Any, ...]) -> None:
        """Once: seconds, and processor seconds of each worker."""
        before = self.client.run(_processor_seconds)
        fresh = ClusterRows(self.rows.rows, self.rows.n_pieces, self.rows.cluster)  # which keeps no table
        self.seconds.append(seconds_of(lambda: fresh.task_log_sums(*question)))
        self.used.update({name: after - before[name] for name, after in self.client.run(_processor_seconds).items()})

    def found(self) -> dict[str, Any]:
        """For the record."""
        cost = seconds_of(lambda: self.rows.cluster.mapped(_nothing, range(NOTHINGS))) / NOTHINGS
        busiest = max(self.used.values())
        return {
            "seconds": self.seconds,
            "share": round(busiest / sum(self.seconds), 3),
            "used": busiest,
            "difference": self.difference,
            "seconds_per_task": cost,
        }


def _processor_seconds() -> float:
    import time

    return time.process_time()


def _nothing(number: int) -> int:
    return number


def _reading(rows: StreamedRows) -> float:
    """Seconds to read and map all rows, without kernels."""

    def everything() -> None:
        for piece in range(rows.coded.n_pieces):
            for _ in rows._weighted(piece, tuple(range(FEATURES))):
                pass

    return seconds_of(everything)


def _merging() -> float:
    table = np.random.default_rng(0).normal(size=(EXPERT, TASKS))
    return seconds_of(lambda: [np.logaddexp(table, table) for _ in range(10)]) / 10
