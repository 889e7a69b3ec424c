"""A fitted KD-BIRL model as one file: a ZIP of plain arrays and one JSON text (NumPy's npz). No pickle.

Python code (a function as feature map, kernel, distance or prior) is stored by its name and must be given back when
loading: `load_model(path, functions={"name": function})`.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from kdbirl.diagnosis.loto import LotoSettings
from kdbirl.diagnosis.plays import Plays
from kdbirl.errors import FileProblem, InputError
from kdbirl.features import from_spec
from kdbirl.files import whole_or_not_at_all
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
from kdbirl.methods.bandwidth_choice import Choices
from kdbirl.methods.fitted import Fitted
from kdbirl.methods.kdbirl import KDBIRL
from kdbirl.posterior.auto import SAMPLERS, as_sampler
from kdbirl.posterior.priors import FAMILIES, Prior
from kdbirl.posterior.product_prior import CustomPrior, Product

FORMAT = 2
Functions = Mapping[str, Callable[..., Any]]


def save_model(model: KDBIRL, path: Path) -> None:
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


def load_model(path: str | Path, functions: Functions | None = None) -> KDBIRL:
    """The fitted model that `KDBIRL.save` wrote; it gives the same numbers."""
    place = Path(path)
    try:
        with place.open("rb") as stream, np.load(stream, allow_pickle=False) as content:
            arrays = {name: content[name] for name in content.files}
        record = json.loads(arrays.pop("record").tobytes())
        if record["format"] != FORMAT:
            raise FileProblem(f"{place} has format {record['format']}; this version of kdbirl reads format {FORMAT}.")
        return _rebuilt(record, arrays, functions or {})
    except FileNotFoundError:
        raise FileProblem(f"{place} does not exist; expected a model written by KDBIRL.save.") from None
    except (FileProblem, InputError):
        raise
    except Exception as problem:  # zipfile, zlib, json and NumPy raise whatever they stumble over in a damaged file
        raise FileProblem(f"{place} is damaged or is not a model written by KDBIRL.save.") from problem


def _rebuilt(record: dict[str, Any], arrays: dict[str, np.ndarray], functions: Functions) -> KDBIRL:
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
    h, h_reward = arrays["h"], float(arrays["h_reward"])
    widths = Bandwidths(h, h_reward, record["bandwidth_rule"], tuple(record["bandwidth_notes"]))
    names = tuple(record["reward_names"]), tuple(record["task_names"])
    loto = None if record["loto"] is None else _loto(record["loto"], functions)
    plays = Plays(*(arrays[f"plays_{item.name}"] for item in fields(Plays)))
    choices = Choices(ckde, prior, names[0], plays, widths, record["power"], loto is not None, loto or LotoSettings())
    return KDBIRL(
        prior=prior,
        features=features,
        bandwidth=(h.tolist(), h_reward) if loto is None else loto,
        sampler=sampler,
        kernel=kernel,
        reward_kernel=reward_kernel,
        power=record["power"],
        conditional=record["conditional"],
        task_weights=record["task_weights"],
        reward_features=reward_features,
        fitted=Fitted(features, ckde, choices, prior, reward_features, *names, record["bank"]),
    )


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
            f"This model uses your function {name!r}, which a file cannot hold: give it back with "
            f"load_model(path, functions={{{name!r}: ...}})."
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
