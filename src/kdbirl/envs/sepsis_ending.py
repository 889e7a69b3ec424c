"""How a stay ends: competing hazards of death and release, and the outcome of those still there at the horizon."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

DEATH = (-7.6, 0.36, 0.9, 0.35)  # log hazard in four hours: constant, SOFA, log lactate, frailty
RELEASE = (-1.2, -0.26, -0.8, -0.15)
LATER_DEATH = (-3.6, 0.30, 0.9, 0.35)  # log odds of dying after the horizon


def chances(
    sofa: Float[Array, " n"], lactate: Float[Array, " n"], frailty: Float[Array, " n"]
) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
    """P(death), P(release) in the next four hours: with rates d and r, (1 - exp(-d - r)) is shared as d : r.

    SOFA is the soft one without the points for the drug: counting them would make the treatment itself deadly.
    """
    death, release = (jnp.exp(_linear(weights, sofa, lactate, frailty)) for weights in (DEATH, RELEASE))
    gone = -jnp.expm1(-death - release) / (death + release)
    return gone * death, gone * release


def later_death(sofa: Float[Array, " n"], lactate: Float[Array, " n"], frailty: Float[Array, " n"]) -> Array:
    """P(death) of a patient who is still there at the horizon: logistic."""
    return jax.nn.sigmoid(_linear(LATER_DEATH, sofa, lactate, frailty))


def _linear(weights: tuple[float, float, float, float], sofa: Array, lactate: Array, frailty: Array) -> Array:
    constant, by_sofa, by_lactate, by_frailty = weights
    return constant + by_sofa * sofa + by_lactate * jnp.log(lactate) + by_frailty * frailty
