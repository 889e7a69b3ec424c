"""Bandwidths by the value of acting on the posterior, where a world is known: an objective for `kb.LotoSettings`."""

from typing import Any

import numpy as np
from jaxtyping import Float

from kdbirl.envs.base import TabularMDP
from kdbirl.errors import InputError
from kdbirl.planners.plan import optimal_feature_expectations


class evd_objective:  # noqa: N801  (called like a function: objective=kb.evd_objective(mdp))
    """Minus the expected value difference of the posterior's draws: `kb.LotoSettings(objective=kb.evd_objective(mdp))`.

    The policies of all points of the prior are planned once. Coverage and value are different goals: bandwidths that
    are chosen so act well, and their intervals may be far too narrow. What `post.report_card()` says of calibration
    still holds.
    """

    __name__ = "evd_objective"

    def __init__(self, mdp: Any) -> None:
        if not isinstance(mdp, TabularMDP):
            raise InputError(f"evd_objective needs a kb.TabularMDP, not {type(mdp).__name__}.")
        self._mdp = mdp
        self._planned: dict[bytes, np.ndarray] = {}

    def __call__(
        self, truth: Float[np.ndarray, " q"], points: Float[np.ndarray, "P q"], weights: Float[np.ndarray, " P"]
    ) -> float:
        """-w*.(mu* - sum_p weight_p mu_p)."""
        best = self._expectations(np.asarray(truth, dtype=float)[None])[0]
        return float(-truth @ (best - weights @ self._expectations(points)))

    def _expectations(self, rewards: Any) -> Float[np.ndarray, "r q"]:
        key = rewards.tobytes()
        if key not in self._planned:
            self._planned[key] = optimal_feature_expectations(self._mdp, rewards)
        return self._planned[key]
