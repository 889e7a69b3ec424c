"""The rewards of a bank: one vector per named task, and which row belongs to which task."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from kdbirl.data import arrays
from kdbirl.errors import InputError, did_you_mean, quoted


def label_of(value: Any) -> str:
    """A task label as text: 1, 1.0 and "1" are the same label, "01" is another."""
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    return str(value)


def labels_of_rows(values: Any, what: str) -> np.ndarray:
    """The label of each row as text; a missing one is named."""
    array = arrays.as_array(values, what)
    arrays.refuse_missing_labels(array, what)
    labels, inverse = _distinct_labels(array)
    return np.array(labels)[inverse]


def _distinct_labels(array: np.ndarray) -> tuple[list[str], np.ndarray]:
    """Those of all rows, and which of them each row has: a million rows cost one sort."""
    levels, inverse = np.unique(array.astype(str) if arrays.is_text(array) else array, return_inverse=True)
    return [label_of(level) for level in levels], inverse


def are_labels(rewards: Any, names: Sequence[Any]) -> bool:
    """Do integer tasks mean labels, not positions? Yes, where the rewards name their tasks or the names are numbers."""
    named = isinstance(rewards, Mapping) or (arrays.is_frame(rewards) and "task" in arrays.collected(rewards).columns)
    return named or (len(names) > 0 and not any(isinstance(name, str) for name in names))


def as_rewards(
    rewards: Any, names: Iterable[Any], reward_names: Iterable[str]
) -> tuple[Float[np.ndarray, "K q"], tuple[str, ...], tuple[str, ...]]:
    """(K, q) finite rewards with task and parameter names, from an array, a frame, or a mapping name -> vector."""
    names, reward_names = tuple(names), tuple(reward_names)
    if isinstance(rewards, Mapping):
        names, rewards = names or tuple(rewards), list(rewards.values())
    elif arrays.is_frame(rewards):
        rewards, names, reward_names = _from_frame(arrays.collected(rewards), names, reward_names)
    labels = tuple(label_of(name) for name in names) or tuple(str(k) for k in range(len(rewards)))
    if len(labels) == 0:
        raise InputError("rewards: there are no tasks; give one reward vector per task.")
    if len(labels) != len(rewards):
        raise InputError(f"rewards: {len(rewards)} reward vectors for {len(labels)} task names; they must match.")
    _check_distinct(labels)
    array = _matrix(rewards, labels)
    parameters = arrays.column_names(
        reward_names, array.shape[1], [f"r{i}" for i in range(array.shape[1])], "reward_names"
    )
    numbers = arrays.as_numbers(array, parameters, "rewards") if array.dtype.kind not in "iufb" else array.astype(float)
    bad = ~np.isfinite(numbers)
    if bad.any():
        k, i = divmod(int(bad.argmax()), numbers.shape[1])
        raise InputError(
            f"rewards: task {labels[k]!r}, parameter {parameters[i]!r} is {numbers[k, i]}; it must be finite."
        )
    return numbers, labels, parameters


def _from_frame(
    frame: Any, names: tuple[Any, ...], reward_names: tuple[str, ...]
) -> tuple[np.ndarray, tuple[Any, ...], tuple[str, ...]]:
    columns = tuple(str(column) for column in frame.columns)
    if "task" in columns and not names:
        names = tuple(frame["task"])
    chosen = [column for column in frame.columns if column != "task"]
    return np.asarray(frame[chosen]), names, reward_names or tuple(str(column) for column in chosen)


def _check_distinct(labels: Sequence[str]) -> None:
    if "" in labels:
        raise InputError("rewards: a task has an empty name; every task needs a name of its own.")
    if len(set(labels)) != len(labels):
        seen: set[str] = set()
        repeated = next(label for label in labels if label in seen or seen.add(label))  # type: ignore[func-returns-value]
        raise InputError(f"rewards: task {repeated!r} is there twice; each task has exactly one reward vector.")


def _matrix(rewards: Any, labels: Sequence[str]) -> np.ndarray:
    """A rectangular (K, q) array; plain numbers are vectors of one parameter."""
    if not isinstance(rewards, np.ndarray):
        vectors = [np.atleast_1d(np.asarray(vector)) for vector in rewards]
        for label, vector in zip(labels, vectors, strict=True):
            if vector.shape != vectors[0].shape:
                raise InputError(
                    f"reward vectors of different length: task {quoted(label)} has {vector.size} values, "
                    f"{quoted(labels[0])} has {vectors[0].size}."
                )
        rewards = np.stack(vectors)
    array = arrays.as_array(rewards, "rewards")
    return array[:, None] if array.ndim == 1 else array


def task_codes(tasks: Any, labels: Sequence[str], rows: int, by_label: bool = False) -> Int[np.ndarray, " rows"]:
    """The task 0..K-1 of each row, from positions or from labels; every task must have a row."""
    array = arrays.as_array(tasks, "tasks")
    arrays.check_length(array, rows, "tasks")
    if array.ndim != 1:
        raise InputError(f"tasks: expected one task per row, got shape {array.shape}.")
    codes = (
        _codes_of_labels(array, labels) if by_label or arrays.is_text(array) else arrays.number_codes(array, "tasks")
    )
    outside = (codes < 0) | (codes >= len(labels))
    if outside.any():
        row = int(outside.argmax())
        raise InputError(
            f"tasks: row {row + 1} is task {int(codes[row])}, but there are {len(labels)} reward vectors, "
            f"0 to {len(labels) - 1}."
        )
    empty = np.bincount(codes, minlength=len(labels)) == 0
    if empty.any():
        raise InputError(f"{_named(labels, empty)} a reward but no rows; drop that reward or add its demonstrations.")
    return codes


def _named(labels: Sequence[str], chosen: np.ndarray) -> str:
    found = [labels[k] for k in np.flatnonzero(chosen).tolist()]
    shown = ", ".join(repr(label) for label in found[:5]) + (f" and {len(found) - 5} more" if len(found) > 5 else "")
    return f"Task {shown} has" if len(found) == 1 else f"Tasks {shown} have"


def _codes_of_labels(array: np.ndarray, labels: Sequence[str]) -> Int[np.ndarray, " rows"]:
    found, inverse = _distinct_labels(array)
    position = {label: k for k, label in enumerate(labels)}
    lookup = np.array([position.get(label, -1) for label in found], dtype=np.int64)
    if (lookup < 0).any():
        unknown = found[int((lookup < 0).argmax())]
        raise InputError(
            f"Task {unknown!r} has rows but no reward; add it to the rewards.{did_you_mean(unknown, labels)}"
        )
    return lookup[inverse]
