"""A control problem whose p(s, a | R) is known in closed form, with rewards that behaviour cannot tell apart.

On a line with targets at +1 and -1 the reward of being at s is  -R_1 (s - 1)^2 - R_2 (s + 1)^2.  An action says where
to go next, and noise of two kinds comes on top (of the hand, of the world):

    a = g(R) + hand,   next s = a + world,   g(R) = (R_1 - R_2) / (R_1 + R_2)

g(R) is the optimum of the expected reward. In the steady state s ~ N(g, hand^2 + world^2) and a ~ N(g, hand^2),
independently. Behaviour depends on R through the ratio R_1 : R_2 only, so the equivalence class of a reward is a ray:
the positive scale of R is not identified. Rewards come from scaled Beta(4, 4) densities, which are twice continuously
differentiable on the whole line: Lemma 4.1 asks for that.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.special import ndtr

from kdbirl.errors import InputError
from kdbirl.posterior.priors import Beta, Prior

BETA = 4.0  # the smallest whole exponent whose density has a continuous second derivative at the ends of the box


@dataclass(frozen=True)
class TwoTargets:
    """The world; lengths in units of half the distance between the targets."""

    hand_noise: float = 0.25
    world_noise: float = 0.15
    low: float = 0.1  # of both reward parameters; positive, as the targets must attract
    high: float = 1.0

    def __post_init__(self) -> None:
        if not (self.hand_noise > 0 and self.world_noise >= 0):
            raise InputError(f"The noise must be positive, not {self.hand_noise:g} and {self.world_noise:g}.")
        if not 0 < self.low < self.high:
            raise InputError(f"The rewards need 0 < low < high, not {self.low:g} and {self.high:g}.")

    @property
    def spreads(self) -> Float[np.ndarray, " 2"]:
        """Standard deviations of s and a given R."""
        return np.array([np.hypot(self.hand_noise, self.world_noise), self.hand_noise])

    @property
    def prior(self) -> Prior:
        """p(R): where training and test rewards come from."""
        return Beta(BETA, BETA, self.low, self.high).for_parameters(2, ("R_1", "R_2"))

    @property
    def reward_spread(self) -> float:
        """Standard deviation of each reward parameter."""
        return float((self.high - self.low) / (2 * np.sqrt(2 * BETA + 1)))

    def targets(self, rewards: Float[np.ndarray, "r 2"]) -> Float[np.ndarray, " r"]:
        """g(R)."""
        return (rewards[:, 0] - rewards[:, 1]) / (rewards[:, 0] + rewards[:, 1])

    def draw(self, rewards: Float[np.ndarray, "r 2"], rng: np.random.Generator) -> Float[np.ndarray, "r 2"]:
        """One row (s, a) for each reward, from p(s, a | R)."""
        return self.targets(rewards)[:, None] + self.spreads * rng.standard_normal((len(rewards), 2))

    def density(self, rows: Float[np.ndarray, "n 2"], rewards: Float[np.ndarray, "r 2"]) -> Float[np.ndarray, "r n"]:
        """p(s, a | R) of every row under every reward."""
        z = (rows[None] - self.targets(rewards)[:, None, None]) / self.spreads
        return np.exp(-0.5 * np.sum(z**2, axis=2)) / (2 * np.pi * np.prod(self.spreads))

    def l1_distances(
        self, rewards: Float[np.ndarray, "r 2"], truth: Float[np.ndarray, " 2"]
    ) -> Float[np.ndarray, " r"]:
        """||p(.|R) - p(.|R*)||_1 = 2 (2 Phi(D / 2) - 1), where D is the distance of the means in standard deviations.

        It is zero on the whole ray of R*: the metric of Theorem 4.2 on equivalence classes.
        """
        apart = np.abs(self.targets(rewards) - self.targets(truth[None])) * np.sqrt(np.sum(self.spreads**-2.0))
        return 2 * (2 * ndtr(apart / 2) - 1)
