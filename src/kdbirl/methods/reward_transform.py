"""Rewards on the whole real line, so that a density of a network stays inside the prior's support.

    low < R < high    u = log( (R - low) / (high - R) )         one bound    u = log(R - low), or -log(high - R)
    no bounds         u = R                                     z = (u - centre) / scale

centre and scale are those of the training rewards. A training reward *on* a bound would be at infinity: to train with,
it is moved `inside`, by a hundredth of the box or of the rewards' spread. Nothing else is moved: densities stay exact.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.special import expit, log_expit, logit

from kdbirl.posterior.priors import Prior

MARGIN = 0.01


@dataclass(frozen=True, eq=False)
class RewardTransform:
    """Between R and z. `low`, `high`: bounds, infinite where there are none; `gap`: how near one R is trained."""

    low: Float[np.ndarray, " q"]
    high: Float[np.ndarray, " q"]
    gap: Float[np.ndarray, " q"]
    centre: Float[np.ndarray, " q"]
    scale: Float[np.ndarray, " q"]

    @classmethod
    def learn(cls, prior: Prior, rewards: Float[np.ndarray, "K q"]) -> "RewardTransform":
        """Bounds from the prior; centre and scale from the training rewards (1 where these are all equal)."""
        low, high = prior.support
        width = np.where(np.isfinite(high - low), high - low, _positive(rewards.std(axis=0)))
        plain = cls(low, high, MARGIN * width, np.zeros(len(low)), np.ones(len(low)))
        u = plain.to_line(plain.inside(rewards))
        return cls(low, high, plain.gap, u.mean(axis=0), _positive(u.std(axis=0)))

    def inside(self, rewards: Float[np.ndarray, "r q"]) -> Float[np.ndarray, "r q"]:
        """Rewards to train with: those nearer to a bound than `gap` moved there."""
        return np.clip(rewards, self.low + self.gap, self.high - self.gap)

    def to_line(self, rewards: Float[np.ndarray, "r q"]) -> Float[np.ndarray, "r q"]:
        """z of each reward; infinite on a bound, not a number outside."""
        below, above = np.isfinite(self.low), np.isfinite(self.high)
        with np.errstate(all="ignore"):  # each formula is computed everywhere, and chosen where it holds
            both = logit((rewards - self.low) / (self.high - self.low))
            one = np.where(below, np.log(rewards - self.low), -np.log(self.high - rewards))
        u = np.where(below & above, both, np.where(below | above, one, rewards))
        return np.asarray((u - self.centre) / self.scale)

    def to_reward(self, z: Float[np.ndarray, "r q"]) -> Float[np.ndarray, "r q"]:
        """R of each z."""
        u = self.centre + self.scale * z
        below, above = np.isfinite(self.low), np.isfinite(self.high)
        with np.errstate(all="ignore"):
            both = self.low + (self.high - self.low) * expit(u)
            one = np.where(below, self.low + np.exp(u), self.high - np.exp(-u))
        return np.asarray(np.where(below & above, both, np.where(below | above, one, u)))

    def log_slope(self, z: Float[np.ndarray, "r q"]) -> Float[np.ndarray, " r"]:
        """sum_j log dR_j / dz_j: what is taken from a log density of z to have that of R."""
        u = self.centre + self.scale * z
        below, above = np.isfinite(self.low), np.isfinite(self.high)
        with np.errstate(all="ignore"):
            both = np.log(self.high - self.low) + log_expit(u) + log_expit(-u)
        slope = np.where(below & above, both, np.where(below, u, np.where(above, -u, 0.0)))
        return np.asarray((slope + np.log(self.scale)).sum(axis=1))


def _positive(spread: Float[np.ndarray, " q"]) -> Float[np.ndarray, " q"]:
    return np.where(spread > 0, spread, 1.0)
