"""Put a full reproduction into the documentation: python scripts/paper_page.py DIR

docs/paper.md has its ledger (and docs/claims.csv the file itself), and figures; docs/sepsis.md the table of EVD
against n, from `fig4 --variant ours`.
"""

import csv
import shutil
import sys
from pathlib import Path

import numpy as np
from matplotlib import image
from matplotlib.figure import Figure
from paper.claims import Interval
from paper.ledger import FILE, VARIANTS, Claim, read_ledger
from paper.patient_worlds import SETTINGS

from kdbirl.archive import whole_or_not_at_all, write_text

DOCS = Path(__file__).resolve().parents[1] / "docs"
FIGURES = ("fig1", "fig2", "fig3", "fig4", "fig5", "contraction", "timing", "limits")
DOTS_PER_INCH = 110
WORLDS = {"sepsis": "SepsisSim", "icu-sepsis": "ICUSepsis"}
RATIO_AT = 100  # expert rows


def table(claims: list[Claim]) -> str:
    """One line for each claim, a column for each variant."""
    lines = [f"| claim | statistic | {' | '.join(VARIANTS)} |", "|---" * (2 + len(VARIANTS)) + "|"]
    for experiment, name in dict.fromkeys((claim.experiment, claim.name) for claim in claims):
        own = {claim.variant: claim for claim in claims if (claim.experiment, claim.name) == (experiment, name)}
        first = next(iter(own.values()))
        cells = [_cell(own[variant]) if variant in own else "" for variant in VARIANTS]
        words = f"{experiment}, `{name}`: {_plain(first.claim)}"
        lines.append(f"| {words} | {_plain(first.statistic)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(claim: Claim) -> str:
    return f"**{claim.verdict}**, {claim.number:.3g} [{claim.low:.3g}, {claim.high:.3g}]"


def _plain(text: str) -> str:
    return text.replace("|", "\\|").replace("*", "\\*")


def pictures(names: list[str]) -> str:
    """A line for each picture; `fig1-ours.png` is shown to those who do not see it as "Figure 1, ours"."""
    titles = [Path(name).stem.replace("fig", "Figure ").replace("-", ", ").capitalize() for name in names]
    return "\n".join(f"![{title}](images/{name})" for title, name in zip(titles, names, strict=True))


def evd_table(rows: list[dict[str, str]], stars: list[list[float]]) -> str:
    """KD-BIRL's EVD and its standard error by world, w* and n, the prior's, and the ratio of the two at n = 100."""
    sizes = sorted({int(row["n"]) for row in rows})
    head = [f"n = {sizes[0]}", *(f"{n:,}" for n in sizes[1:])]
    lines, ratios = [f"| w* | prior | {' | '.join(head)} |", "|---|" + "---:|" * (len(sizes) + 1)], []
    for world, title in WORLDS.items():
        found, prior = (_by_star(rows, world, sizes, name) for name in ("evd", "prior_evd"))
        lines.append(f"| **`{title}`** |{' |' * (len(sizes) + 1)}")
        for star, own in enumerate(found):
            weights = ", ".join(f"{value:.2f}" for value in stars[star])
            lines.append(f"| {weights} | {prior[star].mean():.2f} | {_with_errors(own)} |")
        lines.append(f"| all four | {prior.mean():.2f} | {_with_errors(found.mean(axis=0))} |")
        at = sizes.index(RATIO_AT)
        ratio = Interval.of(found[:, :, at].mean(axis=0) / prior[:, :, at].mean(axis=0))
        ratios.append(
            f"{ratio.number:.3f} of the prior's in `{title}` (95 % interval {ratio.low:.3f} to {ratio.high:.3f})"
        )
    return "\n".join([*lines, "", f"At n = {RATIO_AT} the EVD is {' and '.join(ratios)}."])


def _by_star(rows: list[dict[str, str]], world: str, sizes: list[int], name: str) -> np.ndarray:
    """stars by repeats by n."""
    own = [row for row in rows if (row["world"], row["method"]) == (world, "kdbirl")]
    value = {(int(row["star"]), int(row["seed"]), int(row["n"])): float(row[name]) for row in own}
    stars, seeds = ({key[axis] for key in value} for axis in (0, 1))
    return np.array([[[value[star, seed, n] for n in sizes] for seed in sorted(seeds)] for star in sorted(stars)])


def _with_errors(values: np.ndarray) -> str:
    errors = values.std(axis=0, ddof=1) / np.sqrt(len(values))
    return " | ".join(f"{mean:.3f} ± {error:.3f}" for mean, error in zip(values.mean(axis=0), errors, strict=True))


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
    page, sepsis = DOCS / "paper.md", DOCS / "sepsis.md"
    text = between(page.read_text(encoding="utf-8"), "ledger", table(read_ledger(directory / FILE)))
    shutil.copyfile(directory / FILE, DOCS / FILE)
    for name in FIGURES:
        found = sorted((directory / name).glob("*.png"))
        for picture in found:
            small_copy(picture, DOCS / "images" / picture.name)
        if found:
            text = between(text, f"pictures: {name}", pictures([picture.name for picture in found]))
    write_text(page, text)
    ours = directory / "fig4" / "fig4-ours.csv"
    if ours.is_file():
        with ours.open(encoding="utf-8", newline="") as stream:
            made = evd_table(list(csv.DictReader(stream)), SETTINGS["ours"].stars().tolist())
        write_text(sepsis, between(sepsis.read_text(encoding="utf-8"), "table: evd", made))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
