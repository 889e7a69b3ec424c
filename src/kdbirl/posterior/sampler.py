"""What every sampler takes and gives."""

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from kdbirl.errors import InputError
from kdbirl.limits import MEMORY_BYTES
from kdbirl.posterior.priors import Prior
from kdbirl.posterior.target import Target
from kdbirl.progress import Progress


@dataclass(frozen=True)
class Problem:
    """What is to be sampled: the density, the prior it was built from, and the directions the likelihood can see.

    `informed (rank, q)` has orthonormal rows; None where they are not known.
    """

    target: Target
    prior: Prior
    informed: Float[np.ndarray, "rank q"] | None = None
    differentiable: bool = True


@dataclass(frozen=True)
class Draws:
    """Draws from the posterior and what the sampler has to say about them."""

    draws: Float[np.ndarray, "chain draw q"]
    stats: dict[str, np.ndarray] = field(default_factory=dict)
    sampler: str = ""
    notes: tuple[str, ...] = ()
    facts: dict[str, Any] = field(default_factory=dict)


@runtime_checkable
class Sampler(Protocol):
    """A frozen configuration that draws from a problem. The same seed gives the same draws."""

    name: ClassVar[str]

    def sample(self, problem: Problem, seed: int, progress: Progress) -> Draws: ...


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class NoLikelihood:
    """The likelihood of no data: samplers then draw from the prior."""

    def __call__(self, reward: Float[Array, " q"]) -> Float[Array, ""]:
        return jnp.zeros((), reward.dtype)

    def pointwise(self, reward: Float[Array, " q"]) -> Float[Array, " u"]:
        return jnp.zeros((0,), reward.dtype)


def require_counts(sampler: str, **counts: Any) -> None:
    """Refuse counts below one where the sampler is configured."""
    for name, value in counts.items():
        whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
        if not whole or value < 1:
            raise InputError(f"{sampler}({name}={value!r}): a whole number of at least 1 was expected.")
    kept = [int(counts[name]) for name in ("chains", "draws", "particles", "runs") if name in counts]
    MEMORY_BYTES.check(8 * math.prod(kept), f"{sampler}: so many draws do not fit")
