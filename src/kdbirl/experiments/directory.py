"""The directory of a reproduction: the ledger and the page for all experiments, and a folder for each.

DIR/claims.csv                     the ledger
DIR/index.html                     the page: figures, ledger, commands; it opens from disk
DIR/<experiment>/<part>.json       all numbers of a part (an experiment, or a variant of one), the same on every run
DIR/<experiment>/<table>.csv       tidy tables
DIR/<experiment>/<figure>.png .svg .pdf
DIR/<experiment>/manifest*.json    of each part: versions, seeds, configuration, timings, hashes
DIR/<experiment>/cells/            results of single cells: an interrupted run goes on from them
"""

import csv
import hashlib
import io
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kdbirl.csv_cells import guarded
from kdbirl.errors import FileProblem
from kdbirl.experiments.cell_store import CellStore
from kdbirl.experiments.experiment import Experiment, Part, Row
from kdbirl.experiments.ledger import FILE, update_ledger
from kdbirl.experiments.request import checkout
from kdbirl.files import write_figure, write_text
from kdbirl.installation import is_writable, package_versions
from kdbirl.report.run_directory import as_json


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

    def cells(self, experiment: str) -> CellStore:
        """Where an experiment's cells are kept, under the checkout's state."""
        return CellStore(self.folder(experiment) / "cells", checkout())

    def write(self, experiment: Experiment, part: Part, seconds: float) -> list[Path]:
        """Write a part's files, each whole or not at all, the manifest last."""
        folder = self.folder(experiment.name)
        folder.mkdir(parents=True, exist_ok=True)
        written = [folder / f"{part.name}.json"]
        write_text(written[0], as_json(part.numbers))
        for name, rows in part.tables.items():
            written.append(folder / f"{name}.csv")
            write_text(written[-1], table_text(rows))
        for name, figure in part.figures.items():
            written += write_figure(figure, folder / name)
        update_ledger(self.path / FILE, part.claims)
        manifest = folder / f"manifest{part.name.removeprefix(experiment.name)}.json"
        write_text(manifest, as_json(_manifest(experiment, part, written, seconds)))
        return [self.path / FILE, *written, manifest]


def _manifest(experiment: Experiment, part: Part, written: Sequence[Path], seconds: float) -> dict[str, Any]:
    return {
        "written": datetime.now(UTC).isoformat(timespec="seconds"),
        "experiment": experiment.name,
        "title": experiment.title,
        "part": part.name,
        "configuration": part.numbers["configuration"],
        "seeds": list(range(part.seeds)),
        "versions": package_versions(),
        "captions": dict(part.captions),
        "outputs": {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in written},
        "timings": {"seconds": round(seconds, 3)},
    }


def table_text(rows: Sequence[Row]) -> str:
    """Tidy rows as CSV; columns in the order in which they first appear, empty where a row has none."""
    stream, columns = io.StringIO(), list(dict.fromkeys(name for row in rows for name in row))
    writer = csv.DictWriter(stream, columns, lineterminator="\n", restval="")
    writer.writeheader()
    writer.writerows({name: _short(value) for name, value in row.items()} for row in rows)
    return stream.getvalue()


def _short(value: Any) -> Any:
    """Numbers to nine digits: what differs less is rounding."""
    if isinstance(value, float):
        return f"{value:.9g}"
    return guarded(value) if isinstance(value, str) else value
