"""(k) Banks that do not fit into memory: seconds, memory and growth of streamed kernel sums, and of counting.

Each measurement is a process of its own, so that its peak memory is its own. `seconds of sums` are those of the table S
of 500 expert rows over all rows of the file, without set-up (imports, the first pass, compilation); the first pass is
`seconds of summary`. Files are written to a temporary directory (KDBIRL_BENCH_DIR chooses where) and removed.
"""

import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.large_tables import TASKS, rewards, write_continuous, write_discrete
from benchmarks.measuring import Spread, interleaved, seconds_of

N, H = 500, 0.5
LARGE = 100_000_000


def compare(quick: bool, repeats: int) -> dict[str, Any]:
    """The record; `--quick` reads a hundredth of the rows."""
    large = LARGE // 100 if quick else LARGE
    place = os.environ.get("KDBIRL_BENCH_DIR")
    directory = Path(tempfile.mkdtemp(prefix="kdbirl-large-")) if place is None else Path(place)
    try:
        return _measured(directory, large, repeats)
    finally:
        if place is None:
            shutil.rmtree(directory)


def _measured(directory: Path, large: int, repeats: int) -> dict[str, Any]:
    sizes = (large // 10, large)
    for name, write, rows in _tables(sizes):
        if not (directory / name).exists():
            write(directory / name, rows)
    turns = [{rows: _run("sums", directory / f"c{rows}") for rows in sizes} for _ in range(repeats)]
    runs = {rows: [turn[rows] for turn in turns] for rows in sizes}
    counted = [_run("count", directory / f"d{large}") for _ in range(repeats)]
    seconds = {rows: Spread(tuple(run["sums"] for run in own)) for rows, own in runs.items()}
    in_memory = Spread(tuple(run["in_memory_rate"] for run in runs[large]))
    streamed = Spread(tuple(N * large / value for value in seconds[large].values))
    slopes = Spread(tuple(math.log10(b / a) for a, b in zip(*(s.values for s in seconds.values()), strict=True)))
    return {
        "problem": {"n": N, "d": 3, "tasks": TASKS, "h": H, "rows": list(sizes)},
        "seconds_of_sums": {str(rows): spread.record() for rows, spread in seconds.items()},
        "seconds_of_summary": {
            str(rows): Spread(tuple(run["summary"] for run in own)).record() for rows, own in runs.items()
        },
        "peak_gib": {
            "continuous": Spread(tuple(run["peak_gib"] for run in runs[large])).record(),
            "discrete": Spread(tuple(run["peak_gib"] for run in counted)).record(),
        },
        "pairs_per_second": {"streamed": streamed.record(), "in memory": in_memory.record()},
        "ratios": {
            "streamed over in memory": streamed.over(in_memory).record(),
            "slope of log seconds over log rows": slopes.record(),
            "distance of the slope from 1": Spread(tuple(abs(slope - 1) for slope in slopes.values)).record(),
            **{
                f"counting over {reader}": Spread(tuple(run["summary"] / run[reader] for run in counted)).record()
                for reader in READERS
            },
        },
        "discrete": {
            f"seconds of {name}": Spread(tuple(run[name] for run in counted)).record() for name in (*READERS, "summary")
        },
    }


def _tables(sizes: tuple[int, int]) -> list[tuple[str, Any, int]]:
    continuous = [(f"c{rows}", write_continuous, rows) for rows in sizes]
    return [*continuous, (f"d{sizes[1]}", write_discrete, sizes[1])]


def _run(what: str, directory: Path) -> dict[str, float]:
    """One measurement in a fresh process."""
    command = [sys.executable, "-m", "benchmarks.streaming", what, str(directory)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    print(f"  {what} {directory.name}: {found}", flush=True)
    return found


def sums(directory: Path) -> dict[str, float]:
    """The streamed table, and the same kernel in memory at 10^6 rows, in turns with nothing else."""
    import kdbirl as kb

    bank = kb.stream_task_bank(directory, rewards=rewards(), state=list("xyz"))
    summary = seconds_of(lambda: bank.summary(0))
    model = kb.KDBIRL(prior=kb.Normal(0, 1), bandwidth=(H, 0.5)).fit(bank)
    assert model.fitted is not None
    ckde, expert, columns = model.fitted.ckde, np.random.default_rng(5).normal(size=(N, 3)), (0, 1, 2)
    rows, held = ckde.all_rows, _in_memory(directory)
    assert rows is not None
    _table(held, expert, ckde.kernel)  # compiles
    before = seconds_of(lambda: _table(held, expert, ckde.kernel))
    piece = seconds_of(lambda: rows.piece_log_sums(0, expert, ckde.kernel, np.array([H]), columns))  # type: ignore[attr-defined]
    streamed = seconds_of(lambda: rows.task_log_sums(expert, ckde.kernel, np.array([H]), columns))
    after = seconds_of(lambda: _table(held, expert, ckde.kernel))
    rate = N * len(held[1]) / ((before + after) / 2)
    return {"summary": summary, "sums": streamed, "in_memory_rate": rate, "piece": piece}


def _in_memory(directory: Path) -> tuple[np.ndarray, np.ndarray]:
    """The first million rows, sorted by task, as a bank in memory has them."""
    import polars as pl

    frame = pl.read_parquet(next(iter(sorted(directory.glob("*.parquet")))), n_rows=1_000_000).sort("task")
    return frame.select("x", "y", "z").to_numpy().astype(float), frame["task"].to_numpy().astype(np.int64)


def _table(held: tuple[np.ndarray, np.ndarray], expert: np.ndarray, kernel: Any) -> np.ndarray:
    from kdbirl.likelihood.sums import task_log_sums

    rows, tasks = held
    return task_log_sums(expert, rows, np.ones(len(rows)), tasks, TASKS, kernel, np.array([H]))


def count(directory: Path) -> dict[str, float]:
    """The pass over a discrete bank, beside reading its table whole, and a bare decoding of its columns by pieces."""
    import kdbirl as kb

    given = {"rewards": rewards(), "state": "state", "action": "action", "discrete_states": True}
    kb.stream_task_bank(directory, **given).summary(0)  # imports, and the disk's cache
    peak = _peak_gib()  # before the others, which hold the whole table
    contenders = {
        **{name: partial(reader, directory) for name, reader in READERS.items()},
        "summary": lambda: kb.stream_task_bank(directory, **given).summary(0),
    }
    return {name: spread.median for name, spread in interleaved(contenders, 3).items()} | {"peak_gib": peak}


def _peak_gib() -> float:
    """Not `ru_maxrss`, which begins with the peak of the process that started this one."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 2**20


def _by_pyarrow(directory: Path) -> int:
    import pyarrow.parquet as pq

    return int(pq.read_table(directory).num_rows)


def _by_polars(directory: Path) -> int:
    import polars as pl

    return int(pl.read_parquet(directory).height)


def _decoded(directory: Path) -> None:
    """Every row group by PyArrow into memory, one thread a core, and nothing else."""
    import pyarrow.parquet as pq

    from kdbirl._jax import on_all_cores

    files = sorted(directory.glob("*.parquet"))
    groups = [(path, group) for path in files for group in range(pq.ParquetFile(path).metadata.num_row_groups)]

    def decode(place: tuple[Path, int]) -> int:
        with pq.ParquetFile(place[0], memory_map=True) as file:
            return int(file.read_row_group(place[1], use_threads=False).num_rows)

    on_all_cores(decode, groups)


READERS = {"pyarrow's read_table": _by_pyarrow, "polars' read_parquet": _by_polars, "bare decoding": _decoded}


if __name__ == "__main__":
    found = {"sums": sums, "count": count}[sys.argv[1]](Path(sys.argv[2]))
    print(json.dumps({"peak_gib": _peak_gib()} | found))
