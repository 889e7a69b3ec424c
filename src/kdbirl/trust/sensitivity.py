"""Sensitivity: would the posterior be another one, had the bandwidths, the power or the prior been chosen otherwise?

Each is made smaller and larger by a factor, one at a time (`Prior.widened` has the rule for priors). For each parameter
the shift of the mean, in standard deviations of the posterior as fitted, and the ratio of standard deviations.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from kdbirl.errors import InputError
from kdbirl.posterior.result import Posterior
from kdbirl.trust.calibration import plain, shortened

FACTOR = 2.0  # named bandwidth rules differ by about this much from each other
MOVED = 1.0  # a shift by a whole posterior sd: another answer, not the same one with other decimals
INTERVAL = (0.05, 0.95)
WORDS = {"h": "h", "h_reward": "h'", "power": "power", "prior": "prior width"}


@dataclass(frozen=True)
class Change:
    """Factors on the two bandwidths, the power and the prior's width; 1 leaves a thing as it is."""

    h: float | int = 1.0
    h_reward: float | int = 1.0
    power: float | int = 1.0
    prior: float | int = 1.0

    def __post_init__(self) -> None:
        for item in fields(self):
            if not 0 < getattr(self, item.name) < np.inf:
                raise InputError(f"Change({item.name}={getattr(self, item.name)!r}): a positive factor was expected.")

    @property
    def label(self) -> str:
        """`h x 2`, `prior width x 0.5`."""
        changed = [(WORDS[item.name], getattr(self, item.name)) for item in fields(self)]
        return ", ".join(f"{word} x {factor:.3g}" for word, factor in changed if factor != 1.0) or "as fitted"


@dataclass(frozen=True, eq=False)
class Sensitivity:
    """Posterior means, sds and 90 % limits `(1 + c, q)`: as fitted first, then under each of the c changes.

    shift `(c, q)` in sds as fitted; ratio `(c, q)` of sds; skipped: changes that could not be made, and why.
    """

    names: tuple[str, ...]
    changes: tuple[str, ...]
    means: Float[np.ndarray, "rows q"]
    sds: Float[np.ndarray, "rows q"]
    low: Float[np.ndarray, "rows q"]
    high: Float[np.ndarray, "rows q"]
    skipped: tuple[tuple[str, str], ...] = ()

    @property
    def shift(self) -> Float[np.ndarray, "c q"]:
        """How far each mean moves, in posterior sds."""
        return (self.means[1:] - self.means[0]) / self._sd

    @property
    def ratio(self) -> Float[np.ndarray, "c q"]:
        """How much wider (above 1) or narrower each posterior becomes."""
        return self.sds[1:] / self._sd

    @property
    def _sd(self) -> Float[np.ndarray, " q"]:
        # a parameter that never moved has no scale of its own: anything else is then far away
        return np.maximum(self.sds[0], 1e-12 * np.maximum(1.0, np.abs(self.means[0])))

    @property
    def decisive(self) -> Bool[np.ndarray, "c q"]:
        """Where the choice decides the answer: a shift of a whole sd or more."""
        return np.abs(self.shift) >= MOVED

    @property
    def largest(self) -> tuple[str, str, float]:
        """The change, the parameter and the shift of the mean that moves most."""
        change, j = self._place(np.abs(self.shift))
        return self.changes[change], self.names[j], float(self.shift[change, j])

    @property
    def largest_ratio(self) -> tuple[str, str, float]:
        """The change, the parameter and the ratio of sds that is furthest from 1."""
        change, j = self._place(np.abs(np.log(np.maximum(self.ratio, 1e-300))))
        return self.changes[change], self.names[j], float(self.ratio[change, j])

    def _place(self, size: Float[np.ndarray, "c q"]) -> tuple[int, int]:
        change, j = np.unravel_index(int(np.argmax(size)), size.shape)
        return int(change), int(j)

    @property
    def sentence(self) -> str:
        """What was found."""
        change, name, shift = self.largest
        wide_change, wide_name, ratio = self.largest_ratio
        left_out = f" Not tried: {'; '.join(f'{c} ({why})' for c, why in self.skipped)}." if self.skipped else ""
        return (
            f"Over {len(self.changes)} other choices of bandwidths, power and prior, no mean moves by more than "
            f"{abs(shift):.2g} sd ({name!r}, {change}), and intervals become at most {_times(ratio)} ({wide_name!r}, "
            f"{wide_change}).{left_out}"
        )

    def describe(self) -> list[str]:
        """A table in lines of at most 80 characters: the largest shift and ratio under each change."""
        lines = [f"{'':22}{'largest shift / sd':>20}{'of':>14}{'sd ratio':>10}{'of':>14}"]
        for change, shifts, ratios in zip(self.changes, self.shift, self.ratio, strict=True):
            i, j = int(np.argmax(np.abs(shifts))), int(np.argmax(np.abs(np.log(np.maximum(ratios, 1e-300)))))
            names = [shortened(self.names[k], 12) for k in (i, j)]
            lines.append(f"{change:22}{shifts[i]:20.2f}{names[0]:>14}{ratios[j]:10.2f}{names[1]:>14}")
        return lines

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        arrays = {name: plain(getattr(self, name)) for name in ("means", "sds", "low", "high", "shift", "ratio")}
        words = {"names": list(self.names), "changes": list(self.changes), "skipped": [list(s) for s in self.skipped]}
        return {**words, **arrays, "largest": list(self.largest), "sentence": self.sentence}


def one_at_a_time(factor: float | int = FACTOR) -> tuple[Change, ...]:
    """h, h', the power and the prior's width, each divided and multiplied by the factor."""
    sizes = (1 / factor, factor)
    return tuple(replace(Change(), **{item.name: size}) for item in fields(Change) for size in sizes)


def sensitivity(
    build: Callable[[Change], Posterior],
    fitted: Posterior | None = None,
    changes: Sequence[Change] | None = None,
) -> Sensitivity:
    """Posteriors under changed settings, from `build(change)`, beside the one as fitted.

    `build` raises an `InputError` for a change that makes no sense (a bandwidth that reaches no row): it is skipped,
    and the reason kept.
    """
    asked = one_at_a_time() if changes is None else tuple(changes)
    posteriors, labels, skipped = [fitted if fitted is not None else build(Change())], [], []
    for change in asked:
        try:
            posteriors.append(build(change))
            labels.append(change.label)
        except InputError as problem:
            skipped.append((change.label, str(problem)))
    if not labels:
        raise InputError(f"sensitivity: none of {len(asked)} changes could be made. {dict(skipped)}")
    means, sds, low, high = np.stack([_summary(posterior) for posterior in posteriors], axis=1)
    return Sensitivity(posteriors[0].names, tuple(labels), means, sds, low, high, tuple(skipped))


def _summary(posterior: Posterior) -> Float[np.ndarray, "4 q"]:
    flat = posterior.flat
    return np.stack([flat.mean(axis=0), flat.std(axis=0), *np.quantile(flat, INTERVAL, axis=0)])


def _times(ratio: float) -> str:
    return f"{ratio:.2g} times as wide" if ratio >= 1 else f"{1 / ratio:.2g} times narrower"
