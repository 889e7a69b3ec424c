"""A claim of the paper as it is put to the test: the sentence, its place, the statistic, and the line it must cross."""

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float
from scipy import stats

from kdbirl.errors import InputError
from kdbirl.report.terminal import WIDTH
from paper.ledger import Claim, Verdict, withheld

# The statistics that decide claims, from one row a seed: each gives a number, its interval and a verdict.

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


DIGITS = 6  # of a number in the ledger


@dataclass(frozen=True)
class Statement:
    """Frozen before anything is run. `statistic` is one number a seed; the claim holds where the 95 % interval of its
    mean over seeds lies wholly below `below`, or wholly above `above`; it does not hold on the other side, and an
    interval with the line inside decides nothing.
    """

    name: str
    claim: str
    where: str
    statistic: str
    below: float | None = None
    above: float | None = None

    def __post_init__(self) -> None:
        if (self.below is None) == (self.above is None):
            raise InputError(f"{self.name}: give one line, `below` or `above`.")

    @property
    def line(self) -> str:
        """In words, for the ledger."""
        return f"below {self.below:g}" if self.below is not None else f"above {self.above:g}"

    def decide(
        self, experiment: str, variant: str, values: Float[np.ndarray, " seeds"], why: str, quick: bool
    ) -> Claim:
        """A row of the ledger from one number a seed; seeds without a number (NaN) leave the claim undecided."""
        values = np.asarray(values, dtype=float)
        found = Interval.of(values)
        sign = 1.0 if self.below is not None else -1.0
        line = sign * float(self.below if self.below is not None else self.above or 0.0)
        verdict = Interval.of(sign * values).against(line)
        number, low, high = (_rounded(value) for value in (found.number, found.low, found.high))
        statistic = f"{self.statistic}; {self.line} for the claim"
        made = Claim(
            experiment,
            self.name,
            variant,
            self.claim,
            self.where,
            statistic,
            number,
            low,
            high,
            len(values),
            verdict,
            why,
        )
        if not np.isfinite(values).all():
            made = replace(made, verdict="cannot be decided", why=f"not measured for every seed; {why}")
        return withheld(made, quick)


def _rounded(value: float) -> float:
    return round(value, DIGITS) if math.isfinite(value) else value


# Claims and their verdicts as text for a terminal of 80 columns.


def claims_text(claims: Sequence[Claim]) -> str:
    """A paragraph for each claim: the verdict, the claim, the number that decides it and why."""
    return "\n\n".join(_paragraph(claim) for claim in claims)


def _paragraph(claim: Claim) -> str:
    interval = "" if math.isnan(claim.low) else f" [{claim.low:.3f}, {claim.high:.3f}]"
    body = [
        f"Claim: {claim.claim}.",
        f"Measured: {claim.number:.3f}{interval} over {claim.seeds} seeds: {claim.statistic}.",
        f"Why: {claim.why}.",
    ]
    wrapped = [textwrap.fill(line, WIDTH, initial_indent="  ", subsequent_indent="    ") for line in body]
    return "\n".join([f"{claim.name} ({claim.variant}): {claim.verdict.upper()}", *wrapped])
