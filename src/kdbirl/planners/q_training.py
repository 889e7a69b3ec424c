"""One training from beginning to end: scales from a look around, blocks of compiled updates, evaluation, stopping."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from kdbirl.checkpoints import checkpoint_of
from kdbirl.planners.q_episodes import Evaluation, Scales, Setup, World, evaluate, look_around, starts_of
from kdbirl.planners.q_learning import begin, learn
from kdbirl.planners.q_network import ActionValueNetwork
from kdbirl.planners.q_policy import Learning, directions
from kdbirl.planners.replay import Transitions
from kdbirl.progress import Progress
from kdbirl.random_streams import stream_key

LEAST, LOOK = 128, 500  # steps, at least and at most, that the random agent looks around
CHANGING = ("updates", "best_update", "waited", "best", "risen_to", "expected", "disagreement", "finite")  # of a course
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
    starts = starts_of(setup, keys[4])
    seen = look_around(setup, starts, looking(settings.episode_length), keys[0])
    world, units = scaled_world(rewards, seen)
    training = begin(setup, world, starts, seen, keys[1])
    random = evaluate(setup, world, training.target, jnp.ones(()), keys[2])
    course = Course(stopping, float(random.earned.mean()), float(units[0]) if rewards.single else 1.0)
    course.note(0, evaluate(setup, world, training.target, jnp.zeros(()), keys[2]), training.target)
    checkpoint = checkpoint_of("deep Q-learning", settings, rewards, stopping, seed, seen)
    if held := checkpoint.held():
        training = jax.tree.unflatten(jax.tree.structure(training), held["training"])
        course.restore(held)
    most = settings.updates - settings.updates % settings.evaluate_every
    while not course.over(most):
        block = course.updates // settings.evaluate_every
        starts = starts_of(setup, jax.random.fold_in(keys[4], block))
        training, loss = learn(setup, world, starts, training, jax.random.fold_in(keys[3], block))
        done, course.finite = course.updates + settings.evaluate_every, bool(np.isfinite(loss))
        course.note(done, evaluate(setup, world, training.target, jnp.zeros(()), keys[2]), training.target)
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


class Course:
    """The course of a training: returns so far, the best network, and whether it is enough. In the network's units."""

    def __init__(self, stopping: Stopping, random: float, unit: float) -> None:
        self.stopping, self.random, self.unit = stopping, random, unit
        self.returns: list[float] = []
        self.updates = self.best_update = self.waited = 0
        self.best = self.risen_to = -np.inf
        self.expected = self.disagreement = np.nan
        self.finite = True
        self.network: ActionValueNetwork

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
        plain = {name: getattr(self, name) for name in CHANGING}
        return {**plain, "returns": list(self.returns), "network": jax.tree.leaves(self.network)}

    def restore(self, held: Mapping[str, Any]) -> None:
        vars(self).update({name: held[name] for name in CHANGING})
        self.returns = list(held["returns"])
        self.network = jax.tree.unflatten(jax.tree.structure(self.network), held["network"])

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
