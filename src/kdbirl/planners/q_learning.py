"""The compiled loop of deep Q-learning: act, remember, learn; many episodes side by side.

For rows (s, a, phi, s', terminated) from the replay memory and weights w drawn anew for each row,

    y    = phi + discount (1 - terminated) psi_target(s', a', w),      a' = argmax_a w . psi(s', a, w)
    loss = mean (w . (y - psi(s, a, w)))^2 + mean |y - psi(s, a, w)|^2 / p

which is double Q-learning (van Hasselt et al. 2016) for all rewards w . phi at once: since phi is remembered and not
the reward, every row teaches every w. Only `terminated` stops the sum: a truncated episode goes on in its last state.
"""

import os
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int

from kdbirl.envs.simulator import Simulator
from kdbirl.planners import replay as memory
from kdbirl.planners.q_network import SuccessorNetwork, action_values, greedy
from kdbirl.planners.replay import Replay, Transitions

VECTOR = float(os.environ.get("VECTOR", "1"))


@dataclass(frozen=True)
class Settings:
    """What the compiled program depends on; see `DeepQ` for the meanings."""

    discount: float
    hidden: tuple[int, ...]
    environments: int
    episode_length: int
    batch: int
    replay: int
    learning_rate: float
    updates: int
    averaging: float
    exploration: float
    updates_per_step: int
    evaluate_every: int
    evaluation_episodes: int


@dataclass(frozen=True, eq=False)
class Setup:
    """A simulator and settings: the static argument of the compiled functions.

    Simulators are told apart by identity, because a user's may hold arrays, which cannot be compared or hashed.
    """

    simulator: Simulator
    settings: Settings

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Setup) and self.simulator is other.simulator and self.settings == other.settings

    def __hash__(self) -> int:
        return hash((id(self.simulator), self.settings))


class Scales(NamedTuple):
    """How the network sees the world: observations (o - centre) / spread, features phi @ mixing, w from `pool`."""

    centre: Float[Array, " d"]
    spread: Float[Array, " d"]
    mixing: Float[Array, "q p"]
    pool: Float[Array, "rewards p"]

    def see(self, observation: Float[Array, "n d"]) -> Float[Array, "n d"]:
        return (observation - self.centre[None]) / self.spread[None]


class Actors(NamedTuple):
    """Episodes under way: the simulator's state, what is seen of it, the w each is played for, and its steps."""

    state: Any
    observation: Float[Array, "n d"]
    weights: Float[Array, "n p"]
    step: Int[Array, " n"]


class Training(NamedTuple):
    """All that changes while learning. `target` is a moving average of `network`."""

    network: SuccessorNetwork
    target: SuccessorNetwork
    optimizer: Any
    actors: Actors
    replay: Replay


class Evaluation(NamedTuple):
    """Of each evaluation episode: what it earned, and what the network expected at its start."""

    earned: Float[Array, " episodes"]
    expected: Float[Array, " episodes"]


def optimizer_of(settings: Settings) -> optax.GradientTransformation:
    """Adam, its rate falling to a tenth along half a cosine."""
    schedule = optax.cosine_decay_schedule(settings.learning_rate, settings.updates, alpha=0.1)
    return optax.chain(optax.clip_by_global_norm(10.0), optax.adam(schedule))


@partial(jax.jit, static_argnames="setup")
def look_around(setup: Setup, key: Array) -> Transitions:
    """Rows of the random agent, unscaled, with all q features: what scales are taken from."""
    simulator, n = setup.simulator, setup.settings.environments
    d, q = len(simulator.observation_names), len(simulator.feature_names)
    plain = Scales(jnp.zeros(d), jnp.ones(d), jnp.eye(q), jnp.zeros((1, q)))
    first, later = jax.random.split(key)

    def move(actors: Actors, key: Array) -> tuple[Actors, Transitions]:
        choose, world = jax.random.split(key)
        return _step(setup, plain, actors, jax.random.randint(choose, (n,), 0, simulator.n_actions), world)

    _, rows = jax.lax.scan(move, _fresh(setup, plain, n, first), jax.random.split(later, setup.settings.episode_length))
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), rows)


@partial(jax.jit, static_argnames="setup")
def begin(setup: Setup, scales: Scales, seen: Transitions, key: Array) -> Training:
    """A fresh network, and a memory that holds what the random agent saw."""
    settings = setup.settings
    initial, world = jax.random.split(key)
    p = scales.mixing.shape[1]
    inputs = scales.centre.shape[0] + p
    horizon = 1 / (1 - settings.discount) if settings.discount < 1 else settings.episode_length
    network = SuccessorNetwork(inputs, settings.hidden, setup.simulator.n_actions, p, horizon, initial)
    rows = seen._replace(
        observation=scales.see(seen.observation),
        following=scales.see(seen.following),
        features=seen.features @ scales.mixing,
    )
    replay = memory.add(memory.empty(rows, settings.replay), rows)
    actors = _fresh(setup, scales, settings.environments, world)
    return Training(network, network, optimizer_of(settings).init(network), actors, replay)


@partial(jax.jit, static_argnames="setup", donate_argnames="training")
def learn(setup: Setup, scales: Scales, training: Training, key: Array) -> tuple[Training, Float[Array, " updates"]]:
    """A block of steps, each with its updates, and the loss of every update."""
    steps = setup.settings.evaluate_every // setup.settings.updates_per_step
    training, losses = jax.lax.scan(partial(_iterate, setup, scales), training, jax.random.split(key, steps))
    return training, losses.reshape(-1)


@partial(jax.jit, static_argnames=("setup", "random"))
def evaluate(setup: Setup, scales: Scales, network: SuccessorNetwork, key: Array, random: bool = False) -> Evaluation:
    """Play the greedy policy (or the random one) for the first weights of the pool, with discounted returns.

    The same key starts the same episodes, so that networks are compared on common random numbers.
    """
    settings, simulator, n = setup.settings, setup.simulator, setup.settings.evaluation_episodes
    first, later = jax.random.split(key)
    state, raw = simulator.reset(first, n)
    observation = scales.see(raw)
    weights = scales.pool[jnp.arange(n) % len(scales.pool)]
    expected = action_values(network, observation, weights).max(axis=1)

    def move(carry: tuple[Any, Array, Array], key: Array) -> tuple[tuple[Any, Array, Array], Array]:
        state, observation, discount = carry
        choose, world = jax.random.split(key)
        by_chance = jax.random.randint(choose, (n,), 0, simulator.n_actions)
        action = by_chance if random else greedy(network, observation, weights)
        outcome = simulator.step(state, action, world)
        reward = jnp.sum(outcome.features @ scales.mixing * weights, axis=1)
        on = ~(outcome.terminated | outcome.truncated)
        return (outcome.state, scales.see(outcome.observation), discount * on * settings.discount), discount * reward

    _, earned = jax.lax.scan(move, (state, observation, jnp.ones(n)), jax.random.split(later, settings.episode_length))
    return Evaluation(earned.sum(axis=0), expected)


def _iterate(setup: Setup, scales: Scales, training: Training, key: Array) -> tuple[Training, Float[Array, " updates"]]:
    """One step of every episode, then the updates."""
    choose, world, later = jax.random.split(key, 3)
    action = _explore(setup, training.network, training.actors, choose)
    actors, rows = _step(setup, scales, training.actors, action, world)
    training = training._replace(actors=actors, replay=memory.add(training.replay, rows))
    return jax.lax.scan(
        partial(_update, setup, scales), training, jax.random.split(later, setup.settings.updates_per_step)
    )


def _explore(setup: Setup, network: SuccessorNetwork, actors: Actors, key: Array) -> Int[Array, " n"]:
    """Greedy with random actions: from all of them in the first episode to the share `exploration` in the last,
    geometrically (Horgan et al. 2018), so that there are curious and careful actors at every time."""
    n = len(actors.step)
    share = setup.settings.exploration ** jnp.linspace(0, 1, n)
    whether, which = jax.random.split(key)
    by_chance = jax.random.randint(which, (n,), 0, setup.simulator.n_actions)
    best = greedy(network, actors.observation, actors.weights)
    return jnp.where(jax.random.uniform(whether, (n,)) < share, by_chance, best)


def _fresh(setup: Setup, scales: Scales, n: int, key: Array) -> Actors:
    """n new episodes, each for a w of the pool."""
    world, choose = jax.random.split(key)
    state, observation = setup.simulator.reset(world, n)
    weights = scales.pool[jax.random.randint(choose, (n,), 0, len(scales.pool))]
    return Actors(state, scales.see(observation), weights, jnp.zeros(n, jnp.int32))


def _step(
    setup: Setup, scales: Scales, actors: Actors, action: Int[Array, " n"], key: Array
) -> tuple[Actors, Transitions]:
    """Act; the row that it gives; and a new episode wherever one has ended or is long enough."""
    world, again = jax.random.split(key)
    outcome = setup.simulator.step(actors.state, action, world)
    following, step = scales.see(outcome.observation), actors.step + 1
    features = outcome.features @ scales.mixing
    rows = Transitions(actors.observation, action, features, following, outcome.terminated)
    over = outcome.terminated | outcome.truncated | (step >= setup.settings.episode_length)
    fresh = _fresh(setup, scales, len(step), again)
    going = Actors(outcome.state, following, actors.weights, step)
    return jax.tree.map(partial(_where, over), fresh, going), rows


def _where(over: Bool[Array, " n"], fresh: Array, going: Array) -> Array:
    return jnp.where(over.reshape(-1, *[1] * (going.ndim - 1)), fresh, going)


def _update(setup: Setup, scales: Scales, training: Training, key: Array) -> tuple[Training, Float[Array, ""]]:
    """One step of Adam on one batch, and the moving average."""
    settings = setup.settings
    pick, choose = jax.random.split(key)
    rows = memory.draw(training.replay, pick, settings.batch)
    weights = scales.pool[jax.random.randint(choose, (settings.batch,), 0, len(scales.pool))]
    goal = _goal(settings.discount, training.network, training.target, rows, weights)
    loss, slope = jax.value_and_grad(_loss)(training.network, rows, weights, goal)
    change, optimizer = optimizer_of(settings).update(slope, training.optimizer, training.network)
    network = optax.apply_updates(training.network, change)
    target = optax.incremental_update(network, training.target, settings.averaging)
    return training._replace(network=network, target=target, optimizer=optimizer), loss


def _goal(
    discount: float,
    network: SuccessorNetwork,
    target: SuccessorNetwork,
    rows: Transitions,
    weights: Float[Array, "n p"],
) -> Float[Array, "n p"]:
    """y: the network chooses the next action, its moving average says what that is worth."""
    best = greedy(network, rows.following, weights)
    after = jax.vmap(target)(rows.following, weights)[jnp.arange(len(best)), best]
    return rows.features + discount * jnp.where(rows.terminated[:, None], 0.0, after)


def _loss(
    network: SuccessorNetwork, rows: Transitions, weights: Float[Array, "n p"], goal: Float[Array, "n p"]
) -> Float[Array, ""]:
    found = jax.vmap(network)(rows.observation, weights)[jnp.arange(len(rows.action)), rows.action]
    error = goal - found
    return jnp.mean(jnp.sum(error * weights, axis=1) ** 2) + VECTOR * jnp.mean(error**2)
