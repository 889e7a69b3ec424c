"""Which bandwidths and power a fitted model uses for an expert of n rows."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from kdbirl.cluster import Cluster
from kdbirl.diagnosis.loto import FALLBACK, Loto, LotoSettings, leave_one_task_out, why_not
from kdbirl.diagnosis.plays import Plays
from kdbirl.errors import CalibrationWarning, InputError, did_you_mean
from kdbirl.likelihood.bandwidths import RULES, Bandwidths, by_rule, given
from kdbirl.likelihood.ckde import CKDE
from kdbirl.posterior.priors import Prior
from kdbirl.progress import Progress

LOTO = "loto"


@dataclass(frozen=True)
class Choice:
    """The bandwidths and the power in use; `loto` is the search that found them, if one did."""

    bandwidths: Bandwidths
    power: float
    loto: Loto | None = None


@dataclass(frozen=True, eq=False)
class Choices:
    """The choice for every number of expert rows: the same for all, or searched for each n and kept.

    start: the bandwidths in use, or, if it `searches`, those that the search of `loto` starts from.
    power: the power that was asked for; None leaves it to the search.
    """

    ckde: CKDE
    prior: Prior
    names: tuple[str, ...]
    plays: Plays
    start: Bandwidths
    power: float | None = None
    searches: bool = False
    settings: LotoSettings = field(default_factory=LotoSettings)
    cluster: Cluster | None = None
    _found: dict[int, Choice] = field(default_factory=dict, repr=False)

    def for_rows(self, n: int, progress: Progress | None = None) -> Choice:
        """The choice for an expert of n rows; a search is done once for each n."""
        if not self.searches:
            return Choice(self.start, 1.0 if self.power is None else self.power)
        if n not in self._found:
            given = (self.ckde, self.plays, self.prior, self.start, n, self.names, self.settings, progress)
            found = leave_one_task_out(*given, cluster=self.cluster, power=self.power)
            widths = replace(found.bandwidths, notes=(*self.start.notes, *found.notes))
            self._found[n] = Choice(widths, found.power, found)
        return self._found[n]

    @property
    def latest(self) -> Bandwidths:
        """The bandwidths that were last chosen, or those that a search would start from."""
        return next(reversed(self._found.values())).bandwidths if self._found else self.start


def asks_for_loto(bandwidth: Any) -> bool:
    """Whether a model's `bandwidth` means leaving tasks out (also where it is left to us)."""
    return (
        bandwidth is None or isinstance(bandwidth, LotoSettings) or (bandwidth == LOTO and isinstance(bandwidth, str))
    )


def fixed_bandwidths(bandwidth: Any, ckde: CKDE, seed: int) -> Bandwidths:
    """Bandwidths by a rule that needs only the bank, or as given."""
    if isinstance(bandwidth, str):
        if bandwidth not in RULES:
            near = did_you_mean(bandwidth, (LOTO, *RULES))
            raise InputError(f"There is no bandwidth rule called {bandwidth!r}.{near}")
        return by_rule(bandwidth, ckde, seed)
    if not isinstance(bandwidth, Sequence | np.ndarray) or len(bandwidth) != 2:
        raise InputError(f"bandwidth={bandwidth!r} should be the name of a rule, or two numbers (h, h_reward).")
    return given(bandwidth[0], bandwidth[1], ckde.kernel.parts)


def fallback(bandwidth: Any, ckde: CKDE, prior: Prior, start: Bandwidths) -> Bandwidths | None:
    """Where leaving tasks out says nothing: the named rule with a note, and a warning if "loto" was asked for."""
    why = why_not(ckde, prior)
    if why is None:
        return None
    sentence = f"loto: {why}; the {FALLBACK} rule is used instead, and the posterior may be over-confident"
    if bandwidth is not None:
        warnings.warn(sentence, CalibrationWarning, stacklevel=4)
    return replace(start, notes=(*start.notes, sentence))
