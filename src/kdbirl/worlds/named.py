"""Worlds by the names that the command line uses: `gridworld:5`, `icu-sepsis`, `sepsis`, `FrozenLake-v1:next-state`."""

import json
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from jaxtyping import Float

from kdbirl.archive import read_json
from kdbirl.errors import FileProblem, InputError, did_you_mean
from kdbirl.worlds import gridworld, icu_sepsis, tabular
from kdbirl.worlds.gymnasium import GymnasiumSource
from kdbirl.worlds.tabular import TabularMDP, World
from kdbirl.worlds.tabular_arrays import as_rewards

if TYPE_CHECKING:
    from kdbirl.worlds.sepsis.simulator import SepsisSim

GRIDS = {"gridworld": "state", "gridworld-xy": "xy"}  # their reward's features
SEPSIS = "icu-sepsis"
SIMULATED = "sepsis"
OUTCOME = "+outcome"
LONGEST_NUMBER = 9  # digits


def named_world(text: str, discount: float | None = None, horizon: int | None = None) -> "TabularMDP | SepsisSim":
    """A world from its name: a tabular one, or for `sepsis` a simulator.

    `gridworld:5`: 5 x 5 cells, one reward parameter per cell; `gridworld-xy:5`: R = w.(x, y).
    `icu-sepsis`, `icu-sepsis:sofa-lactate-map`, each with `+outcome` at the end for the two outcome indicators.
    `sepsis`, `sepsis:sofa-lactate-map`: `SepsisSim` with stays that all have 18 steps (or `horizon`), so that no weight
    makes leaving early pay; with `+outcome` stays end in release or death, which the reward weighs too.
    Any Gymnasium id with a table of transitions, and how its reward is featurised: `FrozenLake-v1` (one parameter per
    state, earned by acting there), `FrozenLake-v1:next-state` (by arriving there), `FrozenLake-v1:env-reward`.
    discount: required for Gymnasium's worlds; the others have 0.95 if it is None. horizon: as of `TabularMDP`.
    """
    name, _, choice = (part.strip() for part in text.partition(":"))
    if name in GRIDS:
        given = gridworld.DISCOUNT if discount is None else discount
        return gridworld.Gridworld(_side(text, choice), discount=given, features=GRIDS[name], horizon=horizon)
    if name.removesuffix(OUTCOME) == SEPSIS:
        return _sepsis(text.strip(), discount, horizon)
    if name.removesuffix(OUTCOME) == SIMULATED:
        return _simulated(text.strip(), discount, horizon)
    return _gymnasium(text.strip(), discount, horizon)


def tabular_world(text: str, discount: float | None = None, horizon: int | None = None) -> TabularMDP:
    """`named_world` where exact values are needed: a simulator is refused."""
    world = named_world(text, discount, horizon)
    return world if isinstance(world, TabularMDP) else without_a_table(text)


def without_a_table(text: str) -> NoReturn:
    """The refusal of a simulator."""
    raise InputError(
        f"{text} is a simulator, without the table that this needs; kdbirl evaluate and kb.evd judge a posterior there "
        "by rollouts."
    )


def _side(text: str, side: str) -> int:
    if not side.isdecimal() or len(side) > LONGEST_NUMBER or int(side) < 1:
        raise InputError(f"The world {text!r} should give the cells on a side, such as gridworld:5.")
    return int(side)


def _sepsis(text: str, discount: float | None, horizon: int | None) -> TabularMDP:
    plain = text.removesuffix(OUTCOME)
    features = plain.partition(":")[2].strip() or icu_sepsis.FEATURES[0]
    given = icu_sepsis.DISCOUNT if discount is None else discount
    return icu_sepsis.ICUSepsis(features, outcome=plain != text, discount=given, horizon=horizon)


def _simulated(text: str, discount: float | None, horizon: int | None) -> "SepsisSim":
    from kdbirl.worlds.sepsis.simulator import (
        DISCOUNT,
        HORIZON,
        SepsisSim,  # here, since it imports JAX
    )

    plain = text.removesuffix(OUTCOME)
    features = plain.partition(":")[2].strip() or icu_sepsis.FEATURES[0]
    return SepsisSim(
        features,
        outcome=plain != text,
        discount=DISCOUNT if discount is None else discount,
        horizon=HORIZON if horizon is None else horizon,
        ending="never" if plain == text and features != "outcome" else "sampled",
        memory=False,
    )


def module_to_import(text: str) -> str | None:
    """The Python module that Gymnasium imports to make a world of this name (`module:World-v0`), if any."""
    text = text.strip()
    name = text.partition(":")[0].strip()
    if name in GRIDS or name.removesuffix(OUTCOME) in (SEPSIS, SIMULATED):
        return None
    module, colon, _ = _id_and_features(text)[0].partition(":")
    return module if colon else None


def _id_and_features(text: str) -> tuple[str, str]:
    """Gymnasium's own ids may have a colon too (module:id), so only what follows a known id is the features' name."""
    import gymnasium

    name, colon, features = text.rpartition(":")
    if not colon or (name not in gymnasium.registry and features not in tabular.FEATURES):
        return text, tabular.FEATURES[0]
    return name, features


def _gymnasium(text: str, discount: float | None, horizon: int | None) -> TabularMDP:
    name, features = _id_and_features(text)
    env = _made(name)
    try:
        GymnasiumSource(env)  # refuses continuous actions in its own words
        if discount is None:
            raise InputError(f"{name} names no discount: give one, such as 0.95 (--discount on the command line).")
        return TabularMDP.from_gymnasium(env, discount, features=features, horizon=horizon)
    finally:
        env.close()


def _made(name: str) -> Any:
    import gymnasium

    try:
        return gymnasium.make(name)
    except (gymnasium.error.UnregisteredEnv, ImportError, ValueError) as error:
        known = [*(f"{grid}:5" for grid in GRIDS), SEPSIS, SIMULATED, *gymnasium.registry]
        raise InputError(f"There is no world called {name!r}.{_nearest(name, known)}") from error
    except gymnasium.error.Error as error:
        reason = " ".join(str(error).split()).rstrip(".")
        raise InputError(f"Gymnasium cannot make {name!r}: {reason}.") from error


def _nearest(name: str, known: list[str]) -> str:
    near = did_you_mean(name, known)
    if near.startswith(" Did you mean"):
        return near
    return (
        f" There are gridworld:5, gridworld-xy:10, {SEPSIS}, {SIMULATED}, and Gymnasium's ids, such as FrozenLake-v1."
    )


# One reward as it is written on the command line: `0,0,0,1`, or `cell 3=1`, where all others are 0.


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


# `world.json`: which world demonstrations came from, and the reward that the expert had. Enough to judge a posterior.
#
# Fields: `env` (a name for `named_world`), `discount`, `planning_horizon`, `horizon` (of the recorded episodes),
# `reward_parameters`, `true_reward`, and a record of how the tables were made, `made`, which nobody needs to read
# again.

LARGEST = 1e300
EXPECTED = "expected a world.json written by `kdbirl demos`"


@dataclass(frozen=True)
class WorldFile:
    """What `world.json` holds."""

    env: str
    discount: float
    planning_horizon: int | None
    horizon: int
    reward_parameters: tuple[str, ...]
    true_reward: tuple[float, ...]
    made: dict[str, Any] = field(default_factory=dict)

    def world(self) -> World:
        """The world itself, a table or a simulator; its parameters must still be those that the file names.

        Gymnasium imports the module in an id such as `module:World-v0`. A file does not choose what is run.
        """
        module = module_to_import(self.env)
        if module is not None and module not in sys.modules:
            raise InputError(
                f"{self.env[:80]!r} names a world of the Python module {module[:80]!r}; a file does not choose what "
                "is imported: import that module first, if you trust it."
            )
        world = named_world(self.env, self.discount, self.planning_horizon)
        if world.feature_names != self.reward_parameters:
            raise InputError(
                f"{self.env} has {len(world.feature_names)} reward parameters here, but the file names "
                f"{len(self.reward_parameters)} others: it was made by another version of that world."
            )
        return world

    def table(self) -> TabularMDP:
        """The world, where exact plans are needed: a simulator is refused."""
        world = self.world()
        return world if isinstance(world, TabularMDP) else without_a_table(self.env)

    def to_json(self) -> str:
        """As text, with every digit of the numbers."""
        return json.dumps(asdict(self), indent=2, allow_nan=False, ensure_ascii=False) + "\n"


def read_world(path: str | Path) -> WorldFile:
    """Read `world.json`, or the directory that holds one."""
    place = Path(path)
    place = place / "world.json" if place.is_dir() else place
    return _checked(read_json(place, EXPECTED), place)


def _checked(content: dict[str, Any], place: Path) -> WorldFile:
    numbers = (int, float)
    kinds: dict[str, Any] = {
        "env": str,
        "discount": numbers,
        "planning_horizon": (int, type(None)),
        "horizon": int,
        "reward_parameters": list,
        "true_reward": list,
    }
    for name, kind in kinds.items():
        if name not in content or not isinstance(content[name], kind) or isinstance(content[name], bool):
            raise FileProblem(f"{place}: {name!r} is missing or of the wrong kind; {EXPECTED}.")
    if not all(_is_number(value) for value in [*content["true_reward"], content["discount"]]):
        raise FileProblem(f"{place}: 'true_reward' should be a list of numbers, 'discount' a number; {EXPECTED}.")
    if not isinstance(content.get("made") or {}, dict):
        raise FileProblem(f"{place}: 'made' is of the wrong kind; {EXPECTED}.")
    return WorldFile(
        env=content["env"],
        discount=float(content["discount"]),
        planning_horizon=content["planning_horizon"],
        horizon=content["horizon"],
        reward_parameters=tuple(str(name) for name in content["reward_parameters"]),
        true_reward=tuple(float(value) for value in content["true_reward"]),
        made=content.get("made") or {},
    )


def _is_number(value: Any) -> bool:
    """Finite, and within what a double can hold: JSON has whole numbers of any length."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < LARGEST
