"""`kdbirl fit`: from tables to a posterior, in a run directory."""

import shutil
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

from kdbirl.cli import fit_options as options
from kdbirl.cli.saying import at_home, say


def fit(
    *,  # so that the options stand in the order in which they are explained, whether required or not
    training: options.Training,
    rewards: options.Rewards = None,
    expert: options.Expert,
    state: options.State,
    action: options.Action = None,
    task: options.Task = "task",
    reward: options.Reward = None,
    episode: options.Episode = "episode",
    step: options.Step = "step",
    expert_columns: options.ExpertColumns = None,
    expert_task: options.ExpertTask = None,
    discrete_states: options.DiscreteStates = False,
    stream: options.Stream = None,
    n_states: options.NStates = None,
    n_actions: options.NActions = None,
    actions: options.Actions = None,
    prior: options.Prior,
    features: options.Features = "standardize",
    bandwidth: options.Bandwidth = None,
    kernel: options.Kernel = "gaussian",
    distance: options.Distance = "euclidean",
    reward_kernel: options.RewardKernel = "gaussian",
    reward_distance: options.RewardDistance = "euclidean",
    conditional: options.Conditional = "state-action",
    task_weights: options.TaskWeights = "rows",
    power: options.Power = None,
    sampler: options.Sampler = "auto",
    chains: options.Chains = None,
    draws: options.Draws = None,
    warmup: options.Warmup = None,
    scheduler: options.Scheduler = None,
    seed: options.Seed = 0,
    out: options.Out,
    no_rows: options.NoRows = False,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
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


def rewards_table(training: str, rewards: str | None, reward: str | None) -> str:
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
