"""A fitted KD-BIRL model as one file: a ZIP of plain arrays and one JSON text (NumPy's npz). No pickle.

Python code (a function as feature map, kernel, distance or prior) is stored by its name and must be given back when
loading: `load_model(path, functions={"name": function})`.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from kdbirl.archive import read_arrays, whole_or_not_at_all
from kdbirl.data import large_reader
from kdbirl.errors import FileProblem, InputError
from kdbirl.features import FeatureMap, from_spec
from kdbirl.likelihood.bandwidths import Bandwidths
from kdbirl.likelihood.ckde import CKDE
from kdbirl.likelihood.distances import DISTANCES, Distance, distance_name
from kdbirl.likelihood.kernels import (
    Categorical,
    Kernel,
    ProductKernel,
    RadialKernel,
    SimpleKernel,
    UserKernel,
    as_kernel,
    on_columns,
)
from kdbirl.likelihood.large_sums import AllRows, ClusterRows, MissingRows, RowsInMemory, StreamedRows
from kdbirl.methods.fitted import Choices, Fitted
from kdbirl.posterior.auto import SAMPLERS, as_sampler
from kdbirl.posterior.priors import FAMILIES, Prior
from kdbirl.posterior.product_prior import CustomPrior, Product
from kdbirl.trust.held_out import Plays
from kdbirl.trust.loto import LotoSettings

FORMAT = 2
LARGEST, LARGEST_POWER = 1e50, 1e9  # beyond, products of squares overflow
Functions = Mapping[str, Callable[..., Any]]


def save_model(model: Any, path: Path) -> None:
    """Write a fitted model whole or not at all."""
    fitted = model.fitted
    if fitted is None:
        raise InputError("This KDBIRL has not been fitted: there is nothing to save yet.")
    sampler = as_sampler(model.sampler)
    kernel = as_kernel(model.kernel, model.distance)
    ckde, choices, widths = fitted.ckde, fitted.choices, fitted.choices.start
    record = {
        "format": FORMAT,
        "features": fitted.features.to_spec(),
        "reward_features": None if fitted.reward_features is None else fitted.reward_features.to_spec(),
        "kernel": _kernel_spec(kernel),
        "reward_kernel": _kernel_spec(ckde.reward_kernel),
        "prior": _prior_spec(fitted.prior),
        "sampler": {"name": sampler.name.lower(), **_values(sampler)},
        "bandwidth_rule": widths.rule,
        "bandwidth_notes": widths.notes,
        "power": choices.power,
        "loto": _loto_spec(choices.settings) if choices.searches else None,
        "conditional": model.conditional,
        "task_weights": model.task_weights,
        "state_columns": ckde.state_columns,
        "reward_names": fitted.reward_names,
        "task_names": fitted.task_names,
        "bank": fitted.bank_fingerprint,
        "streamed": _streamed_spec(ckde.all_rows),
    }
    arrays = {
        "rows": ckde.rows,
        "weights": ckde.weights,
        "tasks": ckde.tasks,
        "task_rewards": ckde.task_rewards,
        "h": widths.h,
        "h_reward": np.asarray(widths.h_reward),
        **{f"plays_{name}": value for name, value in vars(choices.plays).items()},
    }
    text = np.frombuffer(json.dumps(record).encode(), dtype=np.uint8)
    with whole_or_not_at_all(path) as unfinished, unfinished.open("wb") as stream:
        np.savez_compressed(stream, allow_pickle=False, record=text, **arrays)


def read_model(path: str | Path, functions: Functions | None) -> dict[str, Any]:
    """The arguments of the `KDBIRL` in a file, what it has learnt among them; a file names no place to write."""
    place = Path(path)
    arrays = read_arrays(place, "expected a model written by KDBIRL.save")
    try:
        record = json.loads(arrays.pop("record").tobytes())
        if record["format"] != FORMAT:
            raise FileProblem(f"{place} has format {record['format']}; this version of kdbirl reads format {FORMAT}.")
        return _arguments(record, arrays, functions or {})
    except (FileProblem, InputError):
        raise
    except Exception as problem:  # a record or an array of the wrong kind can fail anywhere
        raise FileProblem(f"{place} is damaged or is not a model written by KDBIRL.save.") from problem


def _arguments(record: dict[str, Any], arrays: dict[str, np.ndarray], functions: Functions) -> dict[str, Any]:
    features = from_spec(record["features"], functions)
    reward_features = None if record["reward_features"] is None else from_spec(record["reward_features"], functions)
    kernel, reward_kernel = (_kernel(record[name], functions) for name in ("kernel", "reward_kernel"))
    assert not isinstance(reward_kernel, ProductKernel)
    prior = _prior(record["prior"], functions)
    settings = dict(record["sampler"])
    sampler = SAMPLERS[settings.pop("name")](**settings)
    ckde = CKDE(
        arrays["rows"],
        arrays["weights"],
        arrays["tasks"],
        arrays["task_rewards"],
        on_columns(kernel, features.names, features.groups),
        reward_kernel,
        record["conditional"],
        record["task_weights"],
        tuple(record["state_columns"]),
    )
    names = tuple(record["reward_names"]), tuple(record["task_names"])
    streamed = record.get("streamed")
    if streamed is not None:
        rows = _streamed(streamed, features, names[1], ckde.task_rewards, names[0])
        ckde = replace(ckde, all_rows=rows)
    h, h_reward = arrays["h"], float(arrays["h_reward"])
    _check_arrays(ckde, h, h_reward, record, prior)
    widths = Bandwidths(h, h_reward, record["bandwidth_rule"], tuple(record["bandwidth_notes"]))
    loto = None if record["loto"] is None else _loto(record["loto"], functions)
    plays = Plays(*(arrays[f"plays_{item.name}"] for item in fields(Plays)))
    choices = Choices(
        ckde.in_memory, prior, names[0], plays, widths, record["power"], loto is not None, loto or LotoSettings()
    )
    return {
        "prior": prior,
        "features": features,
        "bandwidth": (h.tolist(), h_reward) if loto is None else loto,
        "sampler": sampler,
        "kernel": kernel,
        "reward_kernel": reward_kernel,
        "power": record["power"],
        "conditional": record["conditional"],
        "task_weights": record["task_weights"],
        "reward_features": reward_features,
        "fitted": Fitted(features, ckde, choices, prior, reward_features, *names, record["bank"]),
    }


def _check_arrays(ckde: CKDE, h: np.ndarray, h_reward: float, record: dict[str, Any], prior: Prior) -> None:
    """Arrays that fit each other, and numbers that can be computed with: a file may hold anything."""
    (m, _), (k, q) = ckde.rows.shape, ckde.task_rewards.shape
    numbers = (ckde.rows, ckde.weights, ckde.task_rewards, h, np.asarray(h_reward))
    fits = ckde.weights.shape == ckde.tasks.shape == (m,) and h.ndim == 1 and len(h) == len(ckde.kernel.parts)
    fits = fits and ckde.tasks.dtype.kind in "iu" and set(np.unique(ckde.tasks)) == set(range(k)) and k > 0 and q > 0
    fits = fits and len(record["reward_names"]) == q and len(record["task_names"]) == k
    power = record["power"]
    fits = fits and (power is None or (isinstance(power, int | float) and 0 < power < LARGEST_POWER))
    if not fits or not all(array.dtype == np.float64 and (np.abs(array) < LARGEST).all() for array in numbers):
        raise ValueError("arrays that do not fit each other, or are not finite numbers")
    if not ((ckde.weights > 0).all() and (h > 1 / LARGEST).all() and h_reward > 1 / LARGEST):
        raise ValueError("weights and bandwidths should be positive")
    drawn = prior.sample(np.random.default_rng(0), 64)
    if drawn.shape != (64, q) or not (np.abs(drawn) < LARGEST).all():
        raise ValueError("the prior is of another number of parameters, or has no finite scale")


def _streamed_spec(all_rows: AllRows | None) -> dict[str, Any] | None:
    """Where rows are that a file of a model cannot hold."""
    rows = all_rows.rows if isinstance(all_rows, ClusterRows) else all_rows
    if rows is None or isinstance(rows, RowsInMemory):
        return None
    if not isinstance(rows, StreamedRows):
        raise InputError("The training rows of this model cannot be read, so it cannot be saved again.")
    return large_reader.to_spec(rows.coded)


def _streamed(
    spec: dict[str, Any],
    features: FeatureMap,
    tasks: tuple[str, ...],
    rewards: np.ndarray,
    parameters: tuple[str, ...],
) -> AllRows:
    """The rows again, or, where their files are gone, something that says so when it is asked."""
    try:
        return StreamedRows(large_reader.from_spec(spec, tasks, rewards, parameters), features)
    except (FileProblem, InputError) as problem:
        return MissingRows(np.asarray(spec["rows_per_task"], dtype=np.int64), str(problem))


def _loto_spec(settings: LotoSettings) -> dict[str, Any]:
    factors = {name: list(getattr(settings, name)) for name in ("h_factors", "h_reward_factors", "powers")}
    objective = None if settings.objective is None else getattr(settings.objective, "__name__", "objective")
    return {**factors, "objective": objective}


def _loto(spec: dict[str, Any], functions: Functions) -> LotoSettings:
    objective = None if spec["objective"] is None else _given_back(spec["objective"], functions)
    factors = {name: tuple(spec[name]) for name in ("h_factors", "h_reward_factors", "powers")}
    return LotoSettings(**factors, objective=objective)


def _values(item: Any) -> dict[str, Any]:
    """The fields of a configuration, as plain values."""
    return {f.name: np.asarray(getattr(item, f.name)).tolist() for f in fields(item)}


def _given_back(name: str, functions: Functions) -> Callable[..., Any]:
    if name not in functions:
        raise InputError(
            f"This model uses your function {name[:80]!r}, which a file cannot hold: give it back with "
            f"load_model(path, functions={{{name[:80]!r}: ...}})."
        )
    return functions[name]


def _distance(name: str, functions: Functions) -> Distance:
    return DISTANCES[name] if name in DISTANCES else _given_back(name, functions)


def _kernel_spec(kernel: Kernel) -> dict[str, Any]:
    if isinstance(kernel, ProductKernel):
        return {"kind": "product", "factors": {group: _kernel_spec(factor) for group, factor in kernel.factors}}
    if isinstance(kernel, Categorical):
        return {"kind": "categorical", "mismatch": kernel.mismatch, "levels": kernel.levels}
    if isinstance(kernel, RadialKernel):
        return {"kind": "radial", "profile": kernel.profile, "distance": distance_name(kernel.distance)}
    name, distance = kernel.describe(), distance_name(kernel.distance)
    return {"kind": "user", "function": name, "distance": distance, "log_space": kernel.log_space}


def _kernel(spec: dict[str, Any], functions: Functions) -> Kernel:
    if spec["kind"] == "product":
        factors: dict[str, SimpleKernel] = {}
        for group, factor in spec["factors"].items():
            kernel = _kernel(factor, functions)
            assert not isinstance(kernel, ProductKernel)
            factors[group] = kernel
        return ProductKernel(**factors)
    if spec["kind"] == "categorical":
        return Categorical(spec["mismatch"], spec["levels"])
    distance = _distance(spec["distance"], functions)
    if spec["kind"] == "radial":
        return RadialKernel(spec["profile"], distance)
    return UserKernel(_given_back(spec["function"], functions), distance, spec["log_space"])


def _prior_spec(prior: Prior) -> dict[str, Any]:
    if isinstance(prior, Product):
        return {"kind": "product", "priors": [_prior_spec(part) for part in prior.priors]}
    if isinstance(prior, CustomPrior):
        low, high = prior.support
        sampler = None if prior.sampler is None else getattr(prior.sampler, "__name__", "sampler")
        return {
            "kind": "custom",
            "function": prior.describe(),
            "low": low.tolist(),
            "high": high.tolist(),
            "sampler": sampler,
        }
    return {"kind": prior.kind, **_values(prior)}


def _prior(spec: dict[str, Any], functions: Functions) -> Prior:
    values = {name: value for name, value in spec.items() if name != "kind"}
    if spec["kind"] == "product":
        return Product(tuple(_prior(part, functions) for part in values["priors"]))
    if spec["kind"] == "custom":
        sampler = None if values["sampler"] is None else _given_back(values["sampler"], functions)
        return CustomPrior(_given_back(values["function"], functions), values["low"], values["high"], sampler)
    prior: Prior = FAMILIES[spec["kind"]](**{name: np.asarray(value) for name, value in values.items()})
    return prior
