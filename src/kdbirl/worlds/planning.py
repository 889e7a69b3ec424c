"""`plan`: the policy that is optimal for a reward; `plan_many`: for thousands of rewards, in one run."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from kdbirl.errors import InputError
from kdbirl.progress import Progress
from kdbirl.worlds.dynamics import Dynamics, dynamics_of
from kdbirl.worlds.policy import Policy, best_actions, split_evenly
from kdbirl.worlds.policy_iteration import policy_iteration
from kdbirl.worlds.policy_value import (
    SMALL,
    Anchor,
    collected_features,
    occupancies_by_factoring,
    on_one_thread,
    visits_by_step,
)
from kdbirl.worlds.tabular import TabularMDP

# Optimal control over a finite horizon: from the last step backwards, exact, many rewards at once.
#
#     V_T = 0,   Q_t(s, a) = R(s, a) + discount sum_s' P(s' | s, a) V_{t+1}(s'),   V_t = max_a Q_t.
#
# The discount may be 1. The best actions depend on the step.


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


IN_CACHE, IN_MEMORY = 2**16, 2**23  # cells of a table states x actions x rewards: 0.5 MB, 64 MB
SHARING = 256  # rewards that one anchor serves
FEW = 8  # rewards below which an anchor does not pay


@dataclass(frozen=True, eq=False)
class Plans:
    """Optimal policies for r rewards `rewards (r, q)`.

    best: `(r, S, A)` marks of the best actions; `(r, T, S, A)` with a horizon. values: `(r,)`, from the start
    distribution. error_bound: `(r,)`: no state's value is further than this from the optimum.
    """

    rewards: Float[np.ndarray, "r q"]
    best: Bool[np.ndarray, "r *steps S A"]
    values: Float[np.ndarray, " r"]
    error_bound: Float[np.ndarray, " r"]

    def policy(self, i: int) -> Policy:
        """The policy of reward i: evenly over its best actions."""
        return Policy.from_ties(self.best[i])


def plan(mdp: TabularMDP, reward: Any, temperature: float | int | None = None, noise: float | int = 0.0) -> Policy:
    """The policy that is optimal for one reward (q,), evenly split where several actions are best.

    temperature: a Boltzmann policy exp(Q*/temperature) instead. noise: a fraction of random actions mixed in.
    """
    if np.ndim(reward) != 1:
        raise InputError(f"reward: shape {np.shape(reward)}; plan takes one vector, plan_many a table of them.")
    q_values = action_values(mdp, reward)
    policy = Policy.greedy(q_values) if temperature is None else Policy.boltzmann(q_values, temperature)
    return policy.noisy(noise) if noise else policy


def action_values(mdp: TabularMDP, reward: Any) -> Float[np.ndarray, "*steps S A"]:
    """Q*(s, a) of one reward, `(S, A)`; with a horizon of each step, `(T, S, A)`. 0 where nobody acts."""
    return many_action_values(mdp, reward)[0]


@on_one_thread
def plan_many(mdp: TabularMDP, rewards: Any) -> Plans:
    """Optimal policies for rewards (r, q), in one vectorised run."""
    directions = Directions.of(mdp.as_rewards(rewards))
    steps = () if mdp.horizon is None else (mdp.horizon,)
    best = np.empty((len(directions.distinct), *steps, mdp.n_states, mdp.n_actions), dtype=bool)
    values, bound = np.empty(len(best)), np.empty(len(best))
    dynamics = dynamics_of(mdp)
    for block in _solved(mdp, directions.distinct):
        best[block.part] = _on_all_states(dynamics, block.ties, fill=True)
        values[block.part], bound[block.part] = block.values @ dynamics.start, block.error_bound
    size, index = directions.size, directions.index
    return Plans(directions.rewards, best[index], values[index] * size, bound[index] * size)


def policies_for(
    mdp: TabularMDP, rewards: Any, temperature: float | int | None = None, noise: float | int = 0.0
) -> list[Policy]:
    """`plan` of each of several rewards (r, q), in one vectorised run."""
    if temperature is None:
        plans = plan_many(mdp, rewards)
        policies = [plans.policy(i) for i in range(len(plans.rewards))]
    else:
        policies = [Policy.boltzmann(q_values, temperature) for q_values in many_action_values(mdp, rewards)]
    return [policy.noisy(noise) for policy in policies] if noise else policies


@on_one_thread
def many_action_values(mdp: TabularMDP, rewards: Any) -> Float[np.ndarray, "r *steps S A"]:
    """Q*(s, a) of each of several rewards (r, q); 0 where nobody acts."""
    directions, dynamics = Directions.of(mdp.as_rewards(rewards)), dynamics_of(mdp)
    steps = () if mdp.horizon is None else (mdp.horizon,)
    q_values = np.zeros((len(directions.distinct), *steps, mdp.n_states, mdp.n_actions))
    for block in _solved(mdp, directions.distinct):
        tables = dynamics.tables(directions.distinct[block.part])
        if mdp.horizon is not None:
            found = backward_induction(dynamics, tables, mdp.horizon)
        else:
            found = dynamics.action_values(tables, block.values.T).transpose(2, 0, 1)
        q_values[block.part] = _on_all_states(dynamics, found)
    size = directions.size.reshape(-1, *[1] * (q_values.ndim - 1))
    return q_values[directions.index] * size


@on_one_thread
def optimal_feature_expectations(
    mdp: TabularMDP, rewards: Any, progress: Progress | None = None, job: str = "planning"
) -> Float[np.ndarray, "r q"]:
    """mu of the optimal policy of each reward (r, q): its value under any other reward w is w . mu.

    The policies themselves are not kept, so thousands of rewards fit in memory. Each block reports to `progress`.
    """
    directions = Directions.of(mdp.as_rewards(rewards))
    dynamics = dynamics_of(mdp)
    collected, done = np.empty_like(directions.distinct), 0
    for block in _solved(mdp, directions.distinct):
        chances = split_evenly(block.ties)
        if mdp.horizon is None:
            visits = _visits(dynamics, block)[:, :, None] * chances
        else:
            visits = visits_by_step(dynamics, chances)
        collected[block.part] = collected_features(dynamics, visits)
        done += len(block.part)
        if progress is not None:
            progress.update(job, done, len(collected))
    return collected[directions.index]


@dataclass(frozen=True, eq=False)
class Directions:
    """Rewards divided by their largest |value|, each once: scaling by a positive number changes no optimal policy."""

    rewards: Float[np.ndarray, "r q"]
    distinct: Float[np.ndarray, "u q"]
    index: Int[np.ndarray, " r"]
    size: Float[np.ndarray, " r"]

    @classmethod
    def of(cls, rewards: Float[np.ndarray, "r q"]) -> "Directions":
        """Collapse what is planned alike."""
        size = np.abs(rewards).max(axis=1)
        scaled = rewards / np.where(size > 0, size, 1.0)[:, None] + 0.0  # + 0.0: -0 is 0
        distinct, index = np.unique(scaled, axis=0, return_inverse=True)
        return cls(rewards, distinct, index.reshape(-1), size)


@dataclass(frozen=True, eq=False)
class Block:
    """Solved rewards: which, best actions and values of the live states, error bounds, and the anchor used."""

    part: Int[np.ndarray, " b"]
    ties: Bool[np.ndarray, "b *steps n A"]
    values: Float[np.ndarray, "b n"]
    error_bound: Float[np.ndarray, " b"]
    anchor: Anchor | None


def _solved(mdp: TabularMDP, rewards: Float[np.ndarray, "r q"]) -> Iterator[Block]:
    dynamics = dynamics_of(mdp)
    for part in _parts(rewards, _block_size(dynamics.row_of.size * (mdp.horizon or 1))):
        tables = dynamics.tables(rewards[part])
        if mdp.horizon is not None:
            q_values = backward_induction(dynamics, tables, mdp.horizon)
            exact = np.zeros(len(part))
            yield Block(part, best_actions(q_values), q_values[:, 0].max(axis=2), exact, None)
            continue
        anchor = _anchor(dynamics, rewards[part]) if dynamics.n > SMALL and len(part) >= FEW else None
        solution = policy_iteration(dynamics, tables, anchor)
        yield Block(part, solution.ties, solution.values, solution.error_bound, anchor)


def _block_size(cells: int) -> int:
    """Rewards planned together: as many as stay near the processor, or as share an anchor well, if memory allows."""
    return max(IN_CACHE // cells, min(SHARING, IN_MEMORY // cells), 1)


def _parts(rewards: Float[np.ndarray, "r q"], size: int) -> Iterator[Int[np.ndarray, " b"]]:
    """Rewards in blocks, similar ones together (along their widest direction), so that an anchor suits them."""
    order = np.arange(len(rewards))
    if size < len(rewards):
        centred = rewards - rewards.mean(axis=0)
        order = np.argsort(centred @ np.linalg.eigh(centred.T @ centred)[1][:, -1], kind="stable")
    for i in range(0, len(rewards), size):
        yield order[i : i + size]


def _anchor(dynamics: Dynamics, rewards: Float[np.ndarray, "b q"]) -> Anchor:
    """The optimal policy of the block's mean reward."""
    solution = policy_iteration(dynamics, dynamics.tables(rewards.mean(axis=0, keepdims=True)))
    return Anchor.of(dynamics, solution.ties[0])


def _visits(dynamics: Dynamics, block: Block) -> Float[np.ndarray, "b n"]:
    if block.anchor is None:
        return occupancies_by_factoring(dynamics, split_evenly(block.ties))
    return np.stack([block.anchor.occupancy(ties) for ties in block.ties])


def _on_all_states(dynamics: Dynamics, table: np.ndarray, fill: bool | float = 0.0) -> np.ndarray:
    """A table over the live states, written into one over all states."""
    whole = np.full((*table.shape[:-2], dynamics.n_states, dynamics.n_actions), fill, dtype=table.dtype)
    whole[..., dynamics.live, :] = table
    return whole
