"""`python -m paper`: the paper, run again, and what holds of it."""

import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import typer

from kdbirl.cli import main
from kdbirl.cli.terminal import Verb, at_home, example, say
from kdbirl.errors import InputError, did_you_mean
from kdbirl.evaluation.cells import CellStore
from kdbirl.progress import Progress
from kdbirl.worlds import icu_sepsis
from paper import bandwidths, fig1, fig2, fig3, fig4, fig5, limits, theory, timing
from paper.experiment import Experiment, Part, Request
from paper.theory import claims


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
    from kdbirl.progress import for_stream
    from kdbirl.report.run import as_json as json_text
    from kdbirl.store import interruptible, sole_user
    from paper.claims import claims_text
    from paper.directory import Reproduction, write_page
    from paper.experiment import Request
    from paper.ledger import VARIANTS

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


# The experiments by name, in the order in which `all` runs them.


def measure_contraction(request: Request, store: CellStore, progress: Progress) -> Part:
    """Lemma 4.1 and Theorem 4.2; both variants of the ledger come from one run."""
    from paper.theory_plots import plot_ckde_convergence, plot_contraction_draws, plot_posterior_contraction

    spec = request.size(theory.FULL, theory.QUICK)
    spec = spec if request.seeds is None else replace(spec, seeds=request.seeds)
    numbers = theory.run(spec, store, progress)
    figures = {
        "lemma-4.1": plot_ckde_convergence(numbers["lemma_4_1"]),
        "theorem-4.2": plot_posterior_contraction(numbers["theorem_4_2"]),
        "theorem-4.2-draws": plot_contraction_draws(numbers["theorem_4_2"], numbers["configuration"]["world"]),
    }
    return Part(theory.NAME, numbers, spec.seeds, claims(numbers), figures)


def measure_bandwidths(request: Request, store: CellStore, progress: Progress) -> Part:
    """Every bandwidth rule on tasks with known rewards: coverage, log density at the truth, EVD."""
    from paper.bandwidths import plot_bandwidth_rules

    study = request.size(bandwidths.FULL, bandwidths.QUICK)
    study = study if request.seeds is None else replace(study, banks=request.seeds)
    rows = study.run(store, progress)
    table, name = bandwidths.summary(rows), bandwidths.NAME
    numbers = {"experiment": name, "configuration": asdict(study), "summary": table, "rows": rows}
    figures = {measure: plot_bandwidth_rules(table, measure) for measure in ("coverage", "bounded")}
    found = bandwidths.claims(rows, request.quick)
    return Part(name, numbers, study.banks, found, figures, {name: table})


ALL = (
    fig1.EXPERIMENT,
    fig2.EXPERIMENT,
    fig3.EXPERIMENT,
    fig4.EXPERIMENT,
    fig5.EXPERIMENT,
    Experiment(theory.NAME, "Lemma 4.1 and Theorem 4.2", {"": measure_contraction}),
    Experiment(
        bandwidths.NAME,
        "Which bandwidth rule can be trusted",
        {"": measure_bandwidths},
        needs=(icu_sepsis.assets,),
    ),
    limits.EXPERIMENT,
    timing.EXPERIMENT,
)
EXPERIMENTS: dict[str, Experiment] = {experiment.name: experiment for experiment in ALL}


def chosen(names: Sequence[str]) -> list[Experiment]:
    """The experiments that were asked for, each once; `all` is every one."""
    for name in names:
        if name not in EXPERIMENTS and name != "all":
            raise InputError(f"There is no experiment called {name!r}.{did_you_mean(name, [*EXPERIMENTS, 'all'])}")
    return [EXPERIMENTS[name] for name in (EXPERIMENTS if "all" in names else dict.fromkeys(names))]


app = typer.Typer(
    name="python -m paper", pretty_exceptions_enable=False, context_settings={"help_option_names": ["-h", "--help"]}
)
app.command(cls=Verb, epilog=example("python -m paper contraction --quick --out reproduction"))(reproduce)

if __name__ == "__main__":
    main(commands=app)
