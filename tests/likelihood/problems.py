"""Small banks and the two steps that the tests repeat: build a likelihood, evaluate it at many rewards."""

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np

from kdbirl.likelihood.ckde import CKDE, CKDELikelihood
from kdbirl.likelihood.distances import as_distance
from kdbirl.likelihood.kernels import Kernel, RadialKernel, SimpleKernel, on_columns

NAMES = ("s0", "s1", "a")
GROUPS = {"state": (0, 1), "action": (2,)}
BOX = (np.full(2, -3.0), np.full(2, 3.0))


@dataclass(frozen=True)
class Problem:
    """Training rows in any order with their tasks, one reward per task, expert rows, and rewards to be asked for."""

    rows: np.ndarray
    tasks: np.ndarray
    rewards: np.ndarray
    expert: np.ndarray
    asked: np.ndarray

    @property
    def row_arguments(self) -> tuple[np.ndarray, ...]:
        """What the direct sum takes first."""
        return self.expert, self.rows, self.tasks, self.rewards

    def scaled(self, size: float) -> "Problem":
        """The same problem in other units."""
        return Problem(self.rows * size, self.tasks, self.rewards * size, self.expert * size, self.asked * size)

    def shuffled(self, seed: int) -> "Problem":
        """The same rows in another order."""
        order = np.random.default_rng(seed).permutation(len(self.rows))
        return replace(self, rows=self.rows[order], tasks=self.tasks[order])


def problem(seed: int = 0, sizes: tuple[int, ...] = (7, 2, 4), n: int = 5) -> Problem:
    """Tasks of unequal size with repeated rows within and between tasks; the expert repeats rows, two from training.

    Two continuous columns and a label column (0, 1, 2); two reward parameters. The first rewards asked for are those of
    the tasks, the last one lies far away from all of them.
    """
    generator = np.random.default_rng(seed)
    tasks = np.repeat(np.arange(len(sizes)), sizes)
    rows = np.column_stack([generator.normal(size=(len(tasks), 2)), generator.integers(1, 4, len(tasks))])
    rows[1], rows[-1] = rows[0], rows[0]
    expert = np.concatenate(
        [rows[:2], rows[3:4] + np.array([0.3, -0.2, 0.0]), generator.normal(size=(n - 3, 3)).round(1)]
    )
    expert[3:, 2] = 2.0
    rewards = generator.uniform(-1, 1, size=(len(sizes), 2))
    asked = np.concatenate([rewards, generator.uniform(-2, 2, size=(3, 2)), [[2.9, -2.9]]])
    order = generator.permutation(len(tasks))
    return Problem(rows[order], tasks[order], rewards, expert, asked)


def named(profile: str, distance: str) -> RadialKernel:
    """A kernel from two names."""
    return RadialKernel(profile, as_distance(distance))


def estimator(given: Problem, kernel: Kernel, reward_kernel: SimpleKernel, **options: object) -> CKDE:
    """The estimator of a problem with the columns s0, s1 (group state) and a (group action)."""
    return CKDE.from_rows(
        given.rows, given.tasks, given.rewards, on_columns(kernel, NAMES, GROUPS), reward_kernel, **options
    )


def values(likelihood: CKDELikelihood, rewards: np.ndarray) -> np.ndarray:
    """log p(expert | R) for each row of `rewards`, compiled."""
    return values_and_gradients(likelihood, rewards)[0]


def values_and_gradients(likelihood: CKDELikelihood, rewards: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """log p(expert | R) (r,) and its gradient (r, q). One compiled program for both: compiling is most of the time."""
    with jax.enable_x64(True):
        value, gradient = _values_and_gradients(likelihood, jnp.asarray(rewards))
        return np.asarray(value), np.asarray(gradient)


@jax.jit
def _values_and_gradients(likelihood: CKDELikelihood, rewards: jax.Array) -> tuple[jax.Array, jax.Array]:
    return jax.vmap(jax.value_and_grad(lambda reward: likelihood(reward)))(rewards)
