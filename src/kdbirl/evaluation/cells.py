"""Results of single cells of an experiment, kept under the hash of everything that decides them.

An interrupted run goes on where it was, with identical results. Settings, seed, the versions of this package and of
those that compute, and the commit of a checkout are part of the hash.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from kdbirl.archive import read_json, write_text
from kdbirl.errors import KDBIRLError
from kdbirl.installation import package_versions
from kdbirl.store import forget, keep_checkpoints

DECIDING_PACKAGES = ("blackjax", "equinox", "jax", "kdbirl", "numpy", "optax", "scipy")
UNFINISHED = "unfinished"  # checkpoints of the cell that is being computed
Cell = dict[str, Any]


@dataclass(frozen=True)
class CellStore:
    """A directory with one small JSON file a cell. commit: of the code, where versions alone do not tell it."""

    directory: Path
    commit: str = ""

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
        return self.directory / f"{fingerprint(key, self.commit)}.json"

    def _stored(self, key: Mapping[str, Any]) -> Cell | None:
        try:
            return dict(read_json(self._path(key), "a cell")["result"])
        except (KDBIRLError, ValueError, KeyError, TypeError):
            return None


def fingerprint(key: Mapping[str, Any], commit: str) -> str:
    """A hash of the key and of the code that computes."""
    versions = package_versions()
    decided = [dict(key), commit, {name: versions.get(name) for name in DECIDING_PACKAGES}]
    return hashlib.sha256(json.dumps(decided, sort_keys=True, allow_nan=False).encode()).hexdigest()[:24]


def get_all(
    store: CellStore,
    keys: Sequence[Mapping[str, Any]],
    compute: Callable[[Sequence[int]], Sequence[Cell]],
    at_once: int,
) -> list[Cell]:
    """The stored or computed results of `keys`; `compute` is given the places of `at_once` of them.

    A group of which any cell is missing is computed whole: what is computed side by side is then the same wherever a
    run was interrupted, and so are the results.
    """
    found: list[Cell] = []
    for start in range(0, len(keys), at_once):
        group = range(start, min(start + at_once, len(keys)))
        if not all(store.has(keys[place]) for place in group):
            for place, cell in zip(group, compute(group), strict=True):
                store.get(keys[place], partial(dict, cell))
        found += [store.get(keys[place], dict) for place in group]  # all are stored now
    return found
