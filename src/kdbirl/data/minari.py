"""Minari data sets -> `Demonstrations` or `TaskBank`. The only file that imports Minari; it makes no environment."""

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kdbirl.archive import read_hdf5, read_json
from kdbirl.data.demonstrations import Demonstrations, TaskBank
from kdbirl.data.readers import check_same_tasks, read_rewards
from kdbirl.data.rewards import as_rewards
from kdbirl.errors import FileProblem, InputError, MissingDependency, did_you_mean, quoted

EXPECTED = "expected a data set that Minari wrote"
BYTES_OF_AN_EPISODE = 16  # at least: a group of HDF5 takes some hundred


def read_minari(
    datasets: Any,
    *,
    rewards: Any = None,
    task: str = "task",
    reward: str | Sequence[str] | None = None,
    reward_key: str = "reward",
) -> Demonstrations | TaskBank:
    """One Minari data set -> its demonstrations; several, one per task -> a bank.

    Arguments:
        datasets: one data set (its id, its directory or a `MinariDataset`) for `Demonstrations`; a list of data sets,
            or `{task name: data set}`, for a `TaskBank`. The name of a task in a list is the data set's id.
        rewards: the reward of each task: a table or mapping as in `read_task_bank`; None takes it from each data set's
            own metadata, under `reward_key`: a list of numbers, or `{parameter: number}`.
        task, reward: the columns of a rewards table.

    An episode has one observation more than actions: the last one, where nobody acted, is left out. Discrete spaces
    give codes with the declared count of the space; boxes and composite spaces give flat columns.
    """
    if isinstance(datasets, Mapping):
        loaded = {str(name): _load(dataset) for name, dataset in datasets.items()}
    elif isinstance(datasets, Sequence) and not isinstance(datasets, str):
        opened = [_load(dataset) for dataset in datasets]
        loaded = {dataset.id: dataset for dataset in opened}
        if len(loaded) != len(opened):
            raise InputError("Two data sets have the same id; name them with a mapping {task name: data set}.")
    elif rewards is not None:
        raise InputError("rewards: a single data set has no tasks; give a list of data sets or {task name: data set}.")
    else:
        return _demonstrations(_load(datasets))
    if not loaded:
        raise InputError("There is no data set; give at least one.")
    return _bank(loaded, rewards, task, reward, reward_key)


def _load(dataset: Any) -> Any:
    """A `MinariDataset` from itself, a directory, or the id of a data set on this machine."""
    try:
        import minari
    except ImportError as error:
        raise MissingDependency(
            "Reading Minari data sets needs the package minari: pip install 'kdbirl[minari]'."
        ) from error
    if isinstance(dataset, minari.MinariDataset):
        return dataset
    if not isinstance(dataset, str | os.PathLike):
        raise InputError(f"A Minari data set is an id, a directory or a MinariDataset, not {type(dataset).__name__}.")
    path = Path(dataset).expanduser()
    try:
        if path.is_dir():
            return _opened(minari, path / "data" if (path / "data").is_dir() else path)
        kept = _place_of(str(dataset))
        return _opened(minari, kept) if kept.is_dir() else minari.load_dataset(str(dataset))
    except InputError:
        raise
    except FileNotFoundError as error:
        known = did_you_mean(str(dataset), minari.list_local_datasets())
        raise FileProblem(
            f"{dataset}: there is no such Minari data set on this machine; "
            f"`minari download {dataset}` fetches a public one.{known}"
        ) from error
    except Exception as error:  # Minari trusts its files: a broken one fails anywhere
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise FileProblem(f"{dataset}: this is not a Minari data set that can be read ({reason}).") from error


def _opened(minari: Any, data: Path) -> Any:
    """A data set in a directory, once its files are known to be readable: HDF5 must not hang or break this process."""
    metadata = read_json(data / "metadata.json", EXPECTED)
    _check_episodes(data, metadata)
    _check_spaces(data, metadata)
    for file in sorted(data.glob("*.hdf5"))[:1000]:
        read_hdf5(file, EXPECTED, arrays_too=False)
    return minari.MinariDataset(data)


def _place_of(name: str) -> Path:
    """Where Minari keeps the data set of that id."""
    from minari.storage.datasets_root_dir import get_dataset_path

    return Path(get_dataset_path(name)) / "data"


def _check_spaces(data: Path, metadata: dict[str, Any]) -> None:
    """Without its spaces Minari makes the environment that the file names: any function of any module."""
    for name in ("observation_space", "action_space"):
        if "env_spec" in metadata and not isinstance(metadata.get(name), str):
            raise FileProblem(
                f"{data / 'metadata.json'} has no {name!r}: Minari would run the environment that the file names to "
                "learn it, and a file does not choose what is run; if you trust it, load it with minari.load_dataset, "
                "and give the data set itself."
            )


def _check_episodes(data: Path, metadata: Any) -> None:
    """Minari makes a list of all episodes at once, whatever their number is said to be."""
    said = metadata.get("total_episodes", 0) if isinstance(metadata, dict) else 0
    size = sum(file.stat().st_size for file in data.rglob("*") if file.is_file())
    if isinstance(said, int | float) and not 0 <= said <= size / BYTES_OF_AN_EPISODE:
        raise FileProblem(
            f"{data / 'metadata.json'}: total_episodes is {quoted(said)}, more than the {size:,} bytes of the data "
            f"set can hold; {EXPECTED}."
        )


def _bank(loaded: Mapping[str, Any], rewards: Any, task: str, reward: Any, reward_key: str) -> TaskBank:
    if rewards is None:
        vectors, parameters = _own_rewards(loaded, reward_key)
        table, names, parameters = as_rewards(vectors, (), parameters)
    else:
        table, names, parameters, origin = read_rewards(rewards, task, reward)
        check_same_tasks(list(loaded), names, "the data sets", origin)
    parts = {name: (_demonstrations(loaded[name]), table[k]) for k, name in enumerate(names)}
    return TaskBank.from_tasks(parts, parameters)


def _own_rewards(loaded: Mapping[str, Any], key: str) -> tuple[dict[str, Any], Sequence[str]]:
    vectors, parameters = {}, None
    for name, dataset in loaded.items():
        metadata = dataset.storage.metadata
        if key not in metadata:
            raise InputError(
                f"The metadata of data set {name!r} has no {key!r}; give rewards=, or reward_key= for another entry."
                f"{did_you_mean(key, metadata)}"
            )
        value = metadata[key]
        named = list(value) if isinstance(value, Mapping) else None
        if parameters is not None and named is not None and set(named) != set(parameters):
            raise InputError(
                f"Data set {name!r} names the reward parameters {named}, the first one {list(parameters)}."
            )
        parameters = parameters or named
        vectors[name] = [value[p] for p in parameters or ()] if named is not None else value
    return vectors, parameters or ()


def _demonstrations(dataset: Any) -> Demonstrations:
    """All episodes of a data set, one row per action."""
    try:
        return _rows(dataset)
    except InputError:
        raise
    except Exception as error:  # an episode that does not fit the spaces in the metadata
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise FileProblem(f"The episodes of this data set do not fit its metadata ({reason}).") from error


def _rows(dataset: Any) -> Demonstrations:
    episodes = [(episode, len(episode)) for episode in dataset.iterate_episodes() if len(episode)]
    if not episodes:
        raise InputError(f"Data set {dataset.id!r} has no steps; at least one is needed.")
    observations = [_cut(episode.observations, steps) for episode, steps in episodes]
    actions = [_cut(episode.actions, steps) for episode, steps in episodes]
    lengths = [steps for _, steps in episodes]
    fields = _fields("state", dataset.observation_space, observations, lengths)
    fields |= _fields("action", dataset.action_space, actions, lengths)
    return Demonstrations(
        **fields,
        episodes=np.repeat([episode.id for episode, _ in episodes], lengths),
        terminated=np.concatenate([episode.terminations for episode, _ in episodes]),
        truncated=np.concatenate([episode.truncations for episode, _ in episodes]),
    )


def _cut(values: Any, steps: int) -> Any:
    """The first `steps` entries of every array in a (nested) episode."""
    if isinstance(values, Mapping):
        return {key: _cut(value, steps) for key, value in values.items()}
    if isinstance(values, tuple):
        return tuple(_cut(value, steps) for value in values)
    return np.asarray(values)[:steps]


def _fields(kind: str, space: Any, episodes: Sequence[Any], lengths: Sequence[int]) -> dict[str, Any]:
    """Fields of `Demonstrations` for one space: codes for a Discrete one, flat numbers for any other."""
    if type(space).__name__ == "Discrete":
        codes = np.concatenate(episodes).reshape(-1).astype(np.int64) - int(space.start)
        labels = None if space.start == 0 else tuple(str(space.start + i) for i in range(space.n))
        return {f"{kind}s": codes, f"n_{kind}s": int(space.n), f"{kind}_labels": labels}
    names, blocks = [], []
    for name, leaf in _leaves(space):
        arrays = [_at(episode, name) for episode in episodes]
        block = np.concatenate([a.reshape(n, -1) for a, n in zip(arrays, lengths, strict=True)])
        if block.dtype.kind not in "biuf":
            raise InputError(
                f"{kind}: a {type(leaf).__name__} space has no numbers; write these data as a table instead."
            )
        blocks.append(block.astype(np.float64))
        label = "_".join(str(key) for key in name) or kind[0]
        names += [label] if block.shape[1] == 1 and name else [f"{label}{i}" for i in range(block.shape[1])]
    return {f"{kind}s": np.concatenate(blocks, axis=1), f"{kind}_names": tuple(names)}


def _leaves(space: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """(path, space) of every space in a nested Dict or Tuple space."""
    inner = getattr(space, "spaces", None)
    if inner is None:
        yield path, space
        return
    for key, child in inner.items() if isinstance(inner, Mapping) else enumerate(inner):
        yield from _leaves(child, (*path, key))


def _at(values: Any, path: Sequence[Any]) -> np.ndarray:
    for key in path:
        values = values[key]
    return np.asarray(values)
