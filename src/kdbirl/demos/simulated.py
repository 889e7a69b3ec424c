"""Demonstrations in a vectorised simulator; its observations are the state columns. JAX is imported when it plays."""

from typing import Any

import numpy as np
from jaxtyping import Float

from kdbirl.demos.data import Demonstrations
from kdbirl.demos.recorded import demonstrations_of
from kdbirl.errors import InputError
from kdbirl.progress import Progress


def simulated_rollout(env: Any, policy: Any, episodes: int, horizon: int | None, seed: int) -> Demonstrations:
    """Episodes of one policy."""
    from kdbirl.planners.recorded_episodes import is_simulator, simulated_steps

    if not is_simulator(env):
        raise InputError(
            f"{type(env).__name__} is no environment: give a kb.TabularMDP, a Gymnasium environment or a simulator."
        )
    return demonstrations_of(simulated_steps(env, policy, episodes, horizon, seed), columns=env.observation_names)


def simulated_tasks(
    env: Any,
    planner: Any,
    rewards: Float[np.ndarray, "K q"],
    seeds: list[int],
    episodes: int,
    horizon: int | None,
    noise: float,
    progress: Progress | None,
) -> list[Demonstrations]:
    """Episodes of the policy of each reward, all rewards side by side where the planner is weight-conditioned."""
    from kdbirl.planners.recorded_episodes import simulated_tasks as played

    if planner is None:
        raise InputError(
            "make_bank in a simulator needs planner=: a weight-conditioned policy, such as kb.DeepQ().plan_conditioned("
            "simulator, prior, seed=0), or a function of the simulator and a reward that gives a policy."
        )
    if not 0 <= noise <= 1:
        raise InputError(f"noise={noise!r} should be a fraction, from 0 to 1.")
    found = played(
        env, planner, rewards, seeds, episodes=episodes, horizon=horizon, noise=float(noise), progress=progress
    )
    return [demonstrations_of(steps, columns=env.observation_names) for steps in found]


def refuse_other_worlds(env: Any, temperature: Any) -> None:
    """Only a simulator can be played here, and its planners know no temperature."""
    from kdbirl.planners.recorded_episodes import is_simulator

    if not is_simulator(env):
        raise InputError(
            f"make_bank plans, so it needs a kb.TabularMDP or a simulator with a planner, not {type(env).__name__}; "
            "see kb.rollout."
        )
    if temperature is not None:
        raise InputError("temperature= is for tabular worlds; in a simulator make experts imperfect with noise=.")
