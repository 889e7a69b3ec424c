"""`evd`: the expected value difference, by which the paper judges every method (its "Evaluation Metrics").

    EVD(R) = V(pi*, R*) - V(pi_R, R*),      pi_R optimal for R,  V from the start distribution

How much an agent loses under the true reward R* by acting optimally for R. With w.phi it is w* . (mu* - mu_R), so each
draw costs one plan. In a tabular world it is exact and cannot be negative but for rounding: the paper's absolute value
changes nothing there, and is not taken (in a simulator, where values are estimated, it would turn noise around zero
into a loss; see `simulated_evd`). Where R has several best actions, pi_R takes them evenly: a reward of zeros is the
random agent.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from kdbirl.envs.base import TabularMDP
from kdbirl.errors import InputError
from kdbirl.evaluation.monte_carlo import NORMAL_95, effective_size, standard_error
from kdbirl.evaluation.planned_draws import PlannedDraws, plan_draws
from kdbirl.planners.evaluation import feature_expectations
from kdbirl.planners.policy import Policy
from kdbirl.progress import Progress


@dataclass(frozen=True, eq=False)
class ExpectedValueDifference:
    """EVD of every posterior draw, and what their mean says.

    per_draw: `(chain * draw,)`, in the order of `post.flat`; its quantiles are the spread of the posterior, whereas
    `interval` is the 95 % interval of the *mean* (normal, from `standard_error` with `effective_size` draws).
    of_mean, of_map: EVD of the posterior mean's policy and of the most probable draw's (None without densities).
    best, random: values under R* of the optimal and of the random agent.
    simulation_error: in a simulator, the part of `standard_error` that is due to the number of episodes; 0 if exact.
    """

    per_draw: Float[np.ndarray, " draws"]
    effective_size: float
    standard_error: float
    of_mean: float
    of_map: float | None
    best: float
    random: float
    simulation_error: float = 0.0

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
    post: Any,
    mdp: Any,
    true_reward: Any,
    seed: Any = 0,
    planner: Any = None,
    episodes: int = 256,
    horizon: int | None = None,
    progress: Progress | None = None,
    client: Any = None,
) -> ExpectedValueDifference:
    """EVD of a posterior (or of an array of rewards, `(draws, q)` or `(chain, draw, q)`) in a world.

    mdp: a `TabularMDP`, where values are exact; or a simulator (`kdbirl.envs.simulator.Simulator`), where they are
        estimated by paired rollouts: every policy plays the same `episodes`, with the same starts and random numbers
        (made from `seed`), of at most `horizon` steps (None: the simulator's own). In a tabular world nothing is
        random, and these three have no part.
    planner: `planner(mdp, reward)` or `planner(reward)` -> a policy, instead of the exact optimum. In a simulator it is
        required, and pi* is its policy for the true reward. A weight-conditioned policy, which `kb.DeepQ()
        .plan_conditioned` gives, serves all draws with one training, played side by side.
    client: a `distributed.Client`, whose cluster plans the draws of a tabular world.
    """
    if np.ndim(true_reward) != 1:
        raise InputError(f"true_reward: shape {np.shape(true_reward)}, expected one vector.")
    if isinstance(mdp, TabularMDP):
        truth = mdp.as_rewards(true_reward)[0]
        return difference_of(plan_draws(post, mdp, truth, planner, progress, client=client), mdp, truth)
    from kdbirl.evaluation.simulated_evd import simulated_evd  # here, since it imports JAX, which tables do not need

    return simulated_evd(post, mdp, true_reward, planner, episodes, horizon, seed, progress)


def difference_of(planned: PlannedDraws, mdp: TabularMDP, truth: Float[np.ndarray, " q"]) -> ExpectedValueDifference:
    """w* . (mu* - mu_R) of draws that were planned together with the truth."""
    if planned.best is None:
        raise InputError("These draws were planned without a true reward, so there is nothing to compare them with.")
    random = feature_expectations(mdp, Policy.uniform(mdp.n_states, mdp.n_actions))
    per_draw = (planned.best - planned.features) @ truth
    chains = per_draw.reshape(planned.draws.shape[:2])
    effective = effective_size(chains, planned.independent)
    return ExpectedValueDifference(
        per_draw=per_draw,
        effective_size=effective,
        standard_error=standard_error(chains, effective),
        of_mean=float((planned.best - planned.of_mean) @ truth),
        of_map=None if planned.of_map is None else float((planned.best - planned.of_map) @ truth),
        best=float(planned.best @ truth),
        random=float(random @ truth),
    )
