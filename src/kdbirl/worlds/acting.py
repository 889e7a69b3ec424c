"""A policy as what acts in a vectorised simulator: one call for all episodes of a step, in JAX, so that it compiles."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from kdbirl.errors import InputError
from kdbirl.worlds.policy import Policy, Predictor, as_policy, predicted_action
from kdbirl.worlds.simulator import Simulator, TabularSimulator, TabularState

Act = Callable[[Any, Any, Any, Any, Any], Any]  # parameters, state, observation (n, d), step, key -> actions (n,)


class Actor(NamedTuple):
    """`act(parameters, state, observation, step, key)` -> the actions `(n,)` of n episodes.

    What differs between policies of one kind is in `parameters` where it can be; such policies are `alike`, and share
    one compiled program. limit: how many steps it knows, None if they do not matter to it.
    """

    act: Act
    parameters: Any
    alike: bool = False
    limit: int | None = None


@runtime_checkable
class Parametric(Protocol):
    """A policy that says itself how it acts: its numbers as parameters, so that its like share a program."""

    def as_actor(self) -> Actor: ...


@runtime_checkable
class ConditionedPolicy(Protocol):
    """Policies for any number of rewards, side by side: what `kb.DeepQ().plan_conditioned` gives."""

    def act(self, observations: Any, rewards: Any) -> Any:
        """The actions `(n,)` for observations `(n, d)`, each row for a reward of its own `(n, q)`, in jax.numpy."""


def as_actor(policy: Any, simulator: Simulator, steps: int) -> Actor:
    """From "random", a function of all observations in jax.numpy, an object with `predict`, or a table of a tabular
    world's probabilities; `steps` is how long it will have to act."""
    if isinstance(policy, str):
        if policy != "random":
            raise InputError(f'policy={policy!r}: the only policy with a name is "random".')
        return Actor(_at_random, simulator.n_actions, alike=True)
    if isinstance(policy, Parametric):
        return _within(policy.as_actor(), steps)
    if callable(policy):
        return Actor(lambda parameters, state, observation, step, key: _asked(policy, observation), ())
    if isinstance(policy, Predictor):
        return Actor(lambda parameters, state, observation, step, key: _predicted(policy, observation), ())
    if isinstance(simulator, TabularSimulator):
        return _of_table(as_policy(policy, simulator.mdp.n_states, simulator.mdp.n_actions), steps)
    raise InputError(
        f"{type(policy).__name__} is no policy for a simulator: give a function of the observations (n, d) that gives "
        'the actions (n,) in jax.numpy, an object with predict(observation), or "random".'
    )


def conditioned_actor(conditioned: ConditionedPolicy, steps: int) -> Actor:
    """How policies for any reward act; their parameters are (those here, the reward `(q,)`), which may be a traced one:
    many are then played side by side."""
    if isinstance(conditioned, Parametric):
        return _within(conditioned.as_actor(), steps)
    return Actor(_conditioned(_Same(conditioned)), ())


def with_noise(act: Act, share: float, n_actions: int) -> Act:
    """The same with this share of its actions random."""
    return act if share == 0 else _noisy(act, share, n_actions)


@lru_cache(maxsize=64)
def _noisy(act: Act, share: float, n_actions: int) -> Act:
    def mostly(parameters: Any, state: Any, observation: Float[Array, "n d"], step: Any, key: Array) -> Array:
        whether, which = jax.random.split(jax.random.fold_in(key, 1))
        meant, n = act(parameters, state, observation, step, key), len(observation)
        by_chance = jax.random.randint(which, (n,), 0, n_actions).astype(meant.dtype)
        return jnp.where(jax.random.uniform(whether, (n,)) < share, by_chance, meant)

    return mostly


class _Same:
    """A conditioned policy, told apart by identity: a user's may be such that it cannot be hashed."""

    def __init__(self, policy: ConditionedPolicy) -> None:
        self.policy = policy

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.policy is other.policy

    def __hash__(self) -> int:
        return id(self.policy)


@lru_cache(maxsize=4)
def _conditioned(same: _Same) -> Act:
    """One function for each, by which compiled programs know it again."""

    def act(parameters: Any, state: Any, observation: Float[Array, "n d"], step: Any, key: Array) -> Int[Array, " n"]:
        reward = parameters[1]
        rewards = jnp.broadcast_to(reward[None], (len(observation), len(reward)))
        return jnp.asarray(same.policy.act(observation, rewards))

    return act


def _at_random(n_actions: Int[Array, ""] | int, state: Any, observation: Any, step: Any, key: Array) -> Array:
    return jax.random.randint(key, (len(observation),), 0, n_actions)


def _asked(policy: Any, observation: Float[Array, "n d"]) -> Array:
    """A function's answer; one that computes with NumPy cannot be compiled."""
    try:
        return jnp.asarray(policy(observation))
    except (jax.errors.TracerArrayConversionError, jax.errors.ConcretizationTypeError) as error:
        raise InputError(
            "The policy cannot be compiled: a function of a simulator's observations must use jax.numpy, without "
            "branches on their values; an object with predict(observation) may do anything."
        ) from error


def _predicted(policy: Predictor, observation: Float[Array, "n d"]) -> Array:
    """Asked for each episode in turn, outside of the compiled program."""

    def ask(observations: Any) -> np.ndarray:
        answers = [np.asarray(predicted_action(policy, row)).reshape(()) for row in np.asarray(observations)]
        return np.array(answers).astype(np.int32)

    return jax.pure_callback(ask, jnp.zeros(len(observation), jnp.int32), observation)


def _of_table(policy: Policy, steps: int) -> Actor:
    with np.errstate(divide="ignore"):
        return _within(Actor(_by_table, np.log(policy.probabilities), alike=True, limit=policy.steps), steps)


def _within(actor: Actor, steps: int) -> Actor:
    """An actor that knows as many steps as it will have to act."""
    if actor.limit is not None and steps > actor.limit:
        raise InputError(f"The policy is for {actor.limit} steps, but episodes have up to {steps}; lower the horizon.")
    return actor


def _by_table(logs: Float[Array, "*T S A"], state: TabularState, observation: Any, step: Any, key: Array) -> Array:
    rows = logs if logs.ndim == 2 else logs[step]
    return jax.random.categorical(key, rows[state.cell], axis=-1)
