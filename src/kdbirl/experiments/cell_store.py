"""Results of single cells of an experiment, kept under the hash of everything that decides them.

A run that was interrupted goes on where it was, with identical results; whatever changes the numbers (settings, seed,
our code, the version of a numerical package) changes the hash, so nothing stale is ever read.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from kdbirl.checkpoints import forget, keep_checkpoints
from kdbirl.errors import KDBIRLError
from kdbirl.experiments.source_closure import PACKAGE, source_closure
from kdbirl.files import write_text
from kdbirl.installation import package_versions
from kdbirl.reading import read_json

DECIDING_PACKAGES = ("blackjax", "equinox", "jax", "numpy", "optax", "scipy")
UNFINISHED = "unfinished"  # checkpoints of the cell that is being computed
Cell = dict[str, Any]


@dataclass(frozen=True)
class CellStore:
    """A directory with one small JSON file a cell. `modules` of `kdbirl.experiments` decide the results too."""

    directory: Path
    modules: tuple[str, ...] = ()

    def get(self, key: Mapping[str, Any], compute: Callable[[], Cell]) -> Cell:
        """The stored result of `key`, or the computed one, which is then stored. A damaged file is computed again."""
        path, stored = self._path(key), self._stored(key)
        if stored is not None:
            return stored
        with keep_checkpoints(self.directory / UNFINISHED):
            text = json.dumps({"key": dict(key), "result": compute()}, sort_keys=True)
        self.directory.mkdir(parents=True, exist_ok=True)
        write_text(path, text + "\n")
        forget(self.directory / UNFINISHED)
        return dict(json.loads(text)["result"])  # as a later run reads it

    def has(self, key: Mapping[str, Any]) -> bool:
        """Whether the result of `key` need not be computed."""
        return self._stored(key) is not None

    def _path(self, key: Mapping[str, Any]) -> Path:
        return self.directory / f"{fingerprint(key, self.modules)}.json"

    def _stored(self, key: Mapping[str, Any]) -> Cell | None:
        try:
            return dict(read_json(self._path(key), "a cell")["result"])
        except (KDBIRLError, ValueError, KeyError, TypeError):
            return None


def fingerprint(key: Mapping[str, Any], modules: tuple[str, ...] = ()) -> str:
    """A hash of the key, of our own code and of the packages that compute."""
    text = json.dumps([key, code_fingerprint(modules)], sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:24]


@cache
def code_fingerprint(modules: tuple[str, ...]) -> str:
    """A hash of the source files and package versions that decide numbers: the modules and all that they import."""
    digest = hashlib.sha256()
    for path in source_closure(tuple(f"experiments.{name}" for name in modules)):
        digest.update(str(path.relative_to(PACKAGE)).encode() + path.read_bytes())
    versions = package_versions()
    digest.update(json.dumps({name: versions.get(name) for name in DECIDING_PACKAGES}).encode())
    return digest.hexdigest()
