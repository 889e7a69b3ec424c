"""Draws from a prior that is only known by its log density."""

import numpy as np
from jaxtyping import Float

from kdbirl.posterior.mcmc import Metropolis
from kdbirl.posterior.priors import Prior
from kdbirl.posterior.sampler import NoLikelihood, Problem
from kdbirl.posterior.target import Target
from kdbirl.precision import float64
from kdbirl.progress import Silent

CHAINS = 8


class _Scattered:
    """Starting points for the walk: uniform where the box is finite, around its finite end or zero elsewhere."""

    def __init__(self, prior: Prior) -> None:
        self._low, self._high = prior.support

    def sample(self, rng: np.random.Generator, n: int) -> Float[np.ndarray, "n q"]:
        low, high = self._low, self._high
        below, above = np.isfinite(low), np.isfinite(high)
        width = np.where(below & above, high - low, 1.0)
        inside = np.where(below, low, 0.0) + width * rng.uniform(0.02, 0.98, (n, len(low)))
        spread = rng.normal(size=(n, len(low)))
        one_sided = np.where(below, low + np.abs(spread), high - np.abs(spread))
        return np.where(below & above, inside, np.where(below | above, one_sided, spread))


@float64
def random_walk_draws(prior: Prior, rng: np.random.Generator, n: int) -> Float[np.ndarray, "n q"]:
    """n draws by random-walk Metropolis on the prior alone."""
    per_chain = -(-n // CHAINS)
    problem = Problem(Target.build(prior, NoLikelihood()), _Scattered(prior))  # type: ignore[arg-type]
    result = Metropolis(chains=CHAINS, draws=per_chain).sample(problem, int(rng.integers(2**31)), Silent())
    return rng.permutation(result.draws.reshape(-1, result.draws.shape[-1]))[:n]
