"""From measurements to the 46 covariates, with their identities, the scores and what stays hidden."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from kdbirl.worlds.sepsis.covariates import COLUMN, COVARIATES
from kdbirl.worlds.sepsis.physiology import Body, Patient, hypoperfusion, ischaemia, log_pressure, saturated, ventilator
from kdbirl.worlds.sepsis.scores import Scores, Signs, scores

# What is measured of a body: vital signs, laboratory values, and three things that the covariates hide.
#
# Each of the channels below is, on its scale (as it is, or its logarithm),
#
#     goal     = median at the start + the patient's own offset + (drivers - their medians at the start) @ effects
#     reading' = reading + lag (goal - reading)                          first-order lag, 1: at once
#     noise'   = CARRIED noise + ...                                     AR(1), stationary, with the given deviation
#     value    = reading + noise, bent smoothly into [low, high]
#
# Medians at the start are published ones (SEPSIS 4 of the specification names the papers) or those of usual ICU data.

CARRIED = 0.6  # share of a measurement's error that is still there four hours later
# The drivers' medians over the patients of the start, without a drug.
DRIVERS = {
    "infection": 0.535,
    "inflammation": 0.315,
    "shock": 0.185,
    "ischaemia": 0.0,
    "volume": -0.23,
    "water": 0.16,
    "kidney": 0.12,
    "liver": 0.12,
    "lung": 0.12,
    "coagulation": 0.12,
    "brain": 0.12,
    "acid": 0.24,
    "vent": 0.0,
    "drug": 0.0,
}


class Channel(NamedTuple):
    """One thing that is measured."""

    log: bool
    median: float  # at the start
    own: float  # deviation of the patients' offsets, on the channel's scale
    error: float  # deviation of the measurement
    lag: float
    low: float
    high: float
    effects: dict[str, float]


CHANNELS = {
    "albumin": Channel(True, 2.3, 0.20, 0.04, 0.25, 0.8, 5.5, {"inflammation": -0.35, "volume": -0.28, "liver": -0.3}),
    "bands": Channel(True, 4.0, 0.55, 0.20, 0.3, 0.1, 25, {"infection": 1.6, "inflammation": 0.6}),
    "bicarbonate": Channel(False, 23, 2.8, 0.9, 0.6, 5, 45, {"acid": -3.5, "kidney": -4, "volume": -1.5}),
    "bilirubin": Channel(True, 0.9, 0.8, 0.06, 0.3, 0.1, 13, {"liver": 3.0}),
    "BUN": Channel(True, 25, 0.42, 0.05, 0.2, 2, 140, {"kidney": 1.5, "volume": -0.25}),
    "chloride": Channel(False, 103, 3.5, 1.0, 0.4, 80, 130, {"volume": 3.0, "acid": -1.0}),
    "creatinine": Channel(True, 1.3, 0.42, 0.05, 0.3, 0.2, 10, {"kidney": 2.4, "volume": -0.1}),
    "glucose (bedside)": Channel(True, 135, 0.20, 0.10, 0.6, 30, 500, {"inflammation": 0.2, "drug": 0.25}),
    "glucose (lab)": Channel(True, 132, 0.20, 0.10, 0.6, 30, 500, {"inflammation": 0.2, "drug": 0.25}),
    "heart rate": Channel(
        True, 86, 0.12, 0.05, 1.0, 30, 200, {"inflammation": 0.35, "shock": 0.3, "volume": -0.12, "drug": 0.08}
    ),
    "hemoglobin": Channel(True, 9.9, 0.17, 0.03, 0.8, 4, 20, {"volume": -0.22, "coagulation": -0.1}),
    "INR": Channel(True, 1.35, 0.16, 0.04, 0.3, 0.8, 5, {"coagulation": 0.9, "liver": 0.4}),
    "lactate": Channel(True, 1.9, 0.0, 0.10, 1.0, 0.3, 9, {}),
    "PaCO2": Channel(True, 40, 0.13, 0.05, 0.8, 15, 110, {"lung": 0.25, "acid": -0.12, "vent": -0.05}),
    "platelets": Channel(True, 195, 0.42, 0.05, 0.3, 5, 800, {"coagulation": -2.2, "volume": -0.12}),
    "potassium": Channel(True, 3.9, 0.10, 0.05, 0.5, 2, 8, {"kidney": 0.35, "acid": 0.06, "volume": -0.04}),
    "PT": Channel(True, 15.0, 0.14, 0.03, 0.3, 9, 50, {"coagulation": 0.85, "liver": 0.35}),
    "PTT": Channel(True, 33, 0.18, 0.05, 0.3, 18, 120, {"coagulation": 0.9, "liver": 0.3}),
    "RespRate": Channel(
        True, 19.3, 0.13, 0.07, 1.0, 5, 55, {"acid": 0.14, "lung": 0.5, "water": 0.3, "inflammation": 0.2, "vent": -0.1}
    ),
    "sodium": Channel(False, 137, 3.3, 0.8, 0.4, 115, 165, {"volume": 1.5, "water": -2.0}),
    "SpO2": Channel(False, 97.4, 1.4, 0.7, 1.0, 75, 100, {"lung": -6, "water": -5, "vent": 2.0, "shock": -1.0}),
    "TempC": Channel(False, 36.9, 0.35, 0.22, 0.7, 32, 42, {"infection": 1.6, "inflammation": 0.8, "shock": -1.0}),
    "WBC": Channel(True, 11.5, 0.38, 0.08, 0.4, 0.3, 80, {"infection": 0.7, "inflammation": 0.6}),
    "MAP": Channel(True, 74.8, 0.0, 0.025, 1.0, 25, 160, {}),
    "pulse pressure": Channel(True, 48, 0.18, 0.06, 1.0, 10, 120, {"volume": 0.15, "drug": -0.08, "shock": -0.2}),
    "P/F": Channel(True, 290, 0.22, 0.06, 1.0, 40, 600, {"lung": -1.7, "water": -1.0, "vent": 0.10}),
    "GCS": Channel(False, 14.6, 0.5, 0.15, 0.7, 3, 15.3, {"brain": -12, "shock": -1.0}),
    "urine": Channel(True, 1500, 0.35, 0.10, 0.8, 20, 8000, {"kidney": -2.4, "volume": 0.5, "shock": -0.7}),
}
NAMES = tuple(CHANNELS)
INDEX = {name: column for column, name in enumerate(NAMES)}
COMPUTED = {"MAP": INDEX["MAP"], "lactate": INDEX["lactate"]}  # goals that the body gives itself


def _column(name: str) -> Float[np.ndarray, " channels"]:
    return np.array([getattr(channel, name) for channel in CHANNELS.values()], dtype=np.float64)


_LOG = _column("log") == 1
_MEDIAN, _LOW, _HIGH = (np.where(_LOG, np.log(_column(name)), _column(name)) for name in ("median", "low", "high"))
OWN, ERROR, _LAG = _column("own"), _column("error"), _column("lag")
_EFFECTS = np.array([[channel.effects.get(driver, 0.0) for channel in CHANNELS.values()] for driver in DRIVERS])
_SHIFT = _MEDIAN - np.array(list(DRIVERS.values())) @ _EFFECTS


def drivers(patient: Patient, body: Body) -> Float[Array, "n drivers"]:
    """What moves the measurements, all within a few units of 1."""
    columns = {
        "infection": saturated(body.infection),
        "inflammation": saturated(body.inflammation),
        "shock": saturated(hypoperfusion(patient, body)),
        "ischaemia": saturated(ischaemia(patient, body)),
        "volume": jnp.tanh(body.volume / 1.5),
        "water": saturated(body.water / 8),
        **{organ: body.damage[:, i] for i, organ in enumerate(("kidney", "liver", "lung", "coagulation", "brain"))},
        "acid": jnp.log(body.lactate / 1.5),
        "vent": body.vent,
        "drug": saturated(body.drug / 0.2),
    }
    return jnp.stack([columns[name] for name in DRIVERS], axis=1)


def goals(patient: Patient, body: Body) -> Float[Array, "n channels"]:
    """Where the readings go, on their channels' scales."""
    effects, shift = (jnp.asarray(constant, body.volume.dtype) for constant in (_EFFECTS, _SHIFT))
    moved = drivers(patient, body) @ effects + shift[None] + patient.offsets
    moved = moved.at[:, COMPUTED["MAP"]].set(log_pressure(patient, body))
    return moved.at[:, COMPUTED["lactate"]].set(jnp.log(body.lactate))


def followed(readings: Float[Array, "n channels"], goal: Float[Array, "n channels"]) -> Float[Array, "n channels"]:
    """Readings after four hours on their way to the goal."""
    return readings + jnp.asarray(_LAG, goal.dtype)[None] * (goal - readings)


def fresh_noise(normal: Float[Array, "n channels"]) -> Float[Array, "n channels"]:
    """Errors of a first measurement, from standard normal numbers."""
    return normal * jnp.asarray(ERROR, normal.dtype)[None]


def carried_noise(noise: Float[Array, "n channels"], normal: Float[Array, "n channels"]) -> Float[Array, "n channels"]:
    """Errors of the next."""
    return CARRIED * noise + (1 - CARRIED**2) ** 0.5 * fresh_noise(normal)


def values(readings: Float[Array, "n channels"], noise: Float[Array, "n channels"]) -> Float[Array, "n channels"]:
    """The measurements in their units."""
    low, high, middle = (jnp.asarray(constant, noise.dtype)[None] for constant in (_LOW, _HIGH, _MEDIAN))
    log = jnp.asarray(_LOG)[None]
    moved = readings + noise - middle
    room = jnp.where(moved > 0, high - middle, middle - low)
    bent = middle + room * jnp.tanh(moved / room)  # slope 1 at the median, from either side
    return jnp.where(log, jnp.exp(jnp.where(log, bent, 0.0)), bent)


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


# Who is admitted with sepsis: the priors of patients, and their bodies at the start.

SPREADS = {"clearance": 0.35, "leak": 0.25, "vasoplegia": 0.28, "sensitivity": 0.3, "reserve": 0.15}  # log-normal
SUSCEPTIBILITY = 0.45  # log-normal, of each organ
PRESSURE, PRESSURE_SPREAD = 95.5, 0.07  # mmHg when well, log-normal
MEN, CULTURES = 0.1993, -0.4677  # normal quantiles of the shares of men, .579, and of positive blood cultures, .32
RACES = (-0.583, -1.405, -1.751)  # below the first: not white (28 %); below the second: black (8 %) or hispanic (4 %)
DRAWS = 8 + 5 + 5 + 11 + len(NAMES)


def admitted(key: Array, n: int) -> tuple[Patient, Body, Float[Array, "n channels"]]:
    """n patients, their bodies, and standard normal errors of a first measurement.

    Everything comes from one block of normal numbers: each further call of a generator would take a second to compile.
    """
    draws = jax.random.normal(key, (n, DRAWS + len(NAMES)))
    own, organs, start, person, offsets, errors = jnp.split(draws, (8, 13, 18, 29, DRAWS), axis=1)
    frailty, personal = _person(person)
    patient = Patient(
        **{name: jnp.exp(width * own[:, i]) for i, (name, width) in enumerate(SPREADS.items())},
        susceptibility=jnp.exp(SUSCEPTIBILITY * organs),
        frailty=frailty,
        normal_pressure=PRESSURE * jnp.exp(PRESSURE_SPREAD * own[:, 5]),
        offsets=offsets * jnp.asarray(OWN, draws.dtype)[None],
        personal=personal,
    )
    return patient, _body(own, start, person), errors


def _body(own: Float[Array, "n 8"], organs: Float[Array, "n 5"], person: Float[Array, "n 11"]) -> Body:
    """An infection whose inflammation is still rising, vessels that are rather empty, organs that begin to suffer."""
    severe, heat = own[:, 6], own[:, 7]
    infection = 1.15 * jnp.exp(0.5 * severe)
    body = Body(
        infection=infection,
        inflammation=0.4 * infection * jnp.exp(0.25 * heat),
        volume=-0.35 + 0.3 * person[:, 6],
        water=1.5 * jnp.exp(0.4 * person[:, 7]),
        damage=jax.nn.sigmoid(-2.0 + 0.4 * severe[:, None] + 0.7 * organs),
        lactate=1.9 * jnp.exp(0.35 * person[:, 8] + 0.25 * severe),
        drug=jnp.zeros_like(severe),
        vent=jnp.zeros_like(severe),
    )
    return body._replace(vent=ventilator(body))


def _person(draws: Float[Array, "n 11"]) -> tuple[Float[Array, " n"], Float[Array, "n 10"]]:
    """Frailty, and age, sex, race, height, weight, Elixhauser (van Walraven's points) and blood culture."""
    frailty = draws[:, 0]
    age = jnp.clip(68.7 + 16.5 * (0.45 * frailty + 0.893 * draws[:, 1]), 18.0, 91.0)
    man, culture = _share(draws[:, 2], MEN), _share(draws[:, 9], CULTURES)
    not_white, black_or_hispanic, hispanic = (_share(draws[:, 3], share) for share in RACES)
    race = 1 - not_white, black_or_hispanic - hispanic, hispanic, not_white - black_or_hispanic
    height = 162.0 + 13.5 * man + 7.0 * draws[:, 4]
    weight = jnp.clip(81.8 * jnp.exp(0.12 * (man - 0.579) + 0.24 * draws[:, 5]), 35.0, 200.0)
    elixhauser = jnp.clip(jnp.round(6.0 + 6.5 * (0.5 * frailty + 0.866 * draws[:, 10])), -10.0, 35.0)
    return frailty, jnp.stack([age, man, *race, height, weight, elixhauser, culture], axis=1)


def _share(draw: Float[Array, " n"], quantile: float) -> Float[Array, " n"]:
    """1 for those below this quantile of the normal distribution, else 0."""
    return (draw < quantile).astype(draw.dtype)
