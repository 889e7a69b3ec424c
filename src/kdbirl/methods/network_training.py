"""Training of a small network: Adam on given batches, compiled in blocks of steps, stopped where held-out loss rises.

    loss(network, data, batch) -> the mean loss of a batch; `data` stays, batches change from block to block

Weights and batches come from NumPy: drawing them with JAX would compile for seconds. The network that is kept is the
one with the lowest loss on what was held out, which may be the very first; with nothing held out, the last. It is a
running average over the last hundred steps or so, which is steadier than the network that is learning.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int

from kdbirl.progress import Progress

Loss = Callable[[Any, Any, Any], Any]
AVERAGED = 0.99  # share of the running average that stays at each step
LARGEST_SLOPE = 5.0  # gradients are cut to this norm: one odd batch may not undo the learning


class Schedule(NamedTuple):
    """At most so many steps, in blocks; how fast; for how many blocks to wait for a lower loss on the held-out part."""

    steps: int
    block: int
    learning_rate: float
    patience: int


class Training(NamedTuple):
    """All that changes while learning."""

    network: Any
    averaged: Any
    optimizer: Any


@dataclass(frozen=True)
class Course:
    """How a training went: the loss of each block on its own batches, and before and after each on the held-out part.

    kept_step: after how many steps the network was taken that is kept. outcome: "finished", "stopped early" or
    "diverged".
    """

    steps: int
    kept_step: int
    outcome: str
    loss: tuple[float, ...]
    held_out: tuple[float, ...]

    @property
    def sentence(self) -> str:
        """The outcome in words."""
        if self.outcome == "diverged":
            return f"Training diverged after {self.steps:,} steps; lower learning_rate."
        if not self.held_out:
            return f"Trained for {self.steps:,} steps; the loss was {self.loss[-1]:.4g}."
        ended = "stopped early after" if self.outcome == "stopped early" else "took all its"
        kept = f"the network of step {self.kept_step:,} is kept, with a loss of {min(self.held_out):.4g} held out"
        return f"Training {ended} {self.steps:,} steps: {kept}."


def train(
    loss: Loss,
    network: Any,
    data: Any,
    batches: Callable[[], Any],
    held_out: Any,
    schedule: Schedule,
    name: str,
    progress: Progress,
) -> tuple[Any, Course]:
    """Train `network`. batches(): the batches of one block, stacked; held_out: one batch (None: nothing is)."""
    state, best, kept = Training(network, network, _adam().init(network)), network, 0
    trial = [] if held_out is None else [float(_evaluated(loss, network, data, held_out))]
    record: list[float] = []
    for done in range(0, schedule.steps, schedule.block):
        todo = min(schedule.block, schedule.steps - done)
        state, mean = _learn(loss, state, data, batches(), todo, schedule.learning_rate)
        record.append(float(mean))
        if not np.isfinite(record[-1]):
            return best, Course(done + todo, kept, "diverged", tuple(record), tuple(trial))
        trial += [] if held_out is None else [float(_evaluated(loss, state.averaged, data, held_out))]
        if held_out is None or trial[-1] <= min(trial):
            best, kept = state.averaged, done + todo
        progress.update(name, done + todo, schedule.steps, f"loss {record[-1]:.4g}")
        if held_out is not None and len(trial) - 1 - int(np.argmin(trial)) >= schedule.patience:
            return best, Course(done + todo, kept, "stopped early", tuple(record), tuple(trial))
    return best, Course(schedule.steps, kept, "finished", tuple(record), tuple(trial))


def _adam() -> Any:
    return optax.chain(optax.clip_by_global_norm(LARGEST_SLOPE), optax.scale_by_adam())


@partial(jax.jit, static_argnames="loss")
def _learn(
    loss: Loss,
    state: Training,
    data: Any,
    batches: Any,
    steps: int | Int[Array, ""],
    learning_rate: float | Float[Array, ""],
) -> tuple[Training, Float[Array, ""]]:
    """`steps` (at most as many as batches) steps of Adam, and their mean loss."""

    def step(i: Array, carried: tuple[Training, Array]) -> tuple[Training, Array]:
        (network, averaged, optimizer), total = carried
        batch = jax.tree.map(lambda part: part[i], batches)
        value, slope = jax.value_and_grad(loss)(network, data, batch)
        change, optimizer = _adam().update(slope, optimizer)
        network = jax.tree.map(lambda leaf, by: leaf - learning_rate * by, network, change)
        averaged = jax.tree.map(lambda mean, leaf: AVERAGED * mean + (1 - AVERAGED) * leaf, averaged, network)
        return Training(network, averaged, optimizer), total + value

    state, total = jax.lax.fori_loop(0, steps, step, (state, jnp.zeros(())))
    return state, total / steps


@partial(jax.jit, static_argnames="loss")
def _evaluated(loss: Loss, network: Any, data: Any, batch: Any) -> Float[Array, ""]:
    return loss(network, data, batch)
