"""The statistics that decide claims, from one row a seed: each gives a number, its interval and a verdict."""

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy import stats

from kdbirl.experiments.ledger import Verdict

CONFIDENCE = 0.95
TAIL = 3  # sizes at the end of a path whose slope says whether an error still falls
RATE_TOLERANCE = 0.05  # a slope this near to the theory's is the theory's
NEARLY_ONE = 0.9  # a mass that ends above this has gone to 1 as far as a finite run can show


@dataclass(frozen=True)
class Interval:
    """A mean over seeds and its 95 % interval by Student's t; not a number with a single seed."""

    number: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Float[np.ndarray, " seeds"]) -> "Interval":
        mean, count = float(np.mean(values)), len(values)
        if count < 2:
            return cls(mean, math.nan, math.nan)
        half = float(stats.t.ppf((1 + CONFIDENCE) / 2, count - 1) * np.std(values, ddof=1) / np.sqrt(count))
        return cls(mean, mean - half, mean + half)

    def against(self, threshold: float) -> Verdict:
        """Whether the mean is below the threshold: decided only where the whole interval is on one side."""
        if self.high < threshold:
            return "holds"
        return "does not hold" if self.low > threshold else "cannot be decided"


def slopes(errors: Float[np.ndarray, "seeds sizes"], sizes: Float[np.ndarray, " sizes"]) -> Float[np.ndarray, " seeds"]:
    """The least-squares slope of log error against log size, for each seed."""
    x = np.log(sizes) - np.log(sizes).mean()
    return np.asarray(np.log(errors) @ x / (x @ x))


def slope(errors: Float[np.ndarray, "seeds sizes"], sizes: Float[np.ndarray, " sizes"]) -> Interval:
    """The slope over all sizes."""
    return Interval.of(slopes(errors, sizes))


def tail_slope(errors: Float[np.ndarray, "seeds sizes"], sizes: Float[np.ndarray, " sizes"]) -> Interval:
    """The slope over the largest sizes: near the theory's where the error falls to zero, near zero at a floor."""
    return Interval.of(slopes(errors[:, -TAIL:], sizes[-TAIL:]))


def converges(
    errors: Float[np.ndarray, "seeds sizes"], sizes: Float[np.ndarray, " sizes"], rate: float
) -> tuple[Interval, Verdict]:
    """The error goes to zero: at the largest sizes it still falls at more than half of the theory's rate."""
    found = tail_slope(errors, sizes)
    return found, found.against(rate / 2)


def has_rate(
    errors: Float[np.ndarray, "seeds sizes"], sizes: Float[np.ndarray, " sizes"], rate: float
) -> tuple[Interval, Verdict]:
    """The slope is the theory's: holds if the whole interval is within the tolerance, fails if none of it is."""
    found = slope(errors, sizes)
    if rate - RATE_TOLERANCE < found.low and found.high < rate + RATE_TOLERANCE:
        return found, "holds"
    outside = found.high < rate - RATE_TOLERANCE or found.low > rate + RATE_TOLERANCE
    return found, "does not hold" if outside else "cannot be decided"


def goes_to_one(mass: Float[np.ndarray, "seeds sizes"]) -> tuple[Interval, Verdict]:
    """The mass goes to 1: at the largest size its mean over seeds is above 0.9."""
    missing = Interval.of(1 - mass[:, -1])
    found = Interval(1 - missing.number, max(0.0, 1 - missing.high), min(1.0, 1 - missing.low))
    return found, missing.against(1 - NEARLY_ONE)
