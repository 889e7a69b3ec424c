"""Episodes of a vectorised simulator as rows."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from kdbirl.envs.simulator import Simulator
from kdbirl.envs.steps import Steps
from kdbirl.planners.acting import as_actor
from kdbirl.planners.simulated_episodes import chances_of, check_actions, episode_steps, play
from kdbirl.precision import float64


def is_simulator(env: Any) -> bool:
    """Whether this has what a simulator has."""
    return isinstance(env, Simulator)


@float64
def simulated_steps(simulator: Simulator, policy: Any, episodes: int, horizon: int | None, seed: int) -> Steps:
    """Play all episodes side by side; states are the simulator's observations. Cut by our horizon is truncated too."""
    limit = episode_steps(simulator, horizon)
    act, parameters, _ = as_actor(policy, simulator, limit)
    compiled = jax.jit(partial(play, simulator, act, episodes=episodes, keep=True))
    played = compiled(parameters, chances_of(seed, limit), jnp.eye(len(simulator.feature_names)))
    check_actions(played, simulator)
    running, rows = np.asarray(played.rows.running).T, jax.tree.map(lambda x: np.asarray(x).swapaxes(0, 1), played.rows)
    terminated = rows.terminated[running]
    number, step = np.nonzero(running)
    return Steps(
        states=rows.observation[running].astype(np.float64),
        actions=rows.action[running].astype(np.int64),
        episodes=number.astype(np.int64),
        terminated=terminated,
        truncated=rows.truncated[running] | ((step == limit - 1) & ~terminated),
        n_states=None,
        n_actions=simulator.n_actions,
    )
