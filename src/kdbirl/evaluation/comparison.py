"""How good is one method's answer to one test task, whose reward is known to the judge alone?

    EVD            mean over posterior draws of V(pi*, R*) - V(pi_R, R*)              (`evd`); of the policy for cloning
    regret         EVD / (V(pi*, R*) - V(random, R*)): 0 is optimal, 1 is chance
    log density    log p(R* | expert) - log p(R*), in nats above the prior, from the draws
    coverage       share of the parameters whose central 90 % interval holds R*

The last two need draws of the same parameters: they are left empty for point estimates and policies. The density is
one kernel estimate for all methods, with Scott's widths; kernels end at the prior's support where draws respect it.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.special import ndtr

from kdbirl.diagnosis.loto import bounded
from kdbirl.envs.base import TabularMDP
from kdbirl.evaluation.draws import draws_of
from kdbirl.evaluation.evd import evd
from kdbirl.planners.evaluation import value
from kdbirl.planners.plan import plan
from kdbirl.planners.policy import Policy
from kdbirl.posterior.priors import Prior
from kdbirl.posterior.result import Posterior
from kdbirl.precision import float64

LEVEL = 0.9
FEWEST_DRAWS = 100  # below which there is no density or interval to speak of
NARROWEST = 1e-12  # a kernel's width relative to the draws' size


@dataclass(frozen=True)
class Judged:
    """The measures of one answer; None where a measure does not apply. bounded: the log density mixed with a small
    share of the prior (as in `loto`), so that one miss cannot decide a mean."""

    evd: float
    regret: float
    regret_of_mean: float
    log_density: float | None = None
    bounded: float | None = None
    coverage: float | None = None


def judge_policy(policy: Policy, mdp: TabularMDP, truth: Float[np.ndarray, " q"]) -> Judged:
    """A policy has no reward: only what it loses."""
    best, random = value(mdp, plan(mdp, truth), truth), value(mdp, _random(mdp), truth)
    lost = best - value(mdp, policy, truth)
    regret = lost / (best - random) if best > random else float("nan")
    return Judged(lost, regret, regret)


def judge_posterior(
    post: Posterior, mdp: TabularMDP, truth: Float[np.ndarray, " q"], prior: Prior, planned: int
) -> Judged:
    """All measures; `planned` draws, evenly spaced, are planned for."""
    draws = draws_of(post, mdp)[0].reshape(-1, mdp.n_parameters)
    few = draws[np.unique(np.linspace(0, len(draws) - 1, min(planned, len(draws))).round().astype(int))]
    lost = evd(few, mdp, truth)
    of_mean = float(evd(draws.mean(axis=0, keepdims=True), mdp, truth).regret)
    if len(draws) < FEWEST_DRAWS:
        return Judged(lost.mean, lost.regret, of_mean)
    score = log_density_at(draws, truth, prior) - log_prior(prior, truth)
    return Judged(
        lost.mean, lost.regret, of_mean, score, float(bounded(np.array([score]))[0]), covered(draws, truth, LEVEL)
    )


def covered(draws: Float[np.ndarray, "k q"], truth: Float[np.ndarray, " q"], level: float) -> float:
    """Share of the parameters whose central interval holds the truth."""
    low, high = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2], axis=0)
    return float(np.mean((low <= truth) & (truth <= high)))


def log_density_at(draws: Float[np.ndarray, "k q"], truth: Float[np.ndarray, " q"], prior: Prior) -> float:
    """A product-normal kernel estimate at one point, each kernel divided by its mass inside the prior's support.

    Draws outside the support (AVRIL knows no bounds) are plain normal kernels.
    """
    k, q = draws.shape
    size = np.abs(draws).max(axis=0) + np.abs(truth)
    width = np.maximum(draws.std(axis=0, ddof=1) * k ** (-1 / (q + 4)), NARROWEST * np.maximum(size, 1e-300))
    low, high = prior.support
    inside = prior.contains(draws)[:, None]
    mass = np.where(inside, ndtr((high - draws) / width) - ndtr((low - draws) / width), 1.0)
    logs = -0.5 * ((truth - draws) / width) ** 2 - np.log(width * np.sqrt(2 * np.pi)) - np.log(mass)
    return float(np.logaddexp.reduce(logs.sum(axis=1)) - np.log(k))


@float64
def log_prior(prior: Prior, truth: Float[np.ndarray, " q"]) -> float:
    """The prior's log density at one reward."""
    import jax
    import jax.numpy as jnp

    return float(prior.log_density(jax.tree.map(jnp.asarray, prior.parameters), jnp.asarray(truth)))


def _random(mdp: TabularMDP) -> Policy:
    return Policy.uniform(mdp.n_states, mdp.n_actions)
