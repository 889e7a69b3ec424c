"""Bandwidths by the value of acting on the posterior, where a world is known: an objective for `kb.LotoSettings`."""

from typing import Any

import numpy as np
from jaxtyping import Float

from kdbirl.diagnosis.loto import Objective
from kdbirl.envs.base import TabularMDP
from kdbirl.errors import InputError
from kdbirl.planners.plan import optimal_feature_expectations


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
