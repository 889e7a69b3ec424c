"""`kdbirl fit`: from tables to a posterior, in a run directory."""

import shutil
import sys
import time
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from kdbirl.cli.saying import at_home, say

tables, model_choices, sampling, output = (
    partial(typer.Option, rich_help_panel=panel) for panel in ("Tables", "Model", "Sampling", "Output")
)
Names = str  # separated by commas


def fit(
    *,  # so that the options stand in the order in which they are explained, whether required or not
    training: Annotated[
        str, tables(metavar="TABLE", help="Training demonstrations, a row per step: file, directory or 'pattern'.")
    ],
    rewards: Annotated[
        str | None,
        tables(
            metavar="TABLE",
            help="The known rewards, a row per training task. Not given: the training table has them, in --reward.",
        ),
    ] = None,
    expert: Annotated[str, tables(metavar="TABLE", help="Demonstrations of the new task.")],
    state: Annotated[Names, tables(metavar="NAMES", help="State columns, separated by commas.")],
    action: Annotated[Names | None, tables(metavar="NAMES", help="Action column, or columns.")] = None,
    task: Annotated[str, tables(metavar="NAME", help="Column of the task's name, in both tables.")] = "task",
    reward: Annotated[
        Names | None, tables(metavar="NAMES", help="Reward columns; not given: all of --rewards but the task's.")
    ] = None,
    episode: Annotated[str, tables(metavar="NAME", help="Column of the episode, if there is one.")] = "episode",
    step: Annotated[str, tables(metavar="NAME", help="Column that orders an episode, if any.")] = "step",
    expert_columns: Annotated[
        Names | None, tables(metavar="PAIRS", help="Other names in the expert table: x=pos_x,action=act")
    ] = None,
    expert_task: Annotated[
        str | None,
        tables(metavar="NAME", help="The expert table holds many new tasks: the column of each row's task."),
    ] = None,
    discrete_states: Annotated[
        bool, tables("--discrete-states", help="The state column holds labels, not a quantity.")
    ] = False,
    stream: Annotated[
        bool | None,
        tables(
            "--stream/--no-stream",
            help="Read the training table block by block, in bounded memory; a run that is killed goes on where it "
            "was. If not given: for Parquet files of more than 1 GiB.",
            show_default=False,
        ),
    ] = None,
    n_states: Annotated[int | None, tables(metavar="N", help="States are 0 to N - 1, no others.")] = None,
    n_actions: Annotated[int | None, tables(metavar="N", help="Actions are 0 to N - 1, no others.")] = None,
    actions: Annotated[Names | None, tables(metavar="NAMES", help="Actions are these labels, no others.")] = None,
    prior: Annotated[
        list[str],
        model_choices(
            metavar="PRIOR",
            help="uniform:low,high | normal:mean,sd | truncated-normal:mean,sd,low,high | beta:a,b,low,high | "
            "laplace:mean,scale. For one parameter: w_x=normal:0,1, and again for others.",
        ),
    ],
    features: Annotated[
        str,
        model_choices(
            metavar="MAP",
            help="standardize | identity | onehot | onehot-states | onehot-actions | columns:x,y | grid:5 | vae:3 | "
            "pca:3; several as grid:5+onehot-actions",
        ),
    ] = "standardize",
    bandwidth: Annotated[
        str | None,
        model_choices(
            metavar="RULE",
            help="loto | paper | silverman | scott | median | cv, or numbers h,h_reward. If not given: loto (leaves "
            "out each training task in turn), or median where the tasks are too few for it.",
        ),
    ] = None,
    kernel: Annotated[
        str, model_choices(metavar="NAME", help="gaussian | laplace | uniform | triangular | epanechnikov")
    ] = "gaussian",
    distance: Annotated[str, model_choices(metavar="NAME", help="euclidean | manhattan | cosine | dot")] = "euclidean",
    reward_kernel: Annotated[str, model_choices(metavar="NAME", help="As --kernel, for rewards.")] = "gaussian",
    reward_distance: Annotated[str, model_choices(metavar="NAME", help="As --distance, for rewards.")] = "euclidean",
    conditional: Annotated[
        str, model_choices(metavar="NAME", help="state-action (the paper) | action (for other starts)")
    ] = "state-action",
    task_weights: Annotated[
        str, model_choices(metavar="NAME", help="rows (the paper) | equal (large tasks do not dominate)")
    ] = "rows",
    power: Annotated[
        float | None,
        model_choices(metavar="X", help="Power of the likelihood; 1 is the paper. If not given: by loto, or 1."),
    ] = None,
    sampler: Annotated[
        str, sampling(metavar="NAME", help="auto | grid | nuts | hmc | metropolis | smc | vi | independence")
    ] = "auto",
    chains: Annotated[int | None, sampling(metavar="N", help="Number of chains.")] = None,
    draws: Annotated[int | None, sampling(metavar="N", help="Draws of each chain.")] = None,
    warmup: Annotated[
        int | None, sampling(metavar="N", help="Steps of each chain before its draws (nuts, hmc, metropolis).")
    ] = None,
    scheduler: Annotated[
        str | None,
        sampling(metavar="ADDRESS", help="A Dask scheduler, such as tcp://10.0.0.1:8786: its workers make the sums."),
    ] = None,
    seed: Annotated[int, sampling(metavar="N", help="The same seed gives the same numbers.")] = 0,
    out: Annotated[Path, output(metavar="DIR", help="Run directory to make, or to go on with after an interruption.")],
    no_rows: Annotated[bool, output("--no-rows", help="Leave the expert's rows (patients) out of the report.")] = False,
    as_json: Annotated[bool, output("--json", help="Print one JSON object instead of text.")] = False,
    quiet: Annotated[bool, output("--quiet", "-q", help="Print nothing but errors.")] = False,
) -> None:
    """The posterior over a new task's reward, from training demonstrations with known rewards."""
    configuration = {name: str(value) if isinstance(value, Path) else value for name, value in locals().items()}
    from kdbirl.cluster import maybe_connected
    from kdbirl.demos.readers import read_demonstrations
    from kdbirl.demos.row_source import is_parquet
    from kdbirl.demos.stream_reader import read_or_stream
    from kdbirl.demos.test_tasks import read_test_tasks
    from kdbirl.demos.text import one_or_more, pairs, separated
    from kdbirl.features.named import named_features
    from kdbirl.likelihood.bandwidths import parse_bandwidth
    from kdbirl.methods.kdbirl import KDBIRL
    from kdbirl.posterior.auto import named_sampler
    from kdbirl.posterior.product_prior import parse_priors
    from kdbirl.progress import for_stream
    from kdbirl.report.run_directory import FILES, refuse_existing, run_json, write_run
    from kdbirl.report.tasks_directory import FILES as TASKS_FILES
    from kdbirl.report.tasks_directory import tasks_json, tasks_text, write_tasks_run
    from kdbirl.report.terminal import files_text, posterior_text
    from kdbirl.unfinished import request_of, resumable

    out = at_home(out)
    refuse_existing(out)
    model = KDBIRL(
        prior=parse_priors(prior),
        features=named_features(features),
        bandwidth=None if bandwidth is None else parse_bandwidth(bandwidth),
        sampler=named_sampler(sampler, chains=chains, draws=draws, warmup=warmup),
        kernel=kernel,
        distance=distance,
        reward_kernel=reward_kernel,
        reward_distance=reward_distance,
        power=power,
        conditional=conditional,
        task_weights=task_weights,
    )
    columns: dict[str, Any] = {
        "state": separated(state),
        "action": one_or_more(action),
        "episode": episode,
        "step": step,
        "n_states": n_states,
        "n_actions": n_actions,
        "actions": separated(actions),
        "discrete_states": discrete_states or None,
    }
    clock = _Clock()
    known = rewards_table(training, rewards, reward)
    if rewards is None:
        stream = False  # the rewards are in the training table, which has to be read whole for them
    elif scheduler is not None and stream is None and is_parquet(training):
        stream = True  # the workers read it
    sums = out.absolute().with_name(f".{out.absolute().name}.sums")  # kernel sums of a run that was killed
    asked: dict[str, Any] = {"rewards": known, "task": task, "reward": separated(reward), **columns}
    with resumable(out, request_of(configuration)):
        bank = read_or_stream(training, stream=stream, checkpoint=sums, **asked)
        inputs, renamed = list(dict.fromkeys([training, known, expert])), pairs(expert_columns)
        many = expert_task is not None
        shown: Any = (
            read_test_tasks(expert, task=expert_task, columns=renamed, **columns)
            if expert_task is not None
            else read_demonstrations(expert, columns=renamed, **columns)
        )
        clock.lap("read")
        with closing(for_stream(sys.stderr, quiet or as_json)) as progress, maybe_connected(scheduler) as cluster:
            model.fit(bank, seed=seed, progress=progress, client=cluster)
            clock.lap("fit")
            found: Any = (model.posteriors if many else model.posterior)(shown, seed=seed, progress=progress)
        clock.lap("posterior")
        (write_tasks_run if many else write_run)(out, found, model, inputs, configuration, clock.laps)
    shutil.rmtree(sums, ignore_errors=True)
    if as_json and not quiet:
        say((tasks_json if many else run_json)(found, out), nl=False)
    elif not quiet:
        text = tasks_text(found) if many else posterior_text(found, sys.stdout.isatty())
        say(f"{text}\n\n{files_text(out, TASKS_FILES if many else FILES)}")


def rewards_table(training: str, rewards: str | None, reward: Names | None) -> str:
    """Where the known rewards are: in a table of their own, or in the named columns of the training table."""
    from kdbirl.errors import InputError

    if rewards is None and reward is None:
        raise InputError(
            "Where are the known rewards? Give their table, --rewards TABLE, or the columns of the training table that "
            "hold them, --reward NAMES."
        )
    return training if rewards is None else rewards


class _Clock:
    """Seconds of each part of the work."""

    def __init__(self) -> None:
        self._last = time.perf_counter()
        self.laps: dict[str, float] = {}

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.laps[name], self._last = now - self._last, now
