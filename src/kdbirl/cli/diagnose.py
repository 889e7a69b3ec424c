"""`kdbirl diagnose`: can the posterior of a run be trusted?"""

import sys
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from kdbirl.cli.terminal import at_home, say, telling


def diagnose(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The run directory that kdbirl fit made.")],
    task: Annotated[
        str | None, typer.Option(metavar="NAME", help="Of a run of many test tasks (fit --expert-task): this one.")
    ] = None,
    calibrate: Annotated[
        bool, typer.Option("--calibrate", help="Leave out each training task in turn: do intervals hold the truth?")
    ] = False,
    sensitivity: Annotated[
        bool, typer.Option("--sensitivity", help="Halve and double the bandwidths, the power and the prior's width.")
    ] = False,
    plan: Annotated[bool, typer.Option("--plan", help="What would more tasks, or more rows, give?")] = False,
    world: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="world.json of kdbirl demos: also look at the policies that draws lead to."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")] = False,
) -> None:
    """Can this posterior be trusted? What the tasks inform, where the expert goes, what held-out tasks say."""
    options = dict(locals())
    from kdbirl.evaluation.diagnose import diagnose as judged
    from kdbirl.methods.kdbirl import load_model
    from kdbirl.posterior.result import load_posterior
    from kdbirl.progress import for_stream
    from kdbirl.report.directories import DIAGNOSIS, diagnosis_json, free_place, write_diagnosis
    from kdbirl.report.html import write_report
    from kdbirl.report.tasks import run_of
    from kdbirl.report.terminal import diagnosis_text
    from kdbirl.store import request_of, resumable, sole_user
    from kdbirl.worlds.named import read_world

    run = run_of(at_home(run), task)
    place = free_place(run)
    mdp = None if world is None else read_world(at_home(world)).table()
    with sole_user(run), resumable(run / DIAGNOSIS, request_of(options), telling(quiet or as_json)):
        posterior, model = load_posterior(run / "posterior.nc"), load_model(run / "model.npz")
        with closing(for_stream(sys.stderr, quiet or as_json)) as progress:
            found = judged(model, posterior, calibrate, sensitivity, plan, mdp, progress)
        write_diagnosis(found, run, place)
        write_report(run)
    if as_json and not quiet:
        say(diagnosis_json(found, run), nl=False)
    elif not quiet:
        say(f"{diagnosis_text(found, sys.stdout.isatty())}\n\nFindings and figures are in {place}.")
