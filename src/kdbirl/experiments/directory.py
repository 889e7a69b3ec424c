"""The directory of a reproduction: `claims.csv` for all experiments, a folder for each with its numbers and figures.

DIR/claims.csv                       the ledger
DIR/<experiment>/<experiment>.json   all numbers, the same on every run
DIR/<experiment>/<figure>.png .svg .pdf
DIR/<experiment>/manifest.json       versions, seeds, configuration, timings, hashes
DIR/<experiment>/cells/              results of single cells: an interrupted run goes on from them
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from kdbirl.errors import FileProblem
from kdbirl.experiments.cell_store import CellStore
from kdbirl.experiments.ledger import FILE, Claim, update_ledger
from kdbirl.files import whole_or_not_at_all, write_text
from kdbirl.installation import is_writable, package_versions
from kdbirl.report.run_directory import as_json

FORMATS = ("png", "svg", "pdf")
DOTS_PER_INCH = 200


@dataclass(frozen=True)
class Reproduction:
    """A directory that experiments write to, one after the other, and again after an interruption."""

    path: Path

    def __post_init__(self) -> None:
        """Say what is wrong with the place before the work, not after it."""
        if self.path.exists() and not self.path.is_dir():
            raise FileProblem(f"{self.path} already exists and is a file; choose another directory.")
        if self.path.is_dir() and any(self.path.iterdir()) and not self._is_ours():
            raise FileProblem(
                f"{self.path} is not empty and holds no reproduction of ours to go on with; choose another directory."
            )
        parent = self.path if self.path.is_dir() else self.path.absolute().parent
        if not parent.is_dir():
            raise FileProblem(f"{self.path} cannot be made: there is no directory {parent}; make it first.")
        if not is_writable(parent):
            raise FileProblem(f"{self.path} cannot be written: you cannot write to {parent}; choose another place.")

    def _is_ours(self) -> bool:
        return (self.path / FILE).is_file() or any(self.path.glob("*/cells/"))

    def folder(self, experiment: str) -> Path:
        """Where an experiment's files are."""
        return self.path / experiment

    def cells(self, experiment: str, modules: tuple[str, ...]) -> CellStore:
        """Where an experiment's cells are kept; `modules` of `kdbirl.experiments` compute them."""
        return CellStore(self.folder(experiment) / "cells", modules)

    def write(
        self,
        experiment: str,
        numbers: Mapping[str, Any],
        claims: Sequence[Claim],
        figures: Mapping[str, Figure],
        seeds: int,
        timings: Mapping[str, float],
    ) -> list[Path]:
        """Write an experiment's files, each whole or not at all, the manifest last."""
        folder = self.folder(experiment)
        folder.mkdir(parents=True, exist_ok=True)
        written = [folder / f"{experiment}.json"]
        write_text(written[0], as_json(numbers))
        for name, figure in figures.items():
            written += [_save(figure, folder / f"{name}.{kind}") for kind in FORMATS]
        update_ledger(self.path / FILE, claims)
        manifest = {
            "written": datetime.now(UTC).isoformat(timespec="seconds"),
            "experiment": experiment,
            "configuration": numbers["configuration"],
            "seeds": list(range(seeds)),
            "versions": package_versions(),
            "outputs": {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in written},
            "timings": {name: round(seconds, 3) for name, seconds in timings.items()},
        }
        write_text(folder / "manifest.json", as_json(manifest))
        return [self.path / FILE, *written, folder / "manifest.json"]


def _save(figure: Figure, path: Path) -> Path:
    """One figure in one format; without dates and random names, so that the same figure is the same file."""
    from matplotlib import rc_context

    undated: dict[str, Any] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(path.suffix[1:], {})
    with whole_or_not_at_all(path) as unfinished, rc_context({"svg.hashsalt": "kdbirl"}):
        figure.savefig(unfinished, format=path.suffix[1:], dpi=DOTS_PER_INCH, metadata=undated)
    return path
