"""`Demonstrations` and `TaskBank`: the two data types that everything else takes, validated once, here, and frozen."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from operator import index as as_int
from typing import Any, SupportsIndex

import numpy as np
from jaxtyping import Bool, Float, Int

from kdbirl.data import alignment, arrays
from kdbirl.data.rewards import are_labels, as_rewards, task_codes
from kdbirl.errors import InputError, did_you_mean

# Equality and fingerprint of frozen dataclasses that hold arrays.


class Content:
    """Equality and fingerprint by content (arrays, names, labels), for frozen dataclasses."""

    @cached_property
    def _digest(self) -> str:
        digest = hashlib.sha256(type(self).__name__.encode())
        for item in fields(self):  # type: ignore[arg-type]
            value = getattr(self, item.name)
            digest.update(f"\0{item.name}\0".encode())
            if isinstance(value, np.ndarray):
                digest.update(f"{value.dtype.str}{value.shape}".encode())
                digest.update(value.tobytes())
            else:
                digest.update((value.fingerprint() if isinstance(value, Content) else repr(value)).encode())
        return digest.hexdigest()

    def fingerprint(self) -> str:
        """SHA-256 of the content, in hex: equal content, equal fingerprint, in any process."""
        return self._digest

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self._digest == other._digest

    def __hash__(self) -> int:
        return hash(self._digest)


@dataclass(frozen=True, eq=False, init=False, repr=False)
class Demonstrations(Content):
    """Observed (state, action) rows of one or more episodes.

    Arguments (any array-like or frame; copied to read-only arrays):
        states: `(rows, d_s)` numbers, or `(rows,)` codes 0..n_states-1 of discrete states. A one-dimensional *integer*
            or text array is discrete, as is anything with `n_states` or `state_labels`; other one-dimensional arrays
            become `(rows, 1)`.
        actions: None, `(rows,)` codes (one-dimensional whole numbers or text), or `(rows, d_a)` numbers.
        episodes: `(rows,)` whole numbers or text; rows with equal values are one episode. Default: all one episode.
        terminated, truncated: `(rows,)` booleans or None: the episode *ended* here, or was merely *cut* here.
        state_names, action_names: column names.
        state_labels, action_labels: the text of each code.
        n_states, n_actions: *declared* counts; a code outside a declared count is an error, None declares nothing.
    """

    states: Float[np.ndarray, "rows d_s"] | Int[np.ndarray, " rows"]
    actions: Float[np.ndarray, "rows d_a"] | Int[np.ndarray, " rows"] | None
    episodes: Int[np.ndarray, " rows"]
    terminated: Bool[np.ndarray, " rows"] | None
    truncated: Bool[np.ndarray, " rows"] | None
    state_names: tuple[str, ...]
    action_names: tuple[str, ...]
    state_labels: tuple[str, ...] | None
    action_labels: tuple[str, ...] | None
    n_states: int | None
    n_actions: int | None

    def __init__(
        self,
        states: Any,
        actions: Any = None,
        episodes: Any = None,
        terminated: Any = None,
        truncated: Any = None,
        state_names: Sequence[str] = (),
        action_names: Sequence[str] = (),
        state_labels: Sequence[str] | None = None,
        action_labels: Sequence[str] | None = None,
        n_states: int | None = None,
        n_actions: int | None = None,
    ) -> None:
        self._set_variable("state", states, state_names, state_labels, n_states)
        rows = len(self.states)
        self._set_actions(actions, action_names, action_labels, n_actions)
        self._set(
            episodes=arrays.as_episodes(episodes, rows),
            terminated=arrays.as_flags(terminated, rows, "terminated"),
            truncated=arrays.as_flags(truncated, rows, "truncated"),
        )

    def _set(self, **values: object) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)  # the object is frozen, and only being made

    def _set_actions(self, actions: Any, names: Sequence[str], labels: Sequence[str] | None, count: int | None) -> None:
        if actions is not None:
            self._set_variable("action", actions, names, labels, count)
        elif names or labels is not None or count is not None:
            raise InputError("actions: there are none, but their names, labels or count were given.")
        else:
            self._set(actions=None, action_names=(), action_labels=None, n_actions=None)

    def _set_variable(
        self, kind: str, values: Any, names: Sequence[str], labels: Sequence[str] | None, count: int | None
    ) -> None:
        """Normalise states or actions, with their names and labels: codes (rows,) or numbers (rows, width)."""
        what = f"{kind}s"
        values = arrays.collected(values)
        names = names or (tuple(values.columns) if arrays.is_frame(values) else ())
        array = arrays.as_array(values, what)
        if kind == "action":
            arrays.check_length(array, len(self.states), what)
        if labels is not None or count is not None or arrays.holds_codes(array, whole_floats=kind == "action"):
            result, labels = arrays.as_codes(array, labels, count, what)
            names = arrays.column_names(names, 1, (kind,), f"{kind}_names")
        else:
            width = 1 if array.ndim == 1 else array.shape[1]
            names = arrays.column_names(names, width, [f"{kind[0]}{i}" for i in range(width)], f"{kind}_names")
            result = arrays.as_numbers(array, names, what)
        count = None if count is None else int(count)
        self._set(**{what: arrays.frozen(result), f"{kind}_names": names, f"{kind}_labels": labels, f"n_{what}": count})

    def __repr__(self) -> str:
        states = "discrete states" if self.discrete_states else f"states {', '.join(self.state_names)}"
        actions = "no actions" if self.actions is None else f"actions {', '.join(self.action_names)}"
        return f"Demonstrations({self.n_rows} rows in {self.n_episodes} episodes, {states}, {actions})"

    @property
    def n_rows(self) -> int:
        return len(self.states)

    @property
    def discrete_states(self) -> bool:
        return self.states.ndim == 1

    @property
    def discrete_actions(self) -> bool:
        return self.actions is not None and self.actions.ndim == 1

    @property
    def n_episodes(self) -> int:
        return len(np.unique(self.episodes))

    def take(self, index: Any) -> "Demonstrations":
        """The rows at `index` (positions, a slice or a boolean mask), in that order."""
        per_row = ("states", "actions", "episodes", "terminated", "truncated")
        columns: dict[str, Any] = {name: getattr(self, name) for name in per_row}
        columns = {name: None if values is None else values[index] for name, values in columns.items()}
        return replace(self, **columns)

    def aligned_to(self, other: "Demonstrations") -> "Demonstrations":
        """The same rows in the coding of `other`, so that equal labels have equal codes and columns stand in one order.

        Labels that `other` does not have get new codes after its own; where `other` declared its set they are an error.
        """
        if (self.actions is None) != (other.actions is None):
            first, second = ("these", "the other") if self.actions is None else ("the other", "these")
            raise InputError(f"actions: {first} demonstrations have none, {second} have some; give both or neither.")
        changes = alignment.aligned("state", self, other)
        if self.actions is not None:
            changes |= alignment.aligned("action", self, other)
        return replace(self, **changes)

    def states_aligned_to(self, other: "Demonstrations") -> "Demonstrations":
        """The same rows with their states in the coding of `other`, where one of the two has no actions."""
        return replace(self, **alignment.aligned("state", self, other))


def concatenate(parts: Sequence[Demonstrations]) -> Demonstrations:
    """All rows in one object, coded alike. `terminated` and `truncated` stay if every part has them."""
    if not parts:
        raise InputError("There are no demonstrations to put together; give at least one.")
    coded = [parts[0]]
    for part in parts[1:]:
        coded.append(part.aligned_to(coded[-1]))
    # Every aligned part extends the labels of the one before it: the last one knows them all.
    columns: dict[str, Any] = {}
    for name in ("states", "actions", "episodes", "terminated", "truncated"):
        values = [getattr(part, name) for part in coded]
        columns[name] = None if any(v is None for v in values) else np.concatenate(values)
    return replace(coded[-1], **columns)


@dataclass(frozen=True, eq=False, init=False, repr=False)
class TaskBank(Content):
    """K training tasks: their rows, sorted by task, and one known reward vector each.

    demonstrations: all m rows; (task, episode) identifies an episode.
    tasks: `(m,)` non-decreasing ints: the task 0..K-1 of each row; every task has at least one row.
    rewards: `(K, q)`: the reward parameters of each task.
    names, reward_names: K task names, q parameter names.
    """

    demonstrations: Demonstrations
    tasks: Int[np.ndarray, " rows"]
    rewards: Float[np.ndarray, "K q"]
    names: tuple[str, ...]
    reward_names: tuple[str, ...]

    def __init__(
        self,
        demonstrations: Demonstrations,
        tasks: Any,
        rewards: Any,
        names: Iterable[Any] = (),
        reward_names: Iterable[str] = (),
    ) -> None:
        table, labels, parameters = as_rewards(rewards, names, reward_names)
        codes = task_codes(tasks, labels, demonstrations.n_rows)
        if (np.diff(codes) < 0).any():
            raise InputError("tasks: rows must be sorted by task here; TaskBank.from_arrays sorts them for you.")
        values = {"tasks": arrays.frozen(codes), "rewards": arrays.frozen(table), "names": labels}
        for name, value in {"demonstrations": demonstrations, **values, "reward_names": parameters}.items():
            object.__setattr__(self, name, value)  # the object is frozen, and only being made

    @classmethod
    def from_arrays(
        cls,
        states: Any,
        actions: Any,
        tasks: Any,
        rewards: Any,
        episodes: Any = None,
        terminated: Any = None,
        truncated: Any = None,
        names: Iterable[Any] = (),
        reward_names: Iterable[str] = (),
        **demonstration_keywords: Any,
    ) -> "TaskBank":
        """A bank from arrays or frames, rows in any order (they are stably sorted by task).

        `tasks (m,)` are ints into `rewards (K, q)`, or labels: then `names` are the K labels in the order of `rewards`,
        or `rewards` is a mapping from label to vector or a frame with a column `task`. Labels compare as text.
        """
        per_row = {"episodes": episodes, "terminated": terminated, "truncated": truncated}
        demonstrations = Demonstrations(states, actions, **per_row, **demonstration_keywords)
        names = tuple(names)
        by_label = are_labels(rewards, names)
        table, labels, parameters = as_rewards(rewards, names, reward_names)
        codes = task_codes(tasks, labels, demonstrations.n_rows, by_label=by_label)
        order = np.argsort(codes, kind="stable")
        return cls(demonstrations.take(order), codes[order], table, labels, parameters)

    @classmethod
    def from_tasks(
        cls, tasks: Mapping[str, tuple[Demonstrations, Any]], reward_names: Iterable[str] = ()
    ) -> "TaskBank":
        """A bank from `{name: (demonstrations, reward vector)}`."""
        rewards = {str(name): reward for name, (_, reward) in tasks.items()}
        table, names, parameters = as_rewards(rewards, (), reward_names)
        parts = [part for part, _ in tasks.values()]
        codes = np.repeat(np.arange(len(parts)), [part.n_rows for part in parts])
        return cls(concatenate(parts), codes, table, names, parameters)

    def __repr__(self) -> str:
        names = ", ".join(self.reward_names[:6]) + (", ..." if self.n_parameters > 6 else "")
        return f"TaskBank({self.n_tasks} tasks, {self.n_rows} rows, reward parameters {names})"

    @property
    def n_rows(self) -> int:
        return len(self.tasks)

    @property
    def n_tasks(self) -> int:
        return len(self.rewards)

    @property
    def n_parameters(self) -> int:
        return int(self.rewards.shape[1])

    @cached_property
    def rows_per_task(self) -> Int[np.ndarray, " K"]:
        return arrays.frozen(np.bincount(self.tasks, minlength=self.n_tasks).astype(np.int64))

    @cached_property
    def episode_index(self) -> Int[np.ndarray, " rows"]:
        """Number of each row's episode in the whole bank: 0, 1, ... over distinct (task, episode) pairs."""
        levels, episode = np.unique(self.demonstrations.episodes, return_inverse=True)
        return arrays.frozen(np.unique(self.tasks * len(levels) + episode, return_inverse=True)[1].astype(np.int64))

    @property
    def n_episodes(self) -> int:
        return int(self.episode_index.max()) + 1

    def index(self, task: SupportsIndex | str) -> int:
        """Position of a task given by position or by name."""
        if isinstance(task, str):
            if task not in self._positions:
                raise InputError(f"There is no task {task!r} in the bank.{did_you_mean(task, self.names)}")
            return self._positions[task]
        k = as_int(task)
        if not 0 <= k < self.n_tasks:
            raise InputError(
                f"There is no task number {k}: the bank has {self.n_tasks} tasks, 0 to {self.n_tasks - 1}."
            )
        return k

    @cached_property
    def _positions(self) -> dict[str, int]:
        return {name: k for k, name in enumerate(self.names)}

    def task(self, task: SupportsIndex | str) -> Demonstrations:
        """The rows of one task, by position or name."""
        k = self.index(task)
        first, last = np.searchsorted(self.tasks, [k, k + 1])
        return self.demonstrations.take(slice(int(first), int(last)))

    def select(self, tasks: Iterable[SupportsIndex | str]) -> "TaskBank":
        """The bank of these tasks (positions or names), in this order."""
        tasks = list(tasks)
        chosen = np.array([self.index(task) for task in tasks], dtype=np.int64)
        if len(chosen) == 0 or len(np.unique(chosen)) != len(chosen):
            raise InputError(f"select: give at least one task and each only once, not {tasks}.")
        place = np.full(self.n_tasks, -1, dtype=np.int64)
        place[chosen] = np.arange(len(chosen))
        rows = np.flatnonzero(place[self.tasks] >= 0)
        rows = rows[np.argsort(place[self.tasks[rows]], kind="stable")]
        names = tuple(self.names[k] for k in chosen)
        return TaskBank(
            self.demonstrations.take(rows), place[self.tasks[rows]], self.rewards[chosen], names, self.reward_names
        )

    def without(self, task: SupportsIndex | str) -> "TaskBank":
        """The bank of all other tasks."""
        k = self.index(task)
        return self.select([other for other in range(self.n_tasks) if other != k])
