"""Values by simulation, for worlds that have no table: the same random numbers for every policy.

The difference of two policies' returns over the *same* episodes (common random numbers) has far less noise than the
difference of two separate estimates, and is zero where they act alike. It may come out slightly negative.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from kdbirl._jax import float64
from kdbirl.errors import InputError
from kdbirl.progress import Progress, Silent
from kdbirl.worlds.acting import ConditionedPolicy, as_actor, conditioned_actor
from kdbirl.worlds.policy import as_planner
from kdbirl.worlds.rollouts import whole_number
from kdbirl.worlds.simulated_rollouts import (
    Episodes,
    Played,
    blocks,
    check_actions,
    compiled,
    compiled_for_many,
    episode_steps,
    evaluation_chances,
)
from kdbirl.worlds.simulator import Simulator
from kdbirl.worlds.tabular_arrays import as_rewards


@float64
def collected_features(
    simulator: Simulator, policy: Any, episodes: int, horizon: int | None, seed: int
) -> Float[np.ndarray, "episodes q"]:
    """The discounted sum of phi(s, a) of each episode; episode i has the same random numbers whatever the policy."""
    pairs = Pairs(simulator, jnp.eye(len(simulator.feature_names)), episodes, horizon, seed)
    return np.asarray(pairs.of(policy).collected, dtype=np.float64)


@float64
def paired_returns(
    simulator: Simulator,
    rewards: Float[np.ndarray, "r q"],
    truth: Float[np.ndarray, " q"],
    planner: Any,
    *,
    episodes: int,
    horizon: int | None,
    seed: int,
    progress: Progress,
) -> tuple[Float[np.ndarray, "r episodes"], Float[np.ndarray, " episodes"]]:
    """Returns under the true reward of the policy of each reward, and of the random agent, in the same episodes."""
    pairs = Pairs(simulator, jnp.asarray(truth)[:, None], episodes, horizon, seed)
    found = of_rewards(pairs, planner, rewards, progress)[:, :, 0]
    return found, np.asarray(pairs.of("random").collected[:, 0], dtype=np.float64)


class Pairs:
    """The same episodes for every policy that is asked for, and `mixing`: what is collected is phi @ mixing."""

    def __init__(
        self, simulator: Simulator, mixing: Float[Array, "q p"], episodes: int, horizon: int | None, seed: int
    ) -> None:
        self.simulator, self.mixing = simulator, mixing
        self.episodes = Episodes(simulator, episodes, episode_steps(simulator, horizon))
        self.chances = evaluation_chances(seed, self.episodes.steps)

    def of(self, policy: Any) -> Played:
        """What one policy collects. A program of its own is not kept: it would keep the policy in memory."""
        act, parameters, alike, _ = as_actor(policy, self.simulator, self.episodes.steps)
        program = compiled(self.episodes) if alike else jax.jit(self.episodes.play, static_argnums=0)
        played = program(act, parameters, self.chances, self.mixing)
        check_actions(played, self.simulator)
        return played


def of_rewards(
    pairs: Pairs, planner: Any, rewards: Float[np.ndarray, "r q"], progress: Progress
) -> Float[np.ndarray, "r episodes p"]:
    """What the policy of each reward collects in each episode.

    Equal rewards are planned once. A weight-conditioned planner plays many rewards side by side.
    """
    distinct, index = np.unique(rewards, axis=0, return_inverse=True)
    play = _side_by_side if isinstance(planner, ConditionedPolicy) else _one_by_one
    return play(pairs, planner, distinct, progress)[index.reshape(-1)]


def _one_by_one(
    pairs: Pairs, planner: Any, rewards: Float[np.ndarray, "r q"], progress: Progress
) -> Float[np.ndarray, "r episodes p"]:
    if planner is None:
        raise InputError(
            "evd in a simulator needs planner=: a weight-conditioned policy, such as kb.DeepQ().plan_conditioned("
            "simulator, prior, seed=0), or a function of the simulator and a reward that gives a policy."
        )
    ask, found = as_planner(planner), _room(pairs, len(rewards))
    for number, reward in enumerate(rewards):
        found[number] = pairs.of(ask(pairs.simulator, reward)).collected
        progress.update("paired rollouts", number + 1, len(rewards))
    return found


def _side_by_side(
    pairs: Pairs, planner: ConditionedPolicy, rewards: Float[np.ndarray, "r q"], progress: Progress
) -> Float[np.ndarray, "r episodes p"]:
    act, shared, *_ = conditioned_actor(planner, pairs.episodes.steps)
    program, found = compiled_for_many(pairs.episodes, own_chances=False), _room(pairs, len(rewards))
    for block in blocks(len(rewards), pairs.episodes.number):
        played = program(act, shared, jnp.asarray(rewards[block]), pairs.chances, pairs.mixing)
        check_actions(played, pairs.simulator)
        found[block] = played.collected
        progress.update("paired rollouts", int(block[-1]) + 1, len(rewards))
    return found


def _room(pairs: Pairs, rewards: int) -> Float[np.ndarray, "r episodes p"]:
    return np.empty((rewards, pairs.episodes.number, pairs.mixing.shape[1]))


# `policy_features`: feature expectations of the policies of many rewards in a simulator, by paired rollouts.


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
