"""`kdbirl fit`: from tables to a posterior, in a run directory."""

import sys
import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kdbirl.cli import fit_options as options
from kdbirl.cli.terminal import at_home, say, telling

if TYPE_CHECKING:
    from kdbirl.methods.kdbirl import KDBIRL


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
    given = {name: str(value) if isinstance(value, Path) else value for name, value in locals().items()}
    from kdbirl.data.cluster import maybe_connected
    from kdbirl.progress import for_stream
    from kdbirl.report.run import refuse_existing, write_run
    from kdbirl.report.tasks import write_tasks_run
    from kdbirl.store import request_of, resumable

    out = at_home(out)
    refuse_existing(out)
    model, clock, many = _model(given), _Clock(), expert_task is not None
    known = rewards_table(training, rewards, reward)
    with resumable(out, request_of(given), telling(quiet or as_json)):
        bank, shown = _bank(given, known), _shown(given)
        clock.lap("read")
        showing = closing(for_stream(sys.stderr, quiet or as_json))
        # connected until the page is written, which may ask for sums, too
        with showing as progress, maybe_connected(scheduler, progress) as cluster:
            model.fit(bank, seed=seed, progress=progress, client=cluster)
            clock.lap("fit")
            found: Any = (model.posteriors if many else model.posterior)(shown, seed=seed, progress=progress)
            progress.close()
            clock.lap("posterior")
            inputs = list(dict.fromkeys([training, known, expert]))
            (write_tasks_run if many else write_run)(out, found, model, inputs, given, clock.laps)
    if not quiet:
        _say_found(found, out, many, as_json)


def _model(given: Mapping[str, Any]) -> "KDBIRL":
    from kdbirl.features.named import named_features
    from kdbirl.likelihood.bandwidths import parse_bandwidth
    from kdbirl.methods.kdbirl import KDBIRL
    from kdbirl.posterior.auto import named_sampler
    from kdbirl.posterior.product_prior import parse_priors

    as_given = ("kernel", "distance", "reward_kernel", "reward_distance", "power", "conditional", "task_weights")
    return KDBIRL(
        prior=parse_priors(given["prior"]),
        features=named_features(given["features"]),
        bandwidth=None if given["bandwidth"] is None else parse_bandwidth(given["bandwidth"]),
        sampler=named_sampler(given["sampler"], **{name: given[name] for name in ("chains", "draws", "warmup")}),
        **{name: given[name] for name in as_given},
    )


def _columns(given: Mapping[str, Any]) -> dict[str, Any]:
    """What the columns of both tables of demonstrations are."""
    from kdbirl.data.tables import one_or_more, separated

    return {
        "state": separated(given["state"]),
        "action": one_or_more(given["action"]),
        "actions": separated(given["actions"]),
        "discrete_states": given["discrete_states"] or None,
        **{name: given[name] for name in ("episode", "step", "n_states", "n_actions")},
    }


def _bank(given: Mapping[str, Any], known: str) -> Any:
    """The training table, read whole or block by block, with the rewards in the table `known`."""
    from kdbirl.data.large_reader import read_or_stream
    from kdbirl.data.large_rows import is_parquet
    from kdbirl.data.tables import separated

    training, stream = given["training"], given["stream"]
    if given["rewards"] is None:
        stream = False  # the rewards are in the training table, which has to be read whole for them
    elif given["scheduler"] is not None and stream is None and is_parquet(training):
        stream = True  # the workers read it
    asked = {"rewards": known, "task": given["task"], "reward": separated(given["reward"]), **_columns(given)}
    return read_or_stream(training, stream=stream, **asked)


def _shown(given: Mapping[str, Any]) -> Any:
    """The demonstrations of the new task, or of each of many."""
    from kdbirl.data.readers import read_demonstrations, read_test_tasks
    from kdbirl.data.tables import pairs

    asked = {"columns": pairs(given["expert_columns"]), **_columns(given)}
    if given["expert_task"] is None:
        return read_demonstrations(given["expert"], task=given["task"], **asked)
    return read_test_tasks(given["expert"], task=given["expert_task"], **asked)


def _say_found(found: Any, out: Path, many: bool, as_json: bool) -> None:
    from kdbirl.report.run import FILES, run_json
    from kdbirl.report.tasks import FILES as TASKS_FILES
    from kdbirl.report.tasks import tasks_json
    from kdbirl.report.terminal import files_text, posterior_text, tasks_text

    if as_json:
        say((tasks_json if many else run_json)(found, out), nl=False)
    else:
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
