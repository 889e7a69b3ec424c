"""The rewards of training tasks in a world: from a table, or one task for each state."""

from pathlib import Path

import numpy as np
from jaxtyping import Float

from kdbirl.demos.readers import read_rewards
from kdbirl.envs.base import TabularMDP
from kdbirl.envs.world import World
from kdbirl.errors import InputError, did_you_mean

Rewards = dict[str, Float[np.ndarray, " q"]]  # by the task's name


def one_per_state(world: World) -> Rewards:
    """A task for each state that demonstrations can name: reward 1 there, 0 everywhere else."""
    if not isinstance(world, TabularMDP) or world.n_parameters != world.recorded_states:
        shown = ", ".join(world.feature_names[:6])
        raise InputError(
            f"One task per state needs one reward parameter per state, but this world's are {shown}; give a table of "
            "rewards, or draw random ones."
        )
    return dict(zip(world.feature_names, np.eye(world.n_parameters), strict=True))


def rewards_for(path: str | Path, world: World) -> Rewards:
    """The rewards in a table (task, parameters): columns that are named as the world's parameters may stand in any
    order; columns with other names are taken in the world's order."""
    vectors, names, columns, origin = read_rewards(path)
    if len(columns) != len(world.feature_names):
        shown = ", ".join(world.feature_names[:6]) + (", ..." if len(world.feature_names) > 6 else "")
        raise InputError(
            f"{origin} has {len(columns)} reward columns, but a reward of this world has {len(world.feature_names)} "
            f"parameters ({shown})."
        )
    known = [column in world.feature_names for column in columns]
    if all(known):
        vectors = vectors[:, [columns.index(name) for name in world.feature_names]]
    elif any(known):
        other = columns[known.index(False)]
        free = [name for name in world.feature_names if name not in columns]
        raise InputError(f"{origin}: the column {other!r} is no parameter of this world.{did_you_mean(other, free)}")
    return dict(zip(names, vectors, strict=True))
