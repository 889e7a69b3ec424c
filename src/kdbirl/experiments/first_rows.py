"""KD-BIRL's posterior over given points, for the first n rows of an expert and many n, from one table of kernel sums.

The log likelihood is a sum over rows: with u distinct rows, of which row x occurs c_x(n) times among the first n,

    log p(first n rows | R) = sum_x c_x(n) log p(x | R)

so that all n share the u terms. The bandwidths must be the same for all n, as those of every rule but `loto` are.
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from kdbirl.demos.data import Demonstrations
from kdbirl.errors import InputError
from kdbirl.likelihood.ckde import CKDELikelihood
from kdbirl.likelihood.distinct import distinct_rows
from kdbirl.methods.kdbirl import KDBIRL
from kdbirl.precision import float64

AT_ONCE = 64  # points


@float64
def posteriors_of_first_rows(
    model: KDBIRL, expert: Demonstrations, sizes: Sequence[int], points: Float[np.ndarray, "P q"]
) -> tuple[Float[np.ndarray, "sizes P"], dict[str, Any]]:
    """Posterior weights of equally weighted points of the prior for each n, and what the model chose."""
    fitted = model.fitted
    if fitted is None or fitted.choices.searches:
        raise InputError("The posteriors of first rows need a fitted model whose bandwidths do not depend on n.")
    choice = fitted.choices.for_rows(max(sizes))
    rows, widths = fitted.features(expert), choice.bandwidths
    _, index, counts = distinct_rows(rows)
    likelihood = fitted.ckde.likelihood(rows, widths.h, widths.h_reward, fitted.prior.box, matrix_form=False)
    each = np.asarray(_pointwise(likelihood, jnp.asarray(points)))[:, : len(counts)]
    among = np.stack([np.bincount(index[:n], minlength=len(counts)) for n in sizes])
    log = choice.power * np.stack([each[:, own > 0] @ own[own > 0] for own in among])  # 0 * -inf is no number
    weights = np.exp(log - log.max(axis=1, keepdims=True))
    record = {"h": float(np.mean(widths.h)), "h_reward": widths.h_reward, "power": choice.power, "rule": widths.rule}
    return weights / weights.sum(axis=1, keepdims=True), record


@jax.jit
def _pointwise(likelihood: CKDELikelihood, points: Float[Array, "P q"]) -> Float[Array, "P u"]:
    return jax.lax.map(likelihood.pointwise, points, batch_size=AT_ONCE)
