"""One training from beginning to end: scales from a look around, blocks of compiled updates, evaluation, stopping.

In a block many episodes act side by side and remember; each of their steps is followed by updates. For rows
(s, t, a, phi, s', ended) from the replay memory and weights w drawn anew for each row,

    y    = w . phi + discount (1 - ended) Q_target(s', t+1, a', w),      a' = argmax_a Q(s', t+1, a, w)
    loss = mean (y - Q(s, t, a, w))^2

which is double Q-learning (van Hasselt et al. 2016) for all rewards w . phi at once: since phi is remembered and not
the reward, every row teaches every w. Only `ended` stops the sum. Where the network knows the horizon T, nothing comes
after it; else the step t has no part, and a truncated episode goes on in its last state.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int

from kdbirl.progress import Progress
from kdbirl.random_streams import stream_key
from kdbirl.store import checkpoint_of
from kdbirl.worlds.sepsis import q_episodes as play
from kdbirl.worlds.sepsis.q_episodes import (
    Actors,
    Evaluation,
    Replay,
    Scales,
    Settings,
    Setup,
    Starts,
    Transitions,
    World,
)
from kdbirl.worlds.sepsis.q_network import ActionValueNetwork, action_values, greedy
from kdbirl.worlds.sepsis.q_policy import Learning, directions

LEAST, LOOK = 128, 500  # steps, at least and at most, that the random agent looks around
FIXED = ("stopping", "random", "unit")  # in a training
STEEPEST = 10.0  # gradients are cut to this length; features are scaled to the size of one
SAME = 1e-6  # a spread below this is rounding


class Rewards(NamedTuple):
    """What to train for: a pool `(r, q)` of rewards, and those `(episodes, q)` of the evaluation episodes."""

    pool: Float[np.ndarray, "r q"]
    trial: Float[np.ndarray, "episodes q"]
    single: bool  # one reward, which then is the only feature


class Stopping(NamedTuple):
    """When it is enough; see `DeepQ`."""

    patience: int
    tolerance: float
    agreement: float


class Trained(NamedTuple):
    """The network that is kept, its scales, the units of its weights, and how it went."""

    network: ActionValueNetwork
    scales: Scales
    units: Float[np.ndarray, " p"]
    learning: Learning


def train(setup: Setup, rewards: Rewards, stopping: Stopping, seed: int, progress: Progress) -> Trained:
    """Train until the rule says stop or the updates are used up. The same seed gives the same network."""
    settings = setup.settings
    keys = jax.random.split(stream_key(seed, "deep Q-learning"), 5)
    starts = play.starts_of(setup, keys[4])
    seen = play.look_around(setup, starts, looking(settings.episode_length), keys[0])
    world, units = scaled_world(rewards, seen)
    training = begin(setup, world, starts, seen, keys[1])
    random = play.evaluate(setup, world, training.target, jnp.ones(()), keys[2])
    course = Returns(stopping, float(random.earned.mean()), float(units[0]) if rewards.single else 1.0)
    course.note(0, play.evaluate(setup, world, training.target, jnp.zeros(()), keys[2]), training.target)
    checkpoint = checkpoint_of("deep Q-learning", settings, rewards, stopping, seed, seen)
    if held := checkpoint.held():
        training = jax.tree.unflatten(jax.tree.structure(training), held.pop("training"))
        course.restore(held)
    most = settings.updates - settings.updates % settings.evaluate_every
    while not course.over(most):
        block = course.updates // settings.evaluate_every
        starts = play.starts_of(setup, jax.random.fold_in(keys[4], block))
        training, loss = learn(setup, world, starts, training, jax.random.fold_in(keys[3], block))
        done, course.finite = course.updates + settings.evaluate_every, bool(np.isfinite(loss))
        course.note(done, play.evaluate(setup, world, training.target, jnp.zeros(()), keys[2]), training.target)
        checkpoint.keep({"training": jax.tree.leaves(training), **course.state()}, last=course.over(most))
        progress.update("deep Q-learning", done, settings.updates, f"return {course.unit * course.returns[-1]:.4g}")
    return Trained(course.network, world.scales, units, course.learning(course.finite))


def looking(episode_length: int) -> int:
    """How many steps the random agent looks around: a long episode, or several short ones."""
    return min(max(episode_length, LEAST), LOOK)


def scaled_world(rewards: Rewards, seen: Transitions) -> tuple[World, Float[np.ndarray, " p"]]:
    """Observations of mean 0 and spread 1, features of root mean square 1 (their units), over the random agent's rows.

    A column that never varied is not divided: it may be a rare event, which next to nothing would blow up.
    """
    observations = np.asarray(seen.observation, dtype=np.float64)
    spread = observations.std(axis=0)
    features = np.asarray(seen.features, dtype=np.float64)
    mixing = rewards.pool.T if rewards.single else np.eye(features.shape[1])
    units = np.sqrt(np.mean((features @ mixing) ** 2, axis=0))
    units = np.where(units > 0, units, 1.0)
    scales = Scales(
        jnp.asarray(observations.mean(axis=0)),
        jnp.asarray(np.where(spread > SAME, spread, 1.0)),
        jnp.asarray(mixing / units[None]),
    )
    if rewards.single:
        return World(scales, jnp.ones((1, 1)), jnp.ones((len(rewards.trial), 1))), units
    pool, trial = (directions(part * units[None])[0] for part in (rewards.pool, rewards.trial))
    return World(scales, jnp.asarray(pool), jnp.asarray(trial)), units


@dataclass
class Returns:
    """A training so far: its returns, the best network, and whether it is enough. In the network's units."""

    stopping: Stopping
    random: float
    unit: float
    returns: list[float] = field(default_factory=list)
    updates: int = 0
    best_update: int = 0
    waited: int = 0
    best: float = -np.inf
    risen_to: float = -np.inf
    expected: float = np.nan
    disagreement: float = np.nan
    finite: bool = True
    network: Any = None

    def note(self, updates: int, evaluation: Evaluation, network: ActionValueNetwork) -> None:
        """Take in an evaluation after so many updates."""
        earned = float(evaluation.earned.mean())
        self.returns.append(earned)
        self.updates, self.waited = updates, self.waited + 1
        self.disagreement = abs(float(evaluation.expected.mean() - evaluation.realised.mean()))
        if earned > self.risen_to + self.stopping.tolerance * max(earned - self.random, 0.0):
            self.risen_to, self.waited = earned, 0
        if not self.returns[:-1] or earned >= self.best:  # of equals the later, which has seen more
            self.best, self.best_update, self.expected = earned, updates, float(evaluation.expected.mean())
            self.network = jax.tree.map(lambda leaf: jnp.array(leaf, copy=True), network)  # the loop reuses its memory

    def over(self, updates: int) -> bool:
        """Whether it is enough: by the rule, by the number of updates, or because nothing finite is left."""
        return self.settled or not self.finite or self.updates >= updates

    def state(self) -> dict[str, Any]:
        """All that changes, for a checkpoint."""
        plain = {name: value for name, value in vars(self).items() if name not in FIXED}
        return {**plain, "returns": [*self.returns], "network": jax.tree.leaves(self.network)}

    def restore(self, held: Mapping[str, Any]) -> None:
        network = jax.tree.unflatten(jax.tree.structure(self.network), held["network"])
        vars(self).update({**held, "network": network})

    @property
    def agrees(self) -> bool:
        """Whether the network, as it is now, expects what happens; where all policies earn alike, up to a share of
        one step's reward."""
        return self.disagreement <= self.stopping.agreement * max(self.best - self.random, 1.0)

    @property
    def settled(self) -> bool:
        return self.waited >= self.stopping.patience and self.agrees

    def learning(self, finite: bool) -> Learning:
        """The record, in the units of the reward."""
        values = {name: self.unit * getattr(self, name) for name in ("best", "random", "expected")}
        returns = tuple(self.unit * value for value in self.returns)
        sentence = self._sentence(finite, **values)
        return Learning(finite and self.settled, sentence, self.updates, self.best_update, returns, **values)

    def _sentence(self, finite: bool, best: float, random: float, expected: float) -> str:
        facts = f"the greedy policy earns {best:.4g} (the random agent {random:.4g}) and expected {expected:.4g}"
        if not finite:
            return f"Diverged after {self.updates:,} updates; lower learning_rate. Until then {facts}."
        if self.settled:
            return f"Converged after {self.updates:,} updates: {facts}."
        if self.waited < self.stopping.patience:
            return f"Not converged after {self.updates:,} updates, the return was still rising; raise updates: {facts}."
        return f"Not converged after {self.updates:,} updates, expected and real returns still differ: {facts}."


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
    replay = play.remember(play.empty_replay(rows, settings.replay), rows)
    actors = play.fresh(world, starts, settings.environments, first)
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
    actors, rows = play.act(setup, world, starts, now, play.mostly_greedy(values, chance, choose), on)
    training = training._replace(actors=actors, replay=play.remember(training.replay, rows))
    keys = jax.random.split(later, setup.settings.updates_per_step)
    return jax.lax.scan(partial(_update, setup.settings, world), training, keys)


def _update(settings: Settings, world: World, training: Training, key: Array) -> tuple[Training, Float[Array, ""]]:
    """One step of Adam on one batch, and the moving average."""
    pick, choose = jax.random.split(key)
    rows = play.recall(training.replay, pick, settings.batch)
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
