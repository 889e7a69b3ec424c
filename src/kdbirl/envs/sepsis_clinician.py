"""A guideline-like clinician for the sepsis simulators: a plain rule on what a chart says, not advice."""

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from kdbirl.envs.sepsis_covariates import COLUMN, LEVELS

PRESSURES = (71.0, 65.0, 58.0)  # mmHg: below each, one level of vasopressor more (the dose lifts it back to above 65)
FILL, FILL_FAST = 74.0, 66.0  # mmHg: below, fluid of level 2 or 3
HIGH_LACTATE = 3.0  # mmol/L: one level of fluid more
WET = 94.0  # % SpO2: below, one level less


def clinician(observation: Float[Array, "n 46"]) -> Int[Array, " n"]:
    """Treatment by mean pressure, lactate and oxygen saturation: fluid first, vasopressor to keep MAP above 65."""
    pressure, lactate, oxygen = (observation[:, COLUMN[name]] for name in ("MeanBP", "lactate", "SpO2"))
    vasopressor = sum((pressure < cut).astype(jnp.int32) for cut in PRESSURES)
    fluid = 1 + (pressure < FILL).astype(jnp.int32) + (pressure < FILL_FAST) + (lactate > HIGH_LACTATE)
    fluid = jnp.clip(fluid - (oxygen < WET), 0, 3)
    return LEVELS * fluid + vasopressor
