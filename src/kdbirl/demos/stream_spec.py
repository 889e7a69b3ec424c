"""A streamed bank as plain values: where its files are and how they are read, for a saved model."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from kdbirl.demos.coded_rows import CodedRows
from kdbirl.demos.row_source import ParquetRows, Roles
from kdbirl.demos.streamed_bank import StreamedBank
from kdbirl.demos.variable_facts import Coding
from kdbirl.errors import FileProblem, InputError


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
