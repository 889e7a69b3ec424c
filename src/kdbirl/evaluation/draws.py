"""Draws of a reward, from a posterior or from an array, for one world."""

from typing import Any

import numpy as np
from jaxtyping import Float

from kdbirl.errors import InputError
from kdbirl.posterior.convergence import is_independent
from kdbirl.posterior.result import Posterior


def draws_of(post: Any, world: Any) -> tuple[Float[np.ndarray, "chain draw q"], np.ndarray | None, bool]:
    """Draws by chain, the most probable one where densities are known, and whether they are independent.

    world: a `TabularMDP` or a simulator; its `feature_names` are the parameters.
    """
    names = world.feature_names
    if isinstance(post, Posterior):
        draws, independent = post.draws, is_independent(post.sampler)
        most_probable = post.map() if "lp" in post.sample_stats else None
    else:
        given = np.asarray(post, dtype=np.float64)
        draws, most_probable, independent = given if given.ndim == 3 else given[None], None, given.ndim != 3
    if draws.ndim != 3 or 0 in draws.shape:
        raise InputError(f"expected a Posterior or rewards (draws, q), not an array of shape {np.shape(post)}.")
    if draws.shape[2] != len(names):
        raise InputError(
            f"The posterior has {draws.shape[2]} reward parameters, but a reward of this world has {len(names)}."
        )
    order = _order(post.names if isinstance(post, Posterior) else (), names)
    return draws[:, :, order], None if most_probable is None else most_probable[order], independent


def _order(names: tuple[str, ...], wanted: tuple[str, ...]) -> list[int]:
    """The world's order of parameters, where the posterior has the same names in another one."""
    if set(names) != set(wanted):
        return list(range(len(wanted)))
    return [names.index(name) for name in wanted]


# The uncertainty of a mean over posterior draws: draws of a chain repeat themselves, so fewer of them count.

MINIMUM_DRAWS = 8  # per chain, below which an effective sample size cannot be estimated
NORMAL_95 = 1.959963984540054


def effective_size(values: Float[np.ndarray, "chain draw"], independent: bool) -> float:
    """Effective number of draws for the mean (Vehtari et al. 2021, from ArviZ), at most their number.

    Draws that are independent by construction all count; so do those of chains too short to judge, and values that
    never change (their mean has no error).
    """
    total = float(values.size)
    if independent or values.shape[1] < MINIMUM_DRAWS or np.ptp(values) == 0:
        return total
    with np.errstate(all="ignore"):  # a chain that never moves has no variance
        found = float(_arviz().ess(values, method="mean"))
    return min(found, total) if np.isfinite(found) and found > 0 else 1.0


def _arviz() -> Any:
    """ArviZ's functions on arrays. Importing them takes a second or two, so only when they are needed."""
    from arviz_stats.base.array import array_stats

    return array_stats


def standard_error(values: Float[np.ndarray, "chain draw"], effective: float) -> float:
    """sd / sqrt(effective size)."""
    return float(values.std(ddof=1) / np.sqrt(effective)) if values.size > 1 else float("nan")
