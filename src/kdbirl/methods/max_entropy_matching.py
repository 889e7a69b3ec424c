"""What maximum causal entropy IRL matches, and how well a reward does it: a smooth function of w and its slope.

    F(w) = [ c . V_w - w . f ] / temperature + l2 / 2 |w|^2          V_w: soft-optimal values (`soft_value_iteration`)
    dF   = [ sum_s c(s) mu_w(s) - f ] / temperature + l2 w          mu_w(s): features that pi_w collects from s on

so that at the minimum the policy collects what the expert did. c is a weight of each state, f a sum of features:

    expectations  c = start distribution,                 f = mu of the expert                     (Ziebart 2010)
    episodes      c = the episodes' first states,         f = mean_e sum_t discount^t phi(s_t, a_t)
                  - discount^T P(. | last s, a) of episodes that were cut after T steps: pi_w goes on from there;
                  given that the episode goes on, where the rows say so
    rows          c = visits - discount * (where they lead to),  f = sum of phi: then F is -log prod_i pi_w(a_i | s_i)

V_w is convex in w, so F is where no c is negative: always for expectations, and where all episodes end.
"""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from kdbirl.demos.data import Demonstrations
from kdbirl.envs.base import TabularMDP
from kdbirl.methods.avril_rows import succession
from kdbirl.methods.tabular_expert import state_action_pairs, visit_counts
from kdbirl.planners.dynamics import Dynamics, dynamics_of
from kdbirl.planners.evaluation import collected_features
from kdbirl.planners.linear_solve import mean_rows, systems

TOLERANCE = 1e-10  # of soft-optimal values, relative to their size, before the last step
ITERATIONS = 200
ROUNDING = 1e-9  # of a chance that is 0 or 1


@dataclass(frozen=True, eq=False)
class Matching:
    """c `(n,)` over the live states and f `(q,)`, both per episode.

    doubtful: episodes after whose last row the world may have ended them, where no row says whether it did.
    """

    from_states: Float[np.ndarray, " n"]
    features: Float[np.ndarray, " q"]
    doubtful: int = 0

    @property
    def convex(self) -> bool:
        """Whether the minimum of F is the only one for certain."""
        return bool((self.from_states >= 0).all())


def of_expectations(mdp: TabularMDP, features: Float[np.ndarray, " q"]) -> Matching:
    """Match given feature expectations from the world's own start."""
    return Matching(dynamics_of(mdp).start, features)


def of_episodes(mdp: TabularMDP, expert: Any) -> Matching:
    """Match the discounted features of each episode, from the states where they began."""
    states, actions = state_action_pairs(mdp, expert)
    dynamics, follows = dynamics_of(mdp), succession(expert)
    step, parts = _steps(follows.part), int(follows.part.max()) + 1
    weight = mdp.discount ** step.astype(np.float64) / parts
    here = _live_places(dynamics)[states]
    from_states = np.bincount(here, (step == 0) / parts, minlength=dynamics.n)
    cut = (follows.following < 0) & ~follows.terminated
    after = dynamics.rows[dynamics.row_of[here[cut], actions[cut]]]
    known, chance = _known_to_go_on(expert)[cut], after.sum(axis=1)
    doubtful = ~known & (chance > ROUNDING) & (chance < 1 - ROUNDING)
    after = np.where(known[:, None], _given_no_end(after), after)
    from_states = from_states - mdp.discount * (weight[cut] @ after)
    return Matching(from_states, weight @ mdp.features_of(states, actions), int(doubtful.sum()))


def _known_to_go_on(expert: Demonstrations) -> Bool[np.ndarray, " rows"]:
    """Rows after which the episode is known not to have ended, if they are its last."""
    if expert.terminated is not None:
        return ~expert.terminated
    return np.zeros(expert.n_rows, dtype=bool) if expert.truncated is None else expert.truncated


def _given_no_end(after: Float[np.ndarray, "cut n"]) -> Float[np.ndarray, "cut n"]:
    """Chances of the next live state where the episode goes on: those that it ended are other, terminated rows."""
    going_on = after.sum(axis=1, keepdims=True)
    return np.divide(after, going_on, out=np.zeros_like(after), where=going_on > 0)


def of_rows(mdp: TabularMDP, expert: Any) -> Matching:
    """Make the expert's actions likely, each in its state, wherever the rows come from."""
    states, actions = state_action_pairs(mdp, expert)
    dynamics = dynamics_of(mdp)
    visits = visit_counts(mdp, states, actions)[None] / (int(succession(expert).part.max()) + 1)
    leaving = visits[0].sum(axis=1) - mdp.discount * dynamics.pushed(visits)[0]
    return Matching(leaving, collected_features(dynamics, visits)[0])


def _live_places(dynamics: Dynamics) -> Int[np.ndarray, " S"]:
    places = np.full(dynamics.n_states, -1)
    places[dynamics.live] = np.arange(dynamics.n)
    return places


def _steps(part: Int[np.ndarray, " rows"]) -> Int[np.ndarray, " rows"]:
    """How many rows of its episode come before each row."""
    order = np.argsort(part, kind="stable")
    step = np.empty(len(part), dtype=np.int64)
    step[order] = np.arange(len(part)) - np.searchsorted(part[order], part[order])
    return step


class SoftOptimum(NamedTuple):
    """`values (n,)`, the policy's `chances (n, A)`, and its system I - discount P_pi `(n, n)`."""

    values: Float[np.ndarray, " n"]
    chances: Float[np.ndarray, "n A"]
    system: Float[np.ndarray, "n n"]


def soft_optimum(
    dynamics: Dynamics, table: Float[np.ndarray, "n A"], temperature: float, guess: Float[np.ndarray, " n"]
) -> SoftOptimum:
    """The fixed point of soft value iteration, and its policy, by Newton's method (soft policy iteration).

    Each step evaluates the softmax policy of the last values, its entropy included, by one linear solve: a handful of
    steps, also with a discount near 1, where sweeps take thousands. The last step squares an error that is small.
    """
    values = guess
    for _ in range(ITERATIONS):
        q_values = table + dynamics.discount * dynamics.expected(values[:, None])[dynamics.row_of][:, :, 0]
        best = q_values.max(axis=1, keepdims=True)
        advantages = (q_values - best) / temperature
        log_sums = np.log(np.exp(advantages).sum(axis=1, keepdims=True))
        better = (best + temperature * log_sums)[:, 0]
        log_chances = advantages - log_sums  # not q - better: with values of 1e9 chances would not sum to one
        chances = np.exp(log_chances)
        size = np.abs(table).max() + temperature + np.abs(better).max()
        near = bool(np.abs(better - values).max() <= TOLERANCE * size)
        system = systems(dynamics, mean_rows(dynamics, chances[None]))[0]
        values = np.linalg.solve(system, (chances * (table - temperature * log_chances)).sum(axis=1))
        if near:
            break
    return SoftOptimum(values, chances, system)


@dataclass(eq=False)
class Objective:
    """F and its slope, with the last values kept: the next w is near, so its values are a few Newton steps away."""

    dynamics: Dynamics
    matching: Matching
    temperature: float
    l2: float
    values: Float[np.ndarray, " n"] = field(init=False)

    def __post_init__(self) -> None:
        self.values = np.zeros(self.dynamics.n)

    def __call__(self, w: Float[np.ndarray, " q"]) -> tuple[float, Float[np.ndarray, " q"]]:
        """F(w), dF(w)."""
        table = self.dynamics.tables(w[None])[:, :, 0]
        self.values, chances, system = soft_optimum(self.dynamics, table, self.temperature, self.values)
        visits = np.linalg.solve(system.T, self.matching.from_states)
        collected = collected_features(self.dynamics, (visits[:, None] * chances)[None])[0]
        gap = self.matching.from_states @ self.values - self.matching.features @ w
        slope = (collected - self.matching.features) / self.temperature + self.l2 * w
        return float(gap / self.temperature + 0.5 * self.l2 * w @ w), slope
