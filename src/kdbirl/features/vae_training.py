"""The training of the VAE: Adam on random batches, compiled in blocks of steps, so that progress is seen between them.

At the start, which is at principal components (`linear_start.py`), and after each block the reconstruction of held-out
rows is measured (from the latents' means, which is what phi is). The network that is kept is the one with the lowest
error, and training stops when that has not fallen for `patience` blocks. The components are those of all rows: few rows
then lose nothing to the holding out, and the start, which has seen the held-out rows, is left only for what is better
in spite of that.

Batches and noise are drawn with NumPy, so that the compiled program depends on neither the seed nor the rows.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Float64, Int

from kdbirl.checkpoints import checkpoint_of
from kdbirl.features.autoencoder import BLOCK, Autoencoder, Course
from kdbirl.features.vae_network import AutoencoderNetwork, first_network, loss_terms, stored
from kdbirl.precision import single_precision
from kdbirl.progress import Progress
from kdbirl.random_streams import stream

MOST_HELD_OUT = 4096  # rows are plenty for a mean, and looking at them must not take longer than learning

Rows = Float64[np.ndarray, "_ inputs"]


class Plan(NamedTuple):
    """The network's sizes, and how it learns."""

    hidden: tuple[int, ...]
    latents: int
    kl_weight: float
    learning_rate: float
    batch: int
    steps: int
    patience: int


class Training(NamedTuple):
    """All that changes while learning."""

    network: AutoencoderNetwork
    optimizer: Any


@single_precision
def train(plan: Plan, rows: Rows, held_out: Rows, seed: int, progress: Progress) -> tuple[Autoencoder, Course]:
    """Train, and say how it went. The same seed gives the same network. `held_out` may have no rows."""
    rng = np.random.default_rng(stream(seed, "VAE"))
    network = first_network(np.concatenate([rows, held_out]), plan.hidden, plan.latents, plan.kl_weight, rng)
    values = rows.astype(np.float32)
    watched = held_out[rng.permutation(len(held_out))[:MOST_HELD_OUT]]
    checkpoint = checkpoint_of("VAE", plan, rows, held_out, seed)
    course = _Course(begin(network), network, _error(stored(network), watched))
    if held := checkpoint.held():
        course.restore(held, rng)
    while course.outcome is None:
        after = min(course.steps + BLOCK, plan.steps)
        batches, noise = _drawn(rng, values, plan)
        training, mean = learn(
            course.training, batches, noise, after - course.steps, plan.kl_weight, plan.learning_rate
        )
        course.note(training, after, float(mean), _error(stored(training.network), watched), plan)
        checkpoint.keep(course.state(rng), last=course.outcome is not None)
        if course.outcome != "diverged":
            progress.update("VAE", after, plan.steps, f"loss {course.loss[-1]:.4g}")
    return stored(course.best), course.record(len(watched))


class _Course:
    """The training so far: the network that learns, the best one, and the record."""

    def __init__(self, training: Training, best: AutoencoderNetwork, errors: list[float]) -> None:
        self.training, self.best, self.errors = training, best, errors
        self.loss: list[float] = []
        self.steps = self.kept = 0
        self.outcome: str | None = None

    def note(self, training: Training, after: int, loss: float, error: list[float], plan: Plan) -> None:
        """Take in a block of steps, and say so if it was the last."""
        self.training, self.steps = training, after
        if not np.isfinite([loss, *error]).all():
            self.outcome = "diverged"
            return
        self.loss.append(loss)
        self.errors += error
        if not self.errors or self.errors[-1] <= min(self.errors):
            self.best, self.kept = training.network, after
        if self.errors and len(self.errors) - 1 - int(np.argmin(self.errors)) >= plan.patience:
            self.outcome = "stopped early"
        elif after == plan.steps:
            self.outcome = "finished"

    def record(self, watched: int) -> Course:
        assert self.outcome is not None
        return Course(self.steps, self.kept, self.outcome, tuple(self.loss), tuple(self.errors), watched)

    def state(self, rng: np.random.Generator) -> dict[str, Any]:
        """All of it, for a checkpoint."""
        leaves = jax.tree.leaves((self.training, self.best))
        lists = {"loss": list(self.loss), "errors": list(self.errors)}
        plain = {name: getattr(self, name) for name in ("steps", "kept", "outcome")}
        return {"leaves": leaves, "rng": rng.bit_generator.state, **lists, **plain}

    def restore(self, held: dict[str, Any], rng: np.random.Generator) -> None:
        rng.bit_generator.state = held.pop("rng")
        structure = jax.tree.structure((self.training, self.best))
        self.training, self.best = jax.tree.unflatten(structure, held.pop("leaves"))
        vars(self).update(held)


def begin(network: AutoencoderNetwork) -> Training:
    """Adam before its first step: zeros, from NumPy, as in `optax.scale_by_adam().init`, which compiles them."""
    zeros = jax.tree.map(lambda leaf: np.zeros(leaf.shape, dtype=np.float32), network)
    return Training(network, optax.ScaleByAdamState(np.zeros((), dtype=np.int32), zeros, zeros))


def _error(network: Autoencoder, watched: Rows) -> list[float]:
    """The reconstruction error of the held-out rows, if there are any."""
    with np.errstate(over="ignore", invalid="ignore"):  # of a network that diverges, which is told in words
        return [network.reconstruction_error(watched)] if len(watched) else []


def _drawn(rng: np.random.Generator, values: np.ndarray, plan: Plan) -> tuple[np.ndarray, np.ndarray]:
    """The rows and the noise of every batch of a block: (steps, batch, inputs), (steps, batch, latents)."""
    index = rng.integers(0, len(values), (BLOCK, plan.batch))
    return values[index], rng.standard_normal((BLOCK, plan.batch, plan.latents), dtype=np.float32)


@jax.jit
def learn(
    training: Training,
    batches: Float[Array, "most batch inputs"],
    noise: Float[Array, "most batch latents"],
    steps: int | Int[Array, ""],
    kl_weight: float | Float[Array, ""],
    learning_rate: float | Float[Array, ""],
) -> tuple[Training, Float[Array, ""]]:
    """`steps` (at most as many as batches) steps of Adam, and their mean loss."""

    def step(i: Array, carried: tuple[Training, Array]) -> tuple[Training, Array]:
        training, total = carried
        training, loss = update(training, batches[i], noise[i], kl_weight, learning_rate)
        return training, total + loss

    training, total = jax.lax.fori_loop(0, steps, step, (training, jnp.zeros(())))
    return training, total / steps


def update(
    training: Training,
    batch: Float[Array, "batch inputs"],
    noise: Float[Array, "batch latents"],
    kl_weight: float | Float[Array, ""],
    learning_rate: float | Float[Array, ""],
) -> tuple[Training, Float[Array, ""]]:
    """One step of Adam."""

    def loss(network: AutoencoderNetwork) -> Float[Array, ""]:
        squared_error, kl = loss_terms(network, batch, noise)
        return jnp.mean(squared_error) + kl_weight * jnp.mean(jnp.sum(kl, axis=1))

    value, slope = jax.value_and_grad(loss)(training.network)
    change, optimizer = optax.scale_by_adam().update(slope, training.optimizer)
    network = jax.tree.map(lambda leaf, by: leaf - learning_rate * by, training.network, change)
    return Training(network, optimizer), value
