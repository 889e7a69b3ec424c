"""The log prior of many draws at once."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from kdbirl.posterior.target import Target


@jax.jit
def _log_prior_batches(target: Target, rewards: Array) -> Array:
    return jax.vmap(target.log_prior)(rewards)


def log_priors(target: Target, rewards: Any) -> Any:
    """(r,) for rewards (r, q); inside `float64`."""
    return np.asarray(_log_prior_batches(target, jnp.asarray(rewards)))
