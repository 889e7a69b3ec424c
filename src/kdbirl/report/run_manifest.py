"""The manifest of a run as a seal: SHA-256 of every file, so that a damaged one is noticed and named."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kdbirl.errors import FileProblem
from kdbirl.files import write_text
from kdbirl.reading import read_json

MANIFEST = "manifest.json"


def sha256(path: Path) -> str:
    """Of a file's bytes, in hex."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def require_intact(run: Path) -> None:
    """Refuse a run with a file that is not as it was written; files that were left out are no damage."""
    for name, recorded in _outputs(_read(run)).items():
        path = run / name
        if path.resolve().is_relative_to(run.resolve()) and path.is_file() and sha256(path) != recorded:
            raise FileProblem(
                f"{path} is damaged: its SHA-256 is not the one in {MANIFEST}; take the file from a backup, or make "
                "the run again."
            )


@contextmanager
def recorded(run: Path, files: Sequence[Path]) -> Iterator[None]:
    """Write `files` of a run inside: their hashes leave the manifest before and come back after.

    A process that is killed between leaves a file without a hash, never one with the hash of another.
    """
    if not files or not (run / MANIFEST).is_file():
        yield
        return
    names = [str(path.relative_to(run)) for path in files]
    before = _read(run)
    known = {name: value for name, value in _outputs(before).items() if name not in names}
    if known != _outputs(before):
        _write(run, before | {"outputs": known})
    yield
    new = {name: sha256(run / name) for name in names if (run / name).is_file()}
    _write(run, before | {"outputs": known | new})


def _read(run: Path) -> dict[str, Any]:
    path = run / MANIFEST
    if not path.is_file():
        return {}
    return read_json(path, "expected the manifest of a run; take it from a backup, or make the run again")


def _outputs(manifest: dict[str, Any]) -> dict[str, str]:
    found = manifest.get("outputs")
    return {str(name): str(value) for name, value in found.items()} if isinstance(found, dict) else {}


def _write(run: Path, manifest: dict[str, Any]) -> None:
    write_text(run / MANIFEST, json.dumps(manifest, indent=2, ensure_ascii=False) + "\n")
