"""`read_test_tasks`: demonstrations of many new tasks from one table with a column that names the task of each row."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from kdbirl.demos import columns as cells
from kdbirl.demos.data import Demonstrations
from kdbirl.demos.readers import Wanted, _demonstrations


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
