"""`index.html` of a reproduction: figures, ledger and commands in one file that opens from disk. It looks as reports.

It is made from what stands in the directory, the manifests and the ledger, so that parts which were run one after the
other stand on one page.
"""

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kdbirl.experiments.ledger import FILE, VARIANTS, VERDICTS, Claim, read_ledger
from kdbirl.files import write_text
from kdbirl.limits import JSON_BYTES
from kdbirl.reading import opened, read_json
from kdbirl.report.page import elements
from kdbirl.report.page.command import command_of
from kdbirl.report.page.shell import Section, page

PAGE = "index.html"
EXPECTED = "expected what kdbirl reproduce wrote; move it away, or choose another directory"
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
    return command_of(given, f"reproduce {name}", "reproduction")


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
