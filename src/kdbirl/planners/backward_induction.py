"""Optimal control over a finite horizon: from the last step backwards, exact, many rewards at once.

    V_T = 0,   Q_t(s, a) = R(s, a) + discount sum_s' P(s' | s, a) V_{t+1}(s'),   V_t = max_a Q_t.

The discount may be 1. The best actions depend on the step.
"""

import numpy as np
from jaxtyping import Float

from kdbirl.planners.dynamics import Dynamics


def backward_induction(
    dynamics: Dynamics, tables: Float[np.ndarray, "n A r"], horizon: int
) -> Float[np.ndarray, "r T n A"]:
    """Q_t(s, a) of every step t = 0 .. T - 1, for each reward table."""
    n, actions, r = tables.shape
    q_values = np.empty((horizon, n, actions, r))
    values = np.zeros((n, r))
    for step in reversed(range(horizon)):
        q_values[step] = dynamics.action_values(tables, values)
        values = q_values[step].max(axis=1)
    return q_values.transpose(3, 0, 1, 2)
