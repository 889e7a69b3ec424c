"""A proposal for independence Metropolis: Student-t kernels around weighted points, and a share of the prior.

With centres z_c drawn from weighted points of mean m and covariance Sigma,

    g(z) = (1 - d) [ (1 - b) mean_c t_nu(z; m + a (z_c - m), h^2 Sigma) + b t_nu(z; m, s^2 Sigma) ] + d p(z),

with a^2 + h^2 = 1, so that the narrow kernels have the points' mean and, nearly, their covariance whatever the number
of centres (West 1993; Liu and West 2001); one wide kernel (s > 1) is for what the points have missed. The share d of
the prior p bounds the weights p(z) L(z) / g(z) by L / d: the chain is then uniformly ergodic (Mengersen and Tweedie
1996), however badly the kernels fit. A prior of the user's own may lack its constant, and then has no share: the
kernels' tails must do.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

CENTRES = 192
PRIOR_SHARE = 0.1
WIDE, WIDE_SHARE = 1.3, 0.5  # one more kernel, around the mean and wider than the points, for what they have missed
LEAST_FREEDOM = 6  # of the Student-t kernels; one more where that makes the exponent a whole number, which is cheap


class Proposal(NamedTuple):
    """The mixture of one task. whitening: W with W'W = (h^2 Sigma)^-1; centres: W (m + a (z_c - m))."""

    centres: Float[np.ndarray, "c q"]
    whitening: Float[np.ndarray, "q q"]
    log_constant: Float[np.ndarray, ""]
    middle: Float[np.ndarray, " q"]
    width: Float[np.ndarray, ""]
    share: Float[np.ndarray, ""]


def freedom(q: int) -> int:
    """nu: degrees of freedom such that (nu + q) / 2 is a whole number."""
    return LEAST_FREEDOM + (q + LEAST_FREEDOM) % 2


def fitted_proposal(
    points: Float[np.ndarray, "p q"], log_weights: Float[np.ndarray, " p"], share: float, rng: np.random.Generator
) -> Proposal:
    """The mixture around weighted points, with that share of the prior."""
    from scipy.special import gammaln

    q = points.shape[1]
    weights = np.exp(log_weights - log_weights.max())
    weights /= weights.sum()
    effective = 1.0 / np.sum(weights**2)
    mean = weights @ points
    covariance = _covariance(points, weights, mean, effective)
    h = (4.0 / ((q + 2.0) * min(CENTRES, effective))) ** (1.0 / (q + 4.0))  # Silverman's rule
    h = min(h, 0.95)
    edges = np.cumsum(weights)
    chosen = np.searchsorted(edges, (np.arange(CENTRES) + rng.random()) / CENTRES * edges[-1])
    centres = mean + np.sqrt(1 - h**2) * (points[chosen] - mean)
    nu = freedom(q)
    root = h * np.sqrt((nu - 2) / nu) * np.linalg.cholesky(covariance)  # a Student-t has nu / (nu - 2) of its scale
    whitening = np.linalg.inv(root)
    constant = gammaln((nu + q) / 2) - gammaln(nu / 2) - 0.5 * q * np.log(nu * np.pi) - np.sum(np.log(np.diag(root)))
    return Proposal(
        centres @ whitening.T,
        whitening,
        np.asarray(constant),
        whitening @ mean,
        np.asarray(WIDE / h),
        np.asarray(share),
    )


def _covariance(points: np.ndarray, weights: np.ndarray, mean: np.ndarray, effective: float) -> np.ndarray:
    """Of the weighted points; with few effective points, drawn towards its own diagonal."""
    centred = points - mean
    own = (centred * weights[:, None]).T @ centred
    spread = np.maximum(np.diag(own), 1e-6 * np.maximum(points.var(axis=0), 1e-12))
    trust = effective / (effective + points.shape[1] + 1.0)
    return trust * own + (1 - trust) * np.diag(spread) + 1e-9 * np.diag(spread)


def drawn(proposal: Proposal, count: int, rng: np.random.Generator) -> Float[np.ndarray, "count q"]:
    """Independent draws from the kernels; the prior's share of them is to be replaced by draws from the prior."""
    centres, q = proposal.centres, proposal.centres.shape[1]
    nu = freedom(q)
    chosen = centres[rng.integers(len(centres), size=count)]
    steps = rng.standard_normal((count, q)) / np.sqrt(rng.chisquare(nu, (count, 1)) / nu)
    wide = rng.random((count, 1)) < WIDE_SHARE
    whitened = np.where(wide, proposal.middle + proposal.width * steps, chosen + steps)
    return np.asarray(whitened @ np.linalg.inv(proposal.whitening).T)


def log_density(
    proposal: Proposal, points: Float[np.ndarray, "p q"], log_prior: Float[np.ndarray, " p"]
) -> Float[np.ndarray, " p"]:
    """log g of each point, where `log_prior` is the prior's log density there. Costs a kernel for each centre."""
    from kdbirl.posterior.independence_loops import mean_kernels

    q = points.shape[1]
    nu = freedom(q)
    power = (nu + q) // 2
    own, narrow = points @ proposal.whitening.T, np.empty(len(points))
    mean_kernels(own, np.ascontiguousarray(proposal.centres.T), float(nu), power, narrow)
    squares = np.sum(((own - proposal.middle) / proposal.width) ** 2, axis=1)
    wide = (1.0 + squares / nu) ** -power / proposal.width**q
    kernels = (1 - WIDE_SHARE) * narrow + WIDE_SHARE * wide
    smooth = proposal.log_constant + np.log(np.maximum(kernels, 1e-300)) + np.log1p(-proposal.share)
    with np.errstate(divide="ignore"):  # no share
        return np.asarray(np.logaddexp(smooth, log_prior + np.log(proposal.share)))
