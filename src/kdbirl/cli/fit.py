"""`kdbirl fit`: from tables to a posterior, in a run directory."""

import json
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from kdbirl.errors import InputError

Names = Annotated[str, typer.Option(help="State columns, separated by commas.")]


def fit(
    training: Annotated[str, typer.Option(help="Training demonstrations: Parquet or CSV file, directory or glob.")],
    rewards: Annotated[str, typer.Option(help="The known reward of each training task: a row per task.")],
    expert: Annotated[str, typer.Option(help="Demonstrations of the new task.")],
    state: Annotated[str, typer.Option(help="State columns, separated by commas.")],
    prior: Annotated[str, typer.Option(help="uniform:0,1 | normal:mean,sd | truncated-normal:mean,sd,low,high | ...")],
    out: Annotated[Path, typer.Option(help="Run directory to make. It must not exist yet.")],
    action: Annotated[str | None, typer.Option(help="Action column, or columns separated by commas.")] = None,
    task: Annotated[str, typer.Option(help="Column that names the task, in both tables.")] = "task",
    reward: Annotated[str | None, typer.Option(help="Reward columns; all but the task's if not given.")] = None,
    features: Annotated[
        str, typer.Option(help="standardize | identity | onehot | columns:x,y | grid:5")
    ] = "standardize",
    bandwidth: Annotated[str, typer.Option(help="paper | silverman | scott | median | cv, or h,h_reward.")] = "median",
    kernel: Annotated[str, typer.Option(help="gaussian | laplace | uniform | triangular | epanechnikov")] = "gaussian",
    distance: Annotated[str, typer.Option(help="euclidean | manhattan | cosine | dot")] = "euclidean",
    reward_kernel: Annotated[str, typer.Option(help="As --kernel, for rewards.")] = "gaussian",
    reward_distance: Annotated[str, typer.Option(help="As --distance, for rewards.")] = "euclidean",
    sampler: Annotated[str, typer.Option(help="auto | nuts | hmc | metropolis | smc | vi | grid")] = "auto",
    power: Annotated[float, typer.Option(help="Power of the likelihood; 1 is the paper.")] = 1.0,
    conditional: Annotated[str, typer.Option(help="state-action (the paper) | action")] = "state-action",
    task_weights: Annotated[str, typer.Option(help="rows (the paper) | equal")] = "rows",
    discrete_states: Annotated[bool, typer.Option(help="The state column holds labels, not a quantity.")] = False,
    n_states: Annotated[int | None, typer.Option(help="Number of discrete states, 0 to n - 1.")] = None,
    n_actions: Annotated[int | None, typer.Option(help="Number of discrete actions, 0 to n - 1.")] = None,
    seed: Annotated[int, typer.Option(help="The same seed gives the same numbers.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")] = False,
    quiet: Annotated[bool, typer.Option(help="Print nothing but errors.")] = False,
) -> None:
    """The posterior over a new task's reward, from training demonstrations with known rewards."""
    configuration = {name: str(value) if isinstance(value, Path) else value for name, value in locals().items()}
    from kdbirl.demos.readers import read_demonstrations, read_task_bank
    from kdbirl.features.named import named_features
    from kdbirl.methods.kdbirl import KDBIRL
    from kdbirl.posterior.priors import parse_prior
    from kdbirl.progress import for_stream
    from kdbirl.report.run_directory import refuse_existing, write_run

    refuse_existing(out)
    columns: dict[str, Any] = {"state": _names(state), "action": _action(action), "n_actions": n_actions}
    columns |= {"n_states": n_states, "discrete_states": discrete_states or None}
    model = KDBIRL(
        prior=parse_prior(prior),
        features=named_features(features),
        bandwidth=_bandwidth(bandwidth),
        sampler=sampler,
        kernel=kernel,
        distance=distance,
        reward_kernel=reward_kernel,
        reward_distance=reward_distance,
        power=power,
        conditional=conditional,  # type: ignore[arg-type]
        task_weights=task_weights,  # type: ignore[arg-type]
    )
    clock = _Clock()
    bank = read_task_bank(training, rewards=rewards, task=task, reward=_optional_names(reward), **columns)
    demonstrations = read_demonstrations(expert, **columns)
    clock.lap("read")
    progress = for_stream(sys.stderr, quiet or as_json)
    model.fit(bank, seed=seed, progress=progress)
    clock.lap("fit")
    posterior = model.posterior(demonstrations, seed=seed, progress=progress)
    clock.lap("posterior")
    inputs = [Path(name) for name in (training, rewards, expert)]
    write_run(out, posterior, model, inputs, configuration, clock.laps)
    if not quiet:
        typer.echo(_json(posterior, out) if as_json else _text(posterior, out))


class _Clock:
    def __init__(self) -> None:
        self._last = time.perf_counter()
        self.laps: dict[str, float] = {}

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.laps[name], self._last = now - self._last, now


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _optional_names(text: str | None) -> list[str] | None:
    return None if text is None else _names(text)


def _action(text: str | None) -> str | list[str] | None:
    names = _optional_names(text)
    return names[0] if names and len(names) == 1 else names


def _bandwidth(text: str) -> str | tuple[float, float]:
    if "," not in text:
        return text
    try:
        first, second = (float(number) for number in text.split(","))
    except ValueError:
        raise InputError(f"--bandwidth {text} should be a rule or two numbers h,h_reward, such as 0.5,0.4.") from None
    return first, second


def _json(posterior: Any, out: Path) -> str:
    from kdbirl.report.run_directory import diagnosis

    summary = posterior.summary().to_dicts()
    return json.dumps({"out": str(out), "summary": summary, **diagnosis(posterior)}, indent=2)


def _text(posterior: Any, out: Path) -> str:
    from kdbirl.report.terminal import posterior_text
    from kdbirl.report.run_directory import FILES

    width = max(len(name) for name in FILES)
    files = [f"  {out / name!s:{len(str(out)) + width + 1}}  {what}" for name, what in FILES.items()]
    return "\n".join([posterior_text(posterior), "", "Files:", *files])
