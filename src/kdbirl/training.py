"""The training of every small network: Adam on batches, compiled in blocks of steps.

    loss(network, data, batch) -> mean loss of a batch;  `data` stays, batches change from block to block

After every block progress is reported and a checkpoint kept. With held-out examples the network of the lowest error on
them is kept, which may be the very first, and training stops early; without, the last network. Several trainings run
side by side in one compiled program, each with its own network, data and stream of batches.

Weights, batches and noise are drawn with NumPy: drawing them with JAX would compile for seconds.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float

from kdbirl.progress import BLOCK, Course, Progress
from kdbirl.store import checkpoint_of

STEEPEST = 5.0  # to which gradients may be cut: one odd batch may not undo the learning
AVERAGED = 0.99  # for a running average over the last hundred steps or so, which is steadier than what is learning

Loss = Callable[[Any, Any, Any], Any]
Layers = tuple[eqx.nn.Linear, ...]


class Schedule(NamedTuple):
    """At most `steps` steps in blocks; patience: blocks to wait for a lower held-out error.

    steepest: gradients are cut to this norm. averaging: keep a running average of the network, of which this share
    stays at each step, instead of the network itself.
    """

    steps: int
    learning_rate: float
    block: int = BLOCK
    patience: int = 1
    steepest: float | None = None
    averaging: float | None = None


class Learner(NamedTuple):
    """What one training is given.

    batches(rng): the batches of a block, stacked. error(network): on so many `held_out` examples. of: whatever else
    decides the numbers, for checkpoints: what `batches` and `error` are made from.
    """

    network: Any
    data: Any
    batches: Callable[[np.random.Generator], Any]
    rng: np.random.Generator
    error: Callable[[Any], float] | None = None
    held_out: int = 0
    of: Any = ()


class State(NamedTuple):
    """All that changes in a step."""

    network: Any
    averaged: Any
    optimizer: optax.ScaleByAdamState


def train(
    loss: Loss, learners: Sequence[Learner], schedule: Schedule, name: str, progress: Progress
) -> list[tuple[Any, Course]]:
    """Train each learner, and say how it went. The same generators give the same networks.

    Side by side, learners have one shape. What one learns does not depend on its neighbours, only on their number, and
    on that by rounding.
    """
    lanes, steps = [_Lane(learner) for learner in learners], 0
    state = _joined([begin(learner.network, schedule) for learner in learners])
    data = _joined([learner.data for learner in learners])
    decides = [(jax.tree.leaves(each[:2]), each.rng.bit_generator.state, each.of) for each in learners]
    checkpoint = checkpoint_of(name, loss, tuple(schedule), decides)
    if held := checkpoint.held():
        steps, state = held["steps"], _like(state, held["state"])
        for lane, kept in zip(lanes, held["lanes"], strict=True):
            lane.restore(kept)
    while not all(lane.outcome for lane in lanes):
        todo = min(schedule.block, schedule.steps - steps)
        batches = _joined([learner.batches(learner.rng) for learner in learners])
        state, losses = learn(loss, state, data, batches, todo, schedule, len(learners) > 1)
        steps += todo
        networks = _apart(state.network if schedule.averaging is None else state.averaged, len(learners))
        for lane, network, mean in zip(lanes, networks, np.ravel(losses), strict=True):
            lane.note(network, steps, float(mean), schedule)
        over = all(lane.outcome for lane in lanes)
        held = {"steps": steps, "state": jax.tree.leaves(state), "lanes": [lane.kept() for lane in lanes]}
        checkpoint.keep(held, last=over)
        if finite := [lane.loss[-1] for lane in lanes if lane.outcome != "diverged"]:
            progress.update(name, steps, schedule.steps, f"loss {np.mean(finite):.4g}")
    return [(jax.tree.map(jnp.asarray, lane.best), lane.course) for lane in lanes]


class _Lane:
    """One training so far: the best network, and the record."""

    def __init__(self, learner: Learner) -> None:
        self.learner, self.best = learner, learner.network
        self.steps = self.kept_step = 0
        self.outcome = ""
        self.loss: list[float] = []
        self.held_out = self._errors(learner.network)

    def note(self, network: Any, steps: int, loss: float, schedule: Schedule) -> None:
        """Take in a block of steps, unless the last one has been."""
        if self.outcome:
            return
        self.steps, errors = steps, self._errors(network)
        if not np.isfinite([loss, *errors]).all():
            self.outcome = "diverged"
            return
        self.loss.append(loss)
        self.held_out += errors
        best = int(np.argmin(self.held_out)) if errors else 0
        if not errors or errors[0] <= self.held_out[best]:
            self.best, self.kept_step = network, steps
        if errors and len(self.held_out) - 1 - best >= schedule.patience:
            self.outcome = "stopped early"
        elif steps >= schedule.steps:
            self.outcome = "finished"

    def _errors(self, network: Any) -> list[float]:
        return [] if self.learner.error is None else [self.learner.error(network)]

    @property
    def course(self) -> Course:
        record = tuple(self.loss), tuple(self.held_out)
        return Course(self.steps, self.kept_step, self.outcome, *record, self.learner.held_out)

    def kept(self) -> dict[str, Any]:
        """All of it, for a checkpoint."""
        now = {"best": jax.tree.leaves(self.best), "loss": [*self.loss], "held_out": [*self.held_out]}
        return {**vars(self), **now, "learner": self.learner.rng.bit_generator.state}

    def restore(self, kept: dict[str, Any]) -> None:
        self.learner.rng.bit_generator.state = kept.pop("learner")
        vars(self).update(kept, best=_like(self.best, kept["best"]))


def begin(network: Any, schedule: Schedule) -> State:
    """Before the first step: zeros, from NumPy, as in `optax.scale_by_adam().init`, which compiles them."""
    zeros = jax.tree.map(lambda leaf: np.zeros(leaf.shape, dtype=np.float32), network)
    averaged = None if schedule.averaging is None else network
    return State(network, averaged, optax.ScaleByAdamState(np.zeros((), dtype=np.int32), zeros, zeros))


def learn(
    loss: Loss, state: State, data: Any, batches: Any, steps: int, schedule: Schedule, side_by_side: bool = False
) -> tuple[State, Float[Array, "*lanes"]]:
    """`steps` (at most as many as batches) steps of Adam, and their mean loss."""
    choices = loss, schedule.steepest, schedule.averaging, side_by_side
    return _learn(*choices, state, data, batches, steps, schedule.learning_rate)


@partial(jax.jit, static_argnums=(0, 1, 2, 3))
def _learn(
    loss: Loss, steepest: Any, averaging: Any, side_by_side: bool,
    state: State, data: Any, batches: Any, steps: Any, learning_rate: Any,
) -> tuple[State, Float[Array, "*lanes"]]:  # fmt: skip
    if side_by_side:
        one = partial(_learn, loss, steepest, averaging, False)
        return jax.vmap(one, in_axes=(0, 0, 0, None, None))(state, data, batches, steps, learning_rate)

    def step(i: Array, carried: tuple[State, Array]) -> tuple[State, Array]:
        (network, averaged, optimizer), total = carried
        batch = jax.tree.map(lambda part: part[i], batches)
        value, slope = jax.value_and_grad(loss)(network, data, batch)
        if steepest is not None:
            slope, _ = optax.clip_by_global_norm(steepest).update(slope, optax.EmptyState())
        change, optimizer = optax.scale_by_adam().update(slope, optimizer)
        network = jax.tree.map(lambda leaf, by: leaf - learning_rate * by, network, change)
        if averaging is not None:
            averaged = jax.tree.map(lambda mean, leaf: averaging * mean + (1 - averaging) * leaf, averaged, network)
        return State(network, averaged, optimizer), total + value

    state, total = jax.lax.fori_loop(0, steps, step, (state, jnp.zeros(())))
    return state, total / steps


def dense_layers(sizes: Sequence[int], rng: np.random.Generator) -> Layers:
    """Equinox's linear layers from each size to the next, their first weights uniform in +- 1 / sqrt(inputs)."""
    return tuple(_linear(sizes[i], sizes[i + 1], rng) for i in range(len(sizes) - 1))


def _linear(inputs: int, outputs: int, rng: np.random.Generator) -> eqx.nn.Linear:
    half = 1 / np.sqrt(inputs)
    form = eqx.filter_eval_shape(lambda: eqx.nn.Linear(inputs, outputs, key=jax.random.key(0)))
    # drawn as (inputs, outputs), as before Equinox's layers: the same seed gives the same network
    drawn = (rng.uniform(-half, half, leaf.shape[::-1]).T.astype(np.float32) for leaf in jax.tree.leaves(form))
    return _like(form, [jnp.asarray(part) for part in drawn])


def through(layers: Layers, x: Float[Array, "n i"], activation: Callable[[Any], Any]) -> Float[Array, "n o"]:
    """Rows through layers with an activation between them."""
    for place, layer in enumerate(layers):
        x = activation(x) if place else x
        x = x @ layer.weight.T + jnp.asarray(layer.bias)[None]  # jax.vmap(layer) trains at half the speed
    return x


def _like(tree: Any, leaves: Sequence[Any]) -> Any:
    return jax.tree.unflatten(jax.tree.structure(tree), leaves)


def _joined(parts: Sequence[Any]) -> Any:
    """Trees stacked, one alone as it is."""
    return parts[0] if len(parts) == 1 else jax.tree.map(lambda *leaves: np.stack(leaves), *parts)


def _apart(tree: Any, count: int) -> list[Any]:
    if count == 1:
        return [tree]
    return [jax.tree.map(lambda leaf, i=i: np.asarray(leaf)[i], tree) for i in range(count)]
