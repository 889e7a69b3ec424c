"""The options of `kdbirl fit`, in the order of its help."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

tables, model_choices, sampling, output = (
    partial(typer.Option, rich_help_panel=panel) for panel in ("Tables", "Model", "Sampling", "Output")
)
Names = str  # separated by commas

Training = Annotated[
    str, tables(metavar="TABLE", help="Training demonstrations, a row per step: file, directory or 'pattern'.")
]
Rewards = Annotated[
    str | None,
    tables(
        metavar="TABLE",
        help="The known rewards, a row per training task. Not given: the training table has them, in --reward.",
    ),
]
Expert = Annotated[str, tables(metavar="TABLE", help="Demonstrations of the new task.")]
State = Annotated[Names, tables(metavar="NAMES", help="State columns, separated by commas.")]
Action = Annotated[Names | None, tables(metavar="NAMES", help="Action column, or columns.")]
Task = Annotated[str, tables(metavar="NAME", help="Column of the task's name, in both tables.")]
Reward = Annotated[
    Names | None, tables(metavar="NAMES", help="Reward columns; not given: all of --rewards but the task's.")
]
Episode = Annotated[str, tables(metavar="NAME", help="Column of the episode, if there is one.")]
Step = Annotated[str, tables(metavar="NAME", help="Column that orders an episode, if any.")]
ExpertColumns = Annotated[
    Names | None, tables(metavar="PAIRS", help="Other names in the expert table: x=pos_x,action=act")
]
ExpertTask = Annotated[
    str | None,
    tables(metavar="NAME", help="The expert table holds many new tasks: the column of each row's task."),
]
DiscreteStates = Annotated[bool, tables("--discrete-states", help="The state column holds labels, not a quantity.")]
Stream = Annotated[
    bool | None,
    tables(
        "--stream/--no-stream",
        help="Read the training table block by block, in bounded memory; a run that is killed goes on where it "
        "was. If not given: for Parquet files of more than 1 GiB.",
        show_default=False,
    ),
]
NStates = Annotated[int | None, tables(metavar="N", help="States are 0 to N - 1, no others.")]
NActions = Annotated[int | None, tables(metavar="N", help="Actions are 0 to N - 1, no others.")]
Actions = Annotated[Names | None, tables(metavar="NAMES", help="Actions are these labels, no others.")]
Prior = Annotated[
    list[str],
    model_choices(
        metavar="PRIOR",
        help="uniform:low,high | normal:mean,sd | truncated-normal:mean,sd,low,high | beta:a,b,low,high | "
        "laplace:mean,scale. For one parameter: w_x=normal:0,1, and again for others.",
    ),
]
Features = Annotated[
    str,
    model_choices(
        metavar="MAP",
        help="standardize | identity | onehot | onehot-states | onehot-actions | columns:x,y | grid:5 | vae:3 | "
        "pca:3; several as grid:5+onehot-actions",
    ),
]
Bandwidth = Annotated[
    str | None,
    model_choices(
        metavar="RULE",
        help="loto | paper | silverman | scott | median | cv, or numbers h,h_reward. If not given: loto (leaves "
        "out each training task in turn), or median where the tasks are too few for it.",
    ),
]
Kernel = Annotated[str, model_choices(metavar="NAME", help="gaussian | laplace | uniform | triangular | epanechnikov")]
Distance = Annotated[str, model_choices(metavar="NAME", help="euclidean | manhattan | cosine | dot")]
RewardKernel = Annotated[str, model_choices(metavar="NAME", help="As --kernel, for rewards.")]
RewardDistance = Annotated[str, model_choices(metavar="NAME", help="As --distance, for rewards.")]
Conditional = Annotated[str, model_choices(metavar="NAME", help="state-action (the paper) | action (for other starts)")]
TaskWeights = Annotated[
    str, model_choices(metavar="NAME", help="rows (the paper) | equal (large tasks do not dominate)")
]
Power = Annotated[
    float | None,
    model_choices(metavar="X", help="Power of the likelihood; 1 is the paper. If not given: by loto, or 1."),
]
Sampler = Annotated[
    str, sampling(metavar="NAME", help="auto | grid | nuts | hmc | metropolis | smc | vi | independence")
]
Chains = Annotated[int | None, sampling(metavar="N", help="Number of chains.")]
Draws = Annotated[int | None, sampling(metavar="N", help="Draws of each chain.")]
Warmup = Annotated[
    int | None, sampling(metavar="N", help="Steps of each chain before its draws (nuts, hmc, metropolis).")
]
Scheduler = Annotated[
    str | None,
    sampling(metavar="ADDRESS", help="A Dask scheduler, such as tcp://10.0.0.1:8786: its workers make the sums."),
]
Seed = Annotated[int, sampling(metavar="N", help="The same seed gives the same numbers.")]
Out = Annotated[Path, output(metavar="DIR", help="Run directory to make, or to go on with after an interruption.")]
NoRows = Annotated[bool, output("--no-rows", help="Leave the expert's rows (patients) out of the report.")]
AsJson = Annotated[bool, output("--json", help="Print one JSON object instead of text.")]
Quiet = Annotated[bool, output("--quiet", "-q", help="Print nothing but errors.")]
