"""Write demonstrations and banks as long tables, Parquet or CSV by suffix; reading them back gives equal objects."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from kdbirl._jax import refuse_fork
from kdbirl.data.csv_text import guarded_frame
from kdbirl.data.demonstrations import Demonstrations, TaskBank
from kdbirl.data.tables import METADATA_KEY
from kdbirl.errors import FileProblem, InputError, quoted

SUFFIXES = (".parquet", ".pq", ".csv", ".tsv", ".csv.gz", ".tsv.gz")


def write_demonstrations(demonstrations: Demonstrations, path: str | os.PathLike[str]) -> None:
    """One row a step: `episode, step, <states>, <actions>[, terminated, truncated]`.

    A CSV has no types: read it back with the same declarations (`n_states=`, `n_actions=`, `discrete_states=True`); its
    labels come back sorted, and labels that look like whole numbers as codes. A Parquet file keeps all of it.
    """
    _write_all([(_long_frame(demonstrations, None), Path(path), _notes(demonstrations))])


def write_task_bank(bank: TaskBank, path: str | os.PathLike[str], rewards_path: str | os.PathLike[str]) -> None:
    """The rows, `task, episode, step, ...`, and the rewards, `task, <reward columns>`; both files or neither."""
    if Path(path) == Path(rewards_path):
        raise InputError(f"{path}: the rows and the rewards need two different files.")
    if "task" in bank.reward_names:
        raise InputError("A reward parameter is called 'task', like the column of the tasks; rename it.")
    columns = {name: bank.rewards[:, i] for i, name in enumerate(bank.reward_names)}
    rewards = pl.DataFrame({"task": list(bank.names), **columns})
    rows = _long_frame(bank.demonstrations, bank)
    _write_all([(rows, Path(path), _notes(bank.demonstrations)), (rewards, Path(rewards_path), {})])


def _long_frame(data: Demonstrations, bank: TaskBank | None) -> pl.DataFrame:
    columns: list[pl.Series] = []
    groups = data.episodes
    if bank is not None:
        columns.append(pl.Series("task", np.array(bank.names, dtype=object)[bank.tasks], dtype=pl.String))
        groups = bank.episode_index
    columns += [pl.Series("episode", data.episodes), pl.Series("step", _steps(groups))]
    columns += _variable(data.states, data.state_names, data.state_labels)
    columns += [] if data.actions is None else _variable(data.actions, data.action_names, data.action_labels)
    for name in ("terminated", "truncated"):
        if getattr(data, name) is not None:
            columns.append(pl.Series(name, getattr(data, name)))
    names = [series.name for series in columns]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise InputError(f"Two columns would be called {repeated[0]!r} in the file; rename the state or action column.")
    return pl.DataFrame(columns)


def _steps(groups: Any) -> np.ndarray:
    """0, 1, 2, ... within each group, in the order of the rows."""
    order = np.argsort(groups, kind="stable")
    _, first, counts = np.unique(groups[order], return_index=True, return_counts=True)
    steps = np.empty(len(groups), dtype=np.int64)
    steps[order] = np.arange(len(groups)) - np.repeat(first, counts)
    return steps


def _variable(values: Any, names: Sequence[str], labels: Sequence[str] | None) -> list[pl.Series]:
    if values.ndim == 2:
        return [pl.Series(name, values[:, i]) for i, name in enumerate(names)]
    if labels is None:
        return [pl.Series(names[0], values)]
    # An Enum carries all labels in their order through Parquet, and is plain text in a CSV.
    return [pl.Series(names[0], np.array(labels, dtype=object)[values], dtype=pl.Enum(labels))]


def _notes(data: Demonstrations) -> dict[str, Any]:
    notes: dict[str, Any] = {"state": list(data.state_names), "action": list(data.action_names)}
    notes |= {"discrete_states": data.discrete_states, "vector_actions": not data.discrete_actions}
    return notes | {k: v for k, v in (("n_states", data.n_states), ("n_actions", data.n_actions)) if v is not None}


def _write_all(files: Sequence[tuple[pl.DataFrame, Path, dict[str, Any]]]) -> None:
    """Write every file under a temporary name, then give all of them their names: whole or not at all."""
    refuse_fork("Polars")
    for frame, path, _ in files:
        _check_target(frame, path)
    temporaries: list[tuple[Path, Path]] = []
    try:
        for frame, path, notes in files:
            temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
            temporaries.append((temporary, path))
            _write(frame, temporary, path.name.lower(), notes)
        for temporary, path in temporaries:
            temporary.replace(path)
    except OSError as error:
        raise FileProblem(f"{path}: cannot be written ({error.strerror or error}).") from error
    finally:
        for temporary, _ in temporaries:
            temporary.unlink(missing_ok=True)


def _check_target(frame: pl.DataFrame, path: Path) -> None:
    if not path.name.lower().endswith(SUFFIXES):
        raise InputError(f"{path}: the name must end in one of {', '.join(SUFFIXES)}.")
    if not path.parent.is_dir():
        raise FileProblem(f"{path}: the directory {path.parent} does not exist.")
    if path.is_dir():
        raise FileProblem(f"{path}: this is a directory.")
    if not path.name.lower().endswith((".parquet", ".pq")):
        _check_csv_labels(frame, path)


def _check_csv_labels(frame: pl.DataFrame, path: Path) -> None:
    """Refuse labels that a CSV cannot carry, rather than write what reads back differently."""
    for series in frame.select(pl.col(pl.String, pl.Enum)):
        for label in series.cast(pl.String).unique():
            if label != label.strip() or "\r" in label:
                raise InputError(
                    f"{path}: the label {quoted(label)} in column {series.name!r} does not survive in a CSV; "
                    f"write Parquet instead."
                )


def _write(frame: pl.DataFrame, path: Path, name: str, notes: dict[str, Any]) -> None:
    with path.open("wb") as file:
        if name.endswith((".parquet", ".pq")):
            frame.write_parquet(file, metadata={METADATA_KEY: json.dumps(notes)})
        else:
            separator = "\t" if ".tsv" in name else ","
            frame = guarded_frame(frame)
            frame.write_csv(file, separator=separator, compression="gzip" if name.endswith(".gz") else "uncompressed")
        file.flush()
        os.fsync(file.fileno())
