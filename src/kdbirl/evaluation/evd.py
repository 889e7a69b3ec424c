"""`evd`: the expected value difference, by which the paper judges every method (its "Evaluation Metrics").

    EVD(R) = V(pi*, R*) - V(pi_R, R*),      pi_R optimal for R,  V from the start distribution

How much an agent loses under the true reward R* by acting optimally for R. With w.phi it is w* . (mu* - mu_R), so each
draw costs one plan. In a tabular world it is exact and cannot be negative but for rounding: the paper's absolute value
changes nothing there, and is not taken (in a simulator, where values are estimated, it would turn noise around zero
into a loss). Where R has several best actions, pi_R takes them evenly: a reward of zeros is the random agent.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from kdbirl.envs.base import TabularMDP
from kdbirl.errors import InputError
from kdbirl.evaluation.draws import draws_of
from kdbirl.evaluation.monte_carlo import NORMAL_95, effective_size, standard_error
from kdbirl.planners.evaluation import feature_expectations
from kdbirl.planners.plan import optimal_feature_expectations
from kdbirl.planners.policy import Policy

Planner = Callable[[TabularMDP, np.ndarray], Any]  # a world and one reward -> a policy


@dataclass(frozen=True, eq=False)
class ExpectedValueDifference:
    """EVD of every posterior draw, and what their mean says.

    per_draw: `(chain * draw,)`, in the order of `post.flat`; its quantiles are the spread of the posterior, whereas
    `interval` is the 95 % interval of the *mean* (normal, from `standard_error` with `effective_size` draws).
    of_mean, of_map: EVD of the posterior mean's policy and of the most probable draw's (None without densities).
    best, random: values under R* of the optimal and of the random agent.
    """

    per_draw: Float[np.ndarray, " draws"]
    effective_size: float
    standard_error: float
    of_mean: float
    of_map: float | None
    best: float
    random: float

    @property
    def mean(self) -> float:
        return float(self.per_draw.mean())

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of the mean."""
        half = NORMAL_95 * self.standard_error
        return self.mean - half, self.mean + half

    @property
    def regret(self) -> float:
        """The mean EVD as a share of (best - random): 0 is optimal, 1 is no better than chance, more is worse."""
        return float(self.normalised(self.mean))

    def normalised(self, difference: Any) -> Any:
        """A difference (or several) divided by (best - random); NaN where the two are equal."""
        gap = self.best - self.random
        return np.asarray(difference) / gap if gap > 0 else np.full(np.shape(difference), np.nan)

    def quantile(self, levels: Any) -> Any:
        """Quantiles of EVD over the posterior."""
        return np.quantile(self.per_draw, levels)

    def __repr__(self) -> str:
        low, high = self.interval
        found = (
            f"mean {self.mean:.4g}, 95 % interval {low:.4g} to {high:.4g}, {100 * self.regret:.3g} % of best - random"
        )
        return f"ExpectedValueDifference({found}, {len(self.per_draw)} draws)"


def evd(
    post: Any, mdp: Any, true_reward: Any, seed: Any = 0, planner: Planner | None = None
) -> ExpectedValueDifference:
    """EVD of a posterior (or of an array of rewards, `(draws, q)` or `(chain, draw, q)`) in a tabular world.

    planner: `planner(mdp, reward)` -> a policy, instead of the exact optimum. `seed` has no part in a tabular world,
    where nothing is random; it is for simulators.
    """
    if not isinstance(mdp, TabularMDP):
        raise InputError(f"evd needs a kb.TabularMDP for exact values, not {type(mdp).__name__}.")
    if np.ndim(true_reward) != 1:
        raise InputError(f"true_reward: shape {np.shape(true_reward)}, expected one vector.")
    truth = mdp.as_rewards(true_reward)
    draws, most_probable, independent = draws_of(post, mdp)
    flat = draws.reshape(-1, draws.shape[2])
    asked = [truth, flat.mean(axis=0, keepdims=True), *([] if most_probable is None else [most_probable[None]]), flat]
    collected = _collected(mdp, np.concatenate(asked), planner)
    best = optimal_feature_expectations(mdp, truth)[0] if planner is not None else collected[0]
    random = feature_expectations(mdp, Policy.uniform(mdp.n_states, mdp.n_actions))
    lost = (best - collected) @ truth[0]
    per_draw = lost[-len(flat) :]
    chains = per_draw.reshape(draws.shape[:2])
    effective = effective_size(chains, independent)
    return ExpectedValueDifference(
        per_draw=per_draw,
        effective_size=effective,
        standard_error=standard_error(chains, effective),
        of_mean=float(lost[1]),
        of_map=None if most_probable is None else float(lost[2]),
        best=float(best @ truth[0]),
        random=float(random @ truth[0]),
    )


def _collected(mdp: TabularMDP, rewards: Float[np.ndarray, "r q"], planner: Planner | None) -> Float[np.ndarray, "r q"]:
    """Feature expectations of the policy planned for each reward; equal rewards are planned once."""
    if planner is None:
        return optimal_feature_expectations(mdp, rewards)
    distinct, index = np.unique(rewards, axis=0, return_inverse=True)
    found = np.stack([feature_expectations(mdp, planner(mdp, reward)) for reward in distinct])
    return found[index.reshape(-1)]
