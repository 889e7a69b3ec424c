"""`kdbirl evaluate`: how good is the posterior of a run, in the world that its demonstrations came from?"""

import sys
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer


def evaluate(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The run directory that kdbirl fit made.")],
    world: Annotated[
        Path, typer.Option(metavar="FILE", help="world.json of kdbirl demos, or the directory that holds it.")
    ],
    true_reward: Annotated[
        str | None,
        typer.Option(metavar="NUMBERS", help="Another true reward than the file's: 0,0,0,1 or 'cell 3=1'."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an evaluation.json that is there.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")] = False,
) -> None:
    """The expected value difference of a run: what is lost by acting on its posterior, beside its prior."""
    from kdbirl.envs.reward_text import parse_reward
    from kdbirl.envs.world_file import read_world
    from kdbirl.evaluation.judgement import judge
    from kdbirl.files import write_text
    from kdbirl.installation import package_versions
    from kdbirl.posterior.storage import load_posterior
    from kdbirl.progress import for_stream
    from kdbirl.report.evaluation_text import evaluation_text
    from kdbirl.report.html import renew_report
    from kdbirl.report.run_directory import as_json as json_text

    target = _target(run.expanduser(), force)
    record = read_world(world.expanduser())
    mdp = record.world()
    truth = mdp.as_rewards(record.true_reward)[0] if true_reward is None else parse_reward(true_reward, mdp)
    posterior = load_posterior(target.with_name("posterior.nc"))
    with closing(for_stream(sys.stderr, quiet or as_json)) as progress:
        judgement = judge(posterior, mdp, truth, progress)
    content = {
        "run": str(run),
        "world": str(world),
        "env": record.env,
        "discount": record.discount,
        "planning_horizon": record.planning_horizon,
        "true_reward": dict(zip(mdp.feature_names, truth.tolist(), strict=True)),
        "seed": posterior.seed,
        **judgement.to_dict(),
        "versions": package_versions(),
    }
    write_text(target, json_text(content))
    renew_report(target.parent)
    if as_json and not quiet:
        typer.echo(json_text(content | {"file": str(target)}), nl=False)
    elif not quiet:
        typer.echo(f"{evaluation_text(judgement, record.env, record.discount)}\n\nAll numbers are in {target}.")


def _target(run: Path, force: bool) -> Path:
    """Where the evaluation goes; said before the work, not after it."""
    from kdbirl.errors import FileProblem

    if not run.is_dir():
        what = "is a file" if run.exists() else "does not exist"
        raise FileProblem(f"{run} {what}; give the run directory that kdbirl fit made.")
    if not (run / "posterior.nc").is_file():
        raise FileProblem(f"{run} has no posterior.nc; give the run directory that kdbirl fit made.")
    target = run / "evaluation.json"
    if target.exists() and not force:
        raise FileProblem(f"{target} already exists; --force replaces it.")
    return target
