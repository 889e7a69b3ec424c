"""`Policy`: probabilities of the actions in each state, and the ways to make one from action values."""

from collections.abc import Callable
from dataclasses import dataclass
from inspect import Parameter, signature
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float

from kdbirl._jax import refuse_traced
from kdbirl.errors import InputError

TIE_TOLERANCE = 1e-9  # actions whose values differ by less than this share of the largest |Q| are equally good


@runtime_checkable
class Predictor(Protocol):
    """What stable-baselines3 and its like give: `predict(observation)` -> an action, or (action, hidden state)."""

    def predict(self, observation: Any) -> Any:
        """The action for this observation."""


@runtime_checkable
class StepPredictor(Protocol):
    """A policy that may act by the step (from 0) too, as those of a world with a horizon do."""

    def predict_at(self, observation: Any, step: int) -> Any:
        """The action for this observation at this step."""


@runtime_checkable
class Tabulated(Protocol):
    """A policy that has its own table."""

    def table(self) -> "Policy":
        """Probabilities of a tabular world's actions."""


@dataclass(frozen=True, eq=False)
class Policy:
    """`probabilities[s, a]` = pi(a | s), `(S, A)`; or `(T, S, A)`, a table for each of the T steps of a horizon."""

    probabilities: np.ndarray

    def __post_init__(self) -> None:
        table = np.array(self.probabilities, dtype=np.float64)
        if table.ndim not in (2, 3) or 0 in table.shape:
            raise InputError(
                f"A policy has shape {table.shape}; expected (states, actions) or (steps, states, actions)."
            )
        sums = table.sum(axis=-1)
        wrong = (np.abs(sums - 1) > 1e-8) | (table < 0).any(axis=-1) | ~np.isfinite(sums)
        if wrong.any():
            where = tuple(int(i) for i in np.argwhere(wrong)[0])
            raise InputError(
                f"A policy needs a distribution over the actions in every state; in state {where[-1]} the values are "
                f"{table[where].tolist()}."
            )
        table /= sums[..., None]
        table.setflags(write=False)
        object.__setattr__(self, "probabilities", table)

    @classmethod
    def uniform(cls, n_states: int, n_actions: int) -> "Policy":
        """Every action alike: the random agent."""
        return cls(np.full((n_states, n_actions), 1.0 / n_actions))

    @classmethod
    def greedy(cls, q_values: Float[np.ndarray, "*steps S A"], tolerance: float = TIE_TOLERANCE) -> "Policy":
        """The best actions, evenly split where several are best, within `tolerance` of the largest |Q|."""
        return cls.from_ties(best_actions(np.asarray(q_values, dtype=np.float64), tolerance))

    @classmethod
    def from_ties(cls, ties: Bool[np.ndarray, "*steps S A"]) -> "Policy":
        """Evenly over the actions marked True in each state."""
        return cls(split_evenly(ties))

    @classmethod
    def boltzmann(cls, q_values: Float[np.ndarray, "*steps S A"], temperature: float | int) -> "Policy":
        """pi(a | s) = exp(Q(s, a) / temperature) / sum_b exp(Q(s, b) / temperature)."""
        if not 0 < temperature < np.inf:
            raise InputError(f"temperature={temperature!r} should be a positive number; towards 0 is the best action.")
        scaled = (q_values - q_values.max(axis=-1, keepdims=True)) / temperature
        weights = np.exp(scaled)
        return cls(weights / weights.sum(axis=-1, keepdims=True))

    def noisy(self, noise: float | int) -> "Policy":
        """With probability `noise` an action chosen evenly from all, else this policy's."""
        if not 0 <= noise <= 1:
            raise InputError(f"noise={noise!r} should be the fraction of random actions, from 0 to 1.")
        return Policy((1 - noise) * self.probabilities + noise / self.n_actions)

    @property
    def n_states(self) -> int:
        return int(self.probabilities.shape[-2])

    @property
    def n_actions(self) -> int:
        return int(self.probabilities.shape[-1])

    @property
    def steps(self) -> int | None:
        """The number of steps it knows, or None when it is the same at every step."""
        return None if self.probabilities.ndim == 2 else len(self.probabilities)

    def at(self, step: int) -> Float[np.ndarray, "S A"]:
        """The table of one step (from 0)."""
        return self.probabilities if self.probabilities.ndim == 2 else self.probabilities[step]


def best_actions(
    q_values: Float[np.ndarray, "*batch S A"], tolerance: float = TIE_TOLERANCE
) -> Bool[np.ndarray, "*batch S A"]:
    """Which actions are best, up to `tolerance` times the largest |Q| of each (S, A) table.

    Relative, so that scaling a reward changes nothing.
    """
    scale = np.abs(q_values).max(axis=(-2, -1), keepdims=True)
    return q_values >= q_values.max(axis=-1, keepdims=True) - tolerance * scale


def split_evenly(ties: Bool[np.ndarray, "*batch S A"]) -> Float[np.ndarray, "*batch S A"]:
    """Probabilities from marks: the same for every marked action of a state."""
    return ties / ties.sum(axis=-1, keepdims=True)


def predicted_action(predictor: Predictor, observation: Any) -> Any:
    """The action of an object with `predict`, with or without the hidden state that some give beside it."""
    answer = predictor.predict(observation)
    return answer[0] if isinstance(answer, tuple) else answer


def tabulated(predictor: Predictor, n_states: int, n_actions: int) -> Policy:
    """The table of an object with `predict`, asked once in every state."""
    table = np.zeros((n_states, n_actions))
    for state in range(n_states):
        action = int(np.asarray(predicted_action(predictor, state)).reshape(()))
        if not 0 <= action < n_actions:
            raise InputError(f"The policy predicts action {action} in state {state}; there are 0 to {n_actions - 1}.")
        table[state, action] = 1.0
    return Policy(table)


def as_policy(policy: Any, n_states: int, n_actions: int) -> Policy:
    """A `Policy` of the world's own size, from itself, a table of probabilities, or an object with `predict`."""
    if isinstance(policy, Tabulated):
        policy = policy.table()
    if isinstance(policy, Predictor):
        return tabulated(policy, n_states, n_actions)
    refuse_traced(policy, "policy")
    try:
        table = policy if isinstance(policy, Policy) else Policy(np.asarray(policy, dtype=np.float64))
    except (TypeError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(
            f"{type(policy).__name__} is no policy: give a kb.Policy, a table of probabilities (states, actions), or "
            "an object with predict(observation)."
        ) from error
    if (table.n_states, table.n_actions) != (n_states, n_actions):
        raise InputError(
            f"The policy is for {table.n_states} states and {table.n_actions} actions, "
            f"but this world has {n_states} and {n_actions}."
        )
    return table


# What `planner=` may be: a world and a reward to a policy, or a reward alone to a policy.

Planner = Callable[[Any, Any], Any]  # a world and one reward (q,) -> a policy


def as_planner(planner: Any) -> Planner:
    """`planner(world, reward)`; a function of one argument is taken to know its world already."""
    if not callable(planner):
        raise InputError(
            f"planner={planner!r} should be a function of the world and a reward, or of a reward alone, that gives a "
            "policy."
        )
    return planner if _required(planner) != 1 else lambda world, reward: planner(reward)


def _required(function: Callable[..., Any]) -> int:
    try:
        parameters = signature(function).parameters.values()
    except (TypeError, ValueError):  # some built-in functions do not say
        return 2
    positional = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    return sum(item.kind in positional and item.default is Parameter.empty for item in parameters)
