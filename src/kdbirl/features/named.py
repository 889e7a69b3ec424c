"""Feature maps by the names that the command line uses."""

from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import reduce
from operator import add
from typing import Any

from kdbirl.errors import InputError, did_you_mean
from kdbirl.features.autoencoder import Autoencoder, Dense
from kdbirl.features.base import Concatenated, FeatureMap, StoredArray
from kdbirl.features.block import Block
from kdbirl.features.maps import Columns, Fixed, GridCoordinates, Identity, Standardize
from kdbirl.features.one_hot import Encoding, Levels, OneHot, OneHotActions, OneHotStates
from kdbirl.features.pca import PCA
from kdbirl.features.python_code import FittedFunction, Function, Transformer
from kdbirl.features.vae import VAE
from kdbirl.progress import Course

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


# Feature maps from the JSON-able specs that `FeatureMap.to_spec` gives: equal numbers, in any process.

_CLASSES: tuple[Any, ...] = (
    *(
        Identity,
        OneHot,
        OneHotStates,
        OneHotActions,
        Columns,
        GridCoordinates,
        Standardize,
        Function,
        Transformer,
        Concatenated,
        Fixed,
        PCA,
        VAE,
    ),
    *(Block, Encoding, Levels, FittedFunction, StoredArray, Dense, Autoencoder, Course),
)
KINDS: dict[str, Any] = {cls.kind: cls for cls in _CLASSES}


def from_spec(spec: Mapping[str, Any], functions: Mapping[str, Any] | None = None) -> FeatureMap:
    """The map that `to_spec` described; `functions` maps the names of its functions and transformers to the objects.

    A transformer is given as it was after fitting. What a spec's functions are called: `function_names(spec)`.
    """
    missing = [name for name in function_names(spec) if name not in (functions or {})]
    if missing:
        wanted = ", ".join(f"{name!r}: ..." for name in missing)
        given = did_you_mean(missing[0], functions) if functions else ""
        raise InputError(
            f"This feature map uses Python code, which is not kept in files: give it again as "
            f"functions={{{wanted}}}.{given}"
        )
    feature_map = _decoded(spec, functions or {})
    if not isinstance(feature_map, FeatureMap):
        raise InputError(f"This is no feature map's description: {str(spec)[:100]}")
    return feature_map


def function_names(spec: Any) -> tuple[str, ...]:
    """The names of the functions and transformers that a spec needs."""
    if isinstance(spec, list | tuple):
        found = [name for item in spec for name in function_names(item)]
    elif isinstance(spec, Mapping):
        found = [name for item in spec.values() for name in function_names(item)]
        if getattr(KINDS.get(spec.get("kind", "")), "code_field", None) is not None:
            found.insert(0, str(spec.get("name")))
    else:
        found = []
    return tuple(dict.fromkeys(found))


def _decoded(value: Any, functions: Mapping[str, Any]) -> Any:
    if isinstance(value, list | tuple):
        return tuple(_decoded(item, functions) for item in value)
    if not isinstance(value, Mapping):
        return value
    kind = str(value.get("kind"))
    if kind not in KINDS:
        raise InputError(
            f"There is no feature map of the kind {kind!r}; perhaps a newer kdbirl wrote it.{did_you_mean(kind, KINDS)}"
        )
    parts = {name: _decoded(item, functions) for name, item in value.items() if name != "kind"}
    return _built(KINDS[kind], parts, functions)


def _built(cls: Any, parts: dict[str, Any], functions: Mapping[str, Any]) -> Any:
    code_field = getattr(cls, "code_field", None)
    expected = {field.name for field in fields(cls)} - {code_field}
    if set(parts) != expected:
        wrong = ", ".join(sorted(expected ^ set(parts)))
        raise InputError(
            f"The description of a {cls.kind!r} is damaged or from another version of kdbirl: see {wrong}."
        )
    if code_field is not None:
        parts[code_field] = functions[parts["name"]]
    if cls is Function:
        parts["names"] = parts.pop("given_names")
    return cls(**parts)
