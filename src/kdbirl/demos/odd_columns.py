"""Columns of numbers that say nothing to any method that looks at distances: a note tells, since no result would."""

import numpy as np
from jaxtyping import Float

from kdbirl.demos.data import Demonstrations

BEYOND = 1e6  # times the spread of all but a hundredth of the rows on either side: they would look alike


def odd_columns(rows: Demonstrations) -> tuple[str, ...]:
    """A sentence for each column that is constant, or has a number beyond all others."""
    columns = []
    if not rows.discrete_states:
        columns += list(zip(rows.state_names, rows.states.T, strict=True))
    if rows.actions is not None and not rows.discrete_actions:
        columns += list(zip(rows.action_names, rows.actions.T, strict=True))
    return tuple(sentence for name, values in columns if (sentence := _oddity(name, values)))


def _oddity(name: str, values: Float[np.ndarray, " m"]) -> str:
    low, high = float(values.min()), float(values.max())
    if low == high:
        return f"column {name!r} is {low:g} in every training row, and says nothing"
    near, far = np.quantile(values, [0.01, 0.99])
    with np.errstate(over="ignore"):
        hides = 0 < far - near < (high - low) / BEYOND
    extreme = low if near - low > high - far else high
    return f"column {name!r} is {extreme:g} somewhere, beside which all other training rows look alike" if hides else ""
