"""The compiled loop of deep Q-learning: act, remember, learn; many episodes side by side.

For rows (s, t, a, phi, s', ended) from the replay memory and weights w drawn anew for each row,

    y    = w . phi + discount (1 - ended) Q_target(s', t+1, a', w),      a' = argmax_a Q(s', t+1, a, w)
    loss = mean (y - Q(s, t, a, w))^2

which is double Q-learning (van Hasselt et al. 2016) for all rewards w . phi at once: since phi is remembered and not
the reward, every row teaches every w. Only `ended` stops the sum. Where the network knows the horizon T, nothing comes
after it; else the step t has no part, and a truncated episode goes on in its last state.
"""

import math
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from kdbirl.planners import replay as memory
from kdbirl.planners.q_episodes import Actors, Settings, Setup, Starts, World, act, fresh, mostly_greedy
from kdbirl.planners.q_network import ActionValueNetwork, action_values, greedy
from kdbirl.planners.replay import Replay, Transitions

STEEPEST = 10.0  # gradients are cut to this length; features are scaled to the size of one


class Training(NamedTuple):
    """All that changes while learning. `target` is a moving average of `network`."""

    network: ActionValueNetwork
    target: ActionValueNetwork
    optimizer: Any
    actors: Actors
    replay: Replay


@partial(jax.jit, static_argnames="setup")
def begin(setup: Setup, world: World, starts: Starts, seen: Transitions, key: Array) -> Training:
    """A fresh network, and a memory that holds what the random agent saw."""
    settings, scales = setup.settings, world.scales
    d, p = len(scales.centre), scales.mixing.shape[1]
    initial, first = jax.random.split(key)
    horizon, limit = steps_that_count(settings), settings.limit
    network = ActionValueNetwork(d + p, settings.hidden, setup.simulator.n_actions, p, horizon, initial, limit)
    rows = seen._replace(
        observation=scales.see(seen.observation),
        following=scales.see(seen.following),
        features=seen.features @ scales.mixing,
    )
    replay = memory.add(memory.empty(rows, settings.replay), rows)
    actors = fresh(world, starts, settings.environments, first)
    return Training(network, network, _optimizer(settings).init(network), actors, replay)


@partial(jax.jit, static_argnames="setup", donate_argnames="training")
def learn(
    setup: Setup, world: World, starts: Starts, training: Training, key: Array
) -> tuple[Training, Float[Array, ""]]:
    """The steps and updates from one evaluation to the next, and their mean loss."""
    steps = setup.settings.evaluate_every // setup.settings.updates_per_step
    iterate = partial(_iterate, setup, world, starts)
    training, losses = jax.lax.scan(iterate, training, jax.random.split(key, steps))
    return training, losses.mean()


def steps_that_count(settings: Settings) -> float:
    """sum_t discount^t: over the horizon if the network knows it, else without an end, or over an episode."""
    if settings.discount < 1:
        return (1 - settings.discount ** (settings.limit or math.inf)) / (1 - settings.discount)
    return float(settings.limit or settings.episode_length)


def _optimizer(settings: Settings) -> optax.GradientTransformation:
    """Adam, its rate falling to a tenth along half a cosine."""
    schedule = optax.cosine_decay_schedule(settings.learning_rate, settings.updates, alpha=0.1)
    return optax.chain(optax.clip_by_global_norm(STEEPEST), optax.adam(schedule))


def _iterate(
    setup: Setup, world: World, starts: Starts, training: Training, key: Array
) -> tuple[Training, Float[Array, " updates"]]:
    """One step of every episode, then the updates."""
    choose, on, later = jax.random.split(key, 3)
    # From all actions random in the first episode down to the share `exploration` in the last, geometrically (Horgan
    # et al. 2018): there are curious and careful actors at every time, and no schedule to tune.
    chance = setup.settings.exploration ** jnp.linspace(0.0, 1.0, setup.settings.environments)
    now = training.actors
    values = action_values(training.network, now.observation, now.step, now.weights)
    actors, rows = act(setup, world, starts, now, mostly_greedy(values, chance, choose), on)
    training = training._replace(actors=actors, replay=memory.add(training.replay, rows))
    keys = jax.random.split(later, setup.settings.updates_per_step)
    return jax.lax.scan(partial(_update, setup.settings, world), training, keys)


def _update(settings: Settings, world: World, training: Training, key: Array) -> tuple[Training, Float[Array, ""]]:
    """One step of Adam on one batch, and the moving average."""
    pick, choose = jax.random.split(key)
    rows = memory.draw(training.replay, pick, settings.batch)
    weights = world.pool[jax.random.randint(choose, (settings.batch,), 0, len(world.pool))]
    goal = double_q_goal(settings.discount, training.network, training.target, rows, weights)
    loss, slope = jax.value_and_grad(_loss)(training.network, rows, weights, goal)
    change, optimizer = _optimizer(settings).update(slope, training.optimizer, training.network)
    network = optax.apply_updates(training.network, change)
    target = optax.incremental_update(network, training.target, settings.averaging)
    return training._replace(network=network, target=target, optimizer=optimizer), loss


def double_q_goal(
    discount: float,
    network: ActionValueNetwork,
    target: ActionValueNetwork,
    rows: Transitions,
    weights: Float[Array, "n p"],
) -> Float[Array, " n"]:
    """y: the network chooses the next action, its moving average says what that is worth."""
    best = greedy(network, rows.following, rows.step + 1, weights)
    after = _chosen(action_values(target, rows.following, rows.step + 1, weights), best)
    return jnp.sum(rows.features * weights, axis=1) + discount * jnp.where(rows.ended, 0.0, after)


def _loss(
    network: ActionValueNetwork, rows: Transitions, weights: Float[Array, "n p"], goal: Float[Array, " n"]
) -> Float[Array, ""]:
    values = action_values(network, rows.observation, rows.step, weights)
    return jnp.mean((goal - _chosen(values, rows.action)) ** 2)


def _chosen(values: Float[Array, "n A"], action: Int[Array, " n"]) -> Float[Array, " n"]:
    return jnp.take_along_axis(values, action[:, None], axis=1)[:, 0]
