"""Equally weighted points that stand for a prior, so that expectations under it are plain means.

Up to three parameters they are a tensor grid of midpoints in the prior's own quantiles (quadrature by the midpoint
rule); beyond, a scrambled Sobol sequence through the quantiles; draws where the parameters are not independent.
"""

import numpy as np
from jaxtyping import Float

from kdbirl.posterior.priors import Prior
from kdbirl.random_streams import stream

MOST_GRID_DIMENSIONS = 3


def prior_points(prior: Prior, count: int, seed: int = 0) -> Float[np.ndarray, "p q"]:
    """About `count` points, each with the same share of the prior."""
    q = len(prior.support[0])
    points = prior.quantiles(_levels(q, count, seed))
    return prior.sample(np.random.default_rng(stream(seed, "prior points")), count) if points is None else points


def _levels(q: int, count: int, seed: int) -> Float[np.ndarray, "p q"]:
    """Points that fill the unit cube evenly, away from its faces."""
    if q <= MOST_GRID_DIMENSIONS:
        per_axis = max(round(count ** (1 / q)), 2)
        middles = (np.arange(per_axis) + 0.5) / per_axis
        return np.stack(np.meshgrid(*[middles] * q, indexing="ij"), axis=-1).reshape(-1, q)
    from scipy.stats import qmc

    sequence = qmc.Sobol(q, rng=np.random.default_rng(stream(seed, "even points")))
    points = sequence.random_base2(int(np.ceil(np.log2(count))))
    return np.asarray(points).clip(1e-12, 1 - 1e-12)  # a quantile at 0 or 1 may be infinite
