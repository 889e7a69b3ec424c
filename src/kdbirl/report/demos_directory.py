"""The directory that `kdbirl demos` leaves behind: the three tables of a fit, and the world they came from."""

import shlex
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kdbirl.demos.data import Demonstrations, TaskBank
from kdbirl.demos.writers import write_demonstrations, write_task_bank
from kdbirl.envs.base import TabularMDP
from kdbirl.envs.gridworld import Gridworld
from kdbirl.envs.world import World
from kdbirl.envs.world_file import WorldFile
from kdbirl.files import directory_whole_or_not_at_all, write_text
from kdbirl.report.run_directory import refuse_existing
from kdbirl.report.terminal import WIDTH, files_text

if TYPE_CHECKING:
    from kdbirl.planners.q_policy import ConditionedQ

FILES = {
    "training.parquet": "demonstrations of the training tasks, a row per step",
    "rewards.csv": "the training tasks' rewards",
    "expert.csv": "demonstrations of the expert, whose reward a fit looks for",
    "world.json": "the world and the expert's reward, for kdbirl evaluate",
}
POLICY = {"policy.npz": "the learnt policies of all rewards, for kdbirl evaluate and the next kdbirl demos (--policy)"}


def write_demos(
    directory: Path, bank: TaskBank, expert: Demonstrations, world: WorldFile, policies: "ConditionedQ | None" = None
) -> None:
    """Write all files under a temporary name, then give the directory its own."""
    refuse_existing(directory)
    with directory_whole_or_not_at_all(directory) as unfinished:
        write_task_bank(bank, unfinished / "training.parquet", unfinished / "rewards.csv")
        write_demonstrations(expert, unfinished / "expert.csv")
        write_text(unfinished / "world.json", world.to_json())
        if policies is not None:
            policies.save(unfinished / "policy.npz")


def fit_command(directory: Path, world: World, priors: Sequence[str]) -> list[str]:
    """A `kdbirl fit` that takes these tables; its features and its prior are a beginning, for the user to change.

    State codes are names, not quantities, so the features are one-hot; a grid that pays by coordinates has those. A
    simulator's columns are quantities, which a fit standardises by itself.
    """
    tables = {"training": "training.parquet", "rewards": "rewards.csv", "expert": "expert.csv"}
    words = ["kdbirl", "fit"]
    for option, name in tables.items():
        words += [f"--{option}", str(directory / name)]
    words += _columns(world)
    for prior in priors:
        words += ["--prior", prior]
    return [*words, "--out", "run"]


def _columns(world: World) -> list[str]:
    """How the tables' columns are told to a fit."""
    if isinstance(world, TabularMDP):
        words = ["--state", "state", "--action", "action", "--n-states", str(world.recorded_states)]
        if isinstance(world, Gridworld) and world.feature_names == ("x", "y"):
            return [*words, "--features", f"grid:{world.size}+onehot-actions"]
        return [*words, "--features", "onehot"]
    names = ",".join(world.describe()["observations"])
    return ["--state", names, "--action", "action", "--n-actions", str(world.n_actions)]


def demos_text(directory: Path, bank: TaskBank, expert: Demonstrations, world: WorldFile, mdp: World) -> str:
    """What was made, the files, and the command that comes next."""
    if isinstance(mdp, TabularMDP):
        states, files = f"{mdp.recorded_states} states", FILES
    else:
        states, files = f"{len(mdp.describe()['observations'])} state columns", FILES | POLICY
    horizon = f"{world.planning_horizon} steps" if world.planning_horizon else "none"
    made = (
        f"{world.env}: {states}, {mdp.n_actions} actions, {len(mdp.feature_names)} reward parameters; "
        f"discount {world.discount:g}, planning horizon {horizon}. {bank.n_rows} rows of {bank.n_tasks} training "
        f"tasks, {expert.n_rows} rows of the expert. Demonstrators: {world.made['demonstrators']}. Rewards: "
        f"{world.made['rewards']}. Seed {world.made['seed']}."
    )
    command = _wrapped(world.made["fit"])
    return f"{textwrap.fill(made, WIDTH)}\n\n{files_text(directory, files)}\n\nNext, with a prior of yours:\n{command}"


def _wrapped(words: list[str]) -> str:
    """A command for a shell over several lines; an option stays with its value."""
    pieces: list[str] = []
    for word in map(shlex.quote, words):
        if pieces and (pieces[-1].startswith("--") and " " not in pieces[-1]):
            pieces[-1] += f" {word}"
        else:
            pieces.append(word)
    lines = [f"  {pieces[0]}"]
    for piece in pieces[1:]:
        if len(lines[-1]) + len(piece) + 3 <= WIDTH:
            lines[-1] += f" {piece}"
        else:
            lines[-1] += " \\"
            lines.append(f"    {piece}")
    return "\n".join(lines)
