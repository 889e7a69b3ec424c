"""The options of `kdbirl demos`, in the order of its help."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

world_choices, task_choices, behaviour, output = (
    partial(typer.Option, rich_help_panel=panel) for panel in ("World", "Rewards", "Demonstrations", "Output")
)

Env = Annotated[
    str,
    world_choices(
        metavar="WORLD",
        help="gridworld:5 | gridworld-xy:10 | icu-sepsis | icu-sepsis:sofa-lactate-map | sepsis | "
        "sepsis:sofa-lactate-map (these four also with +outcome) | "
        "a Gymnasium id with a table of transitions, such as FrozenLake-v1 or FrozenLake-v1:next-state",
    ),
]
Discount = Annotated[
    float | None,
    world_choices(metavar="X", help="From 0 to 1. Needed for Gymnasium's worlds; 0.95 for the others."),
]
Policy = Annotated[
    Path | None,
    world_choices(
        metavar="FILE", help="For sepsis: the policy.npz of an earlier run, instead of learning for minutes."
    ),
]
PlanningHorizon = Annotated[
    int | None,
    world_choices(metavar="N", help="Demonstrators know that all is over after N steps; not given: they do not."),
]
Rewards = Annotated[str | None, task_choices(metavar="TABLE", help="Rewards of the training tasks: task, parameters.")]
OnePerState = Annotated[
    bool, task_choices("--one-per-state", help="A training task for each state: reward 1 there, 0 elsewhere.")
]
RandomRewards = Annotated[
    int | None, task_choices(metavar="K", help="K training tasks with rewards drawn from --reward-prior.")
]
RewardPrior = Annotated[
    list[str] | None,
    task_choices(metavar="PRIOR", help="Where random rewards come from, as --prior of fit; uniform:0,1 if not given."),
]
TrueReward = Annotated[
    str, task_choices(metavar="NUMBERS", help="The expert's: 0,0,0,1 or, where all others are 0, 'cell 3=1'.")
]
Episodes = Annotated[int, behaviour(metavar="N", help="Episodes of each training task.")]
ExpertEpisodes = Annotated[int, behaviour(metavar="N", help="Episodes of the expert.")]
Horizon = Annotated[int, behaviour(metavar="N", help="Episodes are cut after N steps.")]
Temperature = Annotated[
    float | None,
    behaviour(metavar="T", help="Boltzmann demonstrators, exp(Q*/T); not given: optimal ones."),
]
Noise = Annotated[float, behaviour(metavar="X", help="Fraction of their actions that is random.")]
ExpertTemperature = Annotated[
    float | None, behaviour(metavar="T", help="The expert's own temperature; else as --temperature.")
]
ExpertNoise = Annotated[float | None, behaviour(metavar="X", help="The expert's own noise; else as --noise.")]
Seed = Annotated[int, behaviour(metavar="N", help="The same seed gives the same tables.")]
Out = Annotated[Path, output(metavar="DIR", help="Directory to make; it must not exist yet.")]
AsJson = Annotated[bool, output("--json", help="Print one JSON object instead of text.")]
Quiet = Annotated[bool, output("--quiet", "-q", help="Print nothing but errors.")]
