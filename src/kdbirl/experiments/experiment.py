"""An experiment of the paper: what it is called, what it runs, and what it leaves. The frame of `kdbirl reproduce`.

An experiment is a list of parts, one for each variant of its setting; or a single part, where one run serves all. A
part measures its cells through a `CellStore` (resumable; keyed by content) and hands back plain numbers, tidy tables,
claims and figures, all functions of the same numbers: the same on every run.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kdbirl.experiments.cell_store import CellStore
from kdbirl.experiments.ledger import Claim
from kdbirl.experiments.request import Request
from kdbirl.progress import Progress

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.figure import Figure

    from kdbirl.experiments.directory import Reproduction

Numbers = dict[str, Any]
Row = Mapping[str, Any]
Made = tuple[list[Claim], list["Path"]]  # what was found, and the files


@dataclass(frozen=True)
class Part:
    """What one run left. name: of its files, `<experiment>` or `<experiment>-<variant>`.

    numbers: everything, for JSON; it has the key "configuration". tables: tidy rows, by file name. figures: by file
    name, with `captions` for the page. seeds: how many.
    """

    name: str
    numbers: Numbers
    seeds: int
    claims: Sequence[Claim]
    figures: Mapping[str, "Figure"]
    tables: Mapping[str, Sequence[Row]] = field(default_factory=dict)
    captions: Mapping[str, str] = field(default_factory=dict)


Measure = Callable[[Request, CellStore, Progress], Part]


@dataclass(frozen=True)
class Experiment:
    """A figure or a group of claims.

    parts: by variant, a function that measures it; the single key "" is a run that serves all variants.
    needs: functions that raise where an optional package is missing; asked before hours of other work, not after.
    """

    name: str
    title: str
    parts: Mapping[str, Measure]
    needs: tuple[Callable[[], object], ...] = ()

    def check(self) -> None:
        """Raises where something is missing that it cannot run without."""
        for need in self.needs:
            need()

    def asked(self, request: Request) -> list[Measure]:
        """The parts of the variants that were asked for."""
        return [part for variant, part in self.parts.items() if not variant or variant in request.variants]

    def reproduce(self, place: "Reproduction", request: Request, progress: Progress) -> Made:
        """Run the parts that were asked for, and write their files."""
        claims: list[Claim] = []
        files: list[Path] = []
        for measure in self.asked(request):
            start = time.perf_counter()
            part = measure(request, place.cells(self.name), progress)
            written = place.write(self, part, time.perf_counter() - start)
            claims += part.claims
            files += [path for path in written if path not in files]
        return claims, files
