"""`judge`: a posterior against the truth, beside its own prior, and what it risks when nobody knows the truth."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from kdbirl._jax import float64
from kdbirl.errors import InputError
from kdbirl.evaluation.draws import draws_of
from kdbirl.evaluation.evd import ExpectedValueDifference, difference_of, difference_of_returns
from kdbirl.evaluation.paired_rollouts import Pairs, of_rewards
from kdbirl.evaluation.planned_draws import PlannedDraws, plan_draws
from kdbirl.evaluation.risk import ValueAtRisk, risk_of
from kdbirl.posterior.result import Posterior
from kdbirl.progress import Progress, Silent
from kdbirl.worlds.planning import plan
from kdbirl.worlds.policy import Policy
from kdbirl.worlds.policy_value import feature_expectations
from kdbirl.worlds.rollouts import whole_number
from kdbirl.worlds.simulator import Simulator
from kdbirl.worlds.tabular import TabularMDP, World
from kdbirl.worlds.tabular_arrays import as_rewards

PRIOR_DRAWS = 1000  # independent, so that the prior's mean is known to 3 % of its spread
LEVELS = {"q05": 0.05, "q25": 0.25, "median": 0.5, "q75": 0.75, "q95": 0.95}


@dataclass(frozen=True, eq=False)
class Judgement:
    """EVD of the posterior's draws and of its prior's (None without prior draws), and the value at risk of the policy
    that is optimal for the posterior mean: in the units of the reward, and as a share of (best - random)."""

    posterior: ExpectedValueDifference
    prior: ExpectedValueDifference | None
    risk: ValueAtRisk
    relative_risk: ValueAtRisk
    notes: tuple[str, ...] = ()
    episodes: int | None = None  # that were played for each draw, in a simulator; None where values are exact

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "best_value": self.posterior.best,
            "random_value": self.posterior.random,
            "posterior": _plain(self.posterior),
            "prior": None if self.prior is None else _plain(self.prior),
            "value_at_risk": _risk(self.risk),
            "normalised_value_at_risk": _risk(self.relative_risk),
            "episodes": self.episodes,
            "notes": list(self.notes),
        }


def judge(
    post: Posterior,
    world: Any,
    true_reward: Any,
    progress: Progress | None = None,
    planner: Any = None,
    episodes: int = 256,
    seed: int = 0,
    client: Any = None,
) -> Judgement:
    """Plan for every draw, once, and compare under the true reward and under the draws' own.

    world: a `TabularMDP`, where all is exact and the next three have no part; or a simulator, where the policies of
    `planner` play the same `episodes`, as in `kb.evd`. client: a cluster that plans the draws of a `TabularMDP`.
    """
    progress = progress or Silent()
    notes, truth = names_note(post, world), as_rewards(true_reward, world.feature_names)[0]
    some = post.prior_draws[:PRIOR_DRAWS]
    posts = [post, some] if len(some) else [post]
    exact = isinstance(world, TabularMDP)
    if exact:
        found, random = _exact(posts, world, truth, progress, client)
        acting = feature_expectations(world, plan(world, post.mean()))
    else:
        pass  # gone  # it imports JAX

        found, random = simulated_differences(
            posts, world, truth, planner, episodes=episodes, seed=seed, progress=progress
        )
        acting = found[0][1].of_mean
    difference, planned = found[0]
    return Judgement(
        posterior=difference,
        prior=found[1][0] if len(some) else None,
        risk=risk_of(planned, acting, random),
        relative_risk=risk_of(planned, acting, random, normalised=True),
        notes=notes if exact else (*notes, _by_rollouts(difference, episodes)),
        episodes=None if exact else episodes,
    )


def _exact(
    posts: list[Any], world: TabularMDP, truth: Float[np.ndarray, " q"], progress: Progress, client: Any
) -> tuple[list[tuple[ExpectedValueDifference, PlannedDraws]], Float[np.ndarray, " q"]]:
    """Of the posterior's draws and of its prior's; and the feature expectations of the random agent."""
    jobs = ("planning for the draws", "planning for the prior")
    planned = [
        plan_draws(post, world, truth, progress=progress, job=job, client=client)
        for post, job in zip(posts, jobs, strict=False)
    ]
    random = feature_expectations(world, Policy.uniform(world.n_states, world.n_actions))
    return [(difference_of(draws, world, truth), draws) for draws in planned], random


def _by_rollouts(found: ExpectedValueDifference, episodes: int) -> str:
    return (
        f"Values are means over {episodes} simulated episodes, the same ones for every draw; their part of the mean "
        f"EVD's standard error is {found.simulation_error:.2g}. Optimal means: as good as the learnt policies."
    )


def names_note(post: Posterior, world: World) -> tuple[str, ...]:
    """The same names in another order would compare the wrong numbers; other names may be another's words."""
    ours, theirs = tuple(post.names), world.feature_names
    if ours == theirs:
        return ()
    if set(ours) == set(theirs):
        raise InputError(
            f"The posterior's parameters are those of the world in another order ({', '.join(ours[:6])}); put the "
            f"columns of the rewards table in the world's order and fit again."
        )
    if len(ours) != len(theirs):
        raise InputError(f"The posterior has {len(ours)} reward parameters, but this world's rewards {len(theirs)}.")
    pairs = ", ".join(f"{mine} as {world_name}" for mine, world_name in list(zip(ours, theirs, strict=True))[:4])
    more = f" and {len(ours) - 4} more" if len(ours) > 4 else ""
    return (f"The posterior's parameters have other names than the world's; taken in order: {pairs}{more}.",)


def _plain(found: ExpectedValueDifference) -> dict[str, Any]:
    low, high = found.interval
    return {
        "mean": found.mean,
        "standard_error": found.standard_error,
        "interval_95": [low, high],
        "of_mean_reward": found.of_mean,
        "of_most_probable_reward": found.of_map,
        "normalised_regret": found.regret,
        "quantiles_of_draws": {name: float(found.quantile(level)) for name, level in LEVELS.items()},
        "draws": len(found.per_draw),
        "effective_draws": found.effective_size,
    }


def _risk(found: ValueAtRisk) -> dict[str, Any]:
    bound = found.bound if np.isfinite(found.bound) else None
    return {
        "bound": bound,
        "estimate": found.estimate,
        "alpha": found.alpha,
        "delta": found.delta,
        "effective_draws": found.effective_size,
        "draws_needed_for_a_bound": found.needed,
    }


# `judge` in a simulator: the same verdict by paired rollouts.
#
# All policies play the same episodes, and what each collects of the features is kept by episode, so that one round of
# playing answers everything: EVD under the truth with its two errors (`simulated_evd`), and the value at risk under the
# draws' own rewards. pi* and the policies of the draws are those of one planner, learnt and not exact.


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
