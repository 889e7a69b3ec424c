"""Strict settings for every test: what a test does not ask for must not happen.

Double precision is *not* switched on here: the library scopes it to its own computations, and a test that needed the
global switch would hide a place where that was forgotten.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

os.environ["MPLBACKEND"] = "Agg"  # before anything imports Matplotlib

import hypothesis
import jax
import pytest

from kdbirl._jax import forget_if_many

jax.config.update("jax_numpy_rank_promotion", "raise")

# In CI the same examples every time, so that a red run is somebody's change; at home new examples on each run.
hypothesis.settings.register_profile("home", deadline=None, print_blob=True)
hypothesis.settings.register_profile("ci", deadline=None, print_blob=True, derandomize=True, database=None)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "home")


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the source tree."""
    return Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory, repository: Path) -> Path:
    """The documentation site, built strictly."""
    target = tmp_path_factory.mktemp("documentation") / "site"
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(target)]
    environment = os.environ | {"PYTHONPATH": str(repository / "src"), "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=repository, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return target


@pytest.fixture(autouse=True)
def _private_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands started by a test never write to the user's own cache directory."""
    cache = tmp_path_factory.getbasetemp() / "kdbirl-cache"
    monkeypatch.setenv("KDBIRL_CACHE_DIR", str(cache))


@pytest.fixture(autouse=True)
def _single_precision_outside() -> Iterator[None]:
    """The user's own JAX code stays in single precision, whatever of ours has run."""
    yield
    forget_if_many()  # thousands of tests in one process, and not each of them comes by the library's own look
    assert not jax.config.jax_enable_x64, "something switched JAX's 64-bit types on globally and left them on"
