"""`kdbirl evaluate`: how good is the posterior of a run, in the world that its demonstrations came from?"""

import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kdbirl.cli.terminal import at_home, say, telling

if TYPE_CHECKING:
    from kdbirl.posterior.result import Posterior
    from kdbirl.progress import Progress
    from kdbirl.worlds.sepsis.q_policy import ConditionedQ
    from kdbirl.worlds.tabular import World


def evaluate(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The run directory that kdbirl fit made.")],
    world: Annotated[
        Path, typer.Option(metavar="FILE", help="world.json of kdbirl demos, or the directory that holds it.")
    ],
    task: Annotated[
        str | None, typer.Option(metavar="NAME", help="Of a run of many test tasks (fit --expert-task): this one.")
    ] = None,
    true_reward: Annotated[
        str | None,
        typer.Option(metavar="NUMBERS", help="Another true reward than the file's: 0,0,0,1 or 'cell 3=1'."),
    ] = None,
    policy: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="In a simulator: the policy.npz of kdbirl demos; not given: the one beside world.json, else it is "
            "learnt, for minutes, and kept in RUN.",
        ),
    ] = None,
    episodes: Annotated[int, typer.Option(metavar="N", help="In a simulator: episodes that each draw plays.")] = 256,
    seed: Annotated[int, typer.Option(metavar="N", help="In a simulator: of the episodes, and of learning.")] = 0,
    scheduler: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS", help="A Dask scheduler, such as tcp://10.0.0.1:8786: its workers plan the draws."
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an evaluation.json that is there.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")] = False,
) -> None:
    """The expected value difference of a run: what is lost by acting on its posterior, beside its prior."""
    options = dict(locals())
    from kdbirl.archive import write_text
    from kdbirl.data.cluster import maybe_connected
    from kdbirl.evaluation.judgement import judge
    from kdbirl.installation import package_versions
    from kdbirl.posterior.result import load_posterior
    from kdbirl.progress import for_stream
    from kdbirl.report.html import write_report
    from kdbirl.report.run import as_json as json_text
    from kdbirl.report.run_files import recorded
    from kdbirl.report.tasks import run_of
    from kdbirl.report.terminal import evaluation_text
    from kdbirl.store import request_of, resumable, sole_user
    from kdbirl.worlds.named import parse_reward, read_world
    from kdbirl.worlds.tabular_arrays import as_rewards

    run = run_of(at_home(run), task)
    target = _target(run, force)
    record = read_world(at_home(world))
    mdp, names = record.world(), record.reward_parameters
    truth = as_rewards(record.true_reward, names)[0] if true_reward is None else parse_reward(true_reward, mdp)
    tell = telling(quiet or as_json)
    with sole_user(target.parent), resumable(target.with_suffix(""), request_of(options), tell):
        posterior = load_posterior(target.with_name("posterior.nc"))
        showing = closing(for_stream(sys.stderr, quiet or as_json))
        with showing as progress, maybe_connected(scheduler, progress) as cluster:
            planner = _planner(mdp, posterior, truth, policy, at_home(world), target.parent, seed, progress)
            judgement = judge(posterior, mdp, truth, progress, planner, episodes, seed, cluster)
        content = {
            "run": str(run),
            "world": str(world),
            "env": record.env,
            "discount": record.discount,
            "planning_horizon": record.planning_horizon,
            "true_reward": dict(zip(names, truth.tolist(), strict=True)),
            "seed": posterior.seed,
            **judgement.to_dict(),
            "versions": package_versions(),
        }
        with recorded(target.parent, [target]):
            write_text(target, json_text(content))
        write_report(target.parent)
    if as_json and not quiet:
        say(json_text(content | {"file": str(target)}), nl=False)
    elif not quiet:
        say(f"{evaluation_text(judgement, record.env, record.discount)}\n\nAll numbers are in {target}.")


def _planner(
    world: "World",
    posterior: "Posterior",
    truth: Any,
    given: Path | None,
    beside: Path,
    run: Path,
    seed: int,
    progress: "Progress",
) -> "ConditionedQ | None":
    """In a simulator the policies of all rewards: from a file, or learnt and kept in the run; a table needs none."""
    from kdbirl.errors import InputError
    from kdbirl.worlds.tabular import TabularMDP

    if isinstance(world, TabularMDP):
        if given is not None:
            raise InputError("--policy is for simulators, such as sepsis; the policies of this world are exact.")
        return None
    import numpy as np

    from kdbirl.evaluation.judgement import names_note
    from kdbirl.worlds.sepsis.deep_q import policies_of
    from kdbirl.worlds.simulator import Simulator

    assert isinstance(world, Simulator)
    names_note(posterior, world)  # a wrong number of parameters is said before minutes of learning
    folder = beside if beside.is_dir() else beside.parent
    kept = [path / "policy.npz" for path in (folder, run)]
    stored = given or next((path for path in kept if path.is_file()), None)
    policies = policies_of(world, np.vstack([truth[None], posterior.flat]), stored, seed, progress)
    if stored is None:
        policies.save(kept[-1])
    return policies


def _target(run: Path, force: bool) -> Path:
    """Where the evaluation goes; said before the work, not after it."""
    from kdbirl.errors import FileProblem
    from kdbirl.report.run_files import require_run

    if run.exists() and not run.is_dir():
        raise FileProblem(f"{run} is a file; give the run directory that kdbirl fit made.")
    require_run(run)
    target = run / "evaluation.json"
    if target.exists() and not force:
        raise FileProblem(f"{target} already exists; --force replaces it.")
    return target
