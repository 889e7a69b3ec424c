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

from kdbirl.features.autoencoder import BLOCK, Autoencoder, Course
from kdbirl.features.vae_network import AutoencoderNetwork, first_network, loss_terms, stored
from kdbirl.planners.q_network import single_precision
from kdbirl.progress import Progress

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
    rng = np.random.default_rng([seed, 0])
    network = first_network(np.concatenate([rows, held_out]), plan.hidden, plan.latents, plan.kl_weight, rng)
    training, values = begin(network), rows.astype(np.float32)
    watched = held_out[rng.permutation(len(held_out))[:MOST_HELD_OUT]]
    best, kept = stored(network), 0
    loss: list[float] = []
    errors = _error(best, watched)
    for done in range(0, plan.steps, BLOCK):
        after = min(done + BLOCK, plan.steps)
        batches, noise = _drawn(rng, values, plan)
        training, mean = learn(training, batches, noise, after - done, plan.kl_weight, plan.learning_rate)
        now = stored(training.network)
        error = _error(now, watched)
        if not np.isfinite([float(mean), *error]).all():
            return best, Course(after, kept, "diverged", tuple(loss), tuple(errors), len(watched))
        loss.append(float(mean))
        errors += error
        if not errors or errors[-1] <= min(errors):
            best, kept = now, after
        progress.update("VAE", after, plan.steps, f"loss {loss[-1]:.4g}")
        if errors and len(errors) - 1 - int(np.argmin(errors)) >= plan.patience:
            return best, Course(after, kept, "stopped early", tuple(loss), tuple(errors), len(watched))
    return best, Course(plan.steps, kept, "finished", tuple(loss), tuple(errors), len(watched))


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
