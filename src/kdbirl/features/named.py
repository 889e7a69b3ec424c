"""Feature maps by the names that the command line uses."""

from collections.abc import Callable
from functools import reduce
from operator import add

from kdbirl.errors import InputError, did_you_mean
from kdbirl.features.base import FeatureMap
from kdbirl.features.columns import Columns, GridCoordinates, Identity
from kdbirl.features.one_hot import OneHot, OneHotActions, OneHotStates
from kdbirl.features.pca import PCA
from kdbirl.features.standardize import Standardize
from kdbirl.features.vae import VAE

LEARNT = 3  # features, as in the paper
LONGEST_NUMBER = 9  # digits
_ALONE: dict[str, Callable[[], FeatureMap]] = {
    "standardize": Standardize,
    "identity": Identity,
    "onehot": OneHot,
    "onehot-states": OneHotStates,
    "onehot-actions": OneHotActions,
}
_WITH_A_CHOICE: dict[str, Callable[[str], FeatureMap]] = {
    "columns": lambda text: Columns(_names(text)),
    "grid": lambda text: GridCoordinates(_size(text)),
    "vae": lambda text: VAE(_count(text, "vae")),
    "pca": lambda text: PCA(_count(text, "pca")),
}


def named_features(text: str) -> FeatureMap:
    """A map by name: `standardize` (the default), `identity`, `onehot`, `onehot-states`, `onehot-actions`,
    `columns:x,y`, `grid:5` or `grid:5x3`, `vae:3` or `pca:3` (learnt from the training rows; 3 if no number is given).
    Several side by side: `grid:5+onehot-actions`.
    """
    return reduce(add, (_one(part.strip()) for part in text.split("+")))


def _one(text: str) -> FeatureMap:
    name, colon, choice = text.partition(":")
    spelled = name.strip().lower().replace("_", "-").replace("one-hot", "onehot")
    if spelled in _ALONE and not colon:
        return _ALONE[spelled]()
    if spelled in _WITH_A_CHOICE:
        return _WITH_A_CHOICE[spelled](choice)
    if spelled in _ALONE:
        raise InputError(f"The features {text!r} take nothing after the name: write {spelled}.")
    known = (*_ALONE, *_WITH_A_CHOICE)
    raise InputError(f"There are no features called {name!r}.{did_you_mean(spelled, known)}")


def _names(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise InputError(f"columns:{text} should name at least one column, such as columns:x,y.")
    return names


def _size(text: str) -> tuple[int, int]:
    sides = [side.strip() for side in text.lower().split("x")]
    if len(sides) > 2 or not all(side.isdecimal() and len(side) <= LONGEST_NUMBER and int(side) > 0 for side in sides):
        raise InputError(f"grid:{text} should give the grid's side, such as grid:5, or width x height, grid:5x3.")
    return int(sides[0]), int(sides[-1])


def _count(text: str, name: str) -> int:
    """How many features are learnt."""
    if text.strip() and not (text.strip().isdecimal() and len(text.strip()) <= LONGEST_NUMBER and int(text) > 0):
        raise InputError(f"{name}:{text} should give how many features are learnt, such as {name}:3.")
    return int(text or LEARNT)
