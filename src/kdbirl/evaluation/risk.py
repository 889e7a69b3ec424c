"""`value_at_risk`: a bound on what a policy may lose, when nobody knows the true reward (Brown and Niekum 2018).

For a policy pi and posterior draws R_i, Z_i = V(pi_{R_i}, R_i) - V(pi, R_i) is what pi would lose if R_i were true.
With probability at least 1 - delta the alpha-quantile of Z (the value at risk) is below the k-th smallest Z_i,

    k = ceil( N alpha + z_{1-delta} sqrt(N alpha (1 - alpha)) - 1/2 ),        z: quantile of the standard normal

for N independent draws. Draws of a chain are not independent: the deviation is then that of the effective number of
draws for the event Z <= its alpha-quantile.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from kdbirl.envs.base import TabularMDP
from kdbirl.errors import InputError
from kdbirl.evaluation.draws import draws_of
from kdbirl.evaluation.monte_carlo import effective_size
from kdbirl.planners.evaluation import feature_expectations
from kdbirl.planners.plan import optimal_feature_expectations
from kdbirl.planners.policy import Policy


@dataclass(frozen=True, eq=False)
class ValueAtRisk:
    """`bound`: with confidence 1 - delta, the policy loses less than this with posterior probability alpha.

    Infinite when there are too few draws for that. `estimate` is the plain quantile; per_draw `(draws,)` are the Z_i.
    """

    bound: float
    estimate: float
    alpha: float
    delta: float
    effective_size: float
    per_draw: Float[np.ndarray, " draws"]


def value_at_risk(
    post: Any, mdp: TabularMDP, policy: Any, alpha: float = 0.95, delta: float = 0.05, normalised: bool = False
) -> ValueAtRisk:
    """The value-at-risk bound of a policy under a posterior; `normalised` divides each Z_i by its (best - random).

    Optimal experts do not reveal the scale of a reward, and Z is in its units: compare bounds within one prior, or
    normalised ones.
    """
    for name, level in {"alpha": alpha, "delta": delta}.items():
        if not 0 < level < 1:
            raise InputError(f"{name}={level!r} should be a probability between 0 and 1.")
    draws, _, independent = draws_of(post, mdp)
    flat = draws.reshape(-1, draws.shape[2])
    best = np.einsum("rq,rq->r", flat, optimal_feature_expectations(mdp, flat))
    lost = best - flat @ feature_expectations(mdp, policy)
    if normalised:
        gap = best - flat @ feature_expectations(mdp, Policy.uniform(mdp.n_states, mdp.n_actions))
        lost = np.divide(lost, gap, out=np.zeros_like(lost), where=gap > 1e-12 * np.abs(best))
    estimate = float(np.quantile(lost, alpha))
    below = (lost <= estimate).astype(np.float64).reshape(draws.shape[:2])
    effective = effective_size(below, independent)
    return ValueAtRisk(_bound(lost, alpha, delta, effective), estimate, alpha, delta, effective, lost)


def _bound(lost: Float[np.ndarray, " draws"], alpha: float, delta: float, effective: float) -> float:
    from scipy.stats import norm

    total = len(lost)
    deviation = float(norm.ppf(1 - delta)) * np.sqrt(alpha * (1 - alpha) / effective)
    k = int(np.ceil(total * (alpha + deviation) - 0.5))
    return float(np.sort(lost)[max(k, 1) - 1]) if k <= total else float("inf")
