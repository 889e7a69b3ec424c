"""Values by simulation, for worlds that have no table: the same random numbers for every policy.

The difference of two policies' returns over the *same* episodes (common random numbers) has far less noise than the
difference of two separate estimates, and is zero where they act alike. It may come out slightly negative.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from kdbirl.envs.simulator import Simulator
from kdbirl.errors import InputError
from kdbirl.evaluation.planner import as_planner
from kdbirl.planners.acting import Act, ConditionedPolicy, as_actor, conditioned_actor
from kdbirl.planners.simulated_episodes import Chances, Played, chances_of, check_actions, episode_steps, play
from kdbirl.precision import float64
from kdbirl.progress import Progress

TOGETHER = 2**14  # episodes of all rewards that are played side by side: their network layers stay near the processor


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
    """Returns under the true reward of the policy of each reward, and of the random agent, in the same episodes.

    Equal rewards are planned once. A weight-conditioned planner plays many rewards side by side.
    """
    pairs = Pairs(simulator, jnp.asarray(truth)[:, None], episodes, horizon, seed)
    distinct, index = np.unique(rewards, axis=0, return_inverse=True)
    if isinstance(planner, ConditionedPolicy):
        found = _side_by_side(pairs, planner, distinct, progress)
    else:
        found = _one_by_one(pairs, planner, distinct, progress)
    random = np.asarray(pairs.of("random").collected[:, 0], dtype=np.float64)
    return found[index.reshape(-1)], random


@dataclass(frozen=True, eq=False)
class Episodes:
    """Which episodes are played: what a compiled program depends on. Simulators are told apart by identity, because a
    user's may hold arrays, which can be neither compared nor hashed."""

    simulator: Simulator
    number: int
    steps: int

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Episodes) and self._identity == other._identity

    def __hash__(self) -> int:
        return hash(self._identity)

    @property
    def _identity(self) -> tuple[int, int, int]:
        return id(self.simulator), self.number, self.steps

    def play(self, act: Act, parameters: Any, chances: Chances, mixing: Float[Array, "q p"]) -> Played:
        """To be compiled."""
        return play(self.simulator, act, parameters, chances, mixing, self.number)


@lru_cache(maxsize=16)
def _compiled(episodes: Episodes) -> Callable[..., Played]:
    """One program for all policies of a kind, also those of the next call."""
    return jax.jit(episodes.play, static_argnums=0)


class Pairs:
    """The same episodes for every policy that is asked for."""

    def __init__(
        self, simulator: Simulator, mixing: Float[Array, "q p"], episodes: int, horizon: int | None, seed: int
    ) -> None:
        self.simulator, self.mixing = simulator, mixing
        self.episodes = Episodes(simulator, episodes, episode_steps(simulator, horizon))
        self.chances = chances_of(seed, self.episodes.steps)

    def of(self, policy: Any) -> Played:
        """What one policy collects. A program of its own is not kept: it would keep the policy in memory."""
        act, parameters, alike = as_actor(policy, self.simulator, self.episodes.steps)
        compiled = _compiled(self.episodes) if alike else jax.jit(self.episodes.play, static_argnums=0)
        played = compiled(act, parameters, self.chances, self.mixing)
        check_actions(played, self.simulator)
        return played


def _one_by_one(
    pairs: Pairs, planner: Any, rewards: Float[np.ndarray, "r q"], progress: Progress
) -> Float[np.ndarray, "r episodes"]:
    if planner is None:
        raise InputError(
            "evd in a simulator needs planner=: a weight-conditioned policy, such as kb.DeepQ().plan_conditioned("
            "simulator, prior, seed=0), or a function of the simulator and a reward that gives a policy."
        )
    ask, found = as_planner(planner), np.empty((len(rewards), pairs.episodes.number))
    for number, reward in enumerate(rewards):
        found[number] = pairs.of(ask(pairs.simulator, reward)).collected[:, 0]
        progress.update("paired rollouts", number + 1, len(rewards))
    return found


def _side_by_side(
    pairs: Pairs, planner: ConditionedPolicy, rewards: Float[np.ndarray, "r q"], progress: Progress
) -> Float[np.ndarray, "r episodes"]:
    """Blocks of one size, the last filled up with its last reward, so that one program serves all."""

    def one(reward: Float[Array, " q"]) -> Played:
        act, parameters, _ = conditioned_actor(planner, reward)
        return pairs.episodes.play(act, parameters, pairs.chances, pairs.mixing)

    size = max(min(TOGETHER // pairs.episodes.number, len(rewards)), 1)
    many, found = jax.jit(jax.vmap(one)), np.empty((len(rewards), pairs.episodes.number))
    for begin in range(0, len(rewards), size):
        block = np.minimum(np.arange(begin, begin + size), len(rewards) - 1)
        played = many(jnp.asarray(rewards[block]))
        check_actions(played, pairs.simulator)
        found[block] = played.collected[:, :, 0]
        progress.update("paired rollouts", int(block[-1]) + 1, len(rewards))
    return found
