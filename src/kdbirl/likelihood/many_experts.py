"""The likelihoods of many experts over one bank: one table of kernel sums over all their distinct rows."""

from collections.abc import Callable, Mapping

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from kdbirl.errors import InputError
from kdbirl.likelihood.ckde import CKDE, CKDELikelihood, TaskMixture
from kdbirl.likelihood.distinct import distinct_rows
from kdbirl.likelihood.kernel_sums import rounded_up
from kdbirl.precision import float64
from kdbirl.progress import Progress

SIZE_BITS = 4  # leading bits of a table's number of rows: few sizes are compiled, padding is an eighth at most


@float64
def likelihood_of_each(
    ckde: CKDE,
    experts: Mapping[str, Float[np.ndarray, "n d"]],
    h: Float[np.ndarray, " parts"],
    h_reward: float,
    box: tuple[np.ndarray, np.ndarray],
    progress: Progress | None = None,
) -> Callable[[str], CKDELikelihood]:
    """As `CKDE.likelihood` of each by its name, with one call of the kernel sums; of one form, padded to few sizes.

    What is the bank's is the same array in all of them; what is an expert's own is another one at every call.
    """
    values, index, _ = distinct_rows(np.concatenate(list(experts.values())))
    numerator, denominator = ckde.tables(values, h, progress)
    reached = np.isfinite(numerator).any(axis=1) & np.isfinite(denominator).any(axis=1)
    ends = np.cumsum([len(rows) for rows in experts.values()])
    places = dict(zip(experts, np.split(index, ends[:-1]), strict=True))
    for name, own in places.items():
        if not reached[own].all():
            raise InputError(f"Test task {name!r}: {ckde.out_of_reach(np.flatnonzero(~reached[own]), h)}")
    form = ckde.matrix_form_is_safe(numerator, denominator, h_reward, box)
    shared = TaskMixture.from_logs(denominator, form) if len(denominator) == 1 else None
    rewards, width = jnp.asarray(ckde.task_rewards), jnp.asarray(h_reward, dtype=float)

    def likelihood(name: str) -> CKDELikelihood:
        rows, counts = np.unique(places[name], return_counts=True)
        missing = rounded_up(len(rows), SIZE_BITS) - len(rows)
        padded = np.concatenate([rows, np.repeat(rows[-1:], missing)])
        return CKDELikelihood(
            TaskMixture.from_logs(numerator[padded], form),
            shared or TaskMixture.from_logs(denominator[padded], form),
            jnp.asarray(np.concatenate([counts.astype(float), np.zeros(missing)])),
            rewards,
            width,
            ckde.reward_kernel,
        )

    return likelihood
