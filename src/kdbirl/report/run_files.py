"""`Run`: what a run directory holds, as far as it is there. Directories of earlier versions hold less."""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kdbirl.archive import read_json, write_text
from kdbirl.archive import read_json as read_json_file
from kdbirl.errors import FileProblem, InputError
from kdbirl.methods.kdbirl import KDBIRL, load_model
from kdbirl.posterior.result import Posterior, load_posterior

# The manifest of a run as a seal: SHA-256 of every file, so that a damaged one is noticed and named.

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


NOT_ASSESSED = "not assessed"
DIAGNOSIS = re.compile(r"diagnosis(?:-(\d+))?")


@dataclass(frozen=True, eq=False)
class Run:
    """A posterior with everything that is known about it.

    name: of the directory. model: None where it cannot be read. manifest: configuration, versions, hashes, timings.
    findings, card: of the fit, and over them those of each diagnosis. evaluation: None before `kdbirl evaluate`.
    """

    name: str
    posterior: Posterior
    model: KDBIRL | None = None
    manifest: Mapping[str, Any] = field(default_factory=dict)
    findings: Mapping[str, Any] = field(default_factory=dict)
    card: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    evaluation: Mapping[str, Any] | None = None

    @classmethod
    def of(
        cls, posterior: Posterior, name: str, model: KDBIRL | None = None, manifest: Mapping[str, Any] | None = None
    ) -> "Run":
        """A run that has just been fitted: what the posterior knows about itself."""
        found = posterior.settings.get("diagnosis", {})
        return cls(name, posterior, model, manifest or {}, found, posterior.report_card())


def read_run(directory: Path) -> Run:
    """Everything in a run directory; only posterior.nc must be there."""
    require_run(directory)
    posterior = load_posterior(directory / "posterior.nc")
    run = Run.of(posterior, directory.absolute().name, _model(directory / "model.npz"))
    diagnoses = [read_object(file) for file in _diagnoses(directory)]
    card = merged_card([dict(run.card), *(_card(found) for found in diagnoses)])
    findings = dict(run.findings)
    for found in diagnoses:
        findings.update({name: part for name, part in found.items() if name != "report_card"})
    manifest = read_object(directory / "manifest.json") if (directory / "manifest.json").is_file() else {}
    evaluation = directory / "evaluation.json"
    judged = read_object(evaluation) if evaluation.is_file() else None
    return Run(run.name, posterior, run.model, manifest, findings, card, judged)


def require_run(directory: Path) -> None:
    """The directory has a posterior and its files are as they were written, or a sentence names what is wrong."""
    if not (directory / "posterior.nc").is_file():
        problem = "does not exist" if not directory.exists() else "has no posterior.nc"
        raise FileProblem(f"{directory} {problem}; give the run directory that kdbirl fit made.")
    require_intact(directory)


def read_object(path: Path) -> dict[str, Any]:
    """An object of a JSON file."""
    return read_json_file(path, "remove it, or make the run again")


def _diagnoses(directory: Path) -> list[Path]:
    """findings.json of diagnosis, diagnosis-2, ..., the newest last."""
    found = [(int(match[1] or 1), place) for place in directory.iterdir() if (match := DIAGNOSIS.fullmatch(place.name))]
    files = [place / "findings.json" for _, place in sorted(found)]
    return [file for file in files if file.is_file()]


def card_of(directory: Path) -> dict[str, tuple[str, str]]:
    """The report card as the small files of a run have it, without its draws."""
    files = [file for file in (directory / "diagnosis.json",) if file.is_file()]
    return merged_card([_card(read_object(file)) for file in (*files, *_diagnoses(directory))])


def merged_card(cards: Sequence[Mapping[str, tuple[str, str]]]) -> dict[str, tuple[str, str]]:
    """The newest word on each part; that nobody looked again takes nothing back."""
    merged: dict[str, tuple[str, str]] = {}
    for card in cards:
        merged |= {name: part for name, part in card.items() if part[0] != NOT_ASSESSED or name not in merged}
    return merged


def _card(content: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    found = content.get("report_card")
    parts = found.items() if isinstance(found, dict) else ()
    return {
        str(name): (str(part[0]), str(part[1])) for name, part in parts if isinstance(part, list) and len(part) == 2
    }


def _model(path: Path) -> KDBIRL | None:
    """None for a model of another version, or with functions of the user's, which a file cannot hold."""
    try:
        return load_model(path)
    except (FileProblem, InputError):
        return None
