"""Kernels on one pair of points, in log space.

A kernel is a profile of the scaled distance, K(d(x, y) / h), as in Eq. 3 of the paper, with K(0) = 1: the constant that
makes it integrate to one cancels in a posterior, so it is kept apart (`log_constant`) for comparisons across h.
Profile, distance and bandwidth are free of each other. Factors over different columns multiply: `ProductKernel`.
"""

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from kdbirl.errors import InputError, did_you_mean
from kdbirl.likelihood.distances import Distance, as_distance, distance_name, euclidean, first_line, manhattan

LogProfile = Callable[[Float[Array, ""]], Float[Array, ""]]


def _log_inside(value: Float[Array, ""]) -> Float[Array, ""]:
    """log(value) where it is positive, -inf elsewhere, with a finite gradient everywhere."""
    inside = value > 0
    return jnp.where(inside, jnp.log(jnp.where(inside, value, 1.0)), -jnp.inf)


def gaussian(u: Float[Array, ""]) -> Float[Array, ""]:
    """log K(u) = -u^2 / 2."""
    return -0.5 * u**2


def laplace(u: Float[Array, ""]) -> Float[Array, ""]:
    """log K(u) = -u."""
    return -u


def uniform(u: Float[Array, ""]) -> Float[Array, ""]:
    """K(u) = 1 for u <= 1, else 0. It has no useful gradient."""
    return jnp.where(u <= 1.0, 0.0, -jnp.inf)


def triangular(u: Float[Array, ""]) -> Float[Array, ""]:
    """K(u) = max(0, 1 - u)."""
    return _log_inside(1.0 - u)


def epanechnikov(u: Float[Array, ""]) -> Float[Array, ""]:
    """K(u) = max(0, 1 - u^2)."""
    return _log_inside(1.0 - u**2)


PROFILES: dict[str, LogProfile] = {
    "gaussian": gaussian,
    "laplace": laplace,
    "uniform": uniform,
    "triangular": triangular,
    "epanechnikov": epanechnikov,
}
COMPACT = {"uniform", "triangular", "epanechnikov"}

# log of the integral of K(r) r^(d-1) over r >= 0.
_LOG_RADIAL_MOMENT: dict[str, Callable[[int], float]] = {
    "gaussian": lambda d: (d / 2 - 1) * math.log(2) + math.lgamma(d / 2),
    "laplace": lambda d: math.lgamma(d),
    "uniform": lambda d: -math.log(d),
    "triangular": lambda d: -math.log(d * (d + 1)),
    "epanechnikov": lambda d: math.log(2 / (d * (d + 2))),
}
# log of the surface of the unit ball in d dimensions, per distance.
_LOG_SURFACE: dict[Distance, Callable[[int], float]] = {
    euclidean: lambda d: math.log(2) + d / 2 * math.log(math.pi) - math.lgamma(d / 2),
    manhattan: lambda d: d * math.log(2) - math.lgamma(d),
}


@dataclass(frozen=True)
class RadialKernel:
    """K(d(x, y) / h) for a named profile K and a distance d; h is a width, never a variance.

    It is the standard deviation of a Gaussian, the scale of a Laplace kernel, the edge of a compact one.
    """

    profile: str = "gaussian"
    distance: Distance = euclidean

    def __post_init__(self) -> None:
        if self.profile not in PROFILES:
            raise InputError(f"There is no kernel called {self.profile!r}.{did_you_mean(str(self.profile), PROFILES)}")
        object.__setattr__(self, "distance", as_distance(self.distance))

    def log(self, x: Float[Array, " d"], y: Float[Array, " d"], h: Float[Array, ""]) -> Float[Array, ""]:
        """log K(d(x, y) / h) of one pair."""
        return PROFILES[self.profile](self.distance(x, y) / h)

    def log_constant(self, d: int, h: float) -> float | None:
        """log of the integral of K(d(x, .) / h) over R^d; None where it is not known (angles, user's distances)."""
        surface = _LOG_SURFACE.get(self.distance)
        return None if surface is None else surface(d) + _LOG_RADIAL_MOMENT[self.profile](d) + d * math.log(h)

    @property
    def compact(self) -> bool:
        """Whether the kernel is exactly zero beyond h."""
        return self.profile in COMPACT

    @property
    def differentiable(self) -> bool:
        """Whether its gradient says anything."""
        return self.profile != "uniform"

    def describe(self) -> str:
        """For records and reports."""
        return f"{self.profile} on {distance_name(self.distance)} distance"


@dataclass(frozen=True)
class Categorical:
    """1 where the columns are equal, `mismatch` where they differ; for labels, which have no distances.

    `levels`, when known, is the number of labels, for the constant: 1 + (levels - 1) * mismatch.
    """

    mismatch: float
    levels: int | None = None

    def __post_init__(self) -> None:
        if not 0.0 <= self.mismatch < 1.0:
            raise InputError(
                f"Categorical(mismatch={self.mismatch}) must lie in [0, 1): it is the weight of a training row whose "
                "label differs from the expert's, relative to one whose label is equal."
            )

    def log(self, x: Float[Array, " d"], y: Float[Array, " d"], h: Float[Array, ""]) -> Float[Array, ""]:
        """0 or log(mismatch). `h` is ignored: labels have no scale."""
        other = math.log(self.mismatch) if self.mismatch > 0 else -math.inf
        return jnp.where(jnp.all(x == y), 0.0, other)

    def log_constant(self, d: int, h: float) -> float | None:
        """log(1 + (levels - 1) mismatch) where the number of levels is known."""
        return None if self.levels is None else math.log1p((self.levels - 1) * self.mismatch)

    @property
    def compact(self) -> bool:
        """Whether unequal labels have weight zero."""
        return self.mismatch == 0

    @property
    def differentiable(self) -> bool:
        """Labels have no gradient, but need none: they do not depend on the reward."""
        return True

    def describe(self) -> str:
        """For records and reports."""
        return f"categorical with mismatch {self.mismatch:g}"


@dataclass(frozen=True)
class UserKernel:
    """A user's kernel: `function(u)` of the scaled distance u = d/h, or `function(x, y, h)` of one pair.

    It returns K >= 0, or log K with `log_space=True`, and is written with `jax.numpy`.
    """

    function: Callable[..., Any]
    distance: Distance = euclidean
    log_space: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "distance", as_distance(self.distance))

    def log(self, x: Float[Array, " d"], y: Float[Array, " d"], h: Float[Array, ""]) -> Float[Array, ""]:
        """log K of one pair."""
        arguments: tuple[Array, ...] = (self.distance(x, y) / h,) if self._of_distance else (x, y, h)
        try:
            value = jnp.asarray(self.function(*arguments), dtype=x.dtype).reshape(())
        except Exception as problem:
            raise InputError(
                f"The kernel {self.describe()} failed on one pair of points: {first_line(problem)} "
                "Write it with jax.numpy, as a function of u = d/h or of (x, y, h) that returns one number."
            ) from problem
        return value if self.log_space else _log_inside(value)

    @property
    def _of_distance(self) -> bool:
        parameters = inspect.signature(self.function).parameters.values()
        return sum(p.default is p.empty for p in parameters) == 1

    def log_constant(self, d: int, h: float) -> float | None:
        """Unknown."""
        return None

    @property
    def compact(self) -> bool:
        """Assumed not; an empty neighbourhood is still found and named."""
        return False

    @property
    def differentiable(self) -> bool:
        """Taken on trust."""
        return True

    def describe(self) -> str:
        """For records and reports."""
        return getattr(self.function, "__name__", "user's kernel")


@dataclass(frozen=True, init=False)
class ProductKernel:
    """A product of kernels, one per group of columns: `ProductKernel(state="gaussian", action=Categorical(0.1))`.

    Groups are those of the feature map ("state", "action") or names of single feature columns.
    """

    factors: "tuple[tuple[str, SimpleKernel], ...]"

    def __init__(self, **factors: object) -> None:
        if not factors:
            raise InputError('ProductKernel needs at least one factor, such as ProductKernel(state="gaussian").')
        resolved = []
        for group, given in factors.items():
            kernel = as_kernel(given)
            if isinstance(kernel, ProductKernel):
                raise InputError(
                    f"The factor {group!r} of a ProductKernel is itself a product; list its factors instead."
                )
            resolved.append((group, kernel))
        object.__setattr__(self, "factors", tuple(resolved))

    def describe(self) -> str:
        """For records and reports."""
        return " x ".join(f"{kernel.describe()} ({group})" for group, kernel in self.factors)


SimpleKernel = RadialKernel | Categorical | UserKernel
Kernel = SimpleKernel | ProductKernel


def as_kernel(kernel: object, distance: str | Distance = "euclidean") -> Kernel:
    """A kernel from its name, the user's function or an object; `distance` applies to the first two."""
    if isinstance(kernel, str):
        return RadialKernel(kernel, as_distance(distance))
    if isinstance(kernel, RadialKernel | Categorical | UserKernel | ProductKernel):
        return kernel
    if callable(kernel):
        return UserKernel(kernel, as_distance(distance))
    raise InputError(f"A kernel is a name ({', '.join(PROFILES)}), a function or a kernel object, not {kernel!r}.")


@dataclass(frozen=True)
class Part:
    """One factor of a kernel, on the feature columns that it sees."""

    group: str
    columns: tuple[int, ...]
    kernel: SimpleKernel


@dataclass(frozen=True)
class PairKernel:
    """A kernel tied to the columns of a feature table: the product of its parts, each with a bandwidth of its own."""

    parts: tuple[Part, ...]

    def log(self, x: Float[Array, " d"], y: Float[Array, " d"], h: Float[Array, " parts"]) -> Float[Array, ""]:
        """log K(x, y) of one pair of feature rows."""
        total = jnp.zeros((), x.dtype)
        for i, part in enumerate(self.parts):
            columns = jnp.asarray(part.columns)
            total = total + part.kernel.log(x[columns], y[columns], h[i])
        return total

    def log_constant(self, h: Sequence[float]) -> float | None:
        """log of the kernel's integral, or None where a part's is not known."""
        constants = [p.kernel.log_constant(len(p.columns), s) for p, s in zip(self.parts, h, strict=True)]
        known = [c for c in constants if c is not None]
        return sum(known) if len(known) == len(constants) else None

    def restricted(self, columns: Sequence[int]) -> tuple["PairKernel", list[int]]:
        """The kernel on a subset of columns, renumbered, and the parts that it keeps."""
        place = {column: i for i, column in enumerate(columns)}
        parts, kept = [], []
        for i, part in enumerate(self.parts):
            inside = tuple(place[column] for column in part.columns if column in place)
            if inside:
                parts.append(Part(part.group, inside, part.kernel))
                kept.append(i)
        return PairKernel(tuple(parts)), kept

    @property
    def compact(self) -> bool:
        """Whether it can be exactly zero."""
        return any(part.kernel.compact for part in self.parts)

    @property
    def squared_exponential(self) -> bool:
        """Whether it is one Gaussian of the Euclidean distance: the case with a fast path."""
        return len(self.parts) == 1 and self.parts[0].kernel == RadialKernel("gaussian", euclidean)


def on_columns(kernel: Kernel, names: Sequence[str], groups: Mapping[str, Sequence[int]]) -> PairKernel:
    """Tie a kernel to feature columns: a simple kernel sees all of them, a product's factors their own groups."""
    if not isinstance(kernel, ProductKernel):
        return PairKernel((Part("all", tuple(range(len(names))), kernel),))
    known = {**{name: (i,) for i, name in enumerate(names)}, **groups}
    parts = []
    for group, factor in kernel.factors:
        if group not in known or not len(known[group]):
            raise InputError(
                f"The kernel has a factor for {group!r}, but the features have none.{did_you_mean(group, known)}"
            )
        parts.append(Part(group, tuple(known[group]), factor))
    unseen = set(range(len(names))) - {column for part in parts for column in part.columns}
    if unseen:
        missing = ", ".join(repr(names[i]) for i in sorted(unseen)[:5])
        raise InputError(
            f"No factor of the kernel covers the feature {missing}; add a factor, or leave it out of the features."
        )
    return PairKernel(tuple(parts))


def sigma_from_paper(h: float) -> float:
    """The paper's h in exp(-d^2 / (2h)) is a variance; ours is a standard deviation: sigma = sqrt(h)."""
    if not h > 0:
        raise InputError(f"The paper's bandwidth h = {h} must be positive.")
    return math.sqrt(h)
