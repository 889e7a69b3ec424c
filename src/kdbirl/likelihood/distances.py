"""Distances d(x, y) between two points. Each is written for one pair; callers vectorise it.

Distances whose derivative has a kink at zero are differentiable here in the sense of a sub-gradient: zero where the
points coincide, never NaN.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from kdbirl.errors import InputError, did_you_mean

WRITTEN_OUT = 16  # columns up to which a sum over them is unrolled
Distance = Callable[[Float[Array, " d"], Float[Array, " d"]], Float[Array, ""]]


def _square_root(x: Float[Array, ""]) -> Float[Array, ""]:
    """sqrt(x) with gradient 0 instead of infinity at 0."""
    zero = x == 0
    return jnp.where(zero, 0.0, jnp.sqrt(jnp.where(zero, 1.0, x)))


def _total(terms: Float[Array, " d"]) -> Float[Array, ""]:
    """The sum of the terms, written out where they are few: vectorised over pairs, that runs several times faster."""
    if terms.shape[0] > WRITTEN_OUT:
        return jnp.sum(terms)
    return sum((terms[i] for i in range(1, terms.shape[0])), terms[0])


def euclidean(x: Float[Array, " d"], y: Float[Array, " d"]) -> Float[Array, ""]:
    """|x - y|_2. Differences are squared directly: expanding the square would cancel where x is near y."""
    return _square_root(_total((x - y) ** 2))


def manhattan(x: Float[Array, " d"], y: Float[Array, " d"]) -> Float[Array, ""]:
    """|x - y|_1."""
    return _total(jnp.abs(x - y))


def cosine(x: Float[Array, " d"], y: Float[Array, " d"]) -> Float[Array, ""]:
    """1 - cos(x, y), in [0, 2]. The angle to a zero vector is taken as a right angle: distance 1."""
    lengths = _square_root(_total(x**2)) * _square_root(_total(y**2))
    nonzero = lengths > 0
    similarity = jnp.where(nonzero, _total(x * y) / jnp.where(nonzero, lengths, 1.0), 0.0)
    return jnp.maximum(1.0 - similarity, 0.0)


def dot(x: Float[Array, " d"], y: Float[Array, " d"]) -> Float[Array, ""]:
    """max(0, 1 - x.y): the paper's dot-product similarity as a dissimilarity.

    It is the cosine distance for vectors of length one and 0 or 1 for one-hot vectors; similarities above one count
    as no distance, because a distance cannot be negative.
    """
    return jnp.maximum(1.0 - _total(x * y), 0.0)


DISTANCES: dict[str, Distance] = {"euclidean": euclidean, "manhattan": manhattan, "cosine": cosine, "dot": dot}


@dataclass(frozen=True)
class UserDistance:
    """A user's own distance, `function(x, y)`, held to one number per pair of points."""

    function: Callable[..., Any]

    def __call__(self, x: Float[Array, " d"], y: Float[Array, " d"]) -> Float[Array, ""]:
        try:
            return jnp.asarray(self.function(x, y), dtype=x.dtype).reshape(())
        except Exception as problem:
            raise InputError(
                f"The distance {distance_name(self)} failed on one pair of points: {first_line(problem)} "
                "Write it with jax.numpy, as a function of two points (x, y) that returns one number."
            ) from problem


def first_line(problem: Exception) -> str:
    """The first line of an error's message, or its type where it has none."""
    return (str(problem) or type(problem).__name__).splitlines()[0]


def as_distance(distance: str | Distance) -> Distance:
    """The distance of that name, or the user's own function of one pair of points."""
    if callable(distance):
        known = distance in DISTANCES.values() or isinstance(distance, UserDistance)
        return distance if known else UserDistance(distance)
    if distance not in DISTANCES:
        raise InputError(f"There is no distance called {distance!r}.{did_you_mean(str(distance), DISTANCES)}")
    return DISTANCES[distance]


def distance_name(distance: Distance) -> str:
    """The table's name of a distance, or the name of the user's function."""
    for name, known in DISTANCES.items():
        if known is distance:
            return name
    function = distance.function if isinstance(distance, UserDistance) else distance
    return getattr(function, "__name__", "user's distance")
