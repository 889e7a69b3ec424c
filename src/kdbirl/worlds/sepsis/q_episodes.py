"""Episodes of deep Q-learning, many side by side and compiled: looking around, acting, remembering and evaluating.

Simulators do not start again by themselves; here an episode that has ended, or that is long enough, is followed by a
fresh one. Cutting an episode is no end, and its last row says nothing but what followed; but for a horizon that the
network knows (`Settings.limit`), beyond which there is nothing.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from kdbirl.worlds.sepsis.q_network import ActionValueNetwork, action_values
from kdbirl.worlds.simulator import Outcome, Simulator, identity

STARTS = 2048  # about as many episodes as a block of 1000 steps of 32 begins


@dataclass(frozen=True)
class Settings:
    """What the compiled program depends on, with nothing left open; see `DeepQ` for the meanings."""

    discount: float
    episode_length: int
    limit: int | None
    hidden: tuple[int, ...]
    updates: int
    environments: int
    updates_per_step: int
    batch: int
    replay: int
    learning_rate: float
    averaging: float
    exploration: float
    evaluate_every: int
    evaluation_episodes: int


@dataclass(frozen=True, eq=False)
class Setup:
    """A simulator and settings: the static argument of the compiled functions."""

    simulator: Simulator
    settings: Settings

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Setup) and self._identity == other._identity

    def __hash__(self) -> int:
        return hash(self._identity)

    @property
    def _identity(self) -> tuple[Any, Settings]:
        return identity(self.simulator), self.settings


class Scales(NamedTuple):
    """How the network sees the world: observations (o - centre) / spread, features phi @ mixing."""

    centre: Float[Array, " d"]
    spread: Float[Array, " d"]
    mixing: Float[Array, "q p"]

    def see(self, observation: Float[Array, "n d"]) -> Float[Array, "n d"]:
        return (observation - self.centre[None]) / self.spread[None]


class World(NamedTuple):
    """The numbers that a training depends on: scales, weights to train with, and weights of the evaluation episodes."""

    scales: Scales
    pool: Float[Array, "rewards p"]
    trial: Float[Array, "episodes p"]


class Starts(NamedTuple):
    """Beginnings of episodes, of which each new one takes one: drawn together, since a `reset` in every step,
    where hardly an episode ends, would cost more than the step itself."""

    state: Any
    observation: Float[Array, "starts d"]


class Actors(NamedTuple):
    """Episodes under way: the simulator's state, what is seen of it, the w that each is played for, and its steps."""

    state: Any
    observation: Float[Array, "n d"]
    weights: Float[Array, "n p"]
    step: Int[Array, " n"]


class Transitions(NamedTuple):
    """Rows (s, t, a, phi, s', ended), t the step from 0. Where the horizon is not known to the network, a truncated
    episode has not `ended`: its last row has a next state like any other."""

    observation: Float[Array, "rows d"]
    step: Int[Array, " rows"]
    action: Int[Array, " rows"]
    features: Float[Array, "rows p"]
    following: Float[Array, "rows d"]
    ended: Bool[Array, " rows"]


class Replay(NamedTuple):
    """Replay memory: a ring of the last `capacity` transitions; `written` is how many were ever put in."""

    rows: Transitions
    written: Int[Array, ""]


class Evaluation(NamedTuple):
    """Of each evaluation episode: the discounted return `earned`; what the network `expected` at its start; and what
    it should have: the return, and the network's value of the last state where the episode was only cut."""

    earned: Float[Array, " episodes"]
    expected: Float[Array, " episodes"]
    realised: Float[Array, " episodes"]


@partial(jax.jit, static_argnames=("setup", "steps"))
def look_around(setup: Setup, starts: Starts, steps: int, key: Array) -> Transitions:
    """Rows of the random agent, unscaled, with all q features: what the scales are taken from."""
    simulator, n = setup.simulator, setup.settings.environments
    d, q = len(simulator.observation_names), len(simulator.feature_names)
    plain = World(Scales(jnp.zeros(d), jnp.ones(d), jnp.eye(q)), jnp.zeros((1, q)), jnp.zeros((1, q)))
    first, later = jax.random.split(key)

    def move(actors: Actors, key: Array) -> tuple[Actors, Transitions]:
        choose, on = jax.random.split(key)
        return act(setup, plain, starts, actors, jax.random.randint(choose, (n,), 0, simulator.n_actions), on)

    _, rows = jax.lax.scan(move, fresh(plain, starts, n, first), jax.random.split(later, steps))
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), rows)


@partial(jax.jit, static_argnames="setup")
def evaluate(setup: Setup, world: World, network: ActionValueNetwork, chance: Array, key: Array) -> Evaluation:
    """Play the greedy policy, with a share `chance` of random actions, for the weights of `trial`.

    The same key starts the same episodes, so that networks are compared on common random numbers.
    """
    simulator, scales, weights, n = setup.simulator, world.scales, world.trial, len(world.trial)
    first, later = jax.random.split(key)
    state, observation = simulator.reset(first, n)

    def value_of(observation: Float[Array, "n d"], step: Int[Array, ""]) -> Float[Array, "n A"]:
        return action_values(network, observation, jnp.broadcast_to(step, n), weights)

    def move(carry: tuple[Any, Array, Array], given: tuple[Array, Array]) -> tuple[Any, tuple[Array, Array]]:
        (state, observation, factor), (step, key) = carry, given
        values = value_of(observation, step)
        choose, on = jax.random.split(key)
        outcome = simulator.step(state, mostly_greedy(values, chance, choose), on)
        reward = jnp.sum(outcome.features @ scales.mixing * weights, axis=1)
        ahead = factor * setup.settings.discount
        seen = scales.see(outcome.observation)
        going = outcome.truncated & ~ended(setup.settings, outcome)
        cut = jnp.where(going, ahead * value_of(seen, step + 1).max(axis=1), 0.0)
        ahead = jnp.where(outcome.terminated | outcome.truncated, 0.0, ahead)
        return (outcome.state, seen, ahead), (factor * reward, cut)

    start = scales.see(observation)
    steps = jnp.arange(setup.settings.episode_length)
    given = steps, jax.random.split(later, len(steps))
    (_, seen, ahead), (rewards, cut) = jax.lax.scan(move, (state, start, jnp.ones(n)), given)
    earned = rewards.sum(axis=0)
    rest = cut.sum(axis=0) + ahead * value_of(seen, steps[-1] + 1).max(axis=1)
    return Evaluation(earned, value_of(start, steps[0]).max(axis=1), earned + rest)


def ended(settings: Settings, outcome: Outcome) -> Bool[Array, " n"]:
    """Where nothing follows."""
    return outcome.terminated if settings.limit is None else outcome.terminated | outcome.truncated


def mostly_greedy(values: Float[Array, "n A"], chance: Float[Array, "*n"], key: Array) -> Int[Array, " n"]:
    """The best action, or with probability `chance` any."""
    n, actions = values.shape
    whether, which = jax.random.split(key)
    by_chance = jax.random.randint(which, (n,), 0, actions)
    return jnp.where(jax.random.uniform(whether, (n,)) < chance, by_chance, jnp.argmax(values, axis=1))


@partial(jax.jit, static_argnames="setup")
def starts_of(setup: Setup, key: Array) -> Starts:
    """Enough beginnings for a block of updates. A program of its own: within others it would be compiled with each."""
    return Starts(*setup.simulator.reset(key, STARTS))


def fresh(world: World, starts: Starts, n: int, key: Array) -> Actors:
    """n new episodes, each for a w of the pool."""
    first, choose = jax.random.split(key)
    which = jax.random.randint(first, (n,), 0, len(starts.observation))
    state, observation = jax.tree.map(lambda leaf: leaf[which], tuple(starts))
    weights = world.pool[jax.random.randint(choose, (n,), 0, len(world.pool))]
    return Actors(state, world.scales.see(observation), weights, jnp.zeros(n, jnp.int32))


def act(
    setup: Setup, world: World, starts: Starts, actors: Actors, action: Int[Array, " n"], key: Array
) -> tuple[Actors, Transitions]:
    """Act; the rows that it gives; and a new episode wherever one has ended or is long enough."""
    on, again = jax.random.split(key)
    outcome = setup.simulator.step(actors.state, action, on)
    following, step = world.scales.see(outcome.observation), actors.step + 1
    features = outcome.features @ world.scales.mixing
    nothing = ended(setup.settings, outcome)
    rows = Transitions(actors.observation, actors.step, action, features, following, nothing)
    over = outcome.terminated | outcome.truncated | (step >= setup.settings.episode_length)
    new = fresh(world, starts, len(step), again)
    going = Actors(outcome.state, following, actors.weights, step)
    return jax.tree.map(partial(_where, over), new, going), rows


def _where(over: Bool[Array, " n"], new: Array, going: Array) -> Array:
    return jnp.where(over.reshape(-1, *[1] * (going.ndim - 1)), new, going)


def empty_replay(rows: Transitions, capacity: int) -> Replay:
    """Room for `capacity` transitions of the kind of `rows`."""
    return Replay(jax.tree.map(lambda x: jnp.zeros((capacity, *x.shape[1:]), x.dtype), rows), jnp.zeros((), jnp.int32))


def remember(replay: Replay, rows: Transitions) -> Replay:
    """Put n rows in place of the oldest. The capacity is a multiple of n, so that a block never wraps around."""
    n, capacity = len(rows.action), len(replay.rows.action)
    first = replay.written % capacity

    def put(ring: Array, block: Array) -> Array:
        return jax.lax.dynamic_update_slice_in_dim(ring, block, first, axis=0)

    return Replay(jax.tree.map(put, replay.rows, rows), replay.written + n)


def recall(replay: Replay, key: Array, n: int) -> Transitions:
    """n rows, evenly from those that there are, with replacement."""
    capacity = len(replay.rows.action)
    index = jax.random.randint(key, (n,), 0, jnp.minimum(replay.written, capacity))
    return jax.tree.map(lambda ring: ring[index], replay.rows)
