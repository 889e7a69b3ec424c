"""Values by simulation, for worlds that have no table: the same random numbers for every policy.

The difference of two policies' returns over the *same* episodes (common random numbers) has far less noise than the
difference of two separate estimates, and is zero where they act alike. It may come out slightly negative.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from kdbirl.envs.simulator import Simulator
from kdbirl.errors import InputError
from kdbirl.planners.acting import ConditionedPolicy, as_actor, conditioned_actor
from kdbirl.planners.planner import as_planner
from kdbirl.planners.simulated_episodes import (
    Episodes,
    Played,
    blocks,
    check_actions,
    compiled,
    compiled_for_many,
    episode_steps,
    evaluation_chances,
)
from kdbirl.precision import float64
from kdbirl.progress import Progress


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
