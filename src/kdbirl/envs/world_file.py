"""`world.json`: which world demonstrations came from, and the reward that the expert had. Enough to judge a posterior.

Fields: `env` (a name for `named_world`), `discount`, `planning_horizon`, `horizon` (of the recorded episodes),
`reward_parameters`, `true_reward`, and a record of how the tables were made, `made`, which nobody needs to read again.
"""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from kdbirl.envs.base import TabularMDP
from kdbirl.envs.named import tabular_world
from kdbirl.errors import FileProblem, InputError

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

    def world(self) -> TabularMDP:
        """The world itself; its parameters must still be those that the file names."""
        world = tabular_world(self.env, self.discount, self.planning_horizon)
        if world.feature_names != self.reward_parameters:
            raise InputError(
                f"{self.env} has {world.n_parameters} reward parameters here, but the file names "
                f"{len(self.reward_parameters)} others: it was made by another version of that world."
            )
        return world

    def to_json(self) -> str:
        """As text, with every digit of the numbers."""
        return json.dumps(asdict(self), indent=2, allow_nan=False, ensure_ascii=False) + "\n"


def read_world(path: str | Path) -> WorldFile:
    """Read `world.json`, or the directory that holds one."""
    place = Path(path)
    place = place / "world.json" if place.is_dir() else place
    try:
        content = json.loads(place.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise FileProblem(f"{place}: there is no such file; {EXPECTED}.") from error
    except OSError as error:
        raise FileProblem(f"{place} cannot be read: {error.strerror or error}.") from error
    except ValueError as error:  # neither UTF-8 nor JSON
        raise FileProblem(f"{place} is not JSON ({error}); {EXPECTED}.") from error
    return _checked(content, place)


def _checked(content: Any, place: Path) -> WorldFile:
    numbers = (int, float)
    kinds: dict[str, Any] = {
        "env": str,
        "discount": numbers,
        "planning_horizon": (int, type(None)),
        "horizon": int,
        "reward_parameters": list,
        "true_reward": list,
    }
    if not isinstance(content, dict):
        raise FileProblem(f"{place} holds no JSON object; {EXPECTED}.")
    for name, kind in kinds.items():
        if name not in content or not isinstance(content[name], kind):
            raise FileProblem(f"{place}: {name!r} is missing or of the wrong kind; {EXPECTED}.")
    if not all(isinstance(value, numbers) for value in content["true_reward"]):
        raise FileProblem(f"{place}: 'true_reward' should be a list of numbers; {EXPECTED}.")
    return WorldFile(
        env=content["env"],
        discount=float(content["discount"]),
        planning_horizon=content["planning_horizon"],
        horizon=content["horizon"],
        reward_parameters=tuple(str(name) for name in content["reward_parameters"]),
        true_reward=tuple(float(value) for value in content["true_reward"]),
        made=content.get("made") or {},
    )
