"""Features phi(s, a) of sepsis rewards w.phi, by name or as a function; for `SepsisSim` and `GymSepsis` alike."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from kdbirl.envs.sepsis_covariates import COVARIATES
from kdbirl.errors import InputError, did_you_mean

NAMED: dict[str, tuple[str, ...]] = {
    "sofa-fluid-vasopressor": ("SOFA", "fluid", "vasopressor"),
    "sofa-lactate-map": ("SOFA", "lactate", "MAP"),
    "outcome": ("survived", "died"),
}
OUTCOME = NAMED["outcome"]
FULL_FLUID, FULL_VASOPRESSOR = 530.0, 0.45  # doses that count as 1: the highest cuts of the bins

FeatureFunction = Callable[[Any, Any], Any]  # observations (n, 46), actions (n,) -> (n, q), in jax.numpy


def names_of(features: str | FeatureFunction, outcome: bool, names: tuple[str, ...]) -> tuple[str, ...]:
    """The names of phi's q columns; a function's are the given ones, or phi1, phi2, ..."""
    if isinstance(features, str):
        if features not in NAMED:
            raise InputError(f"features={features!r} is unknown.{did_you_mean(features, NAMED)}")
        if names:
            raise InputError(f"names={names!r} are for a function; the features of {features!r} have their own.")
        found = NAMED[features]
    else:
        found = _named_function(features, names)
    return found + tuple(name for name in OUTCOME if outcome and name not in found)


def named_columns(names: tuple[str, ...], columns: dict[str, Float[Array, " n"]]) -> Float[Array, "n q"]:
    """The columns that were asked for, side by side."""
    return jnp.stack([columns[name] for name in names], axis=1)


def _named_function(features: FeatureFunction, names: tuple[str, ...]) -> tuple[str, ...]:
    rows = np.zeros((2, len(COVARIATES)), np.float32), np.zeros(2, np.int32)
    shape = getattr(jax.eval_shape(features, *rows), "shape", None)
    if shape is None or len(shape) != 2 or shape[0] != 2:
        raise InputError(f"features: the function gives shape {shape} for 2 rows, expected (2, q).")
    names = names or tuple(getattr(features, "names", ()))  # a feature map in JAX knows its own
    if names and len(names) != shape[1]:
        raise InputError(f"names: {len(names)} names for {shape[1]} features.")
    return tuple(names) or tuple(f"phi{i + 1}" for i in range(shape[1]))
