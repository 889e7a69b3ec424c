"""Four hours of a septic patient: infection, inflammation, circulation, fluids, five organs, lactate, ventilator.

The structure is that of published physiology (Starling's curve, vasoplegia, an Emax model of the vasopressor, capillary
leak); the constants are calibrated by hand. Each drug helps and harms: fluid fills the vessels and then floods the
lungs, the vasopressor lifts the pressure and then starves the organs. Only smooth functions, so that gradients exist
everywhere; the ventilator alone is switched, and passes the gradient of its sigmoid (straight-through).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

ORGANS = ("kidney", "liver", "lung", "coagulation", "brain")
SHOCK, SHOCK_WIDTH = 66.0, 5.5  # mmHg: hypoperfusion = softplus((66 - MAP) / 5.5)
HEALING = 0.06  # share of an organ's damage that heals in four hours
FLUID_KEPT = 0.8  # share of a fluid bolus that is in the vessels at first
# Damage of each organ by hypoperfusion, inflammation, ischaemia from the drug, and overload with fluid.
DAMAGE = {
    "kidney": (0.050, 0.020, 0.060, 0.050),
    "liver": (0.040, 0.012, 0.060, 0.015),
    "lung": (0.012, 0.028, 0.010, 0.120),
    "coagulation": (0.030, 0.040, 0.030, 0.010),
    "brain": (0.045, 0.016, 0.020, 0.020),
}


class Patient(NamedTuple):
    """What a patient is and stays, drawn from priors; `(n,)` each but susceptibility. 1 is the typical patient."""

    clearance: Float[Array, " n"]  # of the infection, by the body and the antibiotics that everybody has
    leak: Float[Array, " n"]  # of the capillaries
    vasoplegia: Float[Array, " n"]  # loss of resistance by inflammation
    sensitivity: Float[Array, " n"]  # to the vasopressor
    reserve: Float[Array, " n"]  # of the heart
    susceptibility: Float[Array, "n 5"]  # of the organs
    frailty: Float[Array, " n"]  # standard normal
    normal_pressure: Float[Array, " n"]  # mean arterial pressure when well, mmHg
    offsets: Float[Array, "n channels"]  # of what is measured, see sepsis_measurements
    personal: Float[Array, "n 10"]  # the covariates that no treatment can change


class Body(NamedTuple):
    """What changes and is not seen; `(n,)` each but damage."""

    infection: Float[Array, " n"]
    inflammation: Float[Array, " n"]
    volume: Float[Array, " n"]  # in the vessels, litres above normal
    water: Float[Array, " n"]  # in the tissue, litres above normal
    damage: Float[Array, "n 5"]  # of the organs, 0 to 1
    lactate: Float[Array, " n"]  # mmol/L
    drug: Float[Array, " n"]  # level of the vasopressor, ug/kg/min
    vent: Float[Array, " n"]  # 1 or 0


def saturated(amount: Array) -> Array:
    """x / (1 + x), for x from 0 to infinity."""
    return amount / (1 + amount)


def soft_excess(value: Array, threshold: float, width: float) -> Array:
    """A smooth max(value - threshold, 0)."""
    return width * jax.nn.softplus((value - threshold) / width)


def log_pressure(patient: Patient, body: Body) -> Float[Array, " n"]:
    """log MAP = log normal + 0.65 (log output + log resistance): the baroreflex takes up a third of every change."""
    ill = saturated(body.inflammation)
    filling = 0.34 * jnp.tanh(body.volume / 0.8) - 0.08 * soft_excess(body.volume, 1.3, 0.3)
    output = filling - 0.16 * ill / patient.reserve
    effect = body.drug * patient.sensitivity
    resistance = jnp.log1p(0.8 * effect / (effect + 0.18)) - 0.62 * patient.vasoplegia * ill
    return jnp.log(patient.normal_pressure) + 0.65 * (output + resistance)


def hypoperfusion(patient: Patient, body: Body) -> Float[Array, " n"]:
    """softplus((66 - MAP) / 5.5)."""
    return jax.nn.softplus((SHOCK - jnp.exp(log_pressure(patient, body))) / SHOCK_WIDTH)


def ischaemia(patient: Patient, body: Body) -> Float[Array, " n"]:
    """What too much vasopressor does: quadratic in its level at first, about 1 at the highest cut, never above 5."""
    square = (body.drug * patient.sensitivity / 0.4) ** 2
    return square / (1 + square / 5)


def overload(body: Body) -> Float[Array, " n"]:
    """What too much fluid does, in the vessels at once and in the tissue later."""
    return soft_excess(body.volume, 0.6, 0.2) + 0.30 * soft_excess(body.water, 5.0, 0.8)


def four_hours(patient: Patient, body: Body, fluid: Float[Array, " n"], drug: Float[Array, " n"]) -> Body:
    """The body after four hours with so much fluid (litres) and vasopressor (ug/kg/min)."""
    body = body._replace(drug=0.9 * drug + 0.1 * body.drug, volume=body.volume + FLUID_KEPT * fluid)
    hypo, ill = hypoperfusion(patient, body), saturated(body.inflammation)
    volume, water = _fluids(patient, body, ill)
    poor = jax.nn.sigmoid(hypo - 2.0)  # a starved body does not fight
    infection = body.infection * jnp.exp(-0.11 * patient.clearance * (1 - 0.6 * poor))
    drive = infection + 0.6 * body.damage.mean(axis=1)
    inflammation = body.inflammation + 0.28 * (drive - body.inflammation)
    damage = _damage(patient, body, hypo, ill)
    goal = 1.0 + 1.5 * hypo + 0.8 * ischaemia(patient, body) + 1.3 * ill + 2.0 * damage[:, 1]
    lactate = body.lactate + 0.5 * (goal - body.lactate)
    after = Body(
        infection, inflammation, volume, water + (1 - FLUID_KEPT) * fluid, damage, lactate, body.drug, body.vent
    )
    return after._replace(vent=ventilator(after))


def ventilator(body: Body) -> Float[Array, " n"]:
    """Begins when lungs or brain are bad, and ends only when they are a good deal better."""
    need = body.damage[:, 2] + 0.5 * body.damage[:, 4] + 0.12 * overload(body)
    soft = jax.nn.sigmoid((need - 0.42 + 0.14 * body.vent) / 0.05)
    return soft + jax.lax.stop_gradient((soft > 0.5).astype(soft.dtype) - soft)


def _fluids(patient: Patient, body: Body, ill: Array) -> tuple[Array, Array]:
    """Leak out of the vessels, return by the lymph, urine, and what a patient drinks or is given anyway."""
    out = patient.leak * (0.04 + 0.16 * ill) * soft_excess(body.volume, -1.6, 0.2)
    back = 0.045 * body.water
    urine = 0.22 * (1 - 0.8 * body.damage[:, 0]) * soft_excess(body.volume, -0.3, 0.3)
    return body.volume - out + back - urine + 0.06, body.water + out - back - 0.02 * body.water


def _damage(patient: Patient, body: Body, hypo: Array, ill: Array) -> Float[Array, "n 5"]:
    """D' = D + (1 - D)(1 - exp(-x)) - healing D, with x linear in the four causes."""
    causes = jnp.stack([hypo, ill, ischaemia(patient, body), overload(body)], axis=1)
    weights = jnp.asarray([DAMAGE[organ] for organ in ORGANS], causes.dtype)
    harm = patient.susceptibility * (causes @ weights.T)
    return body.damage - (1 - body.damage) * jnp.expm1(-harm) - HEALING * body.damage * jnp.exp(-harm)
