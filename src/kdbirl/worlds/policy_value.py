"""What a policy is worth: its value, the states it visits, the features it collects. Exact, by a linear solve.

    x(s)   = sum_t discount^t P(s_t = s),              x = start + discount P_pi^T x
    mu     = sum_{s,a} x(s) pi(a | s) phi(s, a)        feature expectations
    V(pi, w) = w . mu                                  the value from the start distribution

With a horizon the sums stop there. States are all S of the world; terminal ones are never acted in.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache, wraps
from typing import Any, ParamSpec, TypeVar

import numpy as np
from jaxtyping import Bool, Float, Int

from kdbirl.errors import InputError
from kdbirl.worlds.dynamics import Dynamics, dynamics_of
from kdbirl.worlds.policy import Policy, as_policy
from kdbirl.worlds.tabular import TabularMDP

# Linear systems of policy evaluation, (I - discount P_pi) x = b, for many policies of one world.
#
# Three ways, each exact: a doubling of the number of steps where nothing is left to chance; an LU factorisation each in
# small worlds; in large ones a change of low rank from one *anchor* policy whose inverse is known,
#
#     (A_0 + E_J D)^-1 = N - N E_J (I + D N E_J)^-1 D N,     A_0 = I - discount P_0,  N = A_0^-1,
#
# where J are the k states in which the policy differs from the anchor, D = discount (P_0 - P_pi)[J] and D N are rows of
# one precomputed product. The cost is k^3 / 3 instead of n^3 / 3, and much less in practice.

P = ParamSpec("P")
T = TypeVar("T")

SMALL = 150  # live states up to which each policy has its own factorisation
NEGLIGIBLE = 1e-18  # discount^steps below which nothing more is added in double precision
ROUNDING = 1e-15
CELLS_AT_ONCE = 2**22  # of a stack of matrices: 32 MB


def on_one_thread(function: Callable[P, T]) -> Callable[P, T]:
    """Run `function` with linear algebra on one thread.

    Threads that wait for each other cost small systems more than they save, and a hundred times more on a busy machine.
    """

    @wraps(function)
    def alone(*args: P.args, **kwargs: P.kwargs) -> T:
        with _controller().limit(limits=1, user_api="blas"):
            return function(*args, **kwargs)

    return alone


@lru_cache(maxsize=1)
def _controller() -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def mean_rows(dynamics: Dynamics, probabilities: Float[np.ndarray, "r n A"]) -> Float[np.ndarray, "r n n"]:
    """P_pi of each policy: the mean of the transition rows of its actions."""
    policies, n, actions = probabilities.shape
    if dynamics.successor is not None:
        after = np.where(dynamics.successor[dynamics.row_of] < n, dynamics.successor[dynamics.row_of], 0)
        weights = probabilities * (dynamics.successor[dynamics.row_of] < n)
        place = np.arange(policies * n).reshape(policies, n, 1) * n + after
        return np.bincount(place.ravel(), weights.ravel(), minlength=policies * n * n).reshape(policies, n, n)
    table = np.zeros((policies, n, n))
    for action in range(actions):
        which, state = np.nonzero(probabilities[:, :, action])
        weight = probabilities[which, state, action, None]
        table[which, state] += weight * dynamics.rows[dynamics.row_of[state, action]]
    return table


def systems(dynamics: Dynamics, means: Float[np.ndarray, "r n n"]) -> Float[np.ndarray, "r n n"]:
    """I - discount P_pi; the means are used up."""
    means *= -dynamics.discount
    means[:, np.arange(dynamics.n), np.arange(dynamics.n)] += 1.0
    return means


def walk_values(
    dynamics: Dynamics, successor: Int[np.ndarray, " u"], row: Int[np.ndarray, "n r"], rewards: Float[np.ndarray, "n r"]
) -> Float[np.ndarray, "n r"]:
    """V of deterministic policies in a deterministic world: V_{2k} = V_k + discount^k V_k[the state after k steps]."""
    n, r = rewards.shape
    after = np.vstack([successor[row], np.full((1, r), n)])  # state n is the end, which leads to itself
    place = (after * r + np.arange(r)).ravel()  # of the state after k steps, in the table written out
    values = np.vstack([rewards, np.zeros((1, r))]).ravel()
    factor = dynamics.discount
    while factor > NEGLIGIBLE and (place < n * r).any():
        values += factor * values.take(place)
        place = place.take(place)
        factor *= factor
    return values[: n * r].reshape(n, r)


def values_by_factoring(
    dynamics: Dynamics, row: Int[np.ndarray, "n r"], rewards: Float[np.ndarray, "n r"]
) -> Float[np.ndarray, "n r"]:
    """V of deterministic policies, given as the transition row of each state: one factorisation each."""
    n, r = rewards.shape
    values = np.empty((n, r))
    block = max(1, CELLS_AT_ONCE // n**2)
    for i in range(0, r, block):
        part = slice(i, i + block)
        matrices = systems(dynamics, dynamics.rows[row[:, part].T])
        values[:, part] = np.linalg.solve(matrices, rewards[:, part].T[:, :, None])[:, :, 0].T
    return values


def occupancies_by_factoring(dynamics: Dynamics, probabilities: Float[np.ndarray, "r n A"]) -> Float[np.ndarray, "r n"]:
    """Discounted visits of each state, x = (I - discount P_pi^T)^-1 start: one factorisation each."""
    r, n, _ = probabilities.shape
    visits = np.empty((r, n))
    block = max(1, CELLS_AT_ONCE // n**2)
    for i in range(0, r, block):
        matrices = systems(dynamics, mean_rows(dynamics, probabilities[i : i + block]))
        start = np.broadcast_to(dynamics.start[:, None], (len(matrices), n, 1))
        visits[i : i + block] = np.linalg.solve(matrices.swapaxes(1, 2), start)[:, :, 0]
    return visits


@dataclass(frozen=True, eq=False)
class Anchor:
    """One policy whose inverse is known: `marks (n, A)` are its actions, evenly split, `inverse` is N, by rows and by
    columns, `products (u, n)` are all transition rows times N."""

    dynamics: Dynamics
    marks: Bool[np.ndarray, "n A"]
    inverse: Float[np.ndarray, "n n"]
    products: Float[np.ndarray, "u n"]

    @classmethod
    def of(cls, dynamics: Dynamics, marks: Bool[np.ndarray, "n A"]) -> "Anchor":
        """Factor the anchor's own system."""
        probabilities = marks / marks.sum(axis=1, keepdims=True)
        inverse = np.linalg.inv(systems(dynamics, mean_rows(dynamics, probabilities[None]))[0])
        return cls(dynamics, marks, inverse, dynamics.expected(inverse))

    @cached_property
    def columns(self) -> Float[np.ndarray, "n n"]:
        """N by columns, so that some of them are read along memory."""
        return np.ascontiguousarray(self.inverse.T)

    @cached_property
    def visits(self) -> Float[np.ndarray, " n"]:
        """Discounted visits of the anchor's own policy, start^T N."""
        return self.dynamics.start @ self.inverse

    @cached_property
    def means(self) -> Float[np.ndarray, "n n"]:
        """P_0 N."""
        return self._mean_products(np.arange(self.dynamics.n), self.marks)

    def _mean_products(self, states: Int[np.ndarray, " k"], marks: Bool[np.ndarray, "k A"]) -> Float[np.ndarray, "k n"]:
        """P_pi N of some states; most have one best action, whose row is only looked up."""
        row_of = self.dynamics.row_of[states]
        first = marks.argmax(axis=1)
        result = self.products[row_of[np.arange(len(states)), first]]
        for i in np.flatnonzero(marks.sum(axis=1) > 1):
            result[i] = self.products[row_of[i, marks[i]]].mean(axis=0)
        return result

    def _change(self, marks: Bool[np.ndarray, "n A"]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """J, D N and I + D N E_J of a policy. States whose other actions have the same transitions drop out."""
        states = np.flatnonzero((marks != self.marks).any(axis=1))
        changed = self.dynamics.discount * (self.means[states] - self._mean_products(states, marks[states]))
        real = np.abs(changed).max(axis=1, initial=0.0) > ROUNDING
        states, changed = states[real], changed[real]
        return states, changed, np.eye(len(states)) + changed[:, states]

    def values(self, marks: Bool[np.ndarray, "n A"], rewards: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        """V of the policy that splits evenly over `marks`, with the reward `rewards` of its states."""
        states, changed, core = self._change(marks)
        return self.inverse @ rewards - np.linalg.solve(core, changed @ rewards) @ self.columns[states]

    def occupancy(self, marks: Bool[np.ndarray, "n A"]) -> Float[np.ndarray, " n"]:
        """Discounted visits of each state under that policy."""
        states, changed, core = self._change(marks)
        return self.visits - np.linalg.solve(core.T, self.visits[states]) @ changed


def value(mdp: TabularMDP, policy: Any, reward: Any) -> float:
    """V(pi, R) from the start distribution, for one reward (q,)."""
    weights = mdp.as_rewards(reward)
    return float(weights[0] @ feature_expectations(mdp, policy))


@on_one_thread
def policy_values(mdp: TabularMDP, policy: Any, reward: Any) -> Float[np.ndarray, " S"]:
    """V(s) of each state, 0 in terminal ones; with a horizon, with all its steps to go."""
    table, dynamics = as_policy(policy, mdp.n_states, mdp.n_actions), dynamics_of(mdp)
    rewards = dynamics.tables(mdp.as_rewards(reward))[:, :, 0]
    values = np.zeros(mdp.n_states)
    if mdp.horizon is None:
        chances = table.at(0)[dynamics.live]
        system = systems(dynamics, mean_rows(dynamics, chances[None]))[0]
        values[dynamics.live] = np.linalg.solve(system, (chances * rewards).sum(axis=1))
        return values
    here = np.zeros((dynamics.n, 1))
    for chances in _of_steps(table, mdp.horizon)[::-1, dynamics.live]:
        after = dynamics.expected(here)[dynamics.row_of][:, :, 0]
        here = (chances * (rewards + mdp.discount * after)).sum(axis=1, keepdims=True)
    values[dynamics.live] = here[:, 0]
    return values


@on_one_thread
def occupancy(mdp: TabularMDP, policy: Any) -> Float[np.ndarray, "S A"]:
    """Discounted expected number of times that each action is taken in each state; it sums to the mean length."""
    table, dynamics = as_policy(policy, mdp.n_states, mdp.n_actions), dynamics_of(mdp)
    if mdp.horizon is None:
        chances = table.at(0)[dynamics.live]
        here = occupancies_by_factoring(dynamics, chances[None])[0][:, None] * chances
    else:
        here = visits_by_step(dynamics, _of_steps(table, mdp.horizon)[None, :, dynamics.live])[0]
    visits = np.zeros((mdp.n_states, mdp.n_actions))
    visits[dynamics.live] = here
    return visits


def visits_by_step(dynamics: Dynamics, chances: Float[np.ndarray, "r T n A"]) -> Float[np.ndarray, "r n A"]:
    """Discounted visits of state and action over T steps, forwards from the start distribution."""
    total = np.zeros((len(chances), *chances.shape[2:]))
    here = np.repeat(dynamics.start[None], len(chances), axis=0)
    for step in range(chances.shape[1]):
        acting = here[:, :, None] * chances[:, step]
        total += dynamics.discount**step * acting
        here = dynamics.pushed(acting)
    return total


def feature_expectations(mdp: TabularMDP, policy: Any) -> Float[np.ndarray, " q"]:
    """mu: the discounted sum of phi(s, a) that the policy collects, so that its value is w . mu."""
    dynamics = dynamics_of(mdp)
    return collected_features(dynamics, occupancy(mdp, policy)[None, dynamics.live])[0]


def collected_features(dynamics: Dynamics, visits: Float[np.ndarray, "r n A"]) -> Float[np.ndarray, "r q"]:
    """mu = sum_{s,a} visits(s, a) phi(s, a)."""
    phi = dynamics.features
    if phi.ndim == 2:
        return visits.sum(axis=2) @ phi
    return visits.reshape(len(visits), -1) @ phi.reshape(-1, phi.shape[2])


def _of_steps(policy: Policy, horizon: int) -> Float[np.ndarray, "T S A"]:
    """The tables of `horizon` steps."""
    if policy.steps not in (None, horizon):
        raise InputError(f"The policy is for {policy.steps} steps, but this world has a horizon of {horizon}.")
    return np.broadcast_to(policy.probabilities, (horizon, policy.n_states, policy.n_actions))
