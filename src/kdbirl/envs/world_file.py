"""`world.json`: which world demonstrations came from, and the reward that the expert had. Enough to judge a posterior.

Fields: `env` (a name for `named_world`), `discount`, `planning_horizon`, `horizon` (of the recorded episodes),
`reward_parameters`, `true_reward`, and a record of how the tables were made, `made`, which nobody needs to read again.
"""

import json
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from kdbirl.envs.base import TabularMDP
from kdbirl.envs.named import module_to_import, named_world, without_a_table
from kdbirl.envs.world import World
from kdbirl.errors import FileProblem, InputError
from kdbirl.reading import read_json

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
