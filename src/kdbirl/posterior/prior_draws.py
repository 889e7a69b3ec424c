"""Draws from a prior that is only known by its log density."""

from dataclasses import replace
from functools import partial

import numpy as np
from jaxtyping import Float

from kdbirl.posterior.mcmc import Metropolis
from kdbirl.posterior.product_prior import CustomPrior
from kdbirl.posterior.sampler import NoLikelihood, Problem
from kdbirl.posterior.target import Target
from kdbirl.precision import float64
from kdbirl.progress import Silent

CHAINS = 8


@float64
def random_walk_draws(prior: CustomPrior, rng: np.random.Generator, n: int) -> Float[np.ndarray, "n q"]:
    """n draws by random-walk Metropolis on the prior alone."""
    per_chain = -(-n // CHAINS)
    starts = replace(prior, sampler=partial(scattered, *prior.support))
    problem = Problem(Target.build(prior, NoLikelihood()), starts)
    result = Metropolis(chains=CHAINS, draws=per_chain).sample(problem, int(rng.integers(2**31)), Silent())
    return rng.permutation(result.draws.reshape(-1, result.draws.shape[-1]))[:n]


def scattered(
    low: Float[np.ndarray, " q"], high: Float[np.ndarray, " q"], rng: np.random.Generator, n: int
) -> Float[np.ndarray, "n q"]:
    """Starting points for the walk: uniform where the box is finite, around its finite end or zero elsewhere."""
    below, above = np.isfinite(low), np.isfinite(high)
    width = np.where(below & above, high - low, 1.0)
    inside = np.where(below, low, 0.0) + width * rng.uniform(0.02, 0.98, (n, len(low)))
    spread = rng.normal(size=(n, len(low)))
    one_sided = np.where(below, low + np.abs(spread), high - np.abs(spread))
    return np.where(below & above, inside, np.where(below | above, one_sided, spread))
