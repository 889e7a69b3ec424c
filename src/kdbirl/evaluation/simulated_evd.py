"""EVD in a simulator, by paired rollouts.

With G_j(pi) the discounted return under R* of episode j, which has the same random numbers for every policy,

    EVD(R) = 1/N sum_j [ G_j(pi*) - G_j(pi_R) ]         over N episodes

is without bias but for the planner: pi* is the planner's policy for R*, so EVD is what the *learnt reward* costs, not
what the planner misses. It may be slightly negative, by chance or where the planner did better for R than for R*.

The mean over draws has two errors, of the draws and of the episodes, which all draws share. With D_ij the difference
of draw i in episode j they are

    standard_error^2 = var_i(mean_j D_ij) / effective draws  +  var_j(mean_i D_ij) / N

(the noise that belongs to one draw in one episode is in both, so that this is a little too large, never too small).
"""

from typing import Any

import numpy as np
from jaxtyping import Float

from kdbirl.demos.rollouts import whole_number
from kdbirl.envs.arrays import as_rewards
from kdbirl.envs.simulator import Simulator
from kdbirl.errors import InputError
from kdbirl.evaluation.draws import draws_of
from kdbirl.evaluation.evd import ExpectedValueDifference
from kdbirl.evaluation.monte_carlo import effective_size, standard_error
from kdbirl.evaluation.paired_rollouts import paired_returns
from kdbirl.progress import Progress, Silent


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
            "has the attributes of kdbirl.envs.simulator.Simulator."
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
