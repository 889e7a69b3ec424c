"""Loops that Numba compiles work wherever its cache is, and whatever is in it."""

import os
import subprocess
import sys
from pathlib import Path

import kdbirl as kb

SOURCE = Path(kb.__file__).parents[1]
COUNT = """
import numpy as np
from kdbirl.data.large_loops import tally
counts = np.zeros(3, dtype=np.int64)
print(tally(counts, np.array([1, 1, 2]), 1), counts)
"""


def count(cache: Path) -> str:
    """A fresh process that compiles a loop, or finds it in the cache."""
    given = {**os.environ, "NUMBA_CACHE_DIR": str(cache), "PYTHONPATH": str(SOURCE)}
    done = subprocess.run([sys.executable, "-c", COUNT], env=given, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_damaged_cache_is_made_anew(tmp_path):
    assert count(tmp_path) == "2 [0 2 1]\n"
    kept = [path for path in tmp_path.rglob("*") if path.suffix in (".nbi", ".nbc")]
    assert len(kept) >= 2
    for path in kept:
        path.write_bytes(path.read_bytes()[:10])
    assert count(tmp_path) == "2 [0 2 1]\n"
    assert any(path.suffix == ".nbc" and path.stat().st_size > 10 for path in tmp_path.rglob("*"))


def test_a_cache_that_cannot_be_written_is_done_without():
    from numba import njit

    from kdbirl.compiled import _Forgiving, compiled

    def twice(x):
        return 2 * x

    made = compiled()(twice)
    assert isinstance(made._cache, _Forgiving)

    class Full:
        def load_overload(self, *_: object) -> None:
            raise OSError(28, "No space left on device")

        def save_overload(self, *_: object) -> None:
            raise OSError(28, "No space left on device")

        def flush(self) -> None:
            raise OSError(28, "No space left on device")

    made._cache = _Forgiving(Full())
    assert made(3) == njit(twice)(3) == 6
