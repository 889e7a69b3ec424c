"""Worlds by the names that the command line uses: `gridworld:5`, `icu-sepsis`, `FrozenLake-v1:next-state`."""

from typing import Any

from kdbirl.envs import gridworld, icu_sepsis, toy_text
from kdbirl.envs.base import TabularMDP
from kdbirl.envs.gymnasium_source import GymnasiumSource
from kdbirl.errors import InputError, did_you_mean

GRIDS = {"gridworld": "state", "gridworld-xy": "xy"}  # their reward's features
SEPSIS = "icu-sepsis"
OUTCOME = "+outcome"


def named_world(text: str, discount: float | None = None, horizon: int | None = None) -> TabularMDP:
    """A tabular world from its name.

    `gridworld:5`: 5 x 5 cells, one reward parameter per cell; `gridworld-xy:5`: R = w.(x, y).
    `icu-sepsis`, `icu-sepsis:sofa-lactate-map`, each with `+outcome` at the end for the two outcome indicators.
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
    return _gymnasium(text.strip(), discount, horizon)


def _side(text: str, side: str) -> int:
    if not side.isdecimal() or int(side) < 1:
        raise InputError(f"The world {text!r} should give the cells on a side, such as gridworld:5.")
    return int(side)


def _sepsis(text: str, discount: float | None, horizon: int | None) -> TabularMDP:
    plain = text.removesuffix(OUTCOME)
    features = plain.partition(":")[2].strip() or icu_sepsis.FEATURES[0]
    given = icu_sepsis.DISCOUNT if discount is None else discount
    return icu_sepsis.ICUSepsis(features, outcome=plain != text, discount=given, horizon=horizon)


def _gymnasium(text: str, discount: float | None, horizon: int | None) -> TabularMDP:
    """Gymnasium's own ids may have a colon too (module:id), so only what follows a known id is the features' name."""
    import gymnasium

    name, colon, features = text.rpartition(":")
    if not colon or (name not in gymnasium.registry and features not in toy_text.FEATURES):
        name, features = text, toy_text.FEATURES[0]
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
    except (gymnasium.error.UnregisteredEnv, ModuleNotFoundError) as error:
        known = [*(f"{grid}:5" for grid in GRIDS), SEPSIS, *gymnasium.registry]
        raise InputError(f"There is no world called {name!r}.{_nearest(name, known)}") from error
    except gymnasium.error.Error as error:
        reason = " ".join(str(error).split()).rstrip(".")
        raise InputError(f"Gymnasium cannot make {name!r}: {reason}.") from error


def _nearest(name: str, known: list[str]) -> str:
    near = did_you_mean(name, known)
    if near.startswith(" Did you mean"):
        return near
    return f" There are gridworld:5, gridworld-xy:10, {SEPSIS}, and Gymnasium's ids, such as FrozenLake-v1."
