"""The likelihoods of many experts over one bank: one table of kernel sums over all their distinct rows."""

from collections.abc import Callable, Mapping
from functools import cache

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from kdbirl.errors import InputError
from kdbirl.likelihood.ckde import CKDE, CKDELikelihood, TaskMixture, tables_are_narrow
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
    """As `CKDE.likelihood` of each by its name, with one call of the kernel sums; padded to few sizes.

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
    joint = ckde.conditional == "state-action"
    rewards, width = jnp.asarray(ckde.task_rewards), jnp.asarray(h_reward, dtype=float)
    narrow_rewards = cache(lambda: ckde.rewards_are_narrow(h_reward, box))
    shared = cache(lambda form: TaskMixture.from_logs(denominator, form))

    def likelihood(name: str) -> CKDELikelihood:
        rows, counts = np.unique(places[name], return_counts=True)
        missing = rounded_up(len(rows), SIZE_BITS) - len(rows)
        padded = np.concatenate([rows, np.repeat(rows[-1:], missing)])
        own = numerator[padded], denominator if joint else denominator[padded]
        form = tables_are_narrow(*own) or narrow_rewards()  # by the task's own rows, whatever its company
        return CKDELikelihood(
            TaskMixture.from_logs(own[0], form),
            shared(form) if joint else TaskMixture.from_logs(own[1], form),
            jnp.asarray(np.concatenate([counts.astype(float), np.zeros(missing)])),
            rewards,
            width,
            ckde.reward_kernel,
        )

    return likelihood
