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
