"""An experiment of the paper: what it is called, what it runs, and what it leaves. The frame of `python -m paper`.

An experiment is a list of parts, one for each variant of its setting; or a single part, where one run serves all. A
part measures its cells through a `CellStore` (resumable; keyed by content) and hands back plain numbers, tidy tables,
claims and figures, all functions of the same numbers: the same on every run.
"""

import hashlib
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kdbirl.errors import InputError, did_you_mean
from kdbirl.evaluation.cells import CellStore
from kdbirl.progress import Progress
from paper.grid_settings import GridSetting
from paper.ledger import VARIANTS, Claim

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.figure import Figure

    from paper.directory import Reproduction

# What a user asks `python -m paper` for.

FEWEST = 2  # seeds: an interval needs a spread


@dataclass(frozen=True)
class Request:
    """quick: small sizes that decide nothing. seeds: how many, None for the experiment's own. variants: of `VARIANTS`,
    each once, in that order."""

    quick: bool = False
    seeds: int | None = None
    variants: tuple[str, ...] = VARIANTS

    def __post_init__(self) -> None:
        for variant in self.variants:
            if variant not in VARIANTS:
                raise InputError(f"There is no variant called {variant!r}.{did_you_mean(variant, VARIANTS)}")
        if self.seeds is not None and self.seeds < FEWEST:
            raise InputError(f"seeds={self.seeds} should be at least {FEWEST}: an interval needs a spread.")
        object.__setattr__(self, "variants", tuple(v for v in VARIANTS if v in self.variants) or VARIANTS)

    def count(self, full: int, quick: int) -> int:
        """The number of seeds: as asked, or the experiment's own."""
        return self.seeds if self.seeds is not None else (quick if self.quick else full)

    def size(self, full: Any, quick: Any) -> Any:
        """Whichever of the two is meant."""
        return quick if self.quick else full


@cache
def checkout() -> str:
    """The commit, and a hash of what was changed since: results of other code are not read. Empty without Git."""
    here = Path(__file__).parent
    asked = (["rev-parse", "HEAD"], ["diff", "HEAD"])
    try:
        found = [subprocess.run(["git", *words], cwd=here, capture_output=True, check=True).stdout for words in asked]
    except (OSError, subprocess.CalledProcessError):
        return ""
    return f"{found[0].decode().strip()} {hashlib.sha256(found[1]).hexdigest()}"


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


# What is smaller in a quick run than in the real one, besides seeds and draws.


def sized(setting: GridSetting, quick: bool) -> GridSetting:
    """The setting itself, or with the `median` rule for `loto`, whose search takes longer than all the rest."""
    return replace(setting, bandwidth="median") if quick and setting.bandwidth == "loto" else setting
