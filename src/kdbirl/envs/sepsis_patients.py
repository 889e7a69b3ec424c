"""Who is admitted with sepsis: the priors of patients, and their bodies at the start."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from kdbirl.envs.sepsis_measurements import NAMES, OWN
from kdbirl.envs.sepsis_physiology import Body, Patient, ventilator

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
