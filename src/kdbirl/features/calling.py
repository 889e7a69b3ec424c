"""Calling a user's code: with which arguments, what becomes of its errors, and what it may return."""

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from kdbirl.errors import InputError
from kdbirl.features.base import Features, refuse_not_finite


def as_features(result: Any, rows: int, title: str, names: tuple[str, ...] = ()) -> Features:
    """What user's code returned, as a (rows, d) float64 matrix of finite numbers."""
    array = np.asarray(result.toarray() if hasattr(result, "toarray") else result)
    if array.dtype.kind not in "fiub":
        array = _numbers_in(array, title)
    array = array[:, None] if array.ndim == 1 else array
    if array.ndim != 2 or len(array) != rows or array.shape[1] == 0:
        raise InputError(f"{title} must return one line of features per row, ({rows}, d); it returned {array.shape}.")
    known = names if len(names) == array.shape[1] else tuple(str(index) for index in range(array.shape[1]))
    return refuse_not_finite(array.astype(np.float64), known, title)


def _numbers_in(array: np.ndarray, title: str) -> np.ndarray:
    """Frames of mixed number types come as objects; text, complex numbers and dates are refused."""
    try:
        if array.dtype.kind != "O":
            raise ValueError
        return array.astype(np.float64)
    except (TypeError, ValueError):
        raise InputError(
            f"{title} must return numbers; it returned {array.dtype} values of shape {array.shape}."
        ) from None


def guarded(call: Callable[[], Any], problem: str) -> Any:
    """Run user's code; what it raises becomes one sentence, with the original as its cause."""
    try:
        return call()
    except Exception as error:
        first_line = (str(error).splitlines() or [""])[0]
        raise InputError(f"{problem}: {type(error).__name__}: {first_line}") from error


def takes_actions(function: Callable[..., Any], name: str) -> bool:
    """f(states, actions), unless one argument is enough: a second one with a default may be anything (`out=`)."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return True
    one, two = (_can_be_called(signature, count) for count in (1, 2))
    if not one and not two:
        raise InputError(
            f"The feature function {name!r} takes {signature}: it must take (states, actions), or (states) alone."
        )
    anything = any(parameter.kind is parameter.VAR_POSITIONAL for parameter in signature.parameters.values())
    return two and (not one or anything or "actions" in signature.parameters)


def _can_be_called(signature: inspect.Signature, arguments: int) -> bool:
    try:
        signature.bind(*[None] * arguments)
    except TypeError:
        return False
    return True
