"""`kdbirl compare`: methods side by side on tasks whose reward is known to the judge alone."""

import sys
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kdbirl.cli.terminal import at_home, say

if TYPE_CHECKING:
    from kdbirl.evaluation.comparison import Comparison

ROWS, QUICK_ROWS = "10,100,1000", "10,100"
tested, trained, output = (
    partial(typer.Option, rich_help_panel=panel) for panel in ("Test tasks", "World and training tasks", "Output")
)


def compare(
    *,  # so that the options stand in the order in which they are explained, whether required or not
    env: Annotated[
        str, trained(metavar="WORLD", help="gridworld:2 | gridworld-xy:10 | icu-sepsis | as --env of kdbirl demos.")
    ],
    methods: Annotated[
        str,
        tested(
            metavar="NAMES",
            help="all, or some of: kdbirl, birl, birl-tuned, avril, avril-prior, avril-q, npe, maxent, cloning, prior; "
            "with commas between.",
        ),
    ] = "all",
    tasks: Annotated[int, tested(metavar="N", help="Test tasks of each seed.")] = 1,
    rows: Annotated[
        str | None,
        tested(metavar="NUMBERS", help=f"Rows of the expert, each in turn; not given: {ROWS}, quick {QUICK_ROWS}."),
    ] = None,
    seeds: Annotated[
        int | None, tested(metavar="N", help="Banks of training tasks, each with its test tasks. Else 10, quick 2.")
    ] = None,
    prior: Annotated[
        str | None,
        trained(
            metavar="PRIOR",
            help="Of all rewards; else uniform:0,1 for a reward per state, uniform:-1,1 for weights of features.",
        ),
    ] = None,
    discount: Annotated[float | None, trained(metavar="X", help="Of the world, as in kdbirl demos.")] = None,
    training_tasks: Annotated[
        int | None, trained(metavar="K", help="Training tasks of each seed. Not given: 40, quick 12.")
    ] = None,
    episodes: Annotated[int, trained(metavar="N", help="Episodes of each training task.")] = 20,
    horizon: Annotated[int, trained(metavar="N", help="Episodes are cut after N steps.")] = 20,
    draws: Annotated[int, output(metavar="N", help="Budget: draws of each posterior.")] = 1000,
    steps: Annotated[
        int | None, output(metavar="N", help="Budget: training steps of networks. Not given: 2000, quick 200.")
    ] = None,
    quick: Annotated[bool, output("--quick", help="Few tasks, seeds and steps: a look, no result.")] = False,
    out: Annotated[Path, output(metavar="DIR", help="Directory to make, or one of an earlier run to go on with.")],
    as_json: Annotated[bool, output("--json", help="Print one JSON object instead of text.")] = False,
    scheduler: Annotated[
        str | None,
        output(metavar="ADDRESS", help="A Dask scheduler, such as tcp://10.0.0.1:8786: a seed on each worker."),
    ] = None,
    quiet: Annotated[bool, output("--quiet", "-q", help="Print nothing but errors.")] = False,
) -> None:
    """Methods x test tasks x rows x seeds: a table of EVD, regret, log density, coverage and time, and a figure."""
    import time

    from kdbirl.data.cluster import maybe_connected
    from kdbirl.evaluation.comparison import Comparison
    from kdbirl.evaluation.comparison_table import summary, summary_text
    from kdbirl.evaluation.contenders import CONTENDERS, Budget
    from kdbirl.progress import for_stream
    from kdbirl.report.directories import ComparisonDirectory
    from kdbirl.report.run import as_json as json_text
    from kdbirl.store import interruptible, sole_user

    study = Comparison(
        env=env,
        methods=tuple(name.strip() for name in methods.split(",") if name.strip()),
        tasks=tasks,
        rows=_numbers(rows or (QUICK_ROWS if quick else ROWS)),
        seeds=seeds if seeds is not None else 2 if quick else 10,
        training_tasks=training_tasks if training_tasks is not None else 12 if quick else 40,
        episodes=episodes,
        horizon=horizon,
        discount=discount,
        prior=prior,
        budget=Budget(draws=draws, steps=steps if steps is not None else 200 if quick else 2000),
    )
    place = ComparisonDirectory(at_home(out), env)
    _check(study)
    start = time.perf_counter()
    place.path.mkdir(exist_ok=True)
    with sole_user(place.path, below=True), interruptible(f"{out}/cells"):
        showing = closing(for_stream(sys.stderr, quiet or as_json))
        with showing as progress, maybe_connected(scheduler, progress) as cluster:
            found = study.run(place.cells, progress, cluster)
        table = summary(found)
        files = place.write(study, found, table, time.perf_counter() - start)
    if as_json and not quiet:
        content = {"out": str(out), "files": [str(path) for path in files], "summary": table}
        say(json_text(content | {"configuration": study.configuration()}), nl=False)
    elif not quiet:
        title = f"{env}: means over {seeds_text(study.seeds)} ± standard errors"
        labels = {name: one.label for name, one in CONTENDERS.items()}
        listed = "\n".join(f"  {path}" for path in files)
        say(f"{summary_text(table, labels, title)}\n\nFiles:\n{listed}")


def seeds_text(count: int) -> str:
    """In words."""
    return "1 seed" if count == 1 else f"{count} seeds"


def _check(study: "Comparison") -> None:
    """The world and the prior by their names, before any work."""
    _ = study.world, study.reward_prior


def _numbers(text: str) -> tuple[int, ...]:
    """Whole numbers, separated by commas."""
    from kdbirl.errors import InputError, quoted

    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and len(part) < 19 and int(part) >= 1 for part in parts):  # of int64
        raise InputError(
            f"--rows {quoted(text)} should be whole numbers of at least 1 with commas between, such as 10,100."
        )
    return tuple(int(part) for part in parts)
