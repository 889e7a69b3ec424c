"""`kdbirl fit`: from tables to a posterior, in a run directory."""

import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

TABLES, MODEL, SAMPLING, OUTPUT = "Tables", "Model", "Sampling", "Output"

# Keyword-only, so that the options stand in the order in which they are explained, whether required or not.


def fit(
    *,
    training: Annotated[
        str,
        typer.Option(
            metavar="TABLE",
            rich_help_panel=TABLES,
            help="Training demonstrations, a row per step: Parquet or CSV file, directory or 'pattern'.",
        ),
    ],
    rewards: Annotated[
        str, typer.Option(metavar="TABLE", rich_help_panel=TABLES, help="The known rewards, a row per training task.")
    ],
    expert: Annotated[
        str, typer.Option(metavar="TABLE", rich_help_panel=TABLES, help="Demonstrations of the new task.")
    ],
    state: Annotated[
        str, typer.Option(metavar="NAMES", rich_help_panel=TABLES, help="State columns, separated by commas.")
    ],
    action: Annotated[
        str | None, typer.Option(metavar="NAMES", rich_help_panel=TABLES, help="Action column, or columns.")
    ] = None,
    task: Annotated[
        str, typer.Option(metavar="NAME", rich_help_panel=TABLES, help="Column of the task's name, in both tables.")
    ] = "task",
    reward: Annotated[
        str | None, typer.Option(metavar="NAMES", rich_help_panel=TABLES, help="Reward columns; all others if not given.")
    ] = None,
    episode: Annotated[
        str, typer.Option(metavar="NAME", rich_help_panel=TABLES, help="Column of the episode, if there is one.")
    ] = "episode",
    step: Annotated[
        str, typer.Option(metavar="NAME", rich_help_panel=TABLES, help="Column that orders an episode, if any.")
    ] = "step",
    expert_columns: Annotated[
        str | None,
        typer.Option(
            metavar="PAIRS", rich_help_panel=TABLES, help="Other names in the expert table: x=pos_x,action=act."
        ),
    ] = None,
    discrete_states: Annotated[
        bool, typer.Option("--discrete-states", rich_help_panel=TABLES, help="The state is a label, not a quantity.")
    ] = False,
    n_states: Annotated[
        int | None, typer.Option(metavar="N", min=1, rich_help_panel=TABLES, help="States are 0 to N - 1, no others.")
    ] = None,
    n_actions: Annotated[
        int | None, typer.Option(metavar="N", min=1, rich_help_panel=TABLES, help="Actions are 0 to N - 1, no others.")
    ] = None,
    actions: Annotated[
        str | None, typer.Option(metavar="LABELS", rich_help_panel=TABLES, help="Actions are these labels, no others.")
    ] = None,
    prior: Annotated[
        list[str],
        typer.Option(
            rich_help_panel=MODEL,
            help="uniform:low,high | normal:mean,sd | truncated-normal:mean,sd,low,high | beta:a,b,low,high | "
            "laplace:mean,scale. For one parameter: w_x=normal:0,1; repeat for the others.",
        ),
    ],
    features: Annotated[
        str,
        typer.Option(
            rich_help_panel=MODEL,
            help="standardize | identity | onehot | onehot-states | onehot-actions | columns:x,y | grid:5; "
            "several as grid:5+onehot-actions.",
        ),
    ] = "standardize",
    bandwidth: Annotated[
        str, typer.Option(rich_help_panel=MODEL, help="paper | silverman | scott | median | cv, or h,h_reward.")
    ] = "median",
    kernel: Annotated[
        str, typer.Option(rich_help_panel=MODEL, help="gaussian | laplace | uniform | triangular | epanechnikov")
    ] = "gaussian",
    distance: Annotated[
        str, typer.Option(rich_help_panel=MODEL, help="euclidean | manhattan | cosine | dot")
    ] = "euclidean",
    reward_kernel: Annotated[str, typer.Option(rich_help_panel=MODEL, help="As --kernel, for rewards.")] = "gaussian",
    reward_distance: Annotated[
        str, typer.Option(rich_help_panel=MODEL, help="As --distance, for rewards.")
    ] = "euclidean",
    conditional: Annotated[
        str, typer.Option(rich_help_panel=MODEL, help="state-action (the paper) | action, for other starts.")
    ] = "state-action",
    task_weights: Annotated[
        str, typer.Option(rich_help_panel=MODEL, help="rows (the paper) | equal, for tasks of unequal size.")
    ] = "rows",
    power: Annotated[float, typer.Option(rich_help_panel=MODEL, help="Power of the likelihood; 1 is the paper.")] = 1.0,
    sampler: Annotated[
        str, typer.Option(rich_help_panel=SAMPLING, help="auto | nuts | hmc | metropolis | smc | vi | grid")
    ] = "auto",
    chains: Annotated[
        int | None, typer.Option(metavar="N", min=1, rich_help_panel=SAMPLING, help="Number of chains.")
    ] = None,
    draws: Annotated[
        int | None, typer.Option(metavar="N", min=1, rich_help_panel=SAMPLING, help="Draws of each chain.")
    ] = None,
    warmup: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, rich_help_panel=SAMPLING, help="Steps before the draws (nuts, hmc, metropolis)."),
    ] = None,
    seed: Annotated[
        int,
        typer.Option(
            metavar="N", min=0, max=2**32 - 1, rich_help_panel=SAMPLING, help="The same seed gives the same numbers."
        ),
    ] = 0,
    out: Annotated[
        Path, typer.Option(metavar="DIR", rich_help_panel=OUTPUT, help="Run directory to make; it must not exist yet.")
    ],
    as_json: Annotated[
        bool, typer.Option("--json", rich_help_panel=OUTPUT, help="Print one JSON object instead of text.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", rich_help_panel=OUTPUT, help="Print only errors.")] = False,
) -> None:
    """The posterior over a new task's reward, from training demonstrations with known rewards."""
    configuration = {name: str(value) if isinstance(value, Path) else value for name, value in locals().items()}
    from kdbirl.demos.readers import read_demonstrations, read_task_bank
    from kdbirl.demos.text import one_or_more, pairs, separated
    from kdbirl.features.named import named_features
    from kdbirl.likelihood.bandwidths import parse_bandwidth
    from kdbirl.methods.kdbirl import KDBIRL
    from kdbirl.posterior.auto import named_sampler
    from kdbirl.posterior.product_prior import parse_priors
    from kdbirl.progress import for_stream
    from kdbirl.report.run_directory import FILES, refuse_existing, run_json, write_run
    from kdbirl.report.terminal import files_text, posterior_text

    out = out.expanduser()
    refuse_existing(out)
    model = KDBIRL(
        prior=parse_priors(prior),
        features=named_features(features),
        bandwidth=parse_bandwidth(bandwidth),
        sampler=named_sampler(sampler, chains=chains, draws=draws, warmup=warmup),
        kernel=kernel,
        distance=distance,
        reward_kernel=reward_kernel,
        reward_distance=reward_distance,
        power=power,
        conditional=conditional,
        task_weights=task_weights,
    )
    columns = {
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
    bank = read_task_bank(training, rewards=rewards, task=task, reward=separated(reward), **columns)
    demonstrations = read_demonstrations(expert, columns=pairs(expert_columns), **columns)
    clock.lap("read")
    with closing(for_stream(sys.stderr, quiet or as_json)) as progress:
        model.fit(bank, seed=seed, progress=progress)
        clock.lap("fit")
        posterior = model.posterior(demonstrations, seed=seed, progress=progress)
    clock.lap("posterior")
    write_run(out, posterior, model, [training, rewards, expert], configuration, clock.laps)
    if as_json and not quiet:
        typer.echo(run_json(posterior, out), nl=False)
    elif not quiet:
        typer.echo(f"{posterior_text(posterior)}\n\n{files_text(out, FILES)}")


class _Clock:
    """Seconds of each part of the work."""

    def __init__(self) -> None:
        self._last = time.perf_counter()
        self.laps: dict[str, float] = {}

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.laps[name], self._last = now - self._last, now
