"""What is seen of a septic patient and what can be done: the 46 covariates of gym-sepsis and its treatments."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from kdbirl.errors import InputError, did_you_mean

COVARIATES = (
    *("albumin", "anion gap", "bands", "bicarbonate", "bilirubin", "BUN", "chloride", "creatinine", "DiasBP"),
    *("glucose (bedside)", "glucose (lab)", "heart rate", "hematocrit", "hemoglobin", "INR", "lactate", "MeanBP"),
    *("PaCO2", "platelets", "potassium", "PT", "PTT", "RespRate", "sodium", "SpO2", "SysBP", "TempC", "WBC"),
    *("age", "is_male", "race white", "race black", "race hispanic", "race other", "height", "weight"),
    *("vent", "SOFA", "LODS", "SIRS", "qSOFA", "qSOFA SysBP", "qSOFA GCS", "qSOFA RespRate"),
    *("Elixhauser", "blood culture positive"),
)
COLUMN = {name: column for column, name in enumerate(COVARIATES)}
PERSONAL = (*COVARIATES[28:36], "Elixhauser", "blood culture positive")  # the ten that no treatment can change
MEMORY_ROWS, MEMORY_COLUMNS = 10, len(COVARIATES) + 2  # covariates, action, index of the step

LEVELS = 5  # of each drug; action = 5 * fluid + vasopressor
FLUID_CUTS = (0.0, 50.0, 180.0, 530.0)  # mL in 4 hours: the level is the number of cuts that the dose exceeds
VASOPRESSOR_CUTS = (0.0, 0.08, 0.22, 0.45)  # ug/kg/min of norepinephrine or its equivalent
FLUID_DOSES = (0.0, 30.0, 115.0, 340.0, 850.0)  # what an action of each level gives: one dose inside of each bin
VASOPRESSOR_DOSES = (0.0, 0.05, 0.15, 0.33, 0.65)


def treatment_names(n_actions: int) -> tuple[str, ...]:
    """ "fluid 0 vasopressor 0" and so on."""
    return tuple(f"fluid {a // LEVELS} vasopressor {a % LEVELS}" for a in range(n_actions))


def treatment_doses(n_actions: int) -> tuple[Float[np.ndarray, " A"], Float[np.ndarray, " A"]]:
    """Fluid in mL per 4 hours and vasopressor in ug/kg/min of each action."""
    fluid, vasopressor = np.divmod(np.arange(n_actions), LEVELS)
    return np.array(FLUID_DOSES)[fluid], np.array(VASOPRESSOR_DOSES)[vasopressor]


# Features phi(s, a) of sepsis rewards w.phi, by name or as a function; for `SepsisSim` and `GymSepsis` alike.

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
