"""A run directory: everything that one fit leaves behind, and a manifest to repeat it. Written whole or not at all."""

import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kdbirl.errors import FileProblem
from kdbirl.installation import package_versions
from kdbirl.methods.kdbirl import KDBIRL
from kdbirl.posterior.result import Posterior
from kdbirl.report.html import report_page

FILES = {
    "posterior.nc": "the draws and everything about them (ArviZ opens it)",
    "summary.csv": "mean, sd, quantiles and diagnostics of each parameter",
    "diagnosis.json": "convergence and the report card",
    "report.html": "the page to look at",
    "model.npz": "the fitted model, for kb.load_model",
    "manifest.json": "versions, seed, configuration, hashes, timings",
}


def refuse_existing(directory: Path) -> None:
    """A run is never overwritten."""
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise FileProblem(f"{directory} already exists and is not empty; name a new run directory with --out.")
    parent = directory.resolve().parent
    if not parent.is_dir() or not os.access(parent, os.W_OK):
        raise FileProblem(f"{directory} cannot be made: {parent} is not a directory that you can write to.")


def write_run(
    directory: Path,
    posterior: Posterior,
    model: KDBIRL | None,
    inputs: Sequence[Path],
    configuration: Mapping[str, Any],
    timings: Mapping[str, float],
) -> None:
    """Write all files of a run under a temporary name, then give the directory its own."""
    refuse_existing(directory)
    with _directory_whole_or_not_at_all(directory) as unfinished:
        posterior.save(unfinished / "posterior.nc")
        posterior.summary().write_csv(unfinished / "summary.csv")
        (unfinished / "diagnosis.json").write_text(json.dumps(diagnosis(posterior), indent=2), encoding="utf-8")
        (unfinished / "report.html").write_text(report_page(posterior, f"kdbirl: {directory.name}"), encoding="utf-8")
        if model is not None:
            model.save(unfinished / "model.npz")
        manifest = {
            "configuration": dict(configuration),
            "seed": posterior.seed,
            "versions": package_versions(),
            "inputs": {str(path): _sha256(path) for path in inputs if path.is_file()},
            "outputs": {path.name: _sha256(path) for path in sorted(unfinished.iterdir())},
            "timings": {name: round(seconds, 3) for name, seconds in timings.items()},
        }
        (unfinished / "manifest.json").write_text(json.dumps(manifest, indent=2), encoding="utf-8")


def diagnosis(posterior: Posterior) -> dict[str, Any]:
    """Convergence and the report card as plain values."""
    checks = posterior.convergence
    return {
        "sampler": posterior.sampler,
        "converged": checks.ok,
        "sentence": checks.sentence,
        "divergences": checks.divergences,
        "r_hat": dict(zip(posterior.names, _numbers(checks.r_hat), strict=True)),
        "ess_bulk": dict(zip(posterior.names, _numbers(checks.ess_bulk), strict=True)),
        "ess_tail": dict(zip(posterior.names, _numbers(checks.ess_tail), strict=True)),
        "report_card": posterior.report_card(),
        "notes": posterior.settings.get("notes", []),
    }


def _numbers(values: Any) -> list[float | None]:
    """Floats, with None for NaN, which JSON does not have."""
    return [float(value) if value == value else None for value in values]


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


@contextmanager
def _directory_whole_or_not_at_all(directory: Path) -> Iterator[Path]:
    unfinished = directory.with_name(f".{directory.name}.{secrets.token_hex(4)}.unfinished")
    try:
        unfinished.mkdir()
        yield unfinished
        if directory.is_dir():
            directory.rmdir()  # an empty directory of that name: it was checked
        unfinished.rename(directory)
    except OSError as error:
        raise FileProblem(f"{directory} cannot be written: {error.strerror or error}.") from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
