"""`stream_task_bank`: a bank of training tasks from Parquet files that are read block by block, never at once."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from kdbirl.data.arrays import is_frame
from kdbirl.data.cluster import DaskRows, is_dask_frame
from kdbirl.data.demonstrations import TaskBank
from kdbirl.data.large import BLOCK_ROWS, CodedRows, StreamedBank
from kdbirl.data.large_pieces import Coding
from kdbirl.data.large_rows import ParquetRows, Roles, RowSource
from kdbirl.data.readers import Wanted, read_rewards, read_task_bank
from kdbirl.data.tables import PARQUET_SUFFIXES, find_files
from kdbirl.errors import FileProblem, InputError

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


# A streamed bank as plain values: where its files are and how they are read, for a saved model.


def to_spec(coded: CodedRows) -> dict[str, Any]:
    """JSON-able; the rewards and the names of tasks are the model's own."""
    source = coded.bank.source
    if not isinstance(source, ParquetRows):
        raise InputError(
            f"A model of rows that are not in files ({source.name}) cannot be saved: write them as Parquet, and stream "
            "them with kb.stream_task_bank."
        )
    return {
        "files": [[str(file.path.absolute()), dict(file.hive)] for file in source.files],
        "fingerprint": coded.bank.fingerprint(),
        "roles": asdict(coded.bank.roles),
        "codings": [asdict(coding) for coding in coded.codings],
        "rows_per_task": coded.rows_per_task.tolist(),
        "block_rows": coded.bank.block_rows,
    }


def from_spec(
    spec: dict[str, Any], names: tuple[str, ...], rewards: np.ndarray, reward_names: tuple[str, ...]
) -> CodedRows:
    """The rows again; files that are gone or changed are named. A file says what to read, never where to write."""
    files = ParquetRows.of_files([(_place(path), hive) for path, hive in spec["files"]])
    roles = Roles(**{name: _tuple(value) for name, value in spec["roles"].items()})
    bank = StreamedBank(files, roles, names, rewards, reward_names, block_rows=spec["block_rows"])
    if bank.fingerprint() != spec["fingerprint"]:
        raise FileProblem(f"{files.name}: these are not the rows that the model was fitted on; fit it again.")
    codings = tuple(Coding(**{name: _tuple(value) for name, value in coding.items()}) for coding in spec["codings"])
    return CodedRows(bank, codings, np.asarray(spec["rows_per_task"], dtype=np.int64))


def _place(text: str) -> Path:
    """An absolute path to a file that is there.

    A relative path would mean another file in every working directory, and pyarrow takes one that is not there for an
    address on a network (`s3:...`, `hdfs:...`). A pipe would hold the process for ever.
    """
    path = Path(text)
    if not path.is_absolute():
        raise FileProblem(
            f"The training rows are given by the relative path {str(path)[:200]!r}, which could be any file; expected "
            "an absolute one, as KDBIRL.save writes: fit the model again."
        )
    if not path.is_file():
        raise FileProblem(f"{path}: there is no such file; the training rows of this model were in it.")
    return path


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
