"""`value_at_risk`: a bound on what a policy may lose, when nobody knows the true reward (Brown and Niekum 2018).

For a policy pi and posterior draws R_i, Z_i = V(pi_{R_i}, R_i) - V(pi, R_i) is what pi would lose if R_i were true.
With probability at least 1 - delta the alpha-quantile of Z (the value at risk) is at most the k-th smallest Z_i, where

    k = 1 + the (1 - delta)-quantile of a Binomial(N, alpha)

for N independent draws: fewer than k of them are below the alpha-quantile with that probability. Where k > N nothing is
bounded; with alpha = 0.95 and delta = 0.05 that is below 59 draws. (Brown and Niekum take the normal approximation of
the binomial, whose k may be one too small, and which "bounds" from 28 draws on.)

Draws of a chain are not independent: k is then computed for the effective number of draws n, for the event Z <= its
alpha-quantile, and the bound is the draw at the same level k/n.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from kdbirl.errors import InputError
from kdbirl.evaluation.draws import effective_size
from kdbirl.evaluation.planned_draws import PlannedDraws, plan_draws
from kdbirl.worlds.policy import Policy
from kdbirl.worlds.policy_value import feature_expectations
from kdbirl.worlds.tabular import TabularMDP


@dataclass(frozen=True, eq=False)
class ValueAtRisk:
    """`bound`: with confidence 1 - delta, the policy loses less than this with posterior probability alpha.

    Infinite when there are too few draws for that, see `needed`. `estimate` is the plain quantile; per_draw `(draws,)`
    are the Z_i; effective_size is how many of them count as independent.
    """

    bound: float
    estimate: float
    alpha: float
    delta: float
    effective_size: float
    per_draw: Float[np.ndarray, " draws"]

    @property
    def needed(self) -> int:
        """Independent draws from which on there is a bound: alpha^N <= delta."""
        return math.ceil(math.log(self.delta) / math.log(self.alpha))


def value_at_risk(
    post: Any, mdp: TabularMDP, policy: Any, alpha: float = 0.95, delta: float = 0.05, normalised: bool = False
) -> ValueAtRisk:
    """The value-at-risk bound of a policy under a posterior; `normalised` divides each Z_i by its (best - random).

    Optimal experts do not reveal the scale of a reward, and Z is in its units: compare bounds within one prior, or
    normalised ones.
    """
    random = feature_expectations(mdp, Policy.uniform(mdp.n_states, mdp.n_actions))
    return risk_of(plan_draws(post, mdp), feature_expectations(mdp, policy), random, alpha, delta, normalised)


def risk_of(
    planned: PlannedDraws,
    policy: Float[np.ndarray, " q"],
    random: Float[np.ndarray, " q"],
    alpha: float = 0.95,
    delta: float = 0.05,
    normalised: bool = False,
) -> ValueAtRisk:
    """`value_at_risk` of draws that have been planned already, of a policy by its feature expectations."""
    for name, level in {"alpha": alpha, "delta": delta}.items():
        if not 0 < level < 1:
            raise InputError(f"{name}={level!r} should be a probability between 0 and 1.")
    best = np.einsum("rq,rq->r", planned.flat, planned.features)
    lost = best - planned.flat @ policy
    if normalised:
        gap = best - planned.flat @ random
        lost = np.divide(lost, gap, out=np.zeros_like(lost), where=gap > 1e-12 * np.abs(best))
    estimate = float(np.quantile(lost, alpha))
    below = (lost <= estimate).astype(np.float64).reshape(planned.draws.shape[:2])
    effective = effective_size(below, planned.independent)
    return ValueAtRisk(_bound(lost, alpha, delta, effective), estimate, alpha, delta, effective, lost)


def _bound(lost: Float[np.ndarray, " draws"], alpha: float, delta: float, effective: float) -> float:
    from scipy.stats import binom

    n = int(effective)  # rounded down: a share of a draw says nothing
    k = int(binom.ppf(1 - delta, n, alpha)) + 1 if n else 1
    return float(np.sort(lost)[-(-k * len(lost) // n) - 1]) if k <= n else float("inf")
