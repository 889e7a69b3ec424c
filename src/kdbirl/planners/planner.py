"""What `planner=` may be: a world and a reward to a policy, or a reward alone to a policy."""

from collections.abc import Callable
from inspect import Parameter, signature
from typing import Any

from kdbirl.errors import InputError

Planner = Callable[[Any, Any], Any]  # a world and one reward (q,) -> a policy


def as_planner(planner: Any) -> Planner:
    """`planner(world, reward)`; a function of one argument is taken to know its world already."""
    if not callable(planner):
        raise InputError(
            f"planner={planner!r} should be a function of the world and a reward, or of a reward alone, that gives a "
            "policy."
        )
    return planner if _required(planner) != 1 else lambda world, reward: planner(reward)


def _required(function: Callable[..., Any]) -> int:
    try:
        parameters = signature(function).parameters.values()
    except (TypeError, ValueError):  # some built-in functions do not say
        return 2
    positional = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    return sum(item.kind in positional and item.default is Parameter.empty for item in parameters)
