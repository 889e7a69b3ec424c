"""Features of `ICUSepsis` that a map learns from its states' cluster centres and the treatment.

A penalty per step rewards dying early, and the mean of a learnt feature is arbitrary: whatever is paid for every step
would decide when patients want their stay to end. So each feature is centred and scaled to mean 0 and standard
deviation 1 over the steps of randomly treated patients, from admission to the end,

    share(s, a)  ~  mu(s) / 25,        mu = start + P_random' mu   (expected visits),

which makes the end of a stay, where nothing more is paid, as good as an average step.
"""

from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float

from kdbirl.errors import InputError

# The AI Clinician's covariates in its order: four of two or three values, then measurements, then logarithms.
COVARIATES = (
    *("sex", "ventilation", "vasopressor before", "readmission", "age", "weight", "GCS", "heart rate", "SysBP"),
    *("MeanBP", "DiasBP", "RespRate", "temperature", "FiO2", "potassium", "sodium", "chloride", "glucose", "magnesium"),
    *("calcium", "hemoglobin", "WBC", "platelets", "PTT", "PT", "pH", "PaO2", "PaCO2", "base excess", "bicarbonate"),
    *("lactate", "SOFA", "SIRS", "shock index", "PaO2/FiO2", "balance", "SpO2", "BUN", "creatinine", "SGOT", "SGPT"),
    *("bilirubin", "INR", "fluid total", "fluid before", "urine total", "urine before"),
)
NO_SPREAD = 1e-9  # of a feature that is the same for all: it is left as it is


@runtime_checkable
class PairFeatures(Protocol):
    """What a feature map offers to a tabular world (`FeatureMap` does)."""

    def of_pairs(self, states: Any, n_actions: int, state_names: tuple[str, ...]) -> tuple[Any, Any]:
        """The fitted map, and phi of every state with every action, `(S, A, q)`."""


def learnt_features(
    feature_map: Any, centres: Float[np.ndarray, "n 47"], visits: Float[np.ndarray, " n"], n_actions: int
) -> tuple[Any, Float[np.ndarray, "n A q"]]:
    """The map, fitted on all pairs where it was not yet, and its standardised features."""
    if not isinstance(feature_map, PairFeatures):
        raise InputError(
            f"features={feature_map!r} should be a name or a feature map of the 47 covariates, such as kb.VAE()."
        )
    fitted, phi = feature_map.of_pairs(centres, n_actions, COVARIATES)
    share = (visits / visits.sum())[:, None, None] / n_actions
    mean = (share * phi).sum(axis=(0, 1))
    spread = np.sqrt((share * (phi - mean) ** 2).sum(axis=(0, 1)))
    return fitted, (phi - mean) / np.where(spread > NO_SPREAD, spread, 1.0)


def random_visits(transitions: Float[np.ndarray, "n A n"], start: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """Expected visits to each patient's state under random treatment; `transitions` between such states alone."""
    mean = transitions.mean(axis=1)
    return np.linalg.solve(np.eye(len(start)) - mean.T, start)
