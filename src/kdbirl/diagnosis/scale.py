"""Direction and size of w, apart: optimal behaviour is the same for w and for 2 w, so it never reveals the size.

The direction is that of the mean, mean(w) / |mean(w)|: its signs are those of the means that are printed beside it, and
a plan for the mean reward is the best one under the draws. With u_i = w_i / |w_i|, the length |mean(u)| is the
concentration, from 0 (all directions) to 1 (one direction).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from jaxtyping import Float

from kdbirl.diagnosis.wording import direction_in_words
from kdbirl.errors import InputError

LEVEL = 0.9


@dataclass(frozen=True, eq=False)
class ScaleAndDirection:
    """Posterior of |w| and of w / |w|.

    sizes `(3,)`: 5 %, 50 % and 95 % quantiles of |w|. direction `(q,)`: the mean's, of length 1.
    concentration: from 0 to 1. angle: degrees from `direction` within which 90 % of the draws lie (180 is anywhere).
    size_contraction: 1 - var(log |w|) / var(log |w|) under the prior; None without prior draws.
    prior_angle: the same angle for prior draws about *their* mean direction.
    """

    names: tuple[str, ...]
    sizes: Float[np.ndarray, "3"]
    direction: Float[np.ndarray, " q"]
    concentration: float
    angle: float
    size_contraction: float | None = None
    prior_angle: float | None = None

    @property
    def sentence(self) -> str:
        """The two findings."""
        before = "" if self.prior_angle is None else f" (in the prior {self.prior_angle:.0f})"
        low, middle, high = self.sizes
        direction = direction_in_words(self.direction, self.names)
        return (
            f"Direction of the reward: 90 % of the draws lie within {self.angle:.0f} degrees{before} of "
            f"{direction}; size |w|: {middle:.3g} ({low:.3g} to {high:.3g}), which optimal behaviour does not reveal."
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "size_quantiles": dict(zip(("q05", "median", "q95"), self.sizes.tolist(), strict=True)),
            "size_contraction": self.size_contraction,
            "direction": self.direction.tolist(),
            "concentration": self.concentration,
            "angle_90": self.angle,
            "prior_angle_90": self.prior_angle,
            "sentence": self.sentence,
        }


def scale_and_direction(
    draws: Float[np.ndarray, "n q"], names: Sequence[str], prior_draws: Float[np.ndarray, "p q"] | None = None
) -> ScaleAndDirection:
    """Size and direction of reward draws `(n, q)`; draws of length zero have no direction and are left out of it."""
    sizes = np.linalg.norm(draws, axis=1)
    if not (sizes > 0).any():
        raise InputError("scale_and_direction: every draw is zero, so there is no direction.")
    direction, concentration, angle = _towards_mean(draws)
    fallen = before = None
    if prior_draws is not None and len(prior_draws):
        spread, before = _of_prior(np.ascontiguousarray(prior_draws).tobytes(), prior_draws.shape[1])
        fallen = 1 - float(np.log(sizes[sizes > 0]).var() / spread)
    quantiles = np.quantile(sizes, [(1 - LEVEL) / 2, 0.5, (1 + LEVEL) / 2])
    return ScaleAndDirection(tuple(names), quantiles, direction, concentration, angle, fallen, before)


@lru_cache(maxsize=4)  # the posteriors of many tasks have one prior
def _of_prior(draws: bytes, q: int) -> tuple[float, float]:
    """The variance of the log lengths of draws, given as their bytes, and the angle that holds 90 % of them."""
    prior_draws = np.frombuffer(draws).reshape(-1, q)
    lengths = np.linalg.norm(prior_draws, axis=1)
    return float(np.log(lengths[lengths > 0]).var()), _towards_mean(prior_draws)[2]


def _towards_mean(draws: Float[np.ndarray, "n q"]) -> tuple[Float[np.ndarray, " q"], float, float]:
    """The mean's direction, the concentration, and the angle in degrees that holds 90 % of the draws."""
    lengths = np.linalg.norm(draws, axis=1)
    units = draws[lengths > 0] / lengths[lengths > 0, None]
    mean = draws.mean(axis=0)
    length = float(np.linalg.norm(mean))
    direction = mean / length if length > 0 else units[0]
    angles = np.degrees(np.arccos(np.clip(units @ direction, -1, 1)))
    return direction, float(np.linalg.norm(units.mean(axis=0))), float(np.quantile(angles, LEVEL))
