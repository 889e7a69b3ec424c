"""`stream_task_bank`: a bank of training tasks from Parquet files that are read block by block, never at once."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from kdbirl.demos.arrays import is_frame
from kdbirl.demos.dask_rows import DaskRows, is_dask_frame
from kdbirl.demos.data import TaskBank
from kdbirl.demos.readers import Wanted, read_rewards, read_task_bank
from kdbirl.demos.row_source import ParquetRows, Roles, RowSource
from kdbirl.demos.streamed_bank import BLOCK_ROWS, StreamedBank
from kdbirl.demos.tables import PARQUET_SUFFIXES, find_files

STREAMED_BYTES = 2**30  # of Parquet, from which the command line streams by itself


def stream_task_bank(
    source: Any,
    *,
    rewards: Any,
    state: str | Sequence[str],
    action: str | Sequence[str] | None = None,
    task: str = "task",
    reward: str | Sequence[str] | None = None,
    episode: str | None = "episode",
    step: str | None = "step",
    columns: Mapping[str, str] | None = None,
    n_states: int | None = None,
    n_actions: int | None = None,
    actions: Collection[Any] | None = None,
    discrete_states: bool | None = None,
    block_rows: int = BLOCK_ROWS,
) -> StreamedBank:
    """The bank of `read_task_bank` for tables of any size: `KDBIRL.fit` takes it, in bounded memory.

    source: a Parquet file, a directory or pattern of them, a list, or a Dask DataFrame. Only footers and rewards are
    read here; the rows are read by `fit`, once, and by `posterior`, once for each bandwidth, unless their distinct
    values are few.
    block_rows: rows that are in memory at once. The rest is as in `read_task_bank`.
    """
    optional = {"episode": episode, "step": step}
    wanted = Wanted(state, action, columns, task=task, **optional)
    rows = _opened(source)
    vectors, names, parameters, origin = read_rewards(rewards, task, reward, wanted.theirs(task))
    noted = wanted.notes(rows.notes)
    roles = Roles(
        task=wanted.theirs(task),
        state=tuple(wanted.theirs(name) for name in wanted.state),
        action=tuple(wanted.theirs(name) for name in wanted.action),
        episode=wanted.optional(rows.name, rows.schema, "episode"),
        step=wanted.optional(rows.name, rows.schema, "step"),
        state_names=wanted.state,
        action_names=wanted.action,
        single_action=wanted.single_action and not noted.get("vector_actions"),
        n_states=noted.get("n_states") if n_states is None else n_states,
        n_actions=noted.get("n_actions") if n_actions is None and actions is None else n_actions,
        actions=None if actions is None else tuple(sorted(actions) if isinstance(actions, set) else actions),
        discrete_states=noted.get("discrete_states") if discrete_states is None else discrete_states,
    )
    return StreamedBank(rows, roles, names, vectors, parameters, origin, block_rows)


def _opened(source: Any) -> RowSource:
    if is_dask_frame(source):
        return DaskRows.of(source)
    return source if isinstance(source, RowSource) else ParquetRows.open(source)


def read_or_stream(source: Any, *, stream: bool | None, **columns: Any) -> TaskBank | StreamedBank:
    """The bank in memory, or streamed: as asked, and else (None) where its Parquet files have over a gibibyte."""
    if stream is None:
        stream = not is_frame(source) and _parquet_bytes(source) > STREAMED_BYTES
    return stream_task_bank(source, **columns) if stream else read_task_bank(source, **columns)


def _parquet_bytes(source: Any) -> int:
    """The size of the files of a source, 0 where some are not Parquet."""
    paths = [path for path, _ in find_files(source)]
    parquet = all(path.name.lower().endswith(PARQUET_SUFFIXES) for path in paths)
    return sum(path.stat().st_size for path in paths) if parquet else 0
