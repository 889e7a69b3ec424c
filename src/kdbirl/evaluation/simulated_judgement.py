"""`judge` in a simulator: the same verdict by paired rollouts.

All policies play the same episodes, and what each collects of the features is kept by episode, so that one round of
playing answers everything: EVD under the truth with its two errors (`simulated_evd`), and the value at risk under the
draws' own rewards. pi* and the policies of the draws are those of one planner, learnt and not exact.
"""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from kdbirl.demos.rollouts import whole_number
from kdbirl.envs.simulator import Simulator
from kdbirl.evaluation.draws import draws_of
from kdbirl.evaluation.evd import ExpectedValueDifference
from kdbirl.evaluation.paired_rollouts import Pairs, of_rewards
from kdbirl.evaluation.planned_draws import PlannedDraws
from kdbirl.evaluation.simulated_evd import difference_of_returns
from kdbirl.precision import float64
from kdbirl.progress import Progress


@float64
def simulated_differences(
    posts: Sequence[Any],
    simulator: Simulator,
    truth: Float[np.ndarray, " q"],
    planner: Any,
    *,
    episodes: Any,
    seed: Any,
    progress: Progress,
) -> tuple[list[tuple[ExpectedValueDifference, PlannedDraws]], Float[np.ndarray, " q"]]:
    """What the draws of each of `posts` lose under the true reward, with the feature expectations that say what they
    lose under any; and those of the random agent."""
    episodes, seed = whole_number(episodes, "episodes", 2), whole_number(seed, "seed", 0)
    pairs = Pairs(simulator, jnp.eye(len(simulator.feature_names)), episodes, None, seed)
    by_chance = np.asarray(pairs.of("random").collected, dtype=np.float64)
    return [_played(post, pairs, truth, by_chance, planner, progress) for post in posts], by_chance.mean(axis=0)


def _played(
    post: Any,
    pairs: Pairs,
    truth: Float[np.ndarray, " q"],
    by_chance: Float[np.ndarray, "episodes q"],
    planner: Any,
    progress: Progress,
) -> tuple[ExpectedValueDifference, PlannedDraws]:
    draws, most_probable, independent = draws_of(post, pairs.simulator)
    flat = draws.reshape(-1, draws.shape[2])
    single = [truth, flat.mean(axis=0), *([] if most_probable is None else [most_probable])]
    collected = of_rewards(pairs, planner, np.concatenate([np.stack(single), flat]), progress)
    lost = difference_of_returns(collected @ truth, by_chance @ truth, draws.shape[:2], independent, len(single))
    mu = collected.mean(axis=1)
    of_map = None if most_probable is None else mu[2]
    return lost, PlannedDraws(draws, independent, mu[len(single) :], of_mean=mu[1], of_map=of_map, best=mu[0])
