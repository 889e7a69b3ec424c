"""`policy_features`: feature expectations of the policies of many rewards in a simulator, by paired rollouts."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from kdbirl.demos.rollouts import whole_number
from kdbirl.envs.arrays import as_rewards
from kdbirl.envs.simulator import Simulator
from kdbirl.errors import InputError
from kdbirl.evaluation.paired_rollouts import Pairs, of_rewards
from kdbirl.precision import float64
from kdbirl.progress import Progress, Silent


@float64
def policy_features(
    simulator: Any,
    planner: Any,
    rewards: Any,
    episodes: int = 256,
    horizon: int | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Float[np.ndarray, "r q"]:
    """mu of the policy of each reward `(r, q)`: the mean over the episodes of sum_t discount^t phi(s_t, a_t).

    Since rewards are w.phi, mu tells what a policy is worth under *any* reward: with mu* the row of w*,

        V(pi_w, w*) = w* . mu_w,      EVD(w) = w* . (mu* - mu_w)

    All policies play the same episodes (same starts, same random numbers, made from `seed`), so that such differences
    have little noise. planner: a weight-conditioned policy, for which all rewards are played side by side by one
    compiled program, which later calls use again; or `planner(simulator, reward)` -> a policy. In `SepsisSim` with
    `ending="expected"` the sums are expectations over the ends of stays too.
    """
    if not isinstance(simulator, Simulator):
        raise InputError(
            f"policy_features needs a simulator, not {type(simulator).__name__}; in a kb.TabularMDP "
            "kb.feature_expectations(mdp, policy) is exact."
        )
    table = as_rewards(rewards, simulator.feature_names)
    pairs = Pairs(
        simulator,
        jnp.eye(len(simulator.feature_names)),
        whole_number(episodes, "episodes", 1),
        None if horizon is None else whole_number(horizon, "horizon", 1),
        whole_number(seed, "seed", 0),
    )
    return of_rewards(pairs, planner, table, progress or Silent()).mean(axis=1)
