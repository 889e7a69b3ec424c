"""What is measured on a posterior over a grid's reward whose truth is known: pure functions of draws, one number each.

"Concentrated at R*" has one meaning here: the expected absolute distance E|R_s - R*_s| of a draw from the truth in
state s is small; equivalently that much posterior mass lies within `NEAR` of R*_s in every state.
"""

import numpy as np
from jaxtyping import Float, Int

from kdbirl.envs.gridworld import Gridworld
from kdbirl.planners.plan import plan

NEAR = 0.25  # of the unit interval: a reward within this distance of the truth is near it
CONCENTRATED = 0.5  # of the mass near the truth, in the worst state


def expected_distance(draws: Float[np.ndarray, "n q"], truth: Float[np.ndarray, " q"]) -> Float[np.ndarray, " q"]:
    """E|R_s - R*_s| of each parameter."""
    return np.asarray(np.abs(draws - truth).mean(axis=0))


def mass_near(
    draws: Float[np.ndarray, "n q"], truth: Float[np.ndarray, " q"], radius: float = NEAR
) -> Float[np.ndarray, " q"]:
    """P(|R_s - R*_s| <= radius) of each parameter."""
    return np.asarray((np.abs(draws - truth) <= radius).mean(axis=0))


def effective_states(states: Int[np.ndarray, " rows"]) -> float:
    """exp(entropy) of the occupancy: as many states as, visited equally often, would be as varied."""
    share = np.bincount(states) / len(states)
    share = share[share > 0]
    return float(np.exp(-np.sum(share * np.log(share))))


def arrival(world: Gridworld, reward: Float[np.ndarray, " q"], goal: int) -> float:
    """The chance that the policy optimal for `reward`, started anywhere, stands at the goal after 4 sides' steps."""
    policy = plan(world, reward).at(0)
    step = np.einsum("sa,sat->st", policy, world.transitions)
    return float((world.start @ np.linalg.matrix_power(step, 4 * world.size))[goal])


def wrong_states(mean: Float[np.ndarray, " q"], truth: Float[np.ndarray, " q"]) -> int:
    """How many states have a posterior mean that is not near the truth."""
    return int(np.sum(np.abs(mean - truth) > NEAR))


def angle(weights: Float[np.ndarray, " q"], truth: Float[np.ndarray, " q"]) -> float:
    """Degrees between two weight vectors: 0 where signs and relative sizes agree, whatever the scale."""
    norm = float(np.linalg.norm(weights) * np.linalg.norm(truth))
    return float(np.degrees(np.arccos(np.clip(weights @ truth / norm, -1.0, 1.0)))) if norm > 0 else 180.0


def signs_right(draws: Float[np.ndarray, "n q"], truth: Float[np.ndarray, " q"]) -> float:
    """The mass of draws all of whose signs are the truth's."""
    return float((np.sign(draws) == np.sign(truth)).all(axis=1).mean())


def map_error(world: Gridworld, weights: Float[np.ndarray, " q"], truth: Float[np.ndarray, " q"]) -> float:
    """|R_w - R_w*| / |R_w*| over the cells of the grid: how far the projected map is from the truth's."""
    found, true = (np.asarray(world.reward_table(reward))[:, 0] for reward in (weights, truth))
    return float(np.linalg.norm(found - true) / np.linalg.norm(true))


def distance(draws: Float[np.ndarray, "n q"], truth: Float[np.ndarray, " q"]) -> float:
    """E|w - w*|, Euclidean."""
    return float(np.linalg.norm(draws - truth, axis=1).mean())
