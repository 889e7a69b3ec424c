"""The training of AVRIL: Adam on random batches, compiled in blocks of steps, so that progress is seen between them.

With held-out rows the network that is kept is the one with the highest objective on these, and training stops when
that has not risen for `patience` blocks. Batches are drawn with replacement (the released program shuffles epochs).
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int

from kdbirl.methods.avril_elbo import Transitions, Weights, terms
from kdbirl.methods.avril_network import RewardAndValueNetwork
from kdbirl.progress import Progress
from kdbirl.random_streams import stream

BLOCK = 250  # steps per compiled call


class Plan(NamedTuple):
    """Sizes: of the hidden layers, the encoder's outputs, the actions, and the batches."""

    hidden: tuple[int, ...]
    outputs: int
    actions: int
    batch: int


class Schedule(NamedTuple):
    """How long to train, how fast, and for how many blocks to wait for a better objective on the held-out rows."""

    steps: int
    learning_rate: float
    patience: int


class Training(NamedTuple):
    """All that changes while learning."""

    network: RewardAndValueNetwork
    optimizer: Any


@dataclass(frozen=True)
class Course:
    """How a training went: the objective (per row) of each block of steps, on its own batches and on held-out rows.

    kept_step: after how many steps the network was taken that is kept. outcome: "finished", "stopped early" or
    "diverged".
    """

    steps: int
    kept_step: int
    outcome: str
    elbo: tuple[float, ...]
    held_out: tuple[float, ...]

    @property
    def sentence(self) -> str:
        """The outcome in words."""
        last = f"the objective was {self.elbo[-1]:.4g} a row"
        if self.outcome == "diverged":
            return (
                f"AVRIL diverged after {self.steps:,} steps; lower learning_rate. The step kept is {self.kept_step:,}."
            )
        if self.outcome == "stopped early":
            kept = f"the network of step {self.kept_step:,} is kept"
            return f"AVRIL stopped early after {self.steps:,} steps: {kept}, with {max(self.held_out):.4g} held out."
        return f"AVRIL trained for {self.steps:,} steps: {last}."


def training_numbers(seed: int) -> np.random.Generator:
    """Of one training, whether it is by itself or beside others."""
    return np.random.default_rng(stream(seed, "AVRIL"))


def train(
    plan: Plan,
    schedule: Schedule,
    weights: Weights,
    rows: Transitions,
    held_out: Transitions | None,
    seed: int,
    progress: Progress,
) -> tuple[RewardAndValueNetwork, Course]:
    """Train, and say how it went. The same seed gives the same network."""
    rng = training_numbers(seed)
    count, rows = len(rows.action), padded(rows)
    aside = None if held_out is None else (len(held_out.action), padded(held_out))
    training = begin(plan, rows.state.shape[1], rng)
    best, kept = training.network, 0
    record: list[float] = []
    trial: list[float] = []
    for done in range(0, schedule.steps, BLOCK):
        todo, batches = min(BLOCK, schedule.steps - done), drawn_batches(rng, count, plan.batch)
        training, elbo = learn(training, weights, rows, batches, todo, schedule.learning_rate)
        record.append(float(elbo))
        if not np.isfinite(record[-1]):
            return best, Course(done + todo, kept, "diverged", tuple(record), tuple(trial))
        trial += [] if aside is None else [float(objective(training.network, weights, aside[1], aside[0]))]
        if aside is None or trial[-1] >= max(trial):
            best, kept = training.network, done + todo
        progress.update("AVRIL", done + todo, schedule.steps, f"objective {record[-1]:.4g}")
        if aside is not None and len(trial) - 1 - int(np.argmax(trial)) >= schedule.patience:
            return best, Course(done + todo, kept, "stopped early", tuple(record), tuple(trial))
    return best, Course(schedule.steps, kept, "finished", tuple(record), tuple(trial))


def padded(rows: Transitions) -> Transitions:
    """Repeat the last row up to a power of two, so that experts of many lengths share few compiled programs."""
    more = 2 ** int(np.ceil(np.log2(len(rows.action)))) - len(rows.action)
    return Transitions(*(jnp.concatenate([part, jnp.repeat(part[-1:], more, axis=0)]) for part in rows))


def begin(plan: Plan, width: int, rng: np.random.Generator) -> Training:
    """Fresh networks."""
    network = RewardAndValueNetwork(width, plan.hidden, plan.outputs, plan.actions, rng)
    return Training(network, optax.scale_by_adam().init(network))


def drawn_batches(rng: np.random.Generator, count: int, batch: int) -> Int[np.ndarray, "steps batch"]:
    """Which of the first `count` rows every batch of a block takes."""
    return rng.integers(0, count, (BLOCK, batch), dtype=np.int32)


@jax.jit
def learn(
    training: Training,
    weights: Weights,
    rows: Transitions,
    batches: Int[Array, "most batch"],
    steps: int | Int[Array, ""],
    learning_rate: float | Float[Array, ""],
) -> tuple[Training, Float[Array, ""]]:
    """`steps` (at most as many as batches) steps of Adam, and their mean objective."""

    def step(i: Array, carried: tuple[Training, Array]) -> tuple[Training, Array]:
        training, total = carried
        batch = Transitions(*(part[batches[i]] for part in rows))
        training, elbo = update(training, weights, batch, learning_rate)
        return training, total + elbo

    training, total = jax.lax.fori_loop(0, steps, step, (training, jnp.zeros(())))
    return training, total / steps


def update(
    training: Training, weights: Weights, batch: Transitions, learning_rate: float | Float[Array, ""]
) -> tuple[Training, Float[Array, ""]]:
    """One step of Adam."""

    def loss(network: RewardAndValueNetwork) -> Float[Array, ""]:
        return -jnp.mean(terms(network, batch, weights).elbo(weights.td_weight))

    value, slope = jax.value_and_grad(loss)(training.network)
    change, optimizer = optax.scale_by_adam().update(slope, training.optimizer)
    network = jax.tree.map(lambda leaf, by: leaf - learning_rate * by, training.network, change)
    return Training(network, optimizer), -value


@jax.jit
def objective(
    network: RewardAndValueNetwork, weights: Weights, rows: Transitions, count: int | Int[Array, ""]
) -> Float[Array, ""]:
    """The mean objective of the first `count` rows."""
    each = terms(network, rows, weights).elbo(weights.td_weight)
    return jnp.sum(jnp.where(jnp.arange(len(each)) < count, each, 0.0)) / count
