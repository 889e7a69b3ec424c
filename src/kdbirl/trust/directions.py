"""Subspaces of the reward parameters in the user's own names: "r2, r3 and r0 + r1 (their sum)"."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from kdbirl.errors import InputError

NOTHING = 1e-9  # entries of a projection below this are rounding
EVEN = 1e-6  # coefficients that differ by less than this share are called equal
UNSHOWN = 0.005  # coefficients below this share of the largest are left out of words
MOST_TERMS = 4  # in a combination that is written out
MOST_LISTED = 8  # names or combinations in one sentence


def readable_complement(informed: Float[np.ndarray, "r q"]) -> Float[np.ndarray, "u q"]:
    """Orthonormal rows spanning the complement of orthonormal rows, with as few parameters in each as can be seen.

    The complement's projection I - U'U is cut into blocks of parameters that it does not connect; a parameter alone in
    its block is a row of its own, and comes first. Each block has its own exact basis, so the whole is one.
    """
    q = informed.shape[1]
    rows = [np.zeros((0, q))]
    for block, basis in _blocks(informed):
        placed = np.zeros((len(basis), q))
        placed[:, block] = basis
        rows.append(placed)
    return np.concatenate(rows)


def _blocks(informed: Float[np.ndarray, "r q"]) -> list[tuple[Int[np.ndarray, " b"], Float[np.ndarray, "u b"]]]:
    """Parameters of each block and the complement's orthonormal basis on them, single parameters first."""
    from scipy.sparse.csgraph import connected_components

    projection = np.eye(informed.shape[1]) - informed.T @ informed
    count, label = connected_components(np.abs(projection) > NOTHING, directed=False)
    found = []
    for number in range(count):
        block = np.flatnonzero(label == number)
        part = projection[np.ix_(block, block)]
        size = round(float(np.trace(part)))  # the trace of a projection is its rank
        if size:
            found.append((block, np.ones((1, 1)) if len(block) == 1 else np.linalg.eigh(part)[1][:, -size:].T))
    return sorted(found, key=lambda item: (len(item[0]) > 1, int(item[0][0])))


class Phrase(NamedTuple):
    """Directions in words: one parameter, one combination, or several that are too tangled to be told apart."""

    words: str
    rows: Float[np.ndarray, "d q"]
    single: bool


def complement_in_words(informed: Float[np.ndarray, "r q"], names: Sequence[str]) -> list[Phrase]:
    """The complement's directions, in the order of `readable_complement`: single parameters, then combinations."""
    found = []
    for block, basis in _blocks(informed):
        own, reduced = [names[int(j)] for j in block], _reduced(basis)
        placed = np.zeros((len(basis), len(names)))
        placed[:, block] = reduced
        if len(basis) == 1 or (len(basis) <= MOST_TERMS and (reduced != 0).sum(axis=1).max() <= MOST_TERMS):
            found += [Phrase(axis_in_words(row[block], own), row[None], len(block) == 1) for row in placed]
        else:
            found.append(Phrase(f"{len(basis)} combinations of {listed(own)}", placed, False))
    return found


def axis_in_words(axis: Float[np.ndarray, " q"], names: Sequence[str]) -> str:
    """A line through the origin, whose sign is free: the first coefficient that is written is positive."""
    return direction_in_words(axis_sign(axis) * axis, names)


def axis_sign(axis: Float[np.ndarray, " q"]) -> float:
    """The sign with which an axis is written; a picture beside the words takes the same."""
    return float(np.sign(axis[_terms(axis)[0]]))


def direction_in_words(direction: Float[np.ndarray, " q"], names: Sequence[str]) -> str:
    """One direction as a sum of named parameters, with its own signs."""
    size, terms = np.abs(direction), _terms(direction)
    own = [names[int(j)] for j in terms]
    if len(terms) == (size > EVEN * size.max()).sum() and np.ptp(size[terms]) <= EVEN * size.max():
        return _even(np.sign(direction[terms]), own)
    if len(terms) == 1:  # a single coefficient's size says nothing
        return f"{_written(np.sign(direction[terms]), own)} (nearly alone)"
    smaller = int((size > UNSHOWN * size.max()).sum()) - len(terms)
    return _written(direction[terms], own) + (f" and {smaller} smaller terms" if smaller else "")


def _terms(direction: Float[np.ndarray, " q"]) -> Int[np.ndarray, " t"]:
    """The parameters that are written: all of them if their coefficients are equal, otherwise the largest."""
    size = np.abs(direction)
    present = np.flatnonzero(size > EVEN * size.max())
    if np.ptp(size[present]) <= EVEN * size.max():
        return present
    shown = present[size[present] > UNSHOWN * size.max()]
    return np.sort(shown[np.argsort(-size[shown], kind="stable")[:MOST_TERMS]])


def _written(coefficients: Float[np.ndarray, " p"], names: Sequence[str]) -> str:
    """`0.6 a - 0.8 b`; a coefficient of one is not written."""
    terms = []
    for value, name in zip(coefficients, names, strict=True):
        number = "" if abs(abs(value) - 1) < EVEN else f"{abs(value):.2g} "
        terms.append(f"{'-' if value < 0 else '+'} {number}{name}")
    return " ".join(terms).removeprefix("+ ")


def _even(signs: Float[np.ndarray, " p"], names: Sequence[str]) -> str:
    if len(names) == 1:
        return _written(signs, names)
    if len(names) > MOST_TERMS and (signs == signs[0]).all():
        return f"{'minus ' if signs[0] < 0 else ''}the sum of {listed(names)}"
    if len(names) > MOST_TERMS:
        minus = [name for name, sign in zip(names, signs, strict=True) if sign < 0]
        plus = [name for name, sign in zip(names, signs, strict=True) if sign > 0]
        return f"the sum of {listed(plus)} minus that of {listed(minus)}"
    written = _written(signs, names)
    if (signs > 0).all():
        return f"{written} (their sum)"
    return f"{written} (their difference)" if len(names) == 2 and signs[0] > 0 > signs[1] else written


def _reduced(basis: Float[np.ndarray, "u b"]) -> Float[np.ndarray, "u b"]:
    """The same span in reduced row echelon form: many zeros, which read better. The rows are not orthogonal."""
    table, row = basis.copy(), 0
    for column in range(table.shape[1]):
        pivot = row + int(np.abs(table[row:, column]).argmax())
        if abs(table[pivot, column]) < EVEN:
            continue
        table[[row, pivot]] = table[[pivot, row]]
        table[row] /= table[row, column]
        others = np.arange(len(table)) != row
        table[others] -= table[others, column][:, None] * table[row]
        row += 1
        if row == len(table):
            break
    table[np.abs(table) < EVEN] = 0.0
    return table if len(table) > 1 else basis


def listed(items: Sequence[str], most: int = MOST_LISTED) -> str:
    """`a, b and c`; `a, b, c and 97 more`."""
    shown = [*items] if len(items) <= most else [*items[: most - 1], f"{len(items) - most + 1} more"]
    return shown[0] if len(shown) == 1 else ", ".join(shown[:-1]) + " and " + shown[-1]


def reward_in_words(reward: Float[np.ndarray, " q"], names: Sequence[str], most: int = 6) -> str:
    """`w_x = 0.2, w_y = -1`; long rewards lose their end."""
    pairs = [f"{name} = {value:.3g}" for name, value in zip(names, reward, strict=True)]
    return ", ".join(pairs[:most]) + (f" (and {len(pairs) - most} more parameters)" if len(pairs) > most else "")


# Direction and size of w, apart: optimal behaviour is the same for w and for 2 w, so it never reveals the size.
#
# The direction is that of the mean, mean(w) / |mean(w)|: its signs are those of the means that are printed beside it,
# and a plan for the mean reward is the best one under the draws. With u_i = w_i / |w_i|, the length |mean(u)| is the
# concentration, from 0 (all directions) to 1 (one direction).

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
