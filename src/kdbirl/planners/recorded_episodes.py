"""Episodes of a vectorised simulator as rows: of one policy, or of the policies of many rewards side by side."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from kdbirl.envs.simulator import Simulator
from kdbirl.envs.steps import Steps
from kdbirl.planners.acting import ConditionedPolicy, as_actor, conditioned_actor, with_noise
from kdbirl.planners.planner import as_planner
from kdbirl.planners.simulated_episodes import (
    Episodes,
    Rows,
    blocks,
    check_actions,
    compiled,
    compiled_for_many,
    episode_steps,
    recorded_chances,
)
from kdbirl.precision import float64
from kdbirl.progress import Progress, Silent


def is_simulator(env: Any) -> bool:
    """Whether this has what a simulator has."""
    return isinstance(env, Simulator)


@float64
def simulated_steps(
    simulator: Simulator, policy: Any, episodes: int, horizon: int | None, seed: int, noise: float = 0.0
) -> Steps:
    """Play all episodes side by side; states are the simulator's observations. Cut by our horizon is truncated too."""
    plan = Episodes(simulator, episodes, episode_steps(simulator, horizon), keep=True)
    act, parameters, alike, _ = as_actor(policy, simulator, plan.steps)
    act = with_noise(act, noise, simulator.n_actions)
    program = compiled(plan) if alike else jax.jit(plan.play, static_argnums=0)
    played = program(act, parameters, recorded_chances(seed, plan.steps), _nothing(simulator))
    check_actions(played, simulator)
    assert played.rows is not None  # they were to be kept
    return _steps(played.rows, simulator, plan.steps)


@float64
def simulated_tasks(
    simulator: Simulator,
    planner: Any,
    rewards: Float[np.ndarray, "r q"],
    seeds: Sequence[int],
    *,
    episodes: int,
    horizon: int | None,
    noise: float = 0.0,
    progress: Progress | None = None,
) -> list[Steps]:
    """Episodes of the policy of each reward, with random numbers of its own: as `simulated_steps` with its seed.

    A weight-conditioned planner plays many rewards side by side; another is asked for one policy after the other.
    """
    told = progress or Silent()
    if isinstance(planner, ConditionedPolicy):
        plan = Episodes(simulator, episodes, episode_steps(simulator, horizon), keep=True)
        return _side_by_side(plan, planner, rewards, seeds, noise, told)
    ask, found = as_planner(planner), []
    for reward, seed in zip(rewards, seeds, strict=True):
        found.append(simulated_steps(simulator, ask(simulator, reward), episodes, horizon, seed, noise))
        told.update("demonstrations", len(found), len(rewards))
    return found


def _side_by_side(
    plan: Episodes,
    planner: ConditionedPolicy,
    rewards: Float[np.ndarray, "r q"],
    seeds: Sequence[int],
    noise: float,
    progress: Progress,
) -> list[Steps]:
    act, shared, *_ = conditioned_actor(planner, plan.steps)
    act, program = with_noise(act, noise, plan.simulator.n_actions), compiled_for_many(plan, own_chances=True)
    found: dict[int, Steps] = {}
    for block in blocks(len(rewards), plan.number):
        each = [recorded_chances(seeds[number], plan.steps) for number in block]
        chances = jax.tree.map(lambda *keys: jnp.stack(keys), *each)
        played = program(act, shared, jnp.asarray(rewards[block]), chances, _nothing(plan.simulator))
        check_actions(played, plan.simulator)
        rows = jax.tree.map(np.asarray, played.rows)
        for place, number in enumerate(block):  # the last of a block may be there several times
            found[int(number)] = _steps(jax.tree.map(lambda x, p=place: x[p], rows), plan.simulator, plan.steps)
        progress.update("demonstrations", len(found), len(rewards))
    return [found[number] for number in range(len(rewards))]


def _nothing(simulator: Simulator) -> Float[jax.Array, "q 0"]:
    """A mixing of the features that collects none."""
    return jnp.zeros((len(simulator.feature_names), 0))


def _steps(rows: Rows, simulator: Simulator, limit: int) -> Steps:
    """Rows `(steps, n)` as those of one episode after the other, without what came after the ends."""
    by_episode = jax.tree.map(lambda x: np.asarray(x).swapaxes(0, 1), rows)
    running = by_episode.running
    terminated = by_episode.terminated[running]
    number, step = np.nonzero(running)
    return Steps(
        states=by_episode.observation[running].astype(np.float64),
        actions=by_episode.action[running].astype(np.int64),
        episodes=number.astype(np.int64),
        terminated=terminated,
        truncated=by_episode.truncated[running] | ((step == limit - 1) & ~terminated),
        n_states=None,
        n_actions=simulator.n_actions,
    )
