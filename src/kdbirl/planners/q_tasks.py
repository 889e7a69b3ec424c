"""Weight-conditioned policies for the rewards at hand: learnt once, kept in a file, used again."""

from pathlib import Path

import numpy as np
from jaxtyping import Float

from kdbirl.envs.simulator import Simulator
from kdbirl.errors import InputError
from kdbirl.planners.deep_q import DeepQ, known_horizon
from kdbirl.planners.q_file import load_conditioned
from kdbirl.planners.q_policy import ConditionedQ
from kdbirl.progress import Progress


def policies_of(
    simulator: Simulator,
    rewards: Float[np.ndarray, "r q"],
    stored: str | Path | None,
    seed: int,
    progress: Progress | None = None,
) -> ConditionedQ:
    """Policies for all weights from - to + the largest size of each column of `rewards`; from a file if there is one.

    Both signs of each weight are learnt, so that a posterior's draws have policies too, not the tasks at hand alone.
    """
    if stored is not None:
        return _fitting(load_conditioned(stored), simulator, stored)
    reach = np.abs(rewards).max(axis=0)
    reach = np.where(reach > 0, reach, max(float(reach.max()), 1.0))
    return DeepQ().plan_conditioned(simulator, (-reach, reach), seed=seed, progress=progress)


def _fitting(found: ConditionedQ, simulator: Simulator, place: str | Path) -> ConditionedQ:
    """A file of another world or other features would give sensible-looking nonsense."""
    for what, ours, theirs in (
        ("observations", tuple(simulator.observation_names), found.values.observation_names),
        ("features", tuple(simulator.feature_names), found.values.feature_names),
        ("actions", simulator.n_actions, found.values.n_actions),
        ("steps", known_horizon(simulator.discount, simulator.horizon), found.values.limit),
    ):
        if ours != theirs:
            raise InputError(
                f"{place} holds policies for other {what} ({theirs}) than this world's ({ours}); leave it out to learn."
            )
    return found
