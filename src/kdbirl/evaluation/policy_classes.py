"""The few policies that a posterior leads to: rewards differ in much that changes nothing that an agent would do.

Two rewards are taken as equivalent when the optimal policy of each is also optimal for the other, up to a tolerance:

    V(pi_i, R_i) - V(pi_j, R_i)  <=  tolerance * ( V(pi_i, R_i) - V(random, R_i) ),       and with i and j exchanged,

values from the start distribution. That is free of the reward's scale, and of constants that every policy earns. It is
not transitive, so classes are made around leaders: the draw with the most equivalents, then, of the rest, the next.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from kdbirl.errors import InputError
from kdbirl.evaluation.draws import draws_of
from kdbirl.posterior.result import Posterior
from kdbirl.worlds.dynamics import dynamics_of
from kdbirl.worlds.planning import optimal_feature_expectations, plan
from kdbirl.worlds.policy import Policy
from kdbirl.worlds.policy_value import feature_expectations
from kdbirl.worlds.tabular import TabularMDP

MOST_DRAWS = 1000  # evenly spaced over the posterior: a share is then known to 1.6 percentage points
SHOWN = 5  # classes that are described
TOLERANCE = 0.01  # of (best - random)


@dataclass(frozen=True, eq=False)
class PolicyClasses:
    """What the draws would do. `c` classes are kept, the largest first; there are `n_classes` in all.

    shares `(c,)`: of the draws in each class; its leader is a draw, `rewards (c, q)`, with the policy `policies[i]` and
    the feature expectations `feature_expectations (c, q)`.
    share_of_mean: of the draws that are equivalent to the posterior mean's reward; prior_share_of_mean: of the prior's
    draws (None without them). distinct: exactly different behaviours (feature expectations) among the draws.
    shift: `(q,)`, a change of the reward that adds a constant to R(s, a) everywhere, where no policy can feel that;
    None otherwise.
    """

    names: tuple[str, ...]
    shares: Float[np.ndarray, " c"]
    rewards: Float[np.ndarray, "c q"]
    feature_expectations: Float[np.ndarray, "c q"]
    policies: tuple[Policy, ...]
    share_of_mean: float
    prior_share_of_mean: float | None
    n_classes: int
    distinct: int
    draws: int
    tolerance: float
    shift: Float[np.ndarray, " q"] | None = None

    @property
    def largest(self) -> float:
        """The share of posterior mass in the largest class."""
        return float(self.shares[0])

    @property
    def sentence(self) -> str:
        """The finding."""
        before = "" if self.prior_share_of_mean is None else f" (of the prior's: {self.prior_share_of_mean:.0%})"
        kinds = "one kind of policy" if self.n_classes == 1 else f"{self.n_classes} kinds of policy"
        return (
            f"The draws lead to {kinds} that differ by more than {self.tolerance:.2g} of (best - random) in value; the "
            f"commonest holds {self.largest:.0%} of the posterior, and {self.share_of_mean:.0%} of the draws{before} "
            "act as the posterior mean does."
        )

    def describe(self) -> list[str]:
        """Lines for a terminal: the finding, the largest classes with what they collect, and what cannot be felt."""
        lines = [self.sentence]
        for share, collected in zip(self.shares, self.feature_expectations, strict=True):
            most = np.argsort(-np.abs(collected), kind="stable")[:SHOWN]
            lines.append(f"{share:.0%}: " + ", ".join(f"{self.names[j]} {collected[j]:.3g}" for j in np.sort(most)))
        if self.shift is not None:
            lines.append(
                "Adding a constant to the reward of every step changes no policy here: its level is not revealed."
            )
        return lines

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "tolerance": self.tolerance,
            "draws": self.draws,
            "classes": self.n_classes,
            "distinct_behaviours": self.distinct,
            "shares": self.shares.tolist(),
            "rewards": self.rewards.tolist(),
            "feature_expectations": self.feature_expectations.tolist(),
            "parameters": list(self.names),
            "share_of_posterior_mean": self.share_of_mean,
            "prior_share_of_posterior_mean": self.prior_share_of_mean,
            "shift": None if self.shift is None else self.shift.tolist(),
            "sentence": self.sentence,
        }


def policy_classes(post: Any, mdp: Any, tolerance: float | int = TOLERANCE, draws: int = MOST_DRAWS) -> PolicyClasses:
    """Classes of a posterior, or of an array of rewards `(draws, q)`; at most `draws` of them are planned for."""
    if not isinstance(mdp, TabularMDP):
        raise InputError(f"policy_classes needs a kb.TabularMDP for exact values, not {type(mdp).__name__}.")
    if not 0 <= tolerance < 1:
        raise InputError(f"tolerance={tolerance!r} should be a share of (best - random), from 0 to below 1.")
    tolerance = float(tolerance)
    all_draws = draws_of(post, mdp)[0].reshape(-1, mdp.n_parameters)
    some = _thinned(all_draws, draws)
    mean = all_draws.mean(axis=0)
    collected = optimal_feature_expectations(mdp, np.concatenate([mean[None], some]))
    random = feature_expectations(mdp, Policy.uniform(mdp.n_states, mdp.n_actions))
    alike = equivalent(some, collected[1:], some, collected[1:], random, tolerance)
    groups = list(_groups(alike))
    leaders = [leader for leader, _ in groups[:SHOWN]]
    return PolicyClasses(
        names=mdp.feature_names,
        shares=np.array([size for _, size in groups[:SHOWN]]) / len(some),
        rewards=some[leaders],
        feature_expectations=collected[1:][leaders],
        policies=tuple(plan(mdp, some[leader]) for leader in leaders),
        share_of_mean=_share(some, collected[1:], mean, collected[0], random, tolerance),
        prior_share_of_mean=_prior_share(post, mdp, mean, collected[0], random, tolerance),
        n_classes=len(groups),
        distinct=len(np.unique(_rounded(collected[1:]), axis=0)),
        draws=len(some),
        tolerance=tolerance,
        shift=shift_direction(mdp),
    )


def equivalent(
    rewards: Float[np.ndarray, "r q"],
    collected: Float[np.ndarray, "r q"],
    others: Float[np.ndarray, "c q"],
    others_collected: Float[np.ndarray, "c q"],
    random: Float[np.ndarray, " q"],
    tolerance: float,
) -> Bool[np.ndarray, "r c"]:
    """Whether each reward's policy is optimal for the other, up to the tolerance, both ways; mu of each are given."""
    there = _serves(rewards, collected, others_collected, random, tolerance)
    back = _serves(others, others_collected, collected, random, tolerance)
    return there & back.T


def _serves(
    rewards: np.ndarray, collected: np.ndarray, offered: np.ndarray, random: np.ndarray, tolerance: float
) -> Bool[np.ndarray, "r c"]:
    """Whether the policy with feature expectations `offered[j]` is good enough for reward i."""
    best = np.sum(rewards * collected, axis=1)
    lost = best[:, None] - rewards @ offered.T
    rounding = 1e-9 * np.sum(np.abs(rewards) * np.abs(collected), axis=1)
    return np.asarray(lost <= (tolerance * np.maximum(best - rewards @ random, 0.0) + rounding)[:, None])


def _groups(alike: Bool[np.ndarray, "r r"]) -> Iterator[tuple[int, int]]:
    """Leader and size of each class, greedily; each draw is counted in one class. Costs r^2 in all."""
    left, counts = np.ones(len(alike), dtype=bool), alike.sum(axis=1)
    while left.any():
        leader = int(np.where(left, counts, -1).argmax())
        members = alike[leader] & left
        members[leader] = True
        left &= ~members
        counts = counts - alike[:, members].sum(axis=1)
        yield leader, int(members.sum())


def _share(
    rewards: np.ndarray, collected: np.ndarray, mean: np.ndarray, of_mean: np.ndarray, random: np.ndarray, tol: float
) -> float:
    return float(equivalent(rewards, collected, mean[None], of_mean[None], random, tol).mean())


def _prior_share(
    post: Any, mdp: TabularMDP, mean: np.ndarray, of_mean: np.ndarray, random: np.ndarray, tolerance: float
) -> float | None:
    if not isinstance(post, Posterior) or not len(post.prior_draws):
        return None
    prior = _thinned(_in_order(post, mdp.feature_names), MOST_DRAWS)
    return _share(prior, optimal_feature_expectations(mdp, prior), mean, of_mean, random, tolerance)


def _in_order(post: Posterior, wanted: Sequence[str]) -> Float[np.ndarray, "p q"]:
    """Prior draws in the world's order of parameters, as `draws_of` gives the posterior's."""
    same = set(post.names) == set(wanted)
    return post.prior_draws[:, [post.names.index(name) for name in wanted]] if same else post.prior_draws


def _thinned(draws: Float[np.ndarray, "n q"], most: int) -> Float[np.ndarray, "r q"]:
    if most < 1:
        raise InputError(f"draws={most!r} should be at least 1.")
    return draws[np.linspace(0, len(draws) - 1, min(most, len(draws))).astype(int)]


def _rounded(collected: Float[np.ndarray, "r q"]) -> Float[np.ndarray, "r q"]:
    """Feature expectations to eight digits of the largest: what differs less is rounding."""
    scale = float(np.abs(collected).max()) or 1.0
    return np.round(collected / scale, 8) + 0.0


def shift_direction(mdp: TabularMDP) -> Float[np.ndarray, " q"] | None:
    """v with phi(s, a) . v = 1 wherever an agent acts, if every episode is as long as any other; else None.

    Then R + c v adds the same to every policy's value, and no behaviour can tell them apart.
    """
    if (mdp.terminal & mdp.reachable).any():
        return None
    phi = dynamics_of(mdp).features
    rows = phi.reshape(-1, phi.shape[-1])
    found = np.linalg.lstsq(rows, np.ones(len(rows)), rcond=None)[0]
    return found if np.allclose(rows @ found, 1.0, rtol=0, atol=1e-9) else None
