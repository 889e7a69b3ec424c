"""How rational are demonstrators? BIRL's inverse temperature from training tasks, whose rewards are known.

    alpha = argmax_alpha  sum_k sum_{i in task k}  log [ exp(alpha Q*_k(s_i, a_i)) / sum_b exp(alpha Q*_k(s_i, b)) ]

The sum is concave in alpha. Demonstrators who never err have no finite maximum: the largest allowed alpha is taken.
"""

from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.optimize import minimize_scalar

from kdbirl.demos.data import TaskBank
from kdbirl.envs.base import TabularMDP
from kdbirl.errors import InputError
from kdbirl.methods.tabular_expert import state_action_pairs
from kdbirl.planners.plan import many_action_values

SMALLEST, LARGEST = 1e-3, 1e3


def likeliest_alpha(mdp: TabularMDP, bank: Any, largest: float = LARGEST) -> float:
    """The inverse temperature under which the bank's own actions are the likeliest, from 0.001 to `largest`."""
    if not isinstance(bank, TaskBank):
        raise InputError(f"likeliest_alpha needs a TaskBank, not {type(bank).__name__}: see kb.read_task_bank.")
    advantages, chosen = _advantages(mdp, bank)

    def surprise(log_alpha: float) -> float:
        scaled = np.exp(log_alpha) * advantages
        return float(np.log(np.exp(scaled).sum(axis=1)).sum() - np.exp(log_alpha) * chosen.sum())

    bounds = np.log(SMALLEST), np.log(largest)
    found = minimize_scalar(surprise, bounds=bounds, method="bounded", options={"xatol": 1e-4})
    best = min((surprise(bounds[1]), bounds[1]), (float(found.fun), float(found.x)))[1]
    return float(np.exp(best))


def _advantages(mdp: TabularMDP, bank: TaskBank) -> tuple[Float[np.ndarray, "m A"], Float[np.ndarray, " m"]]:
    """Q* - max Q* of every action in the state of each row, under its task's reward; and of the action taken."""
    tables = many_action_values(mdp, bank.rewards)
    tables = tables - tables.max(axis=2, keepdims=True)
    states, actions = state_action_pairs(mdp, bank.demonstrations)
    rows = tables[bank.tasks, states]
    return rows, rows[np.arange(len(rows)), actions]
