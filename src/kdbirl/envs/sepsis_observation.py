"""From measurements to the 46 covariates, with their identities, the scores and what stays hidden."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from kdbirl.envs.sepsis_covariates import COLUMN, COVARIATES
from kdbirl.envs.sepsis_measurements import CHANNELS, INDEX, values
from kdbirl.envs.sepsis_physiology import Body, Patient
from kdbirl.envs.sepsis_scores import Scores, Signs, scores


class Seen(NamedTuple):
    """The observation, both kinds of scores, and the four things that the covariates hide."""

    observation: Float[Array, "n 46"]
    integer: Scores
    soft: Scores
    hidden: dict[str, Float[Array, " n"]]


def straight_through(exact: Array, soft: Array) -> Array:
    """The exact value with the gradient of the soft one."""
    return soft + jax.lax.stop_gradient(exact - soft)


def _placement() -> Float[np.ndarray, "channels 28"]:
    """The first 28 covariates as sums of channels: most are one, the others are the identities."""
    sums = {
        "SysBP": {"MAP": 1.0, "pulse pressure": 2 / 3},
        "DiasBP": {"MAP": 1.0, "pulse pressure": -1 / 3},
        "MeanBP": {"MAP": 1.0},
        "anion gap": {"sodium": 1.0, "chloride": -1.0, "bicarbonate": -1.0},
        "hematocrit": {"hemoglobin": 3.0},
    }
    rows = [sums.get(name, {name: 1.0}) for name in COVARIATES[:28]]
    return np.array([[row.get(channel, 0.0) for row in rows] for channel in CHANNELS])


_PLACEMENT = _placement()


def observe(
    patient: Patient,
    body: Body,
    readings: Float[Array, "n channels"],
    noise: Float[Array, "n channels"],
    dose: Float[Array, " n"],
) -> Seen:
    """What a chart says. Scores in it are integers; their gradients are those of the soft scores."""
    measured = values(readings, noise)
    chart = jnp.matmul(measured, jnp.asarray(_PLACEMENT, measured.dtype), precision="highest")
    signs = _signs(chart, measured, body.vent, dose)
    exact, soft = scores(signs._replace(gcs=jnp.round(signs.gcs))), scores(signs, soft=True)
    columns = [straight_through(one, two) for one, two in zip(_columns(exact), _columns(soft), strict=True)]
    personal = patient.personal[:, :8], patient.personal[:, 8:]
    observation = jnp.concatenate([chart, personal[0], jnp.stack([body.vent, *columns], axis=1), personal[1]], axis=1)
    hidden = {"P/F": signs.pao2_fio2, "GCS": jnp.round(signs.gcs), "urine": signs.urine, "dose": dose}
    return Seen(observation, exact, soft, hidden)


def _columns(found: Scores) -> tuple[Array, ...]:
    """In the order of the covariates."""
    parts = found.qsofa_systolic, found.qsofa_gcs, found.qsofa_resp_rate
    return found.sofa, found.lods, found.sirs, found.qsofa, *parts


def _signs(chart: Array, measured: Array, vent: Array, dose: Array) -> Signs:
    named = {sign: chart[:, COLUMN[name]] for sign, name in _SIGNS.items()}
    hidden = {sign: measured[:, INDEX[name]] for sign, name in _HIDDEN.items()}
    return Signs(**named, **hidden, vent=vent, dose=dose)


_SIGNS = {
    "platelets": "platelets",
    "bilirubin": "bilirubin",
    "mean_pressure": "MeanBP",
    "creatinine": "creatinine",
    "systolic": "SysBP",
    "heart_rate": "heart rate",
    "resp_rate": "RespRate",
    "temperature": "TempC",
    "paco2": "PaCO2",
    "wbc": "WBC",
    "bands": "bands",
    "bun": "BUN",
    "prothrombin": "PT",
}
_HIDDEN = {"pao2_fio2": "P/F", "gcs": "GCS", "urine": "urine"}
