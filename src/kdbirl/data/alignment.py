"""Bring two sets of demonstrations to one coding: equal labels get equal codes, equal names the same column."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from kdbirl.errors import InputError, did_you_mean, quoted

# `rows` and `other` are `Demonstrations`; naming that type here would make data.py and this file import each other.


def aligned(kind: str, rows: Any, other: Any) -> dict[str, Any]:
    """The fields of `rows` ("state" or "action") to replace, so that they read like those of `other`."""
    mine, theirs = getattr(rows, f"{kind}s"), getattr(other, f"{kind}s")
    if mine.ndim != theirs.ndim:
        raise InputError(
            f"{kind}s: these are {_kind(mine)} (columns {_names(rows, kind)}), the other demonstrations' are "
            f"{_kind(theirs)} (columns {_names(other, kind)}); read both the same way."
        )
    if mine.ndim == 2:
        return _aligned_columns(kind, rows, other)
    return _aligned_codes(kind, rows, other)


def _kind(values: np.ndarray) -> str:
    return "discrete" if values.ndim == 1 else f"{values.shape[1]} number(s)"


def _names(rows: Any, kind: str) -> list[str]:
    return list(getattr(rows, f"{kind}_names"))


def _aligned_columns(kind: str, rows: Any, other: Any) -> dict[str, Any]:
    values, mine, theirs = getattr(rows, f"{kind}s"), _names(rows, kind), _names(other, kind)
    if len(mine) != len(theirs):
        raise InputError(
            f"{kind}s: these have {len(mine)} columns {mine}, the other demonstrations {len(theirs)} {theirs}; "
            f"choose the same columns for both."
        )
    if set(mine) == set(theirs):
        values = values[:, [mine.index(name) for name in theirs]]
    elif set(mine) & set(theirs):
        # Some names agree and some do not: a mistake more likely than a renaming.
        raise InputError(
            f"{kind}s: these have the columns {mine}, the other demonstrations {theirs}; "
            f"choose the same columns for both."
        )
    return {f"{kind}s": values, f"{kind}_names": tuple(theirs)}


def _aligned_codes(kind: str, rows: Any, other: Any) -> dict[str, Any]:
    codes = getattr(rows, f"{kind}s")
    mine, theirs = getattr(rows, f"{kind}_labels"), getattr(other, f"{kind}_labels")
    declared = getattr(other, f"n_{kind}s")
    fields: dict[str, Any] = {f"{kind}_names": tuple(_names(other, kind)), f"n_{kind}s": declared}
    if mine is None and theirs is None:
        fields[f"n_{kind}s"] = getattr(rows, f"n_{kind}s") if declared is None else declared
        return fields
    _check_comparable(kind, mine, theirs)
    # Plain codes are their own labels: 0 is "0".
    used = np.unique(codes)
    used_labels = [str(code) if mine is None else mine[code] for code in used]
    known = [str(code) for code in range(int(getattr(other, f"{kind}s").max()) + 1)] if theirs is None else list(theirs)
    position = {label: code for code, label in enumerate(known)}
    new = [label for label in used_labels if label not in position]
    if new and declared is not None and len(known) + len(new) > declared:
        row = int(np.isin(codes, used[[label in new for label in used_labels]]).argmax())
        label = str(codes[row]) if mine is None else mine[codes[row]]
        near = did_you_mean(label, known)
        raise InputError(f"{kind}s: row {row + 1} is {quoted(label)}, outside the declared set.{near}")
    position |= {label: len(known) + i for i, label in enumerate(new)}
    lookup = np.zeros(int(used.max()) + 1, dtype=np.int64)
    lookup[used] = [position[label] for label in used_labels]
    return fields | {f"{kind}s": lookup[codes], f"{kind}_labels": tuple(known + new)}


def _check_comparable(kind: str, mine: Sequence[str] | None, theirs: Sequence[str] | None) -> None:
    """Codes against labels is meaningful only where the labels are whole numbers."""
    labels = theirs if mine is None else mine
    if (mine is None) != (theirs is None) and not all(_is_whole(label) for label in labels or ()):
        which = (
            "the other demonstrations' are labelled" if mine is None else "the other demonstrations' are plain codes"
        )
        own = "plain codes" if mine is None else "labelled"
        raise InputError(f"{kind}s: these are {own}, {which} ({list(labels or ())[:5]}); use the same for both.")


def _is_whole(label: str) -> bool:
    return label.removeprefix("-").isdecimal()
