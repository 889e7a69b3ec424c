"""A claim of the paper as it is put to the test: the sentence, its place, the statistic, and the line it must cross."""

import math
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float

from kdbirl.errors import InputError
from kdbirl.experiments.ledger import Claim, withheld
from kdbirl.experiments.statistics import Interval

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
