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
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kdbirl.archive import opened, read_json, write_figure, write_text
from kdbirl.data.csv_text import guarded
from kdbirl.errors import JSON_BYTES, FileProblem
from kdbirl.evaluation.cells import CellStore
from kdbirl.installation import is_writable, package_versions
from kdbirl.report.page import elements
from kdbirl.report.page.shell import Section, command_of, page
from kdbirl.report.run import as_json
from paper.experiment import Experiment, Part, Row, checkout
from paper.ledger import FILE, VARIANTS, VERDICTS, Claim, read_ledger, update_ledger


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


# `index.html` of a reproduction: figures, ledger and commands in one file that opens from disk. It looks as reports.
#
# It is made from what stands in the directory, the manifests and the ledger, so that parts which were run one after the
# other stand on one page.

PAGE = "index.html"
EXPECTED = "expected what python -m paper wrote; move it away, or choose another directory"
LEAD = (
    "KD-BIRL: Kernel Density Bayesian Inverse Reinforcement Learning (TMLR 2024). Each claim is decided by one number "
    "a seed: its mean, its 95 % interval over seeds, and the line that it must cross. Variants: printed, as the text "
    "says; released, as the authors' scripts do it; ours."
)
_COLOURS: dict[str, str] = dict(zip(VERDICTS, ("green", "red", "amber", "not assessed"), strict=True))


def write_page(directory: Path, order: Sequence[str]) -> Path:
    """Make the page of a reproduction; experiments in the order given."""
    write_text(directory / PAGE, page_text(directory, order))
    return directory / PAGE


def page_text(directory: Path, order: Sequence[str]) -> str:
    """The page. Everything that came from files is escaped."""
    claims = read_ledger(directory / FILE)
    found = [_section(directory / name, name, claims) for name in order]
    sections = [Section("claims", "All claims", _counts(claims)), *(part for part in found if part is not None)]
    return page("The paper, reproduced", sections, LEAD)


def _counts(claims: Sequence[Claim]) -> str:
    """How many claims hold, in each variant."""
    lines = []
    for variant in dict.fromkeys(claim.variant for claim in claims):
        own = [claim.verdict for claim in claims if claim.variant == variant]
        lines.append((variant, *(own.count(verdict) for verdict in VERDICTS)))
    return elements.table(["variant", *VERDICTS], lines, "Claims by verdict")


def _section(folder: Path, name: str, claims: Sequence[Claim]) -> Section | None:
    """One experiment: its command, figures and claims; None where it was not run."""
    manifests = [read_json(path, EXPECTED) for path in sorted(folder.glob("manifest*.json"))]
    if not manifests:
        return None
    own = [claim for claim in claims if claim.experiment == name]
    body = elements.code(_command(name, manifests)) + elements.paragraph(_made(manifests), "note")
    body += "".join(_figures(folder, manifest) for manifest in manifests) + _ledger(own)
    return Section(_identifier(name), str(manifests[0].get("title", name)), body)


def _identifier(name: str) -> str:
    return "experiment-" + re.sub(r"[^a-z0-9]+", "-", name.casefold()).strip("-")


def _command(name: str, manifests: Sequence[Mapping[str, Any]]) -> str:
    """What repeats these parts: variants where not all are here, and the number of seeds where they agree."""
    parts = {str(manifest.get("part", name)).removeprefix(name).strip("-") for manifest in manifests}
    variants = [variant for variant in VARIANTS if variant in parts]
    counts = _seeds(manifests)
    given = {
        "variant": variants if variants and len(variants) < len(VARIANTS) else None,
        "quick": any(_is_quick(manifest) for manifest in manifests),
        "seeds": counts.pop() if len(counts) == 1 else None,
    }
    return command_of(given, f"python -m paper {name}", "reproduction")


def _seeds(manifests: Sequence[Mapping[str, Any]]) -> set[int]:
    """How many seeds the parts have; a manifest is a file, and may hold anything."""
    listed = [manifest.get("seeds") for manifest in manifests]
    return {len(seeds) for seeds in listed if isinstance(seeds, list)}


def _is_quick(manifest: Mapping[str, Any]) -> bool:
    configuration = manifest.get("configuration")
    return bool(configuration.get("quick")) if isinstance(configuration, Mapping) else False


def _seconds(manifest: Mapping[str, Any]) -> float:
    timings = manifest.get("timings")
    seconds = timings.get("seconds", 0.0) if isinstance(timings, Mapping) else 0.0
    return seconds if isinstance(seconds, float) and math.isfinite(seconds) else 0.0


def _made(manifests: Sequence[Mapping[str, Any]]) -> str:
    """When, with how many seeds, and how long it took."""
    counts, seconds = sorted(_seeds(manifests)), sum(map(_seconds, manifests))
    written = max(str(manifest.get("written", "")) for manifest in manifests)[:10]
    texts = (f"{' or '.join(map(str, counts))} seeds", f"{seconds:.0f} s" if seconds else "", written)
    return ", ".join(text for text in texts if text) + "."


def _figures(folder: Path, manifest: Mapping[str, Any]) -> str:
    captions, outputs = manifest.get("captions"), manifest.get("outputs")
    captions = captions if isinstance(captions, Mapping) else {}
    # of this folder, whatever a manifest says
    paths = [folder / Path(file).name for file in (outputs if isinstance(outputs, Mapping) else ())]
    there = [path for path in paths if path.suffix == ".png" and path.is_file()]
    return "".join(elements.png(_bytes(path), str(captions.get(path.stem, path.stem))) for path in there)


def _bytes(path: Path) -> bytes:
    with opened(path, EXPECTED, JSON_BYTES) as stream:
        return stream.read()


def _ledger(claims: Sequence[Claim]) -> str:
    return f'<div class="cards">{"".join(map(_card, claims))}</div>' if claims else ""


def _card(claim: Claim) -> str:
    """What is claimed, the verdict, the number that decided it, and why."""
    colour = _COLOURS[claim.verdict]
    interval = "" if math.isnan(claim.low) else f" [{claim.low:.3g}, {claim.high:.3g}]"
    facts = f"{claim.variant}: {claim.number:.3g}{interval}, {claim.seeds} seeds; {claim.statistic}"
    texts = ((_sentence(facts), ""), (_sentence(claim.why), ""), (claim.where, "note"))
    body = "".join(elements.paragraph(text, kind) for text, kind in texts if text)
    head = f"<h3>{elements.isolated(claim.claim)} {elements.badge(colour, claim.verdict)}</h3>"
    return f'<article class="card claim {colour.replace(" ", "-")}">{head}{body}</article>'


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + ("." if text and text[-1] not in ".!?" else "")
