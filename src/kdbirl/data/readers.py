"""`read_demonstrations` and `read_task_bank`: from tables as people have them to validated data."""

import warnings
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from kdbirl.data import columns as cells
from kdbirl.data.demonstrations import Demonstrations, TaskBank
from kdbirl.data.rewards import as_rewards
from kdbirl.data.tables import Table, load_table
from kdbirl.data.variables import variable
from kdbirl.errors import InputError, KDBIRLWarning, did_you_mean, quoted


def read_demonstrations(
    source: Any,
    *,
    state: str | Sequence[str],
    action: str | Sequence[str] | None = None,
    episode: str | None = "episode",
    step: str | None = "step",
    terminated: str | None = "terminated",
    truncated: str | None = "truncated",
    task: str | None = None,
    columns: Mapping[str, str] | None = None,
    n_states: int | None = None,
    n_actions: int | None = None,
    actions: Collection[Any] | None = None,
    discrete_states: bool | None = None,
) -> Demonstrations:
    """Demonstrations from a Parquet or CSV file, a directory or pattern of them, or a Polars or pandas frame.

    Arguments:
        source: path, directory, pattern such as `"runs/*.parquet"`, list of those, or frame.
        state, action: the column(s). One text column is discrete, with its labels; one column of whole numbers is a
            discrete action, and a discrete state if `discrete_states=True` or `n_states` is given. A column of lists of
            equal length is a vector. For a vector action of one column give a list, `action=["force"]`.
        episode, step, terminated, truncated: used if present (a name other than the default must be); None: not used.
            Rows are put in order of `step` within their episode.
        task: a column that may be there and should name one task alone: there is a warning where it names several.
        columns: `{our name: their name}` for tables that call things differently, e.g. `{"action": "act"}`.
        n_states, n_actions, actions: declared counts, or the set of allowed actions; anything outside is an error.
    """
    optional = {"episode": episode, "step": step, "terminated": terminated, "truncated": truncated}
    wanted = Wanted(state, action, columns, task=task, **optional)
    table, used = wanted.load(source), (*wanted.state, *wanted.action, *optional.values())
    if task is not None:
        _warn_of_several_tasks(table, wanted.theirs(task), {wanted.theirs(name) for name in used if name is not None})
    data, order = _demonstrations(table, wanted, None, n_states, n_actions, actions, discrete_states)
    return data if order is None else data.take(order)


def _warn_of_several_tasks(table: Table, task: str, used: Collection[str]) -> None:
    """Rows of several tasks that are read as those of one are seldom meant; a column may be used for something else."""
    if task in used or task not in table.frame.columns or table.frame.schema[task].is_nested():
        return
    found = table.frame[task].drop_nulls().n_unique()
    if found > 1:
        warnings.warn(
            f"{table.name}: column {quoted(task)} names {found} tasks, and all rows are taken as those of one. For a "
            "posterior of each: kb.read_test_tasks, or --expert-task of kdbirl fit.",
            KDBIRLWarning,
            stacklevel=3,
        )


def read_task_bank(
    source: Any,
    *,
    rewards: Any,
    state: str | Sequence[str],
    action: str | Sequence[str] | None = None,
    task: str = "task",
    reward: str | Sequence[str] | None = None,
    episode: str | None = "episode",
    step: str | None = "step",
    terminated: str | None = "terminated",
    truncated: str | None = "truncated",
    columns: Mapping[str, str] | None = None,
    n_states: int | None = None,
    n_actions: int | None = None,
    actions: Collection[Any] | None = None,
    discrete_states: bool | None = None,
) -> TaskBank:
    """A bank of training tasks from a table of rows (with a column `task`) and a table of rewards (one row a task).

    `rewards`: path, frame or `{task: vector}`; `reward`: its columns, by default all but `task`. Where every training
    row has its task's reward, `rewards` may be the same table, with its reward columns named. Task labels compare as
    text (1, 1.0 and "1" are one label, "01" is another); the order of the tasks is that of the rewards table. The rest
    is as in `read_demonstrations`.
    """
    optional = {"episode": episode, "step": step, "terminated": terminated, "truncated": truncated}
    wanted = Wanted(state, action, columns, task=task, **optional)
    table = wanted.load(source)
    vectors, names, parameters, origin = read_rewards(rewards, task, reward, wanted.theirs(task))
    text = cells.labels(table, wanted.theirs(task))
    codes = cells.coded(text, names)
    check_same_tasks(text.unique(maintain_order=True).to_list(), names, table.name, origin)
    data, order = _demonstrations(table, wanted, codes, n_states, n_actions, actions, discrete_states)
    order = np.arange(len(codes)) if order is None else order
    order = order[np.argsort(codes[order], kind="stable")]
    return TaskBank(data.take(order), codes[order], vectors, names, parameters)


class Wanted:
    """Which columns were asked for, under our names and under those of the table."""

    def __init__(
        self,
        state: str | Sequence[str],
        action: str | Sequence[str] | None,
        renames: Mapping[str, str] | None,
        **single: str | None,
    ) -> None:
        self.state = _names(state, "state")
        self.action = () if action is None else _names(action, "action")
        self.single_action = isinstance(action, str)
        self.single = single
        self.renames = dict(renames or {})
        asked = [*self.state, *self.action, *(name for name in single.values() if name)]
        for ours in self.renames:
            if ours not in asked:
                raise InputError(f"columns: {ours!r} is not a column that was asked for.{did_you_mean(ours, asked)}")
        self.keep = {self.theirs(name) for name in asked}

    def theirs(self, name: str) -> str:
        """The table's name for one of our columns."""
        return self.renames.get(name, name)

    def load(self, source: Any) -> Table:
        table = load_table(source, self.keep)
        for name in (*self.state, *self.action, *self.renames):
            table.column(self.theirs(name))
        return table

    def optional(self, table: str, columns: Collection[str], role: str) -> str | None:
        """The table's column for a role such as "episode": None if it is absent and nobody insisted."""
        name = self.single[role]
        if name is None:
            return None
        theirs = self.theirs(name)
        if theirs in columns:
            return theirs
        if theirs == role:
            return None  # the default name: no error unless another one was asked for
        raise InputError(f"{table} has no column {theirs!r}.{did_you_mean(theirs, columns)}")

    def notes(self, noted: Mapping[str, Any]) -> dict[str, Any]:
        """What our writer noted in the Parquet file, for the columns that it was noted about."""
        kinds = {"state": ("n_states", "discrete_states"), "action": ("n_actions", "vector_actions")}
        asked = {"state": self.state, "action": self.action}
        about = [kind for kind in kinds if noted.get(kind) == list(asked[kind])]
        return {key: noted[key] for kind in about for key in kinds[kind] if key in noted}


def _names(given: str | Sequence[str], what: str) -> tuple[str, ...]:
    names = (given,) if isinstance(given, str) else tuple(given)
    if not names or len(set(names)) != len(names):
        raise InputError(f"{what}: give at least one column and each only once, not {list(names)}.")
    return names


def _demonstrations(
    table: Table,
    wanted: Wanted,
    tasks: Int[np.ndarray, " rows"] | None,
    n_states: int | None,
    n_actions: int | None,
    actions: Collection[Any] | None,
    discrete_states: bool | None,
) -> tuple[Demonstrations, Int[np.ndarray, " rows"] | None]:
    """The rows as they stand in the table, and the order that `step` asks for."""
    noted = wanted.notes(table.notes)
    n_states = noted.get("n_states") if n_states is None else n_states
    n_actions = noted.get("n_actions") if n_actions is None and actions is None else n_actions
    discrete_states = noted.get("discrete_states") if discrete_states is None else discrete_states
    state = [wanted.theirs(name) for name in wanted.state]
    fields = variable(table, "state", state, declared=n_states, discrete=discrete_states)
    if wanted.action:
        action = [wanted.theirs(name) for name in wanted.action]
        single = wanted.single_action and not noted.get("vector_actions")
        fields |= variable(table, "action", action, declared=n_actions, levels=actions, single=single)
    for kind, names in (("state", wanted.state), ("action", wanted.action)):
        if len(fields.get(f"{kind}_names", ())) == len(names):
            fields[f"{kind}_names"] = names
    episode, step = (wanted.optional(table.name, table.columns, role) for role in ("episode", "step"))
    fields["episodes"] = None if episode is None else cells.episodes(table, episode)
    for role in ("terminated", "truncated"):
        column = wanted.optional(table.name, table.columns, role)
        fields[role] = None if column is None else cells.flags(table, column)
    data = Demonstrations(**fields)
    if step is None:
        return data, None
    return data, step_order(episode_groups(tasks, data.episodes), cells.steps(table, step), strict=episode is not None)


def episode_groups(tasks: Any, episodes: Any) -> Int[np.ndarray, " rows"]:
    """One number per (task, episode)."""
    _, episode = np.unique(episodes, return_inverse=True)
    return episode if tasks is None else tasks * (episode.max() + 1) + episode


def step_order(
    groups: Int[np.ndarray, " rows"], steps: np.ndarray, strict: bool = True
) -> Int[np.ndarray, " rows"] | None:
    """The order that sorts each group by step, in the places where its rows already stand.

    Without an episode column a step that repeats means that several episodes follow each other: sorting would mix them,
    so (`strict=False`) the rows stay as they are.
    """
    by_step = np.lexsort((steps, groups))
    if not strict:
        same = (np.diff(groups[by_step]) == 0) & (np.diff(steps[by_step]) == 0)
        if same.any():
            return None
    order = np.empty(len(groups), dtype=np.int64)
    order[np.argsort(groups, kind="stable")] = by_step
    return order


def read_rewards(
    source: Any, task: str = "task", reward: str | Sequence[str] | None = None, task_elsewhere: str | None = None
) -> tuple[Float[np.ndarray, "K q"], tuple[str, ...], tuple[str, ...], str]:
    """(rewards (K, q), task names, parameter names, how messages call the source) from a table or a mapping."""
    if isinstance(source, Mapping):
        names = () if reward is None else _names(reward, "reward")
        return (*as_rewards(source, (), names), "the rewards")
    table = load_table(source)
    task = task_elsewhere if task_elsewhere in table.columns and task_elsewhere is not None else task
    text = cells.labels(table, task)
    chosen = [n for n in table.columns if n != task and not n.startswith("(unnamed")]
    chosen = chosen if reward is None else list(_names(reward, "reward"))
    if not chosen:
        raise InputError(f"{table.name} has no reward columns besides {task!r}; at least one is needed.")
    _, first, codes = np.unique(text.to_numpy(), return_index=True, return_inverse=True)
    if reward is None:
        _refuse_repeats(table, task, text, np.flatnonzero(first[codes] != np.arange(len(codes))), first[codes])
    vectors, parameters = cells.matrix(table, chosen)
    other = (vectors != vectors[first[codes]]).any(axis=1) & np.isfinite(vectors).all(axis=1)
    _refuse_repeats(table, task, text, np.flatnonzero(other), first[codes], "has another reward")
    rows = np.sort(first)
    return (*as_rewards(vectors[rows], text.gather(rows).to_list(), parameters), table.name)


def _refuse_repeats(
    table: Table, task: str, names: Any, rows: np.ndarray, first: np.ndarray, what: str = "is there already"
) -> None:
    """A task may stand in several rows only where its reward columns were named, and say the same in all of them."""
    for row in rows[:1].tolist():
        raise InputError(
            f"{table.place(row)}, column {task!r}: task {quoted(names[row])} {what} in row {int(first[row]) + 1}; "
            "each task has exactly one reward vector. (Rewards may stand in every row of a training table, the same "
            "within a task, if their columns are named.)"
        )


def check_same_tasks(in_rows: Sequence[str], in_rewards: Sequence[str], rows: str, rewards: str) -> None:
    """Every task has rows and a reward; otherwise name the tasks that lack one, both ways."""
    with_rows, with_reward = set(in_rows), set(in_rewards)
    without_reward = [name for name in in_rows if name not in with_reward]
    without_rows = [name for name in in_rewards if name not in with_rows]
    complaints = []
    if without_reward:
        complaints.append(f"{_listed(without_reward)} in {rows} without a reward in {rewards}")
    if without_rows:
        complaints.append(f"{_listed(without_rows)} in {rewards} without rows in {rows}")
    if complaints:
        near = did_you_mean(without_reward[0], without_rows) if without_reward and without_rows else ""
        near = near if near.startswith(" Did you mean") else ""  # the tasks that there are have just been listed
        raise InputError(f"{', and '.join(complaints)}; every task needs both.{near}")


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(map(quoted, names[:5])) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
    return f"task {shown} is" if len(names) == 1 else f"tasks {shown} are"


# `read_test_tasks`: demonstrations of many new tasks from one table with a column that names the task of each row.


def read_test_tasks(
    source: Any,
    *,
    state: str | Sequence[str],
    action: str | Sequence[str] | None = None,
    task: str = "task",
    episode: str | None = "episode",
    step: str | None = "step",
    terminated: str | None = "terminated",
    truncated: str | None = "truncated",
    columns: Mapping[str, str] | None = None,
    n_states: int | None = None,
    n_actions: int | None = None,
    actions: Collection[Any] | None = None,
    discrete_states: bool | None = None,
) -> dict[str, Demonstrations]:
    """The demonstrations of each test task by its name, in the order in which the tasks appear.

    The arguments are those of `read_demonstrations`; labels compare as text, as in `read_task_bank`.
    """
    optional = {"episode": episode, "step": step, "terminated": terminated, "truncated": truncated}
    wanted = Wanted(state, action, columns, task=task, **optional)
    table = wanted.load(source)
    text = cells.labels(table, wanted.theirs(task))
    names = text.unique(maintain_order=True).to_list()
    codes = cells.coded(text, names)
    data, order = _demonstrations(table, wanted, codes, n_states, n_actions, actions, discrete_states)
    order = np.arange(len(codes)) if order is None else order
    order = order[np.argsort(codes[order], kind="stable")]
    ends = np.cumsum(np.bincount(codes, minlength=len(names)))
    return {name: data.take(part) for name, part in zip(names, np.split(order, ends[:-1]), strict=True)}
