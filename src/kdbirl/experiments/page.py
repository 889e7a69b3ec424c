"""`index.html` of a reproduction: figures, ledger and commands in one file that opens from disk.

It is made from what stands in the directory, the manifests and the ledger, so that parts which were run one after the
other stand on one page.
"""

import base64
import html
import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from kdbirl.experiments.ledger import FILE, VERDICTS, Claim, read_ledger
from kdbirl.files import write_text

PAGE = "index.html"
_CLASSES = dict(zip(VERDICTS, ("green", "red", "amber", "grey"), strict=True))
_STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; }
h2 { margin-top: 2.5rem; border-bottom: 1px solid #8886; }
table { border-collapse: collapse; font-size: .85rem; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .6rem; text-align: left; vertical-align: top; border-bottom: 1px solid #8884; }
td.number { white-space: nowrap; }
img { max-width: 100%; height: auto; background: #fff; }
figure { margin: 1.5rem 0; } figcaption { font-size: .9rem; opacity: .85; max-width: 60rem; }
.scroll { overflow-x: auto; }
.verdict { white-space: nowrap; font-weight: 600; border-left: .35rem solid #888; padding-left: .4rem; }
.green { border-color: #2e7d32; } .amber { border-color: #b26a00; } .red { border-color: #c62828; }
code { background: #8882; padding: .1rem .3rem; border-radius: .2rem; }
"""


def write_page(directory: Path, order: Sequence[str]) -> Path:
    """Make the page of a reproduction; experiments in the order given."""
    write_text(directory / PAGE, page_text(directory, order))
    return directory / PAGE


def page_text(directory: Path, order: Sequence[str]) -> str:
    """The page. Everything that came from files is escaped."""
    claims = read_ledger(directory / FILE)
    body = [
        "<h1>The paper, reproduced</h1>",
        "<p>KD-BIRL: Kernel Density Bayesian Inverse Reinforcement Learning (TMLR 2024). Each claim is decided by one "
        "number a seed: its mean, its 95 % interval over seeds, and the line that it must cross. Variants: "
        "<b>printed</b>, as the text says; <b>released</b>, as the authors' scripts do it; <b>ours</b>.</p>",
        _counts(claims),
        *(section for name in order for section in _section(directory / name, name, claims)),
    ]
    head = '<meta charset="utf-8"><meta name="viewport" content="width=device-width">'
    title = "<title>KD-BIRL, reproduced</title>"
    start = f'<!doctype html>\n<html lang="en"><head>{head}{title}<style>{_STYLE}</style></head>\n<body>'
    return "\n".join([start, *body, "</body></html>", ""])


def _counts(claims: Sequence[Claim]) -> str:
    """How many claims hold, in each variant."""
    variants = dict.fromkeys(claim.variant for claim in claims)
    head = "".join(f'<th scope="col">{html.escape(verdict)}</th>' for verdict in VERDICTS)
    lines = [f'<tr><th scope="col">variant</th>{head}</tr>']
    for variant in variants:
        own = [claim.verdict for claim in claims if claim.variant == variant]
        cells = "".join(f"<td>{own.count(verdict)}</td>" for verdict in VERDICTS)
        lines.append(f'<tr><th scope="row">{html.escape(variant)}</th>{cells}</tr>')
    return f"<table>{''.join(lines)}</table>"


def _section(folder: Path, name: str, claims: Sequence[Claim]) -> Iterator[str]:
    """One experiment: its command, figures and claims; nothing where it was not run."""
    manifests = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("manifest*.json"))]
    own = [claim for claim in claims if claim.experiment == name]
    if not manifests:
        return
    yield f"<h2>{html.escape(str(manifests[0].get('title', name)))}</h2>"
    yield f"<p><code>kdbirl reproduce {html.escape(name)}</code>, {_seeds(manifests)}</p>"
    for manifest in manifests:
        yield from _figures(folder, manifest)
    yield _ledger(own)


def _seeds(manifests: Sequence[dict[str, Any]]) -> str:
    counts = sorted({len(manifest["seeds"]) for manifest in manifests})
    return f"{' or '.join(str(count) for count in counts)} seeds"


def _figures(folder: Path, manifest: dict[str, Any]) -> Iterator[str]:
    captions = manifest.get("captions", {})
    for file in manifest["outputs"]:
        path = folder / file
        if path.suffix == ".png" and path.is_file():
            words = html.escape(captions.get(path.stem, path.stem))
            data = base64.b64encode(path.read_bytes()).decode()
            image = f'<img alt="{words}" src="data:image/png;base64,{data}">'
            yield f"<figure>{image}<figcaption>{words}</figcaption></figure>"


def _ledger(claims: Sequence[Claim]) -> str:
    names = ("claim", "where", "variant", "verdict", "number [95 %]", "seeds", "statistic", "why")
    head = "".join(f'<th scope="col">{name}</th>' for name in names)
    return f'<div class="scroll"><table><tr>{head}</tr>{"".join(map(_row, claims))}</table></div>'


def _row(claim: Claim) -> str:
    interval = "" if math.isnan(claim.low) else f" [{claim.low:.3g}, {claim.high:.3g}]"
    verdict = f'<span class="verdict {_CLASSES[claim.verdict]}">{html.escape(claim.verdict)}</span>'  # type: ignore[index]
    words = (html.escape(text) for text in (claim.claim, claim.where, claim.variant))
    cells = [*words, verdict, f"{claim.number:.3g}{interval}", str(claim.seeds)]
    cells += [html.escape(claim.statistic), html.escape(claim.why)]
    return "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"
