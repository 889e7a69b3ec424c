"""Priors put together by the user: a different family for each parameter, or a log density of their own."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from kdbirl._jax import float64
from kdbirl.errors import InputError, did_you_mean
from kdbirl.posterior.mcmc import Metropolis
from kdbirl.posterior.priors import LogDensity, Parameters, Prior, Values, parse_prior
from kdbirl.posterior.target import NoLikelihood, Problem, Target
from kdbirl.progress import Silent

CENTRE_DRAWS = 4000  # behind the median of a prior that is known by its density alone: within 3 % of its sd


@dataclass(frozen=True)
class _ProductDensity:
    """Sum of one-parameter log densities. Hashable, so that a compiled sampler is found again."""

    densities: tuple[LogDensity, ...]

    def __call__(self, parameters: Parameters, reward: Float[Array, " q"]) -> Float[Array, ""]:
        parts = [density(parameters[str(i)], reward[i : i + 1]) for i, density in enumerate(self.densities)]
        return jnp.sum(jnp.stack(parts))


@dataclass(frozen=True, eq=False)
class Product(Prior):
    """A prior per parameter: `Product([Uniform(0, 1), Normal(0, 1)])`, or by name: `Product.by_name({"w_x": ...})`.

    names: of the parameters that the priors belong to; without them the priors stand in the parameters' order.
    otherwise: the prior of the parameters that `names` leaves out.
    """

    priors: Sequence[Prior]
    names: Sequence[str] = ()
    otherwise: Prior | None = None
    kind: ClassVar[str] = "product"

    @classmethod
    def by_name(cls, priors: Mapping[str, Prior], otherwise: Prior | None = None) -> "Product":
        """`Product.by_name({"w_x": Uniform(0, 1), "w_y": Normal(0, 1)})`; `otherwise` is for all other parameters."""
        return cls(tuple(priors.values()), tuple(priors), otherwise)

    def for_parameters(self, q: int, names: Sequence[str] = ()) -> "Product":
        priors = [self._of(name) for name in self._known(names)] if self.names else self.priors
        if len(priors) != q:
            raise InputError(f"The prior has {len(priors)} factors, but the reward has {q} parameters.")
        return Product(tuple(prior.for_parameters(1) for prior in priors))

    def _known(self, names: Sequence[str]) -> Sequence[str]:
        for name in self.names:
            if name not in names:
                there = did_you_mean(name, names)
                raise InputError(f"The prior names {name!r}, which is not among the reward parameters.{there}")
        return names

    def _of(self, name: str) -> Prior:
        if name in self.names:
            return self.priors[list(self.names).index(name)]
        if self.otherwise is None:
            raise InputError(
                f"The reward parameter {name!r} has no prior; add {name}=uniform:0,1 or the like, or one prior without "
                "a name for all the others."
            )
        return self.otherwise

    @property
    def log_density(self) -> LogDensity:
        return _ProductDensity(tuple(prior.log_density for prior in self.priors))

    @property
    def parameters(self) -> Parameters:
        return {str(i): prior.parameters for i, prior in enumerate(self.priors)}

    def sample(self, rng: np.random.Generator, n: int) -> np.ndarray:
        return np.concatenate([prior.sample(rng, n) for prior in self.priors], axis=1)

    def quantiles(self, levels: np.ndarray) -> np.ndarray | None:
        parts = [prior.quantiles(levels[:, i : i + 1]) for i, prior in enumerate(self.priors)]
        known = [part for part in parts if part is not None]
        return np.concatenate(known, axis=1) if len(known) == len(parts) else None

    @property
    def support(self) -> tuple[np.ndarray, np.ndarray]:
        return _joined([prior.support for prior in self.priors])

    @property
    def box(self) -> tuple[np.ndarray, np.ndarray]:
        return _joined([prior.box for prior in self.priors])

    @property
    def normal(self) -> tuple[np.ndarray, np.ndarray] | None:
        normals = [n for prior in self.priors if (n := prior.normal) is not None]
        return _joined(normals) if len(normals) == len(self.priors) else None

    def widened(self, factor: float | int) -> "Product":
        rest = None if self.otherwise is None else self.otherwise.widened(factor)
        return replace(self, priors=tuple(prior.widened(factor) for prior in self.priors), otherwise=rest)

    def describe(self) -> str:
        return " x ".join(prior.describe() for prior in self.priors)


def parse_priors(texts: Sequence[str]) -> Prior:
    """Priors from the command line: one for all parameters (`uniform:0,1`), one for each by name (`w_x=normal:0,1`), or
    some by name and one without a name for the rest."""
    named: dict[str, Prior] = {}
    unnamed: list[Prior] = []
    for text in texts:
        name, _, prior = (part.strip() for part in text.rpartition("="))
        if not name:
            unnamed.append(parse_prior(prior))
        elif name in named:
            raise InputError(f"The reward parameter {name!r} has two priors; give it one.")
        else:
            named[name] = parse_prior(prior)
    if len(unnamed) > 1:
        raise InputError(f"There are {len(unnamed)} priors without a parameter's name; write them as w_x=uniform:0,1.")
    otherwise = unnamed[0] if unnamed else None
    if named or otherwise is None:
        return Product.by_name(named, otherwise)
    return otherwise


def _joined(pairs: Sequence[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    first, second = zip(*pairs, strict=True)
    return np.concatenate(first), np.concatenate(second)


@dataclass(frozen=True)
class _UserDensity:
    function: Callable[[Array], Any]
    needs_bounds: bool = True

    def __call__(self, parameters: Parameters, reward: Float[Array, " q"]) -> Float[Array, ""]:
        inside = jnp.all((reward >= parameters["low"]) & (reward <= parameters["high"]))
        try:
            value = jnp.asarray(self.function(reward), dtype=reward.dtype).reshape(())
        except Exception as problem:
            raise InputError(
                f"The prior's log density failed: {str(problem).splitlines()[0]} Write it with jax.numpy, as a "
                "function of the reward vector that returns one number."
            ) from problem
        return jnp.where(inside, value, -jnp.inf)


@dataclass(frozen=True)
class _Stretched:
    """A user's log density at c + (R - c) / factor. Hashable, so that a compiled sampler is found again."""

    function: Callable[[Array], Any]
    centre: tuple[float, ...]
    factor: float

    def __call__(self, reward: Float[Array, " q"]) -> Any:
        centre = jnp.asarray(self.centre, dtype=reward.dtype)
        return self.function(centre + (reward - centre) / self.factor)


@dataclass(frozen=True, eq=False)
class CustomPrior(Prior):
    """A user's log density (not necessarily normalised) on the box [low, high].

    `sample(rng, n)`, if given, draws from it; otherwise draws come from a random walk.
    """

    function: Callable[[Array], Any]
    low: Values
    high: Values
    sampler: Callable[[np.random.Generator, int], np.ndarray] | None = None
    kind: ClassVar[str] = "custom"

    def for_parameters(self, q: int, names: Sequence[str] = ()) -> "CustomPrior":
        sides = [np.asarray(side, dtype=float).reshape(-1) for side in (self.low, self.high)]
        if any(len(side) not in (1, q) for side in sides) or not np.all(sides[0] < sides[1]):
            raise InputError(f"CustomPrior needs low below high, one number or one for each of the {q} parameters.")
        low, high = (np.broadcast_to(side, (q,)).copy() for side in sides)
        return CustomPrior(self.function, low, high, self.sampler)

    @property
    def log_density(self) -> LogDensity:
        return _UserDensity(self.function)

    @property
    def parameters(self) -> Parameters:
        return {"low": np.asarray(self.low, float), "high": np.asarray(self.high, float)}

    def sample(self, rng: np.random.Generator, n: int) -> np.ndarray:
        if self.sampler is not None:
            draws = np.asarray(self.sampler(rng, n), dtype=float)
            q = np.size(self.low)
            if draws.shape != (n, q):
                raise InputError(f"The prior's sampler gave an array of shape {draws.shape}; {(n, q)} was asked for.")
            return draws

        return random_walk_draws(self, rng, n)

    @property
    def support(self) -> tuple[np.ndarray, np.ndarray]:
        return np.asarray(self.low, float), np.asarray(self.high, float)

    @property
    def box(self) -> tuple[np.ndarray, np.ndarray]:
        low, high = self.support
        if not (np.isfinite(low) & np.isfinite(high)).all():
            draws = self.sample(np.random.default_rng(0), 4000)
            middle, reach = np.median(draws, axis=0), 4 * np.ptp(draws, axis=0)
            low, high = (
                np.where(np.isfinite(low), low, middle - reach),
                np.where(np.isfinite(high), high, middle + reach),
            )
        return low, high

    def widened(self, factor: float | int) -> "CustomPrior":
        """About the medians of its draws, with draws that are its own, stretched."""
        centre = np.median(self.sample(np.random.default_rng(0), CENTRE_DRAWS), axis=0)
        low, high = (centre + factor * (side - centre) for side in self.support)
        function = _Stretched(self.function, tuple(centre.tolist()), float(factor))
        return CustomPrior(function, low, high, partial(self._stretched_draws, centre, factor))

    def _stretched_draws(self, centre: np.ndarray, factor: float | int, rng: np.random.Generator, n: int) -> np.ndarray:
        return np.asarray(centre + factor * (self.sample(rng, n) - centre))

    def describe(self) -> str:
        return getattr(self.function, "__name__", "user's log density")


# Draws from a prior that is only known by its log density.

CHAINS = 8


@float64
def random_walk_draws(prior: CustomPrior, rng: np.random.Generator, n: int) -> Float[np.ndarray, "n q"]:
    """n draws by random-walk Metropolis on the prior alone."""
    per_chain = -(-n // CHAINS)
    starts = replace(prior, sampler=partial(scattered, *prior.support))
    problem = Problem(Target.build(prior, NoLikelihood()), starts)
    result = Metropolis(chains=CHAINS, draws=per_chain).sample(problem, int(rng.integers(2**31)), Silent())
    return rng.permutation(result.draws.reshape(-1, result.draws.shape[-1]))[:n]


def scattered(
    low: Float[np.ndarray, " q"], high: Float[np.ndarray, " q"], rng: np.random.Generator, n: int
) -> Float[np.ndarray, "n q"]:
    """Starting points for the walk: uniform where the box is finite, around its finite end or zero elsewhere."""
    below, above = np.isfinite(low), np.isfinite(high)
    width = np.where(below & above, high - low, 1.0)
    inside = np.where(below, low, 0.0) + width * rng.uniform(0.02, 0.98, (n, len(low)))
    spread = rng.normal(size=(n, len(low)))
    one_sided = np.where(below, low + np.abs(spread), high - np.abs(spread))
    return np.where(below & above, inside, np.where(below | above, one_sided, spread))
