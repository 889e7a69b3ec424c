"""Which further training task would add most: a reward inside the prior's support.

While some directions keep the prior, the task that opens the strongest new one: with z = V (R - mean of the tasks'
rewards), V the uninformed directions and C the prior's covariance, a task at R informs V'z with a strength proportional
to sqrt(z' V C V' z). Once all directions are informed, the task that fills the largest gap: the one that most reduces
the mean distance from a prior draw to the nearest task, in units of h'.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from kdbirl.diagnosis.wording import axis_in_words, reward_in_words
from kdbirl.likelihood.distances import Distance
from kdbirl.posterior.priors import Prior
from kdbirl.precision import float64

USUAL = 0.9  # candidates are the more usual nine tenths of the prior's draws: no task at the end of a long tail
MOST_CANDIDATES = 512


@dataclass(frozen=True, eq=False)
class NextTask:
    """`reward (q,)` of the suggested task; `direction (q,)`, the new one that it informs (None: all are already).

    gain: for a new direction, the task's distance along it in prior standard deviations; otherwise the mean distance
    from a prior draw to the nearest task, in units of h', that it saves.
    """

    reward: Float[np.ndarray, " q"]
    direction: Float[np.ndarray, " q"] | None
    gain: float
    sentence: str

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        direction = None if self.direction is None else self.direction.tolist()
        return {"reward": self.reward.tolist(), "direction": direction, "gain": self.gain, "sentence": self.sentence}


def suggest_task(
    task_rewards: Float[np.ndarray, "K q"],
    uninformed: Float[np.ndarray, "u q"],
    prior: Prior,
    prior_draws: Float[np.ndarray, "p q"],
    distance: Distance,
    h_reward: float,
    names: Sequence[str],
) -> NextTask:
    """The best of the prior's usual draws."""
    candidates = _usual(prior_draws)
    if len(uninformed):
        return _new_direction(task_rewards, uninformed, prior, candidates, prior_draws, names)
    return _largest_gap(task_rewards, prior, candidates, prior_draws, distance, h_reward, names)


def _usual(draws: Float[np.ndarray, "p q"]) -> Float[np.ndarray, "c q"]:
    spread = np.maximum(draws.std(axis=0), np.finfo(float).tiny)
    unusual = np.sum(((draws - draws.mean(axis=0)) / spread) ** 2, axis=1)
    return draws[unusual <= np.quantile(unusual, USUAL)][:MOST_CANDIDATES]


def _new_direction(
    task_rewards: np.ndarray,
    uninformed: np.ndarray,
    prior: Prior,
    candidates: np.ndarray,
    draws: np.ndarray,
    names: Sequence[str],
) -> NextTask:
    z = (candidates - task_rewards.mean(axis=0)) @ uninformed.T
    covariance = np.atleast_2d(np.cov(draws @ uninformed.T, rowvar=False))
    best = int(np.einsum("ci,ij,cj->c", z, covariance, z).argmax())
    reward = _rounded(candidates[best], prior)
    offset = (reward - task_rewards.mean(axis=0)) @ uninformed.T @ uninformed
    size = float(np.linalg.norm(offset))
    # a prior without spread there, or a task at its centre: no better than any other direction
    direction = offset / size if size > 0 else uninformed[0]
    spread = float((draws @ direction).std())
    left = len(uninformed) - 1
    rest = "every direction would then be informed" if not left else f"{left} would still keep the prior"
    sentence = (
        f"A training task with the reward {reward_in_words(reward, names)} would inform one direction more, "
        f"{axis_in_words(direction, names)}; {rest}."
    )
    return NextTask(reward, direction, size / spread if spread > 0 else 0.0, sentence)


def _largest_gap(
    task_rewards: np.ndarray,
    prior: Prior,
    candidates: np.ndarray,
    draws: np.ndarray,
    distance: Distance,
    h_reward: float,
    names: Sequence[str],
) -> NextTask:
    nearest = distances(draws, task_rewards, distance).min(axis=1)
    left = np.minimum(nearest[:, None], distances(draws, candidates, distance)).mean(axis=0)
    reward = _rounded(candidates[int(left.argmin())], prior)
    before, after = float(nearest.mean()) / h_reward, float(left.min()) / h_reward
    sentence = (
        f"A training task with the reward {reward_in_words(reward, names)} would fill the largest gap: a draw from the "
        f"prior is on average {before:.2g} h' from the nearest task, and would be {after:.2g} h'."
    )
    return NextTask(reward, None, before - after, sentence)


def _rounded(reward: Float[np.ndarray, " q"], prior: Prior) -> Float[np.ndarray, " q"]:
    """Three digits are enough for a suggestion, as long as they stay inside the support."""
    shorter = np.array([float(f"{value:.3g}") for value in reward])
    return shorter if prior.contains(shorter[None]).all() else reward.copy()


@float64
def distances(
    first: Float[np.ndarray, "r q"], second: Float[np.ndarray, "c q"], distance: Distance
) -> Float[np.ndarray, "r c"]:
    """d(x, y) of every pair."""
    return np.asarray(_table(jnp.asarray(first), jnp.asarray(second), distance))


@partial(jax.jit, static_argnames="distance")
def _table(first: Float[Array, "r q"], second: Float[Array, "c q"], distance: Distance) -> Float[Array, "r c"]:
    table: Array = jax.lax.map(lambda x: jax.vmap(distance, (None, 0))(x, second), first)
    return table
