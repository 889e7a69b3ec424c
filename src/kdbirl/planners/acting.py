"""A policy as what acts in a vectorised simulator: one call for all episodes of a step, in JAX, so that it compiles."""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from kdbirl.envs.simulator import Simulator, TabularSimulator, TabularState
from kdbirl.errors import InputError
from kdbirl.planners.policy import Policy, Predictor, as_policy, predicted_action

Act = Callable[[Any, Any, Any, Any, Any], Any]  # parameters, state, observation (n, d), step, key -> actions (n,)


class Actor(NamedTuple):
    """`act(parameters, state, observation, step, key)` -> the actions `(n,)` of n episodes.

    What differs between policies of one kind is in `parameters` where it can be; such policies are `alike`, and share
    one compiled program.
    """

    act: Act
    parameters: Any
    alike: bool = False


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


def conditioned_actor(conditioned: ConditionedPolicy, reward: Float[Array, " q"]) -> Actor:
    """The policy of one reward, which may be a traced one: many are then played side by side."""

    def act(parameters: Any, state: Any, observation: Float[Array, "n d"], step: Any, key: Array) -> Int[Array, " n"]:
        rewards = jnp.broadcast_to(parameters[None], (len(observation), len(parameters)))
        return jnp.asarray(conditioned.act(observation, rewards))

    return Actor(act, reward)


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
    if policy.steps is not None and steps > policy.steps:
        raise InputError(f"The policy is for {policy.steps} steps, but episodes have up to {steps}; lower the horizon.")
    with np.errstate(divide="ignore"):
        return Actor(_by_table, np.log(policy.probabilities), alike=True)


def _by_table(logs: Float[Array, "*T S A"], state: TabularState, observation: Any, step: Any, key: Array) -> Array:
    rows = logs if logs.ndim == 2 else logs[step]
    return jax.random.categorical(key, rows[state.cell], axis=-1)
