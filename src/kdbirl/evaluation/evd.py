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

from kdbirl.errors import InputError
from kdbirl.evaluation.draws import NORMAL_95, draws_of, effective_size, standard_error
from kdbirl.evaluation.paired_rollouts import paired_returns
from kdbirl.evaluation.planned_draws import PlannedDraws, plan_draws
from kdbirl.progress import Progress, Silent
from kdbirl.trust.loto import Objective
from kdbirl.worlds.planning import optimal_feature_expectations
from kdbirl.worlds.policy import Policy
from kdbirl.worlds.policy_value import feature_expectations
from kdbirl.worlds.rollouts import whole_number
from kdbirl.worlds.simulator import Simulator
from kdbirl.worlds.tabular import TabularMDP
from kdbirl.worlds.tabular_arrays import as_rewards


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

    mdp: a `TabularMDP`, where values are exact; or a simulator (`kdbirl.worlds.simulator.Simulator`), where they are
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
    pass  # gone  # here, since it imports JAX, which tables do not need

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


# Bandwidths by the value of acting on the posterior, where a world is known: an objective for `kb.LotoSettings`.


def evd_objective(mdp: Any) -> Objective:
    """Minus the expected value difference of the posterior's draws: `kb.LotoSettings(objective=kb.evd_objective(mdp))`.

    The policies of all points of the prior are planned once. Coverage and value are different goals: bandwidths that
    are chosen so act well, and their intervals may be far too narrow. What `post.report_card()` says of calibration
    still holds.
    """
    if not isinstance(mdp, TabularMDP):
        raise InputError(f"evd_objective needs a kb.TabularMDP, not {type(mdp).__name__}.")
    planned: dict[bytes, np.ndarray] = {}

    def expectations(rewards: Float[np.ndarray, "r q"]) -> Float[np.ndarray, "r q"]:
        key = rewards.tobytes()
        if key not in planned:
            planned[key] = optimal_feature_expectations(mdp, rewards)
        return planned[key]

    def minus_evd(truth: np.ndarray, points: np.ndarray, weights: np.ndarray) -> float:
        best = expectations(np.asarray(truth, dtype=float)[None])[0]
        return float(-truth @ (best - weights @ expectations(points)))

    return minus_evd


# EVD in a simulator, by paired rollouts.
#
# With G_j(pi) the discounted return under R* of episode j, which has the same random numbers for every policy,
#
#     EVD(R) = 1/N sum_j [ G_j(pi*) - G_j(pi_R) ]         over N episodes
#
# is without bias but for the planner: pi* is the planner's policy for R*, so EVD is what the *learnt reward* costs, not
# what the planner misses. It may be slightly negative, by chance or where the planner did better for R than for R*.
#
# The mean over draws has two errors, of the draws and of the episodes, which all draws share. With D_ij the difference
# of draw i in episode j they are
#
#     standard_error^2 = var_i(mean_j D_ij) / effective draws  +  var_j(mean_i D_ij) / N
#
# (the noise that belongs to one draw in one episode is in both, so that this is a little too large, never too small).


def simulated_evd(
    post: Any,
    simulator: Any,
    true_reward: Any,
    planner: Any,
    episodes: Any,
    horizon: Any,
    seed: Any,
    progress: Progress | None = None,
) -> ExpectedValueDifference:
    """`evd` for a simulator; see there for the arguments."""
    if not isinstance(simulator, Simulator):
        raise InputError(
            f"evd needs a kb.TabularMDP for exact values, or a simulator, not {type(simulator).__name__}; a simulator "
            "has the attributes of kdbirl.worlds.simulator.Simulator."
        )
    truth = as_rewards(true_reward, simulator.feature_names)[0]
    draws, most_probable, independent = draws_of(post, simulator)
    flat = draws.reshape(-1, draws.shape[2])
    single = [truth, flat.mean(axis=0), *([] if most_probable is None else [most_probable])]
    returns, random = paired_returns(
        simulator,
        np.concatenate([np.stack(single), flat]),
        truth,
        planner,
        episodes=whole_number(episodes, "episodes", 2),
        horizon=None if horizon is None else whole_number(horizon, "horizon", 1),
        seed=whole_number(seed, "seed", 0),
        progress=progress or Silent(),
    )
    return difference_of_returns(returns, random, draws.shape[:2], independent, len(single))


def difference_of_returns(
    returns: Float[np.ndarray, "r episodes"],
    random: Float[np.ndarray, " episodes"],
    shape: tuple[int, ...],
    independent: bool,
    single: int,
) -> ExpectedValueDifference:
    """From returns under the true reward: the first `single` rows are those of the policies of the truth, of the mean
    reward and, if they are three, of the most probable draw; then come the draws, `shape` (chain, draw)."""
    lost = returns[0] - returns
    return ExpectedValueDifference(
        **_two_errors(lost[single:], shape, independent),
        of_mean=float(lost[1].mean()),
        of_map=float(lost[2].mean()) if single == 3 else None,
        best=float(returns[0].mean()),
        random=float(random.mean()),
    )


def _two_errors(lost: Float[np.ndarray, "draws episodes"], shape: tuple[int, ...], independent: bool) -> dict[str, Any]:
    """The mean of each draw, and the error of the mean of all."""
    per_draw, per_episode = lost.mean(axis=1), lost.mean(axis=0)
    chains = per_draw.reshape(shape)
    effective = effective_size(chains, independent)
    of_episodes = float(per_episode.std(ddof=1) / np.sqrt(len(per_episode)))
    return {
        "per_draw": per_draw,
        "effective_size": effective,
        "standard_error": float(np.hypot(standard_error(chains, effective), of_episodes)),
        "simulation_error": of_episodes,
    }
