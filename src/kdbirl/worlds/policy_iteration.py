"""Policy iteration (Howard 1960) for many rewards of one world at once: exact, in a handful of rounds.

A few sweeps of value iteration give a good first policy; then each round evaluates every policy exactly (a linear
system) and takes the best actions, until none changes. The remaining Bellman residual bounds the error,

    |V* - V| <= longest * max_s |(T V)(s) - V(s)|,     longest = 1 / (1 - discount),

or, undiscounted, the largest expected number of steps that any policy takes: rounding error, for `V` solves a system.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from kdbirl.worlds.dynamics import Dynamics
from kdbirl.worlds.policy import TIE_TOLERANCE
from kdbirl.worlds.policy_value import SMALL, Anchor, values_by_factoring, walk_values

SWEEPS = 30  # of value iteration before the first exact evaluation
ROUNDS = 500  # policy iteration needs about ten; more means that rounding makes it go in circles
GAIN = 1e-12  # an action changes only for a gain above this share of the largest |Q|


@dataclass(frozen=True, eq=False)
class Solution:
    """Optimal values `(r, n)` of the live states, all best actions `ties (r, n, A)`, |V* - V| <= error_bound `(r,)`."""

    values: Float[np.ndarray, "r n"]
    ties: Bool[np.ndarray, "r n A"]
    error_bound: Float[np.ndarray, " r"]


def policy_iteration(
    dynamics: Dynamics,
    tables: Float[np.ndarray, "n A r"],
    anchor: Anchor | None = None,
    tolerance: float = TIE_TOLERANCE,
) -> Solution:
    """Optimal values and all best actions for each of r reward tables. An anchor makes large worlds quick."""
    rewards = dynamics.best_in_pair(tables)
    values = np.zeros((dynamics.n, tables.shape[2])) if anchor is None else anchor_values(anchor, tables)
    for _ in range(SWEEPS if anchor is None else SWEEPS // 3):
        values = dynamics.pairs.max(dynamics.pair_values(rewards, values))
    _, chosen = dynamics.pairs.argmax(dynamics.pair_values(rewards, values))
    open_ = np.arange(tables.shape[2])
    for _ in range(ROUNDS):
        here = rewards[:, open_]
        values[:, open_] = _evaluated(dynamics, chosen[:, open_], here, anchor)
        chosen[:, open_], changed = _improved(dynamics, chosen[:, open_], here, values[:, open_])
        open_ = open_[changed]
        if not open_.size:
            break
    q_values = dynamics.action_values(tables, values)
    bound = longest_stay(dynamics) * np.abs(q_values.max(axis=1) - values).max(axis=0)
    scale = np.abs(q_values).max(axis=(0, 1))
    ties = q_values >= q_values.max(axis=1, keepdims=True) - tolerance * scale
    return Solution(values.T, ties.transpose(2, 0, 1), bound)


def longest_stay(dynamics: Dynamics) -> float:
    """The largest expected (discounted) number of steps of any policy: 1 / (1 - discount) below 1, else computed."""
    if dynamics.discount < 1:
        return 1.0 / (1.0 - dynamics.discount)
    ones = np.ones((len(dynamics.pair_row), 1))
    values, chosen = np.zeros((dynamics.n, 1)), dynamics.pair_first[:, None]
    for _ in range(ROUNDS):
        values = _evaluated(dynamics, chosen, ones, None)
        chosen, changed = _improved(dynamics, chosen, ones, values)
        if not changed.any():
            break
    return float(values.max())


def anchor_values(anchor: Anchor, tables: Float[np.ndarray, "n A r"]) -> Float[np.ndarray, "n r"]:
    """V of the anchor's policy under each reward: N times its mean rewards."""
    probabilities = anchor.marks / anchor.marks.sum(axis=1, keepdims=True)
    return anchor.inverse @ np.einsum("sa,sar->sr", probabilities, tables)


def _improved(
    dynamics: Dynamics,
    chosen: Int[np.ndarray, "n r"],
    rewards: Float[np.ndarray, "p r"],
    values: Float[np.ndarray, "n r"],
) -> tuple[Int[np.ndarray, "n r"], Bool[np.ndarray, " r"]]:
    """Better actions where they gain more than rounding error, and for which rewards anything changed."""
    pair_values = dynamics.pair_values(rewards, values)
    present = np.take_along_axis(pair_values, chosen, axis=0)
    best, first = dynamics.pairs.argmax(pair_values)
    better = best - present > GAIN * np.abs(pair_values).max(axis=0)
    return np.where(better, first, chosen), better.any(axis=0)


def _evaluated(
    dynamics: Dynamics, chosen: Int[np.ndarray, "n r"], rewards: Float[np.ndarray, "p r"], anchor: Anchor | None
) -> Float[np.ndarray, "n r"]:
    """V of deterministic policies, given as a pair for each state."""
    row, earned = dynamics.pair_row[chosen], np.take_along_axis(rewards, chosen, axis=0)
    if dynamics.successor is not None:
        return walk_values(dynamics, dynamics.successor, row, earned)
    if anchor is None or dynamics.n <= SMALL:
        return values_by_factoring(dynamics, row, earned)
    action = dynamics.action_of_pair[chosen]
    values = np.empty_like(earned)
    for i in range(earned.shape[1]):
        marks = np.zeros((dynamics.n, dynamics.n_actions), dtype=bool)
        marks[np.arange(dynamics.n), action[:, i]] = True
        values[:, i] = anchor.values(marks, earned[:, i])
    return values
