"""`plan`: the policy that is optimal for a reward; `plan_many`: for thousands of rewards, in one run."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from kdbirl.envs.base import TabularMDP
from kdbirl.errors import InputError
from kdbirl.planners.backward_induction import backward_induction
from kdbirl.planners.dynamics import Dynamics, dynamics_of
from kdbirl.planners.evaluation import feature_expectations
from kdbirl.planners.linear_solve import SMALL, Anchor, occupancies_by_factoring, one_thread
from kdbirl.planners.policy import Policy, best_actions, split_evenly
from kdbirl.planners.policy_iteration import Solution, longest_stay, policy_iteration

CELLS_AT_ONCE = 2**22  # of a table states x actions x rewards: 32 MB
FEW = 8  # rewards below which an anchor does not pay


@dataclass(frozen=True, eq=False)
class Plans:
    """Optimal policies for r rewards `rewards (r, q)`.

    feature_expectations: mu `(r, q)`, so that a policy's value under *any* w is w . mu. values: `(r,)`, under its own
    reward. error_bound: `(r,)`, how far the planner's own values can be from optimal, in any state.
    best: `(r, S, A)` marks of the best actions (`(r, T, S, A)` with a horizon), or None where they were not kept.
    """

    rewards: Float[np.ndarray, "r q"]
    feature_expectations: Float[np.ndarray, "r q"]
    error_bound: Float[np.ndarray, " r"]
    best: Bool[np.ndarray, "r *steps S A"] | None

    @property
    def values(self) -> Float[np.ndarray, " r"]:
        return np.einsum("rq,rq->r", self.rewards, self.feature_expectations)

    def policy(self, i: int) -> Policy:
        """The policy of reward i."""
        if self.best is None:
            raise InputError("plan_many(..., keep=False) did not keep the policies; plan again with keep=True.")
        return Policy.from_ties(self.best[i])


def plan(mdp: TabularMDP, reward: Any, temperature: float | None = None, noise: float = 0.0) -> Policy:
    """The policy that is optimal for one reward (q,), evenly split where several actions are best.

    temperature: a Boltzmann policy exp(Q*/temperature) instead. noise: a fraction of random actions mixed in.
    """
    if np.ndim(reward) != 1:
        raise InputError(f"reward: shape {np.shape(reward)}; plan takes one vector, plan_many a table of them.")
    q_values = action_values(mdp, reward)
    policy = Policy.greedy(q_values) if temperature is None else Policy.boltzmann(q_values, temperature)
    return policy.noisy(noise) if noise else policy


def action_values(mdp: TabularMDP, reward: Any) -> Float[np.ndarray, "*steps S A"]:
    """Q*(s, a), `(S, A)`; with a horizon of each step, `(T, S, A)`. 0 where nobody acts."""
    dynamics = dynamics_of(mdp)
    tables = dynamics.tables(mdp.as_rewards(reward))
    if mdp.horizon is not None:
        return _on_all_states(dynamics, backward_induction(dynamics, tables, mdp.horizon)[0])
    solution = policy_iteration(dynamics, tables)
    return _on_all_states(dynamics, dynamics.action_values(tables, solution.values.T)[:, :, 0])


def plan_many(mdp: TabularMDP, rewards: Any, keep: bool = True) -> Plans:
    """Optimal policies for rewards (r, q) in one vectorised run; `keep=False` gives their feature expectations only.

    Optimal policies do not change when a reward is scaled by a positive number, so equal directions are planned once.
    """
    table = mdp.as_rewards(rewards)
    size = np.abs(table).max(axis=1, keepdims=True)
    distinct, index = np.unique(table / np.where(size > 0, size, 1.0) + 0.0, axis=0, return_inverse=True)
    index = index.reshape(-1)
    collected = np.empty_like(distinct)
    bound = np.empty(len(distinct))
    best: list[np.ndarray] = [np.zeros(0)] * len(distinct)
    for part in _blocks(mdp, distinct):
        marks, collected[part], bound[part] = _planned(mdp, distinct[part])
        for i, mark in zip(part, marks, strict=True) if keep else ():
            best[i] = mark
    return Plans(
        table, collected[index], bound[index] * size[:, 0], np.stack([best[i] for i in index]) if keep else None
    )


def random_feature_expectations(mdp: TabularMDP) -> Float[np.ndarray, " q"]:
    """mu of the agent that chooses every action alike."""
    return feature_expectations(mdp, Policy.uniform(mdp.n_states, mdp.n_actions))


def _blocks(mdp: TabularMDP, rewards: Float[np.ndarray, "r q"]) -> Iterator[Int[np.ndarray, " b"]]:
    """Rewards in blocks that fit in memory, similar ones together: they share an anchor."""
    centred = rewards - rewards.mean(axis=0)
    order = np.argsort(centred @ np.linalg.svd(centred, full_matrices=False)[2][0], kind="stable")
    size = max(1, CELLS_AT_ONCE // (mdp.n_states * mdp.n_actions * (mdp.horizon or 1)))
    for i in range(0, len(rewards), size):
        yield order[i : i + size]


def _planned(mdp: TabularMDP, rewards: Float[np.ndarray, "b q"]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Marks of the best actions on all states, feature expectations and error bounds of one block."""
    dynamics = dynamics_of(mdp)
    tables = dynamics.tables(rewards)
    if mdp.horizon is not None:
        q_values = backward_induction(dynamics, tables, mdp.horizon)
        marks = _on_all_states(dynamics, best_actions(q_values), fill=True)
        collected = np.stack([feature_expectations(mdp, split_evenly(mark)) for mark in marks])
        return marks, collected, np.zeros(len(rewards))
    anchor = _anchor(dynamics, rewards) if dynamics.n > SMALL and len(rewards) >= FEW else None
    solution = policy_iteration(dynamics, tables, anchor)
    collected = _collected(dynamics, solution, anchor)
    return _on_all_states(dynamics, solution.ties, fill=True), collected, solution.error_bound


def _anchor(dynamics: Dynamics, rewards: Float[np.ndarray, "b q"]) -> Anchor:
    """The optimal policy of the block's mean reward."""
    solution = policy_iteration(dynamics, dynamics.tables(rewards.mean(axis=0, keepdims=True)))
    return Anchor.of(dynamics, solution.ties[0])


def _collected(dynamics: Dynamics, solution: Solution, anchor: Anchor | None) -> Float[np.ndarray, "b q"]:
    """mu of each policy of a solution."""
    chances = split_evenly(solution.ties)
    if anchor is None:
        visits = occupancies_by_factoring(dynamics, chances)
    else:
        with one_thread():
            visits = np.stack([anchor.occupancy(ties) for ties in solution.ties])
    if dynamics.features.ndim == 2:
        return visits @ dynamics.features
    acting = (visits[:, :, None] * chances).reshape(len(visits), -1)
    return acting @ dynamics.features.reshape(-1, dynamics.features.shape[2])


def _on_all_states(dynamics: Dynamics, table: np.ndarray, fill: bool | float = 0.0) -> np.ndarray:
    """A table over the live states, written into one over all states."""
    whole = np.full((*table.shape[:-2], dynamics.n_states, dynamics.n_actions), fill, dtype=table.dtype)
    whole[..., dynamics.live, :] = table
    return whole
