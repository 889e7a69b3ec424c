"""A posterior as one netCDF file: ArviZ opens it, and `load_posterior` gives back an equal `Posterior`.

Arrays are variables of ArviZ's groups; everything else is JSON in the attributes `kdbirl_*` of the root, with a SHA-256
of the whole content, so that a damaged file is noticed and never half believed. No pickle: a file cannot run code.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

import numpy as np

from kdbirl.archive import read_hdf5, whole_or_not_at_all
from kdbirl.data.demonstrations import Demonstrations
from kdbirl.errors import FileProblem, InputError
from kdbirl.features.base import SILENT, FeatureMap
from kdbirl.progress import Progress

if TYPE_CHECKING:
    import xarray

# The fields of a `Posterior`: checked once, copied to read-only arrays and plain values, and digested.

COLOURS = ("green", "amber", "red", "not assessed")


def digest_of(items: Mapping[str, Any]) -> str:
    """SHA-256, in hex, of named values: arrays by dtype, shape and bytes, everything else by its JSON."""
    digest = hashlib.sha256(b"Posterior")
    for name, value in items.items():
        digest.update(f"\0{name}\0".encode("utf-8", "surrogatepass"))
        if isinstance(value, np.ndarray):
            digest.update(f"{value.dtype.str}{value.shape}".encode())
            raw: Any = np.ascontiguousarray(value)
            digest.update(memoryview(raw).cast("B") if raw.size else b"")
        else:
            digest.update(json.dumps(value, sort_keys=True).encode())
    return digest.hexdigest()


def spec_of(features: FeatureMap | None) -> dict[str, Any] | None:
    """The map as JSON-able values; where it cannot be written, why not: the draws are worth saving without it."""
    if features is None:
        return None
    try:
        return features.to_spec()
    except InputError as error:
        return {"kind": "unavailable", "reason": str(error)}


def frozen(value: Any, what: str, shape: Sequence[int | None], dtype: Any = None) -> Any:
    """A read-only array of the given shape (None: any length), copied unless nobody can write to it."""
    array = np.asarray(value, dtype=dtype, order="C")
    if array.ndim != len(shape) or any(want not in (None, have) for want, have in zip(shape, array.shape, strict=True)):
        wanted = ", ".join("any" if length is None else str(length) for length in shape)
        raise InputError(f"{what}: expected an array of shape ({wanted}), got {array.shape}.")
    if array.flags.writeable:
        array = array.copy()
        array.setflags(write=False)
    return array


def table_of(value: Any, what: str, q: int) -> Any:
    """`(rows, q)`; nothing at all is no rows."""
    return frozen(np.zeros((0, q)) if np.size(value) == 0 else value, what, (None, q), np.float64)


def statistic_of(value: Any, name: str, shape: tuple[int, int]) -> Any:
    if not str(name).isidentifier():
        raise InputError(f"sample_stats: {name!r} is not a name; use letters, digits and underscores.")
    array = frozen(value, f"sample_stats[{name!r}]", shape)
    if array.dtype.kind not in "biuf":
        raise InputError(f"sample_stats[{name!r}]: expected numbers, got {array.dtype}.")
    return array


def names_of(
    given: Sequence[str], count: int, what: str, default: str | None = None, distinct: bool = True
) -> tuple[str, ...]:
    names = tuple(str(name) for name in given)
    if not names and default is not None:
        names = tuple(f"{default}{i}" for i in range(count))
    if len(names) != count:
        raise InputError(f"{what}: {len(names)} names for {count} values: {list(names)[:12]}.")
    if distinct and len(set(names)) != count:
        raise InputError(f"{what}: the names are not distinct: {list(names)[:12]}.")
    return names


def bandwidth_of(value: Any) -> float | tuple[float, ...] | None:
    if value is None or np.ndim(value) == 0:
        return None if value is None else float(value)
    return tuple(float(v) for v in value)


def json_copy(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings as JSON would give them back, so that a saved posterior equals the one in memory."""

    def plain(value: Any) -> Any:
        if isinstance(value, np.generic | np.ndarray):
            return value.tolist()
        raise TypeError(f"{type(value).__name__} cannot be written as JSON")

    try:
        copied: dict[str, Any] = json.loads(json.dumps(dict(settings), default=plain))
    except (TypeError, ValueError) as error:
        raise InputError(f"settings: {error}; use numbers, text, lists and dictionaries.") from error
    return copied


def cards_of(cards: Mapping[str, Sequence[str]]) -> dict[str, tuple[str, str]]:
    checked = {}
    for name, (colour, sentence) in cards.items():
        if colour not in COLOURS:
            raise InputError(f"cards: {name!r} has the colour {colour!r}; expected one of {', '.join(COLOURS)}.")
        checked[str(name)] = (str(colour), str(sentence))
    return checked


FORMAT = 1
EXPECTED = "expected a posterior written by Posterior.save, such as posterior.nc"
# Per demonstration up to this many values (256 MB), per *distinct* demonstration beyond: ten thousand rows over 25
# states are 40 million values for 4000 draws, of which only 100 thousand differ.
LARGEST_LOG_LIKELIHOOD = 2**25
TEXT_FIELDS = (
    *("names", "method", "sampler", "seed", "feature_names", "task_names", "h", "h_reward", "power"),
    *("bandwidth_rule", "settings", "cards"),
)

Array = np.ndarray[Any, np.dtype[Any]]
Variables = dict[str, tuple[tuple[str, ...], Array]]


def to_datatree(posterior: Any) -> "xarray.DataTree":
    """Groups posterior, sample_stats, log_likelihood, prior, observed_data and constant_data; no empty one."""
    import xarray

    datasets = {
        f"/{name}": xarray.Dataset(variables, coords=_coordinates(posterior, variables))
        for name, variables in _groups(posterior).items()
        if variables
    }
    return xarray.DataTree.from_dict({"/": xarray.Dataset(attrs=_attributes(posterior)), **datasets})


def save_posterior(posterior: Any, path: str | Path) -> None:
    """Write the DataTree whole or not at all; an existing file is replaced in one step."""
    tree = to_datatree(posterior)
    with whole_or_not_at_all(Path(path)) as unfinished:
        # no fill values: a NaN in a statistic is a NaN, and nothing is masked or scaled on the way back
        encoding = {group.path: {name: {"_FillValue": None} for name in group.data_vars} for group in tree.subtree}
        tree.to_netcdf(unfinished, engine="h5netcdf", encoding=encoding)


def read_posterior(path: Path, functions: Mapping[str, Any] | None) -> tuple[dict[str, Any], str]:
    """The fields of the posterior in a file, and the fingerprint that they should have."""
    attributes, arrays = _read(path)
    _check_format(path, attributes)
    try:
        return _fields(attributes, arrays, functions), attributes["kdbirl_fingerprint"]
    except Exception as error:
        damaged(path, error)


@dataclass(frozen=True)
class MissingFeatures(FeatureMap):
    """Reward features that were not given back when loading: the posterior is whole, only `reward` needs them."""

    kind: ClassVar[str] = "missing"
    spec: dict[str, Any]
    reason: str

    @property
    def is_fitted(self) -> bool:
        """Yes, as far as one can tell: the answer to a call is the reason why it cannot be computed."""
        return True

    def _fit(self, rows: Demonstrations, progress: Progress = SILENT) -> NoReturn:
        raise InputError(self.reason)

    def _apply(self, rows: Demonstrations) -> NoReturn:
        raise InputError(self.reason)

    def _columns(self) -> NoReturn:
        raise InputError(self.reason)

    def to_spec(self) -> dict[str, Any]:
        """What was in the file, so that saving again loses nothing."""
        return self.spec


def _groups(posterior: Any) -> dict[str, Variables]:
    sample = ("chain", "draw")
    tables: dict[str, Variables] = {
        "posterior": {"reward": ((*sample, "parameter"), posterior.draws)},
        "sample_stats": {name: (sample, values) for name, values in posterior.sample_stats.items()},
        "log_likelihood": _log_likelihood(posterior),
        "prior": {"reward": ((*sample, "parameter"), posterior.prior_draws[None])},
        "observed_data": {"expert_features": (("demonstration", "feature"), posterior.expert_features)},
        "constant_data": {
            "expert_index": (("demonstration",), posterior.expert_index),
            "expert_episodes": (("demonstration",), posterior.expert_episodes),
            "task_rewards": (("task", "parameter"), posterior.task_rewards),
            "task_rows": (("task",), posterior.task_rows),
        },
    }
    # netCDF has no arrays of length zero; their shape is in the attribute kdbirl_shapes
    return {group: {name: v for name, v in table.items() if v[1].size} for group, table in tables.items()}


def _log_likelihood(posterior: Any) -> Variables:
    table, index = posterior.log_likelihood, posterior.expert_index
    if table is None:
        return {}
    if table.shape[0] * table.shape[1] * len(index) > LARGEST_LOG_LIKELIHOOD and len(index) > table.shape[2]:
        return {"distinct_demonstrations": (("chain", "draw", "distinct_demonstration"), table)}
    return {"demonstrations": (("chain", "draw", "demonstration"), table[:, :, index])}


def _coordinates(posterior: Any, variables: Variables) -> dict[str, Any]:
    lengths = {d: n for dims, values in variables.values() for d, n in zip(dims, values.shape, strict=True)}
    labels = {"parameter": posterior.names, "feature": posterior.feature_names, "task": posterior.task_names}
    return {d: [_label(name) for name in labels[d]] if d in labels else np.arange(n) for d, n in lengths.items()}


def _label(name: str) -> str:
    """The name as HDF5 can hold it; the exact one is in the JSON attributes."""
    return name.replace("\0", "\\0").encode("utf-8", "backslashreplace").decode("utf-8")


def _attributes(posterior: Any) -> dict[str, Any]:
    shapes = {name: list(getattr(posterior, name).shape) for name in ("prior_draws", "expert_features", "task_rewards")}
    record = {name: getattr(posterior, name) for name in TEXT_FIELDS}
    record |= {"reward_features": spec_of(posterior.reward_features), "shapes": shapes}
    record["log_likelihood_shape"] = None if posterior.log_likelihood is None else list(posterior.log_likelihood.shape)
    return {
        "inference_library": "kdbirl",
        "inference_library_version": _version(),
        "kdbirl_format": FORMAT,
        "kdbirl_fingerprint": posterior.fingerprint(),
        **{f"kdbirl_{name}": json.dumps(value) for name, value in record.items()},
    }


def _version() -> str:
    try:
        return version("kdbirl")
    except PackageNotFoundError:
        return "unknown"


def _read(path: Path) -> tuple[dict[str, Any], dict[str, dict[str, Array]]]:
    """Attributes of the root, and the arrays of each group: the variables of netCDF without its coordinates."""
    attributes, found = read_hdf5(path, EXPECTED, "netCDF")
    arrays: dict[str, dict[str, Array]] = {}
    for place, values in found.items():
        group, _, name = place.rpartition("/")
        notes = attributes[place]
        if notes.get("CLASS") != "DIMENSION_SCALE":
            truth = notes.get("dtype") == "bool"  # how xarray writes booleans, which netCDF lacks
            arrays.setdefault(group, {})[name] = values.astype(bool) if truth else values
    return attributes[""], arrays


def _check_format(path: Path, attributes: Mapping[str, Any]) -> None:
    if "kdbirl_format" not in attributes:
        raise FileProblem(f"{path} is a netCDF file, but not a posterior written by Posterior.save; give that file.")
    version = attributes["kdbirl_format"]
    version = version[0] if isinstance(version, list) and len(version) == 1 else version  # netCDF has no plain numbers
    if not isinstance(version, int) or version < 1:
        damaged(path, None)
    if version > FORMAT:
        raise FileProblem(f"{path} was written by a newer kdbirl; install that one: pip install --upgrade kdbirl.")


def _fields(
    attributes: Mapping[str, Any], arrays: Mapping[str, Mapping[str, Array]], functions: Mapping[str, Any] | None
) -> dict[str, Any]:
    record = {name: json.loads(attributes[f"kdbirl_{name}"]) for name in (*TEXT_FIELDS, "shapes", "reward_features")}
    record |= {name: tuple(value) for name, value in record.items() if isinstance(value, list)}  # JSON has no tuples
    record["cards"] = {name: tuple(card) for name, card in record["cards"].items()}
    features = features_of(record.pop("reward_features"), functions)
    empty = {name: np.zeros(shape) for name, shape in record.pop("shapes").items() if 0 in shape}
    constant = arrays.get("constant_data", {})
    stored = {
        "prior_draws": arrays.get("prior", {}).get("reward", np.zeros((1, 0, 0)))[0],
        "expert_features": arrays.get("observed_data", {}).get("expert_features"),
        "task_rewards": constant.get("task_rewards"),
    }
    index = constant.get("expert_index", np.zeros(0, np.int64))
    return {
        "draws": arrays["posterior"]["reward"],
        "sample_stats": dict(arrays.get("sample_stats", {})),
        "log_likelihood": _distinct(attributes, arrays.get("log_likelihood", {}), index),
        "expert_index": index,
        "expert_episodes": constant.get("expert_episodes", np.zeros(0, np.int64)),
        "task_rows": constant.get("task_rows", np.zeros(0, np.int64)),
        "reward_features": features,
        **stored,
        **empty,
        **record,
    }


def _distinct(attributes: Mapping[str, Any], group: Mapping[str, Array], index: Array) -> Array | None:
    """The columns of distinct expert rows: each row's first appearance."""
    shape = json.loads(attributes["kdbirl_log_likelihood_shape"])
    if shape is None:
        return None
    if not group and 0 in shape:
        return np.zeros(shape)  # no expert rows at all
    if "distinct_demonstrations" in group:
        return group["distinct_demonstrations"]
    chosen: Array = group["demonstrations"][:, :, np.unique(index, return_index=True)[1]]
    return chosen


def features_of(spec: dict[str, Any] | None, functions: Mapping[str, Any] | None) -> FeatureMap | None:
    if spec is None:
        return None
    if spec.get("kind") == "unavailable":
        return MissingFeatures(spec, f"The reward features were not saved: {spec['reason']} Give features= here.")
    from kdbirl.features import from_spec

    try:
        rebuilt: FeatureMap = from_spec(spec, functions=dict(functions or {}))
    except InputError as error:
        return MissingFeatures(spec, f"The reward features are not complete: {error}")
    return rebuilt


def damaged(path: Path, cause: Exception | None) -> NoReturn:
    raise FileProblem(
        f"{path} is damaged or was changed after it was saved: its content does not match its checksum; restore the "
        "file, or compute the posterior again."
    ) from cause
