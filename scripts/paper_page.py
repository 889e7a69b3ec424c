"""Put the ledger and the figures of a full reproduction into docs/paper.md: python scripts/paper_page.py DIR"""

import sys
from pathlib import Path

from matplotlib import image
from matplotlib.figure import Figure

from kdbirl.experiments.ledger import FILE, VARIANTS, Claim, read_ledger
from kdbirl.files import whole_or_not_at_all, write_text

DOCS = Path(__file__).resolve().parents[1] / "docs"
FIGURES = ("fig1", "fig2", "fig3", "fig4", "fig5", "timing", "limits")
DOTS_PER_INCH = 110


def table(claims: list[Claim]) -> str:
    """One line for each claim, a column for each variant."""
    lines = [f"| claim | statistic | {' | '.join(VARIANTS)} |", "|---" * (2 + len(VARIANTS)) + "|"]
    for experiment, name in dict.fromkeys((claim.experiment, claim.name) for claim in claims):
        own = {claim.variant: claim for claim in claims if (claim.experiment, claim.name) == (experiment, name)}
        first = next(iter(own.values()))
        cells = [_cell(own[variant]) if variant in own else "" for variant in VARIANTS]
        lines.append(f"| {experiment}: {_plain(first.claim)} | {_plain(first.statistic)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(claim: Claim) -> str:
    return f"**{claim.verdict}**, {claim.number:.3g} [{claim.low:.3g}, {claim.high:.3g}]"


def _plain(text: str) -> str:
    return text.replace("|", "\\|").replace("*", "\\*")


def pictures(names: list[str]) -> str:
    """A line for each picture; `fig1-ours.png` is shown to those who do not see it as "Figure 1, ours"."""
    titles = [Path(name).stem.replace("fig", "Figure ").replace("-", ", ").capitalize() for name in names]
    return "\n".join(f"![{title}](images/{name})" for title, name in zip(titles, names, strict=True))


def between(text: str, mark: str, inside: str) -> str:
    """The page with `inside` between `<!-- mark -->` and the next `<!-- end of ... -->`."""
    before, rest = text.split(f"<!-- {mark} -->\n")
    return f"{before}<!-- {mark} -->\n{inside}\n{rest[rest.index('<!-- end of ') :]}"


def small_copy(source: Path, target: Path) -> None:
    """The same picture with fewer dots, for the page in the repository."""
    pixels = image.imread(source)
    figure = Figure(figsize=(pixels.shape[1] / 200, pixels.shape[0] / 200))
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.imshow(pixels, interpolation="lanczos", aspect="auto")
    axes.set_axis_off()
    with whole_or_not_at_all(target) as unfinished:
        figure.savefig(unfinished, format="png", dpi=DOTS_PER_INCH, metadata={"Software": None})


def main(directory: Path) -> None:
    """Rewrite what stands between the marks, and the pictures."""
    page = DOCS / "paper.md"
    text = between(page.read_text(encoding="utf-8"), "ledger", table(read_ledger(directory / FILE)))
    for name in FIGURES:
        found = sorted((directory / name).glob("*.png"))
        for picture in found:
            small_copy(picture, DOCS / "images" / picture.name)
        if found:
            text = between(text, f"pictures: {name}", pictures([picture.name for picture in found]))
    write_text(page, text)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
