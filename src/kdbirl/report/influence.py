"""Which training tasks and which expert rows drive the answer: what the posterior would be without each of them.

Without a new fit, by weighting the draws: leaving out expert row i takes its factor away, leaving out task k takes its
term out of both sums of the likelihood,

    log w_d(i) = - power * log p(x_i | R_d)
    log w_d(k) = power * sum_i [ log(1 - share_ik) - log(1 - base_ik) ]

with share_ik and base_ik the parts of task k in the sums of row i's numerator and denominator,

and the answer moves by |mean under w - mean| / sd, largest over the parameters. Where few draws carry all the weight
(`reach` below `FEWEST_SHARE`), the posterior without it is another one than draws of this one can show: the shift is
then a lower bound in all likelihood, and is marked.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.special import logsumexp

from kdbirl._jax import float64
from kdbirl.likelihood.ckde import CKDE
from kdbirl.posterior.result import Posterior

FEWEST_SHARE = 0.05  # of the draws that must count after weighting
MOST_CELLS = 40_000_000  # draws x rows x tasks: about a second
BLOCK = 4_000_000
LARGEST_SHARE = 1 - 1e-12


@dataclass(frozen=True, eq=False)
class Influence:
    """For each item: the largest shift of a posterior mean, in posterior sds, of which parameter, and the share of the
    draws that count after weighting."""

    shift: Float[np.ndarray, " items"]
    parameter: Int[np.ndarray, " items"]
    reach: Float[np.ndarray, " items"]

    @property
    def beyond(self) -> Bool[np.ndarray, " items"]:
        """Items that decide more than weighting can tell."""
        return self.reach < FEWEST_SHARE

    @property
    def order(self) -> Int[np.ndarray, " items"]:
        """The most decisive first."""
        return np.lexsort((-self.shift, ~self.beyond))


def influence_of_rows(posterior: Posterior) -> Influence | None:
    """Of each *distinct* expert row, one copy of it left out; None where no pointwise likelihood is on record."""
    if posterior.log_likelihood is None:
        return None
    table = posterior.log_likelihood.reshape(len(posterior.flat), -1)
    return _shifts(-posterior.power * table, posterior.flat)


def influence_of_tasks(posterior: Posterior, ckde: CKDE) -> Influence | None:
    """Of each training task; None where there are fewer than three, or the bandwidths are not on record."""
    if posterior.h is None or posterior.h_reward is None or ckde.n_tasks < 3 or not len(posterior.expert_features):
        return None
    rows, counts = np.unique(posterior.expert_features, axis=0, return_counts=True)
    cells = len(rows) * ckde.n_tasks
    step = max(1, -(-len(posterior.flat) * cells // MOST_CELLS))
    draws = posterior.flat[::step]
    numerator, denominator = ckde.tables(rows, np.atleast_1d(np.asarray(posterior.h, dtype=float)))
    weights = np.concatenate(
        [
            counts @ (_log_rest(numerator, b) - _log_rest(denominator, b))
            for b in _blocks(_log_kernels(ckde, draws, posterior.h_reward), cells)
        ]
    )
    return _shifts(posterior.power * weights, draws)


def _blocks(table: Float[np.ndarray, "draws K"], cells: int) -> Iterator[Float[np.ndarray, "block K"]]:
    size = max(1, BLOCK // max(cells, 1))
    yield from (table[i : i + size] for i in range(0, len(table), size))


def _log_rest(table: Float[np.ndarray, "u K"], b: Float[np.ndarray, "block K"]) -> Float[np.ndarray, "block u K"]:
    """log(1 - the part of task k in the sum over tasks), for each draw, row and task."""
    terms = table[None, :, :] + b[:, None, :]
    share = np.exp(terms - logsumexp(terms, axis=2, keepdims=True))
    return np.log1p(-np.minimum(share, LARGEST_SHARE))


@float64
def _log_kernels(ckde: CKDE, draws: Float[np.ndarray, "draws q"], h_reward: float) -> Float[np.ndarray, "draws K"]:
    """b_k(R) = log K'(R, R_k)."""
    import jax
    import jax.numpy as jnp

    kernel, tasks = ckde.reward_kernel, jnp.asarray(ckde.task_rewards)
    of_pair = jax.jit(jax.vmap(jax.vmap(kernel.log, (None, 0, None)), (0, None, None)))
    return np.asarray(of_pair(jnp.asarray(draws), tasks, jnp.asarray(h_reward, dtype=float)))


def _shifts(log_weights: Float[np.ndarray, "draws items"], draws: Float[np.ndarray, "draws q"]) -> Influence:
    finite = np.where(np.isfinite(log_weights), log_weights, -np.inf)
    largest = finite.max(axis=0)
    weights = np.exp(finite - np.where(np.isfinite(largest), largest, 0.0))
    total = np.maximum(weights.sum(axis=0), 1e-300)
    means = (weights / total).T @ draws
    sd = np.maximum(draws.std(axis=0), 1e-300)
    shifts = np.abs(means - draws.mean(axis=0)) / sd
    shifts[:, draws.std(axis=0) == 0] = 0.0
    reach = total**2 / np.maximum((weights**2).sum(axis=0), 1e-300) / len(draws)
    return Influence(shifts.max(axis=1), shifts.argmax(axis=1), reach)
