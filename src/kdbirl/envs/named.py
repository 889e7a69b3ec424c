"""Worlds by the names that the command line uses: `gridworld:5`, `icu-sepsis`, `sepsis`, `FrozenLake-v1:next-state`."""

from typing import TYPE_CHECKING, Any, NoReturn

from kdbirl.envs import gridworld, icu_sepsis, toy_text
from kdbirl.envs.base import TabularMDP
from kdbirl.envs.gymnasium_source import GymnasiumSource
from kdbirl.errors import InputError, did_you_mean

if TYPE_CHECKING:
    from kdbirl.envs.sepsis import SepsisSim

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
    from kdbirl.envs.sepsis import DISCOUNT, HORIZON, SepsisSim  # here, since it imports JAX

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
    if not colon or (name not in gymnasium.registry and features not in toy_text.FEATURES):
        return text, toy_text.FEATURES[0]
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
