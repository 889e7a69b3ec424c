"""The directory of a comparison.

DIR/comparison.csv                  a row for each method, n, seed and test task
DIR/comparison.json                 the summary: means and standard errors over seeds
DIR/comparison.png .svg .pdf        the figure
DIR/comparison.html                 the page to look at: figure, summary, configuration
DIR/manifest.json                   the world, the budget, what each method may see, versions, seeds, timings, hashes
DIR/cells/                          single answers: an interrupted run goes on from them, a larger one adds to them
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kdbirl.errors import FileProblem
from kdbirl.evaluation.comparison_table import csv_text
from kdbirl.evaluation.contenders import CONTENDERS
from kdbirl.experiments.cell_store import CellStore
from kdbirl.experiments.comparison import NAME, Comparison
from kdbirl.files import write_figure, write_text
from kdbirl.installation import is_writable, package_versions
from kdbirl.reading import read_json
from kdbirl.report.run_directory import as_json


@dataclass(frozen=True)
class ComparisonDirectory:
    """A directory to make, or one of an earlier comparison in the same world, to go on with."""

    path: Path
    env: str

    def __post_init__(self) -> None:
        """Say what is wrong with the place before the work, not after it."""
        if self.path.exists() and not self.path.is_dir():
            raise FileProblem(f"{self.path} already exists and is a file; choose another directory.")
        if self.path.is_dir() and any(self.path.iterdir()):
            self._refuse_others()
        parent = self.path if self.path.is_dir() else self.path.absolute().parent
        if not parent.is_dir():
            raise FileProblem(f"{self.path} cannot be made: there is no directory {parent}; make it first.")
        if not is_writable(parent):
            raise FileProblem(f"{self.path} cannot be written: you cannot write to {parent}; choose another place.")

    def _refuse_others(self) -> None:
        if not (self.path / "cells").is_dir():
            raise FileProblem(f"{self.path} is not empty and holds no comparison to go on with; choose another.")
        try:
            known = read_json(self.path / "manifest.json", "a manifest")["configuration"]["env"]
        except (FileProblem, KeyError, TypeError):  # interrupted before its end: the cells know their world
            return
        if known != self.env:
            raise FileProblem(f"{self.path} holds a comparison in {known}; choose another directory for {self.env}.")

    @property
    def cells(self) -> CellStore:
        """Where single answers are kept."""
        return CellStore(self.path / "cells")

    def write(
        self,
        study: Comparison,
        rows: Sequence[Mapping[str, Any]],
        table: Sequence[Mapping[str, Any]],
        seconds: float,
    ) -> list[Path]:
        """Write all files, each whole or not at all, the manifest last."""
        from kdbirl.report.comparison_page import comparison_page
        from kdbirl.report.comparison_plots import plot_comparison

        written = [self.path / f"{NAME}.csv", self.path / f"{NAME}.json"]
        write_text(written[0], csv_text(rows))
        write_text(written[1], as_json({"configuration": study.configuration(), "summary": list(table)}))
        figure = plot_comparison(table, title=study.env)
        written += write_figure(figure, self.path / NAME)
        labels = {name: one.label for name, one in CONTENDERS.items()}
        written.append(self.path / f"{NAME}.html")
        write_text(written[-1], comparison_page(figure, table, labels, study.configuration(), study.seeds))
        manifest = {
            "written": datetime.now(UTC).isoformat(timespec="seconds"),
            "configuration": study.configuration(),
            "seeds": list(range(study.seeds)),
            "versions": package_versions(),
            "outputs": {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in written},
            "timings": {"answers": round(seconds, 3)},
        }
        write_text(self.path / "manifest.json", as_json(manifest))
        return [*written, self.path / "manifest.json"]
