"""Priors over the reward parameters. Each parameter is independent; give one value for all or one value per parameter.

A prior is configuration and numbers. Its log density is a pure function of `(parameters, reward)`, so that samplers can
be compiled once and used with other numbers.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jax.scipy.special import betaln
from jaxtyping import Array, Float
from scipy import stats

from kdbirl.errors import InputError, did_you_mean
from kdbirl.random_streams import stream

Parameters = dict[str, Any]
LogDensity = Callable[[Parameters, Float[Array, " q"]], Float[Array, ""]]
LOCATIONS, SCALES = frozenset({"mean", "low", "high"}), frozenset({"sd", "scale"})  # what stretching moves, and sizes
NEGLIGIBLE = 1e-15  # tail probability on each side that `box` leaves out


class Prior(ABC):
    """A distribution over reward vectors of length q."""

    kind: ClassVar[str]

    @abstractmethod
    def for_parameters(self, q: int, names: Sequence[str] = ()) -> "Prior":
        """The same prior with every value spelled out for q parameters."""

    @property
    @abstractmethod
    def log_density(self) -> LogDensity:
        """A pure function of (parameters, reward); -inf outside the support."""

    @property
    @abstractmethod
    def parameters(self) -> Parameters:
        """The numbers that `log_density` needs."""

    @abstractmethod
    def sample(self, rng: np.random.Generator, n: int) -> Float[np.ndarray, "n q"]:
        """Independent draws."""

    @property
    @abstractmethod
    def support(self) -> tuple[Float[np.ndarray, " q"], Float[np.ndarray, " q"]]:
        """Lower and upper bounds, infinite where there are none."""

    @property
    @abstractmethod
    def box(self) -> tuple[Float[np.ndarray, " q"], Float[np.ndarray, " q"]]:
        """Finite bounds that hold all but a negligible part of the prior."""

    @property
    def normal(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Mean and standard deviations if this is a normal distribution."""
        return None

    def quantiles(self, levels: Float[np.ndarray, "p q"]) -> Float[np.ndarray, "p q"] | None:
        """Each parameter's quantile at these levels; None where the parameters are not known to be independent."""
        return None

    @abstractmethod
    def widened(self, factor: float | int) -> "Prior":
        """The density stretched by a factor about the median c of each parameter, p(c + (R - c) / factor) / factor^q.

        Every sd and quantile range is multiplied by the factor, and bounds move with the rest: they are part of the
        width. The rule asks for the density alone, so priors of one density become one, whatever their names.
        """

    @abstractmethod
    def describe(self) -> str:
        """As a user would write it."""

    def contains(self, rewards: Float[np.ndarray, "r q"]) -> np.ndarray:
        """Which rewards lie in the support (r,)."""
        low, high = self.support
        return np.all((rewards >= low) & (rewards <= high), axis=1)


class _Family(Prior):
    """A prior whose parameters have independent one-dimensional distributions of one kind."""

    def __new__(cls, *values: Any, **named: Any) -> "_Family":
        """Refuse what is not a number before anything is made of it."""
        for value in (*values, *named.values()):
            if np.asarray(value).dtype.kind not in "iuf":
                raise InputError(f"{cls.__name__}: {value!r} is not a number, or a list with one for each parameter.")
        return super().__new__(cls)

    def for_parameters(self, q: int, names: Sequence[str] = ()) -> "Prior":
        values = {}
        for item in fields(self):  # type: ignore[arg-type]
            value = np.asarray(getattr(self, item.name), dtype=float)
            if value.ndim > 1 or (value.ndim == 1 and len(value) not in (1, q)):
                raise InputError(
                    f"The prior's {item.name} has {value.size} values, but the reward has {q} parameters"
                    f"{' (' + ', '.join(names) + ')' if names else ''}: give one value, or one for each."
                )
            values[item.name] = np.broadcast_to(value.reshape(-1), (q,)).copy()
        return type(self)(**values)

    @property
    def parameters(self) -> Parameters:
        return {item.name: getattr(self, item.name) for item in fields(self)}  # type: ignore[arg-type]

    @abstractmethod
    def _distribution(self) -> Any:
        """The same distribution in SciPy, for draws and quantiles."""

    def sample(self, rng: np.random.Generator, n: int) -> np.ndarray:
        return np.asarray(self._distribution().rvs(size=(n, self._size), random_state=rng), dtype=float)

    def quantiles(self, levels: np.ndarray) -> np.ndarray:
        return np.asarray(self._distribution().ppf(levels), dtype=float)

    @property
    def support(self) -> tuple[np.ndarray, np.ndarray]:
        low, high = self._distribution().support()
        return np.broadcast_to(low, self._size).astype(float), np.broadcast_to(high, self._size).astype(float)

    @property
    def box(self) -> tuple[np.ndarray, np.ndarray]:
        low, high = self.support
        tail_low, tail_high = self._distribution().ppf(NEGLIGIBLE), self._distribution().isf(NEGLIGIBLE)
        return np.where(np.isfinite(low), low, tail_low), np.where(np.isfinite(high), high, tail_high)

    def widened(self, factor: float | int) -> "Prior":
        """The same family: each has a location and a scale, or two ends."""
        centre = self.quantiles(np.full((1, self._size), 0.5))[0]
        values = {item.name: np.asarray(getattr(self, item.name), float) for item in fields(self)}  # type: ignore[arg-type]
        moved = {name: centre + factor * (values[name] - centre) for name in LOCATIONS & values.keys()}
        sized = {name: factor * values[name] for name in SCALES & values.keys()}
        return replace(self, **moved, **sized)  # type: ignore[type-var]

    @property
    def _size(self) -> int:
        return int(np.size(getattr(self, fields(self)[0].name)))  # type: ignore[arg-type]

    def describe(self) -> str:
        values = ",".join(_compact(getattr(self, item.name)) for item in fields(self))  # type: ignore[arg-type]
        return f"{self.kind}:{values}"

    def _require(self, holds: Any, rule: str) -> None:
        if not np.all(holds):
            values = ", ".join(f"{item.name}={_compact(getattr(self, item.name))}" for item in fields(self))  # type: ignore[arg-type]
            raise InputError(f"{type(self).__name__}({values}): {rule}.")


def _compact(value: Any) -> str:
    """One number where all are equal, else all of them."""
    numbers = np.atleast_1d(np.asarray(value, dtype=float))
    if len(numbers) == 1 or (numbers == numbers[0]).all():
        return f"{numbers[0]:g}"
    return "[" + " ".join(f"{number:g}" for number in numbers) + "]"


def _within(reward: Array, low: Array, high: Array, log_density: Array) -> Array:
    return jnp.where(jnp.all((reward >= low) & (reward <= high)), log_density, -jnp.inf)


def _uniform(p: Parameters, reward: Array) -> Array:
    return _within(reward, p["low"], p["high"], -jnp.sum(jnp.log(p["high"] - p["low"])))


def _normal(p: Parameters, reward: Array) -> Array:
    return jnp.sum(-0.5 * ((reward - p["mean"]) / p["sd"]) ** 2 - jnp.log(p["sd"]) - 0.5 * np.log(2 * np.pi))


def _truncated_normal(p: Parameters, reward: Array) -> Array:
    return _within(reward, p["low"], p["high"], _normal(p, reward) - jnp.sum(p["log_mass"]))


def _beta(p: Parameters, reward: Array) -> Array:
    width = p["high"] - p["low"]
    tiny = 2.0**-53  # keeps the logarithms finite at the ends, where rounding may put a transformed draw
    u = jnp.clip((reward - p["low"]) / width, tiny, 1 - tiny)
    logs = (p["a"] - 1) * jnp.log(u) + (p["b"] - 1) * jnp.log1p(-u) - betaln(p["a"], p["b"]) - jnp.log(width)
    return _within(reward, p["low"], p["high"], jnp.sum(logs))


def _laplace(p: Parameters, reward: Array) -> Array:
    return jnp.sum(-jnp.abs(reward - p["mean"]) / p["scale"] - jnp.log(2 * p["scale"]))


Values = int | float | Sequence[Any] | np.ndarray


@dataclass(frozen=True, eq=False)
class Uniform(_Family):
    """Uniform(low, high): every reward in the box is as likely as any other."""

    low: Values
    high: Values
    kind: ClassVar[str] = "uniform"
    log_density = staticmethod(_uniform)

    def __post_init__(self) -> None:
        low, high = np.asarray(self.low, float), np.asarray(self.high, float)
        self._require(np.isfinite(low) & np.isfinite(high) & (low < high), "low must lie below high, both finite")

    def _distribution(self) -> Any:
        return stats.uniform(np.asarray(self.low, float), np.asarray(self.high, float) - np.asarray(self.low, float))

    def quantiles(self, levels: np.ndarray) -> np.ndarray:
        """SciPy's formula without its checks, with which it takes six times as long: many tasks ask for millions."""
        low, high = np.asarray(self.low, float), np.asarray(self.high, float)
        return np.asarray(levels * (high - low) + low)


@dataclass(frozen=True, eq=False)
class Normal(_Family):
    """Normal(mean, sd): sd is a standard deviation. (The paper's N(0.5, 0.5) names a variance: sd = 0.707.)"""

    mean: Values
    sd: Values
    kind: ClassVar[str] = "normal"
    log_density = staticmethod(_normal)

    def __post_init__(self) -> None:
        sd = np.asarray(self.sd, float)
        self._require(
            np.isfinite(np.asarray(self.mean, float)) & np.isfinite(sd) & (sd > 0),
            "mean must be finite and sd positive",
        )

    def _distribution(self) -> Any:
        return stats.norm(np.asarray(self.mean, float), np.asarray(self.sd, float))

    @property
    def normal(self) -> tuple[np.ndarray, np.ndarray]:
        return np.asarray(self.mean, float), np.asarray(self.sd, float)


@dataclass(frozen=True, eq=False)
class TruncatedNormal(_Family):
    """TruncatedNormal(mean, sd, low, high): a normal distribution cut to an interval."""

    mean: Values
    sd: Values
    low: Values
    high: Values
    kind: ClassVar[str] = "truncated-normal"
    log_density = staticmethod(_truncated_normal)

    def __post_init__(self) -> None:
        sd, low, high = (np.asarray(v, float) for v in (self.sd, self.low, self.high))
        finite = np.isfinite(np.asarray(self.mean, float)) & np.isfinite(sd)
        self._require(finite & (sd > 0) & (low < high), "mean must be finite, sd positive, and low below high")

    def _distribution(self) -> Any:
        mean, sd, low, high = (np.asarray(v, float) for v in (self.mean, self.sd, self.low, self.high))
        return stats.truncnorm((low - mean) / sd, (high - mean) / sd, loc=mean, scale=sd)

    @property
    def parameters(self) -> Parameters:
        mean, sd, low, high = (np.asarray(v, float) for v in (self.mean, self.sd, self.low, self.high))
        inside = np.clip(mean, low, high)  # the ratio of the two densities is the mass, wherever it is taken
        log_mass = stats.norm.logpdf(inside, mean, sd) - self._distribution().logpdf(inside)
        return {"mean": mean, "sd": sd, "low": low, "high": high, "log_mass": log_mass}


@dataclass(frozen=True, eq=False)
class Beta(_Family):
    """Beta(a, b, low, high): a beta distribution stretched over an interval."""

    a: Values
    b: Values
    low: Values = 0.0
    high: Values = 1.0
    kind: ClassVar[str] = "beta"
    log_density = staticmethod(_beta)

    def __post_init__(self) -> None:
        a, b, low, high = (np.asarray(v, float) for v in (self.a, self.b, self.low, self.high))
        finite = np.isfinite(a) & np.isfinite(b) & np.isfinite(low) & np.isfinite(high)
        self._require((a > 0) & (b > 0) & finite & (low < high), "a and b must be positive, low below high, all finite")

    def _distribution(self) -> Any:
        a, b, low, high = (np.asarray(v, float) for v in (self.a, self.b, self.low, self.high))
        return stats.beta(a, b, loc=low, scale=high - low)


@dataclass(frozen=True, eq=False)
class Laplace(_Family):
    """Laplace(mean, scale): favours rewards of which most parameters are near the mean."""

    mean: Values
    scale: Values
    kind: ClassVar[str] = "laplace"
    log_density = staticmethod(_laplace)

    def __post_init__(self) -> None:
        scale = np.asarray(self.scale, float)
        finite = np.isfinite(np.asarray(self.mean, float)) & np.isfinite(scale)
        self._require(finite & (scale > 0), "mean must be finite and scale positive")

    def _distribution(self) -> Any:
        return stats.laplace(np.asarray(self.mean, float), np.asarray(self.scale, float))


FAMILIES: dict[str, type[_Family]] = {f.kind: f for f in (Uniform, Normal, TruncatedNormal, Beta, Laplace)}


def parse_prior(text: str) -> Prior:
    """A prior from text: `uniform:0,1`, `normal:0,1`, `truncated-normal:0,1,-1,1`, `beta:2,5`, `laplace:0,1`."""
    kind, _, numbers = text.strip().partition(":")
    family = FAMILIES.get(kind.lower().replace("_", "-").replace("truncatednormal", "truncated-normal"))
    if family is None:
        raise InputError(f"There is no prior called {kind!r}.{did_you_mean(kind, FAMILIES)} Write it as uniform:0,1.")
    names = [item.name for item in fields(family)]  # type: ignore[arg-type]
    try:
        values = [float(number) for number in numbers.split(",")] if numbers else []
        return family(*values)
    except InputError:
        raise
    except (TypeError, ValueError):
        raise InputError(f"The prior {text!r} should read {kind}:{','.join(names)} with a number for each.") from None


# Equally weighted points that stand for a prior, so that expectations under it are plain means.
#
# Up to three parameters they are a tensor grid of midpoints in the prior's own quantiles (quadrature by the midpoint
# rule); beyond, a scrambled Sobol sequence through the quantiles; draws where the parameters are not independent.

MOST_GRID_DIMENSIONS = 3


def prior_points(prior: Prior, count: int, seed: int = 0) -> Float[np.ndarray, "p q"]:
    """About `count` points, each with the same share of the prior."""
    q = len(prior.support[0])
    points = prior.quantiles(_levels(q, count, seed))
    return prior.sample(np.random.default_rng(stream(seed, "prior points")), count) if points is None else points


def _levels(q: int, count: int, seed: int) -> Float[np.ndarray, "p q"]:
    """Points that fill the unit cube evenly, away from its faces."""
    if q <= MOST_GRID_DIMENSIONS:
        per_axis = max(round(count ** (1 / q)), 2)
        middles = (np.arange(per_axis) + 0.5) / per_axis
        return np.stack(np.meshgrid(*[middles] * q, indexing="ij"), axis=-1).reshape(-1, q)
    from scipy.stats import qmc

    sequence = qmc.Sobol(q, rng=np.random.default_rng(stream(seed, "even points")))
    points = sequence.random_base2(int(np.ceil(np.log2(count))))
    return np.asarray(points).clip(1e-12, 1 - 1e-12)  # a quantile at 0 or 1 may be infinite
