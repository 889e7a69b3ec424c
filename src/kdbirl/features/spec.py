"""Feature maps from the JSON-able specs that `FeatureMap.to_spec` gives: equal numbers, in any process."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from kdbirl.errors import InputError, did_you_mean
from kdbirl.features.autoencoder import Autoencoder, Dense
from kdbirl.features.base import Concatenated, FeatureMap
from kdbirl.features.block import Block
from kdbirl.features.columns import Columns, GridCoordinates, Identity
from kdbirl.features.fixed import Fixed
from kdbirl.features.one_hot import Encoding, Levels, OneHot, OneHotActions, OneHotStates
from kdbirl.features.pca import PCA
from kdbirl.features.python_code import FittedFunction, Function, Transformer
from kdbirl.features.standardize import Standardize
from kdbirl.features.stored_array import StoredArray
from kdbirl.features.vae import VAE
from kdbirl.progress import Course

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
