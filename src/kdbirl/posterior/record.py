"""The fields of a `Posterior`: checked once, copied to read-only arrays and plain values, and digested."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kdbirl.errors import InputError
from kdbirl.features.base import FeatureMap

COLOURS = ("green", "amber", "red", "not assessed")


def digest_of(items: Mapping[str, Any]) -> str:
    """SHA-256, in hex, of named values: arrays by dtype, shape and bytes, everything else by its JSON."""
    digest = hashlib.sha256(b"Posterior")
    for name, value in items.items():
        digest.update(f"\0{name}\0".encode("utf-8", "surrogatepass"))
        if isinstance(value, np.ndarray):
            digest.update(f"{value.dtype.str}{value.shape}".encode())
            raw: Any = np.ascontiguousarray(value)
            digest.update(memoryview(raw).cast("B") if raw.size else b"")
        else:
            digest.update(json.dumps(value, sort_keys=True).encode())
    return digest.hexdigest()


def spec_of(features: FeatureMap | None) -> dict[str, Any] | None:
    """The map as JSON-able values; where it cannot be written, why not: the draws are worth saving without it."""
    if features is None:
        return None
    try:
        return features.to_spec()
    except InputError as error:
        return {"kind": "unavailable", "reason": str(error)}


def frozen(value: Any, what: str, shape: Sequence[int | None], dtype: Any = None) -> Any:
    """A read-only array of the given shape (None: any length), copied unless nobody can write to it."""
    array = np.asarray(value, dtype=dtype, order="C")
    if array.ndim != len(shape) or any(want not in (None, have) for want, have in zip(shape, array.shape, strict=True)):
        wanted = ", ".join("any" if length is None else str(length) for length in shape)
        raise InputError(f"{what}: expected an array of shape ({wanted}), got {array.shape}.")
    if array.flags.writeable:
        array = array.copy()
        array.setflags(write=False)
    return array


def table_of(value: Any, what: str, q: int) -> Any:
    """`(rows, q)`; nothing at all is no rows."""
    return frozen(np.zeros((0, q)) if np.size(value) == 0 else value, what, (None, q), np.float64)


def statistic_of(value: Any, name: str, shape: tuple[int, int]) -> Any:
    if not str(name).isidentifier():
        raise InputError(f"sample_stats: {name!r} is not a name; use letters, digits and underscores.")
    array = frozen(value, f"sample_stats[{name!r}]", shape)
    if array.dtype.kind not in "biuf":
        raise InputError(f"sample_stats[{name!r}]: expected numbers, got {array.dtype}.")
    return array


def names_of(
    given: Sequence[str], count: int, what: str, default: str | None = None, distinct: bool = True
) -> tuple[str, ...]:
    names = tuple(str(name) for name in given)
    if not names and default is not None:
        names = tuple(f"{default}{i}" for i in range(count))
    if len(names) != count:
        raise InputError(f"{what}: {len(names)} names for {count} values: {list(names)[:12]}.")
    if distinct and len(set(names)) != count:
        raise InputError(f"{what}: the names are not distinct: {list(names)[:12]}.")
    return names


def bandwidth_of(value: Any) -> float | tuple[float, ...] | None:
    if value is None or np.ndim(value) == 0:
        return None if value is None else float(value)
    return tuple(float(v) for v in value)


def json_copy(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings as JSON would give them back, so that a saved posterior equals the one in memory."""

    def plain(value: Any) -> Any:
        if isinstance(value, np.generic | np.ndarray):
            return value.tolist()
        raise TypeError(f"{type(value).__name__} cannot be written as JSON")

    try:
        copied: dict[str, Any] = json.loads(json.dumps(dict(settings), default=plain))
    except (TypeError, ValueError) as error:
        raise InputError(f"settings: {error}; use numbers, text, lists and dictionaries.") from error
    return copied


def cards_of(cards: Mapping[str, Sequence[str]]) -> dict[str, tuple[str, str]]:
    checked = {}
    for name, (colour, sentence) in cards.items():
        if colour not in COLOURS:
            raise InputError(f"cards: {name!r} has the colour {colour!r}; expected one of {', '.join(COLOURS)}.")
        checked[str(name)] = (str(colour), str(sentence))
    return checked
