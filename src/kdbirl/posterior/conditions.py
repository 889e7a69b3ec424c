"""Events over the draws of a posterior: `"w1 > w2"`, or a function of the draws by name.

A condition in text has the form NAME OP NAME, NAME OP NUMBER or NUMBER OP NAME, with OP one of < <= > >=. It is
parsed here by comparing with the known names, never evaluated as code; names may hold anything, operators too.
"""

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from kdbirl.errors import InputError, did_you_mean

OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
}

Condition = str | Callable[[Any], Any]


class NamedDraws(Mapping[str, Float[np.ndarray, " draw"]]):
    """Draws `(draw, q)` by parameter name (`r["w1"]`), by position (`r[:, 0]`) or as an array (`np.asarray(r)`)."""

    def __init__(self, values: Float[np.ndarray, "draw q"], names: Sequence[str]) -> None:
        self._values = values
        self._columns = {name: j for j, name in enumerate(names)}

    def __getitem__(self, key: Any) -> Any:
        if not isinstance(key, str):
            return self._values[key]
        if key not in self._columns:
            raise InputError(f"There is no reward parameter {key!r}.{did_you_mean(key, self._columns)}")
        return self._values[:, self._columns[key]]

    def __contains__(self, key: object) -> bool:
        return key in self._columns

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, np.dtype[Any]]:
        return np.array(self._values, dtype=dtype, copy=copy)


def holds(condition: Condition, draws: NamedDraws) -> Bool[np.ndarray, " draw"]:
    """For each draw, whether the condition holds."""
    if isinstance(condition, str):
        return _parsed(condition, draws)
    if not callable(condition):
        raise InputError(
            f"condition: expected text such as 'w1 > w2' or a function of the draws, got {type(condition).__name__}."
        )
    result = np.asarray(condition(draws))
    rows = np.asarray(draws).shape[0]
    if result.shape != (rows,) or result.dtype.kind != "b":
        raise InputError(
            f"condition: the function must give one true or false for each of the {rows} draws, such as "
            f"lambda r: r['w1'] > r['w2']; it gave {result.dtype} of shape {result.shape}."
        )
    return result


def _parsed(text: str, draws: NamedDraws) -> Bool[np.ndarray, " draw"]:
    readings = [
        (left, compare, right)
        for before, compare, after in _cuts(text)
        if (left := _side(before, draws)) is not None
        and (right := _side(after, draws)) is not None
        and not (isinstance(left, float) and isinstance(right, float))
    ]
    if len(readings) > 1:
        example = f"lambda r: r[{next(iter(draws))!r}] > 0"
        raise InputError(f"condition: {text!r} can be read in several ways; give a function such as {example}.")
    if not readings:
        form = "NAME < NAME or NAME < NUMBER (or <=, >, >=)"
        raise InputError(f"condition: cannot read {text!r}; expected {form}.{_hint(text, draws)}")
    left, compare, right = readings[0]
    return np.asarray(compare(left, right))


def _cuts(text: str) -> Iterator[tuple[str, Callable[[Any, Any], Any], str]]:
    """Every way to cut the text at an operator; `<=` is not also cut at its `<`."""
    position = 0
    while position < len(text):
        symbol = next((s for s in OPERATORS if text.startswith(s, position)), None)
        if symbol:
            yield text[:position], OPERATORS[symbol], text[position + len(symbol) :]
        position += len(symbol) if symbol else 1


def _side(text: str, draws: NamedDraws) -> Any:
    """The draws of the parameter called so (quotes may stand around it), else the number, else None."""
    stripped = text.strip()
    bare = stripped[1:-1] if len(stripped) > 1 and stripped[0] == stripped[-1] and stripped[0] in "'\"`" else stripped
    for name in (text, stripped, bare):
        if name in draws:
            return draws[name]
    try:
        number = float(stripped)
    except ValueError:
        return None
    return None if np.isnan(number) else number


def _hint(text: str, draws: NamedDraws) -> str:
    """Which side is the unknown one, with the nearest name."""
    for before, _, after in _cuts(text):
        for side in (before, after):
            if _side(side, draws) is None:
                return f" There is no reward parameter {side.strip()!r}.{did_you_mean(side.strip(), draws)}"
    return did_you_mean(text, draws)
