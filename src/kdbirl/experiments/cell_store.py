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

from kdbirl.experiments.source_closure import PACKAGE, source_closure
from kdbirl.files import write_text
from kdbirl.installation import package_versions

DECIDING_PACKAGES = ("blackjax", "equinox", "jax", "numpy", "optax", "scipy")
Cell = dict[str, Any]


@dataclass(frozen=True)
class CellStore:
    """A directory with one small JSON file a cell. `modules` of `kdbirl.experiments` decide the results too."""

    directory: Path
    modules: tuple[str, ...] = ()

    def get(self, key: Mapping[str, Any], compute: Callable[[], Cell]) -> Cell:
        """The stored result of `key`, or the computed one, which is then stored. A damaged file is computed again."""
        path = self.directory / f"{fingerprint(key, self.modules)}.json"
        try:
            stored = json.loads(path.read_text(encoding="utf-8"))
            return dict(stored["result"])
        except (OSError, ValueError, KeyError, TypeError):
            pass
        text = json.dumps({"key": dict(key), "result": compute()}, sort_keys=True)
        self.directory.mkdir(parents=True, exist_ok=True)
        write_text(path, text + "\n")
        return dict(json.loads(text)["result"])  # as a later run reads it


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
