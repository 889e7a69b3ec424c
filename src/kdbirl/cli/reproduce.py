"""`kdbirl reproduce`: the paper, run again, and what holds of it."""

import sys
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from kdbirl.cli.saying import at_home, say


def reproduce(
    experiments: Annotated[
        list[str],
        typer.Argument(
            metavar="EXPERIMENT...",
            help=(
                "fig1 (2x2 grid) | fig2 (10x10, two weights) | fig3 (5x5) | fig4, fig5 (sepsis) | contraction (Lemma "
                "4.1, Theorem 4.2) | bandwidths (every rule, on tasks left out) | limits (the paper's limitations) | "
                "timing | all"
            ),
        ),
    ],
    variant: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="printed (the text) | released (the authors' scripts) | ours; not given: all."
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Small sizes and few seeds, a few minutes; decides no claim.")
    ] = False,
    seeds: Annotated[
        int | None,
        typer.Option(metavar="N", help="Seeds; fewer than 10 decide no claim. Not given: 10 to 20, quick 2 or 3."),
    ] = None,
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="Directory to make, or one of an earlier run to go on with.")
    ] = Path("reproduction"),
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")] = False,
) -> None:
    """Run experiments of the paper: figures, tables, one page, and a ledger that says which claims hold."""
    from kdbirl.experiments.claims_text import claims_text
    from kdbirl.experiments.directory import Reproduction
    from kdbirl.experiments.ledger import VARIANTS
    from kdbirl.experiments.named import EXPERIMENTS, chosen
    from kdbirl.experiments.page import write_page
    from kdbirl.experiments.request import Request
    from kdbirl.progress import for_stream
    from kdbirl.report.run_directory import as_json as json_text
    from kdbirl.unfinished import interruptible, sole_user

    request = Request(quick, seeds, tuple(variant or VARIANTS))
    asked, place = chosen(experiments), Reproduction(at_home(out))
    claims, files = [], []
    for experiment in asked:
        experiment.check()
    place.path.mkdir(exist_ok=True)
    with sole_user(place.path, below=True), interruptible(str(out)):
        with closing(for_stream(sys.stderr, quiet or as_json)) as progress:
            for experiment in asked:
                found, written = experiment.reproduce(place, request, progress)
                claims += found
                files += [path for path in written if path not in files]
        files.append(write_page(place.path, list(EXPERIMENTS)))
    if as_json and not quiet:
        content = {"out": str(out), "files": [str(path) for path in files], "claims": [asdict(row) for row in claims]}
        say(json_text(content), nl=False)
    elif not quiet:
        listed = "\n".join(f"  {path}" for path in files)
        say(f"{claims_text(claims)}\n\nFiles:\n{listed}")
