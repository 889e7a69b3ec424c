"""One reward as it is written on the command line: `0,0,0,1`, or `cell 3=1`, where all others are 0."""

import numpy as np
from jaxtyping import Float

from kdbirl.envs.arrays import as_rewards
from kdbirl.envs.world import World
from kdbirl.errors import InputError, did_you_mean


def parse_reward(text: str, world: World) -> Float[np.ndarray, " q"]:
    """A number for each parameter in the world's order, or `name=number` for those that are not 0."""
    parts = [part.strip() for part in text.split(",")]
    if not any("=" in part for part in parts):
        return as_rewards([_number(part, text) for part in parts], world.feature_names)[0]
    reward = np.zeros(len(world.feature_names))
    for part in parts:
        name, equals, value = (piece.strip() for piece in part.rpartition("="))
        if not equals:
            raise InputError(f"The reward {text!r} mixes numbers and name=number; write one kind throughout.")
        if name not in world.feature_names:
            there = did_you_mean(name, world.feature_names)
            raise InputError(f"The reward names {name!r}, which is not among this world's parameters.{there}")
        reward[world.feature_names.index(name)] = _number(value, text)
    return as_rewards(reward, world.feature_names)[0]


def _number(part: str, text: str) -> float:
    try:
        return float(part)
    except ValueError as error:
        raise InputError(
            f"The reward {text!r} should be numbers separated by commas, such as 0,0,0,1; {part!r} is none."
        ) from error
