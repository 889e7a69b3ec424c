"""The arrays of a tabular world, checked: each function gives a read-only array, or says what is wrong with it."""

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import numpy as np
from jaxtyping import Bool, Float

from kdbirl._jax import refuse_traced
from kdbirl.errors import InputError

SUM_TOLERANCE = 1e-8  # rows of probabilities may miss one by this much (they are then divided by their sum)

Array = TypeVar("Array", bound=np.ndarray)


def frozen(array: Array) -> Array:
    """The same array, read-only."""
    array.setflags(write=False)
    return array


def as_numbers(values: Any, what: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    """A copy in double precision without NaN or infinity."""
    refuse_traced(values, what)
    try:
        array = np.array(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"{what}: expected an array of numbers ({error}).") from error
    if not np.isfinite(array).all():
        where = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
        raise InputError(f"{what}: entry {where} is {array[where]}; every entry must be a finite number.")
    return array


def as_transitions(values: Any, terminal: Any = None) -> tuple[Float[np.ndarray, "S A S"], Bool[np.ndarray, " S"]]:
    """(S, A, S) probabilities and (S,) terminal states, which are absorbing whatever their rows say.

    A row that does not sum to one is named by its state and action.
    """
    table = as_numbers(values, "transitions") + 0.0  # + 0.0: -0 is 0
    if table.ndim != 3 or table.shape[0] != table.shape[2] or 0 in table.shape:
        hint = " It looks like (action, state, next state): use transitions.transpose(1, 0, 2)." * (
            table.ndim == 3 and table.shape[1] == table.shape[2] != table.shape[0]
        )
        raise InputError(f"transitions: shape {table.shape}, expected (states, actions, states).{hint}")
    ends = as_mask(terminal, len(table))
    table[ends] = np.eye(len(table))[ends][:, None, :]
    if (table < 0).any():
        s, a, after = (int(i) for i in np.argwhere(table < 0)[0])
        raise InputError(
            f"transitions: the probability of going from state {s} by action {a} to state {after} is "
            f"{table[s, a, after]:g}; probabilities cannot be negative."
        )
    sums = table.sum(axis=2)
    if (np.abs(sums - 1) > SUM_TOLERANCE).any():
        s, a = (int(i) for i in np.argwhere(np.abs(sums - 1) > SUM_TOLERANCE)[0])
        raise InputError(
            f"transitions: the probabilities after action {a} in state {s} sum to {sums[s, a]:.10g}, not to 1; "
            "each transitions[state, action] must be a distribution over the next state."
        )
    table /= sums[:, :, None]
    return frozen(table), ends


def as_mask(values: Any, n_states: int) -> Bool[np.ndarray, " S"]:
    """(S,) booleans; None is nowhere; also a list of state numbers."""
    if values is None:
        return frozen(np.zeros(n_states, dtype=bool))
    given = np.asarray(values)
    if given.dtype != bool:
        mask = np.zeros(n_states, dtype=bool)
        mask[[_state(s, n_states, "terminal") for s in given.reshape(-1)]] = True
    else:
        mask = given.copy()
    if mask.shape != (n_states,):
        raise InputError(f"terminal: shape {mask.shape}, expected one true/false value for each of {n_states} states.")
    if mask.all():
        raise InputError("terminal: every state is terminal, so nothing can happen; leave at least one state open.")
    return frozen(mask)


def _state(value: Any, n_states: int, what: str) -> int:
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not 0 <= value < n_states:
        raise InputError(f"{what}: there is no state {value!r}; states are whole numbers from 0 to {n_states - 1}.")
    return int(value)


def as_start(values: Any, terminal: Bool[np.ndarray, " S"]) -> Float[np.ndarray, " S"]:
    """(S,) distribution of the first state, without mass on terminal states."""
    n_states = len(terminal)
    if isinstance(values, str):
        if values != "uniform":
            raise InputError(f'start={values!r} should be "uniform", a state or a distribution over the states.')
        return frozen(~terminal / (~terminal).sum())
    if np.ndim(values) == 0:
        start = np.zeros(n_states)
        start[_state(values, n_states, "start")] = 1.0
    else:
        start = as_numbers(values, "start")
    if start.shape != (n_states,):
        raise InputError(f"start: shape {start.shape}, expected one probability for each of {n_states} states.")
    if (start < 0).any() or abs(start.sum() - 1) > SUM_TOLERANCE:
        raise InputError(f"start: the probabilities must not be negative and sum to 1; they sum to {start.sum():.10g}.")
    if (start[terminal] > 0).any():
        state = int(np.flatnonzero(terminal & (start > 0))[0])
        raise InputError(f"start: state {state} is terminal, so an episode from there is over before it begins.")
    return frozen(start / start.sum())


def as_discount(value: Any) -> float:
    """A number from 0 to 1."""
    number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    if not number or not 0 <= value <= 1:
        raise InputError(f"discount={value!r} should be a number from 0 to 1, such as 0.95.")
    return float(value)


def as_horizon(value: Any) -> int | None:
    """A whole number of steps, at least one; None is no horizon."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise InputError(f"horizon={value!r} should be a whole number of steps, at least 1, or None.")
    return int(value)


def as_features(
    values: Any, n_states: int, n_actions: int
) -> Float[np.ndarray, "S A q"] | Float[np.ndarray, "S q"] | None:
    """(S, q) or (S, A, q) numbers, or None."""
    if values is None:
        return None
    phi = as_numbers(values, "features")
    fits = phi.ndim in (2, 3) and phi.shape[:-1] in ((n_states,), (n_states, n_actions)) and phi.shape[-1] > 0
    if not fits:
        raise InputError(
            f"features: shape {phi.shape}, expected (states, q) = ({n_states}, q) or (states, actions, q) = "
            f"({n_states}, {n_actions}, q)."
        )
    return frozen(phi)


def as_table(values: Any, n_states: int, n_actions: int) -> Float[np.ndarray, "S A"]:
    """A number for each state and action."""
    table = as_numbers(values, "env_reward")
    if table.shape != (n_states, n_actions):
        raise InputError(f"env_reward: shape {table.shape}, expected ({n_states}, {n_actions}).")
    return frozen(table)


def as_recorded(value: int | None, terminal: Bool[np.ndarray, " S"]) -> int:
    """How many states demonstrations declare; only terminal states may be left out, since nobody acts there."""
    count = len(terminal) if value is None else int(value)
    if not 0 < count <= len(terminal) or not terminal[count:].all():
        raise InputError(f"recorded_states={value}: states from {value} on must be terminal to be left out.")
    return count


def as_names(given: Sequence[str], count: int, default: Iterable[str], what: str) -> tuple[str, ...]:
    """The given names, or the default ones; one each, all different."""
    names = tuple(str(name) for name in given) or tuple(default)
    if len(names) != count:
        raise InputError(f"{what}: {len(names)} names for {count}: {list(names[:12])}.")
    if len(set(names)) != count:
        raise InputError(f"{what}: the names {list(names[:12])} are not all different.")
    return names


def as_rewards(values: Any, names: Sequence[str]) -> Float[np.ndarray, "r q"]:
    """(r, q) finite numbers from one vector or a table of them."""
    table = as_numbers(values, "reward")
    table = table[None] if table.ndim == 1 else table
    if table.ndim != 2 or table.shape[1] != len(names) or len(table) == 0:
        shown = ", ".join(names[:6]) + (", ..." if len(names) > 6 else "")
        raise InputError(
            f"reward: shape {np.shape(values)}, but a reward of this world has {len(names)} parameters ({shown}); "
            f"give a vector of that length, or a table with a row for each reward."
        )
    return table
