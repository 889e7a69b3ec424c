"""A run directory: everything that one fit leaves behind, and a manifest to repeat it. Written whole or not at all."""

import json
import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kdbirl.archive import directory_whole_or_not_at_all, write_text
from kdbirl.data.csv_text import guarded_frame
from kdbirl.data.tables import find_files
from kdbirl.errors import FileProblem
from kdbirl.installation import is_writable, package_versions
from kdbirl.methods.kdbirl import KDBIRL
from kdbirl.posterior.result import Posterior
from kdbirl.report.choices import how_it_was_made
from kdbirl.report.html import report_page
from kdbirl.report.run_files import Run, sha256

FILES = {
    "report.html": "the page to look at",
    "summary.csv": "mean, sd, quantiles and diagnostics of each parameter",
    "posterior.nc": "the draws and everything about them; ArviZ opens it",
    "diagnosis.json": "convergence, the report card and what is behind it",
    "model.npz": "the fitted model, for kb.load_model",
    "manifest.json": "versions, seed, configuration, hashes, timings",
}


def refuse_existing(directory: Path) -> None:
    """A run is never overwritten, and a place that cannot be written is named before the work, not after it."""
    if directory.is_dir() and any(directory.iterdir()):
        raise FileProblem(f"{directory} already exists and is not empty; choose another directory for this run.")
    if directory.exists() and not directory.is_dir():
        raise FileProblem(f"{directory} already exists and is a file; choose another directory for this run.")
    parent = directory.absolute().parent
    if not parent.is_dir():
        raise FileProblem(f"{directory} cannot be made: there is no directory {parent}; make it first.")
    if not is_writable(parent):
        raise FileProblem(f"{directory} cannot be made: you cannot write to {parent}; choose another place.")


def write_run(
    directory: Path,
    posterior: Posterior,
    model: KDBIRL,
    inputs: Sequence[str | Path],
    configuration: Mapping[str, Any],
    timings: Mapping[str, float],
) -> None:
    """Write all files of a run under a temporary name, then give the directory its own."""
    refuse_existing(directory)
    with directory_whole_or_not_at_all(directory) as unfinished:
        write_parts(unfinished, posterior)
        model.save(unfinished / "model.npz")
        manifest = manifest_of(unfinished, posterior, inputs, configuration, timings)
        write_text(unfinished / "manifest.json", as_json(manifest))
        # last, and without a hash until a later verb writes it again
        run = Run.of(posterior, directory.absolute().name, model, manifest)
        write_text(unfinished / "report.html", report_page(run, not configuration.get("no_rows")))


def write_parts(directory: Path, posterior: Posterior) -> None:
    """What a posterior says by itself: the draws, their summary and their diagnosis."""
    posterior.save(directory / "posterior.nc")
    write_text(directory / "summary.csv", guarded_frame(posterior.summary()).write_csv())
    write_text(directory / "diagnosis.json", as_json(diagnosis(posterior)))


def manifest_of(
    directory: Path,
    posterior: Posterior,
    inputs: Sequence[str | Path],
    configuration: Mapping[str, Any],
    timings: Mapping[str, float],
) -> dict[str, Any]:
    """What is needed to repeat the run, with a hash of every file that was read and that is in the directory."""
    return {
        "written": datetime.now(UTC).isoformat(timespec="seconds"),
        "working_directory": str(Path.cwd()),
        "configuration": dict(configuration),
        "choices": how_it_was_made(posterior),
        "seed": posterior.seed,
        "versions": package_versions(),
        "inputs": _hashes(inputs),
        "outputs": {path.name: sha256(path) for path in sorted(directory.iterdir())},
        "timings": {name: round(seconds, 3) for name, seconds in timings.items()},
    }


def diagnosis(posterior: Posterior) -> dict[str, Any]:
    """Convergence and the report card as plain values."""
    checks = posterior.convergence
    per_parameter = {name: getattr(checks, name).tolist() for name in ("r_hat", "ess_bulk", "ess_tail")}
    return {
        "sampler": posterior.sampler,
        "converged": checks.ok,
        "sentence": checks.sentence,
        "divergences": checks.divergences,
        **{name: dict(zip(posterior.names, values, strict=True)) for name, values in per_parameter.items()},
        "report_card": posterior.report_card(),
        "notes": posterior.settings.get("notes", []),
        "findings": posterior.settings.get("diagnosis", {}),
    }


def run_json(posterior: Posterior, directory: Path) -> str:
    """What `kdbirl fit --json` prints: the summary, every choice, the diagnosis, and where the files are."""
    return as_json(
        {
            "out": str(directory),
            "files": {name: str(directory / name) for name in FILES},
            "summary": posterior.summary().to_dicts(),
            "choices": how_it_was_made(posterior),
            **diagnosis(posterior),
        }
    )


def as_json(content: Any) -> str:
    """JSON text, with null where a number is not finite: JSON has neither NaN nor infinity."""
    return json.dumps(_finite(content), indent=2, allow_nan=False, ensure_ascii=False) + "\n"


def _finite(content: Any) -> Any:
    if isinstance(content, Mapping):
        return {str(name): _finite(value) for name, value in content.items()}
    if isinstance(content, list | tuple):
        return [_finite(value) for value in content]
    return None if isinstance(content, float) and not math.isfinite(content) else content


def _hashes(inputs: Sequence[str | Path]) -> dict[str, str]:
    """SHA-256 of every file that was read; a directory or a pattern is many."""
    return {str(path): sha256(path) for source in inputs for path, _ in find_files(source)}
