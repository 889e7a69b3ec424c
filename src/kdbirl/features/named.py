"""Feature maps by the names that the command line uses."""

from collections.abc import Callable

from kdbirl.errors import InputError, did_you_mean
from kdbirl.features.base import FeatureMap
from kdbirl.features.columns import Columns, GridCoordinates, Identity
from kdbirl.features.one_hot import OneHot
from kdbirl.features.standardize import Standardize

_NAMED: dict[str, Callable[[str], FeatureMap]] = {
    "standardize": lambda text: Standardize(),
    "identity": lambda text: Identity(),
    "onehot": lambda text: OneHot(),
    "columns": lambda text: Columns([name.strip() for name in text.split(",")]),
    "grid": lambda text: GridCoordinates(_size(text)),
}


def named_features(text: str) -> FeatureMap:
    """`standardize` (the default), `identity`, `onehot`, `columns:x,y`, or `grid:5`."""
    name, _, rest = text.strip().partition(":")
    make = _NAMED.get(name.lower().replace("-", "").replace("_", ""))
    if make is None:
        raise InputError(f"There are no features called {name!r}.{did_you_mean(name, _NAMED)}")
    return make(rest)


def _size(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise InputError(f"grid:{text} should name the grid's width, such as grid:5.")
    return int(text)
