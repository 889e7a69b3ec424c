"""Subspaces of the reward parameters in the user's own names: "r2, r3 and r0 + r1 (their sum)"."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

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
