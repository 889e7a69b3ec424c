"""Posterior draws and what the policies that they lead to collect: planned once, asked many questions."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from kdbirl.data.cluster import Cluster
from kdbirl.evaluation.draws import draws_of
from kdbirl.progress import Progress, Silent
from kdbirl.worlds.planning import optimal_feature_expectations
from kdbirl.worlds.policy import as_planner
from kdbirl.worlds.policy_value import feature_expectations
from kdbirl.worlds.tabular import TabularMDP

DRAWS_AT_ONCE = 250  # by a worker of a cluster


@dataclass(frozen=True, eq=False)
class PlannedDraws:
    """Draws of a reward, and the feature expectations mu of the policy that is optimal for each: its value under any
    reward w is w . mu.

    draws: `(chain, draw, q)`; independent: whether they are by construction. features: `(chain * draw, q)`, mu of each
    draw; of_mean, of_map: mu of the mean reward's policy, and of the most probable draw's (None without densities).
    best: mu of the true reward's policy (None where no true reward was given).
    """

    draws: Float[np.ndarray, "chain draw q"]
    independent: bool
    features: Float[np.ndarray, "draws q"]
    of_mean: Float[np.ndarray, " q"]
    of_map: Float[np.ndarray, " q"] | None
    best: Float[np.ndarray, " q"] | None

    @property
    def flat(self) -> Float[np.ndarray, "draws q"]:
        """All chains in one."""
        return self.draws.reshape(-1, self.draws.shape[2])


def plan_draws(
    post: Any,
    mdp: TabularMDP,
    truth: Float[np.ndarray, " q"] | None = None,
    planner: Any = None,
    progress: Progress | None = None,
    job: str = "planning",
    client: Any = None,
) -> PlannedDraws:
    """Plan for every draw of a posterior (or of an array of rewards), for their mean and for the most probable one.

    client: a `distributed.Client`: its workers plan blocks of draws.
    Equal rewards are planned once, the truth among them, so that a draw that is the truth differs by exactly nothing.
    """
    draws, most_probable, independent = draws_of(post, mdp)
    flat = draws.reshape(-1, draws.shape[2])
    single = [reward for reward in (truth, flat.mean(axis=0), most_probable) if reward is not None]
    rewards = np.concatenate([np.stack(single), flat])
    if client is None:
        collected = _collected(mdp, rewards, planner, progress or Silent(), job)
    else:
        collected = _collected_on(Cluster.of(client), mdp, rewards, planner, progress, job)
    mean = int(truth is not None)
    return PlannedDraws(
        draws=draws,
        independent=independent,
        features=collected[len(single) :],
        of_mean=collected[mean],
        of_map=None if most_probable is None else collected[mean + 1],
        best=None
        if truth is None
        else collected[0]
        if planner is None
        else optimal_feature_expectations(mdp, truth)[0],
    )


def _collected_on(
    cluster: Cluster,
    mdp: TabularMDP,
    rewards: Float[np.ndarray, "r q"],
    planner: Any,
    progress: Progress | None,
    job: str,
) -> Float[np.ndarray, "r q"]:
    """The same on a cluster, in blocks of distinct rewards whose number has nothing to do with that of the workers."""
    distinct, index = np.unique(rewards, axis=0, return_inverse=True)
    blocks = np.split(distinct, range(DRAWS_AT_ONCE, len(distinct), DRAWS_AT_ONCE))
    parts = cluster.mapped(_block, blocks, (mdp, planner), progress, job)
    return np.concatenate(parts)[index.reshape(-1)]


def _block(rewards: Float[np.ndarray, "r q"], mdp: TabularMDP, planner: Any) -> Float[np.ndarray, "r q"]:
    return _collected(mdp, rewards, planner, Silent(), "planning")


def _collected(
    mdp: TabularMDP, rewards: Float[np.ndarray, "r q"], planner: Any, progress: Progress, job: str
) -> Float[np.ndarray, "r q"]:
    """Feature expectations of the policy planned for each reward."""
    if planner is None:
        return optimal_feature_expectations(mdp, rewards, progress, job)
    ask = as_planner(planner)
    distinct, index = np.unique(rewards, axis=0, return_inverse=True)
    found = np.empty_like(distinct)
    for number, reward in enumerate(distinct):
        found[number] = feature_expectations(mdp, ask(mdp, reward))
        progress.update(job, number + 1, len(distinct))
    return found[index.reshape(-1)]
