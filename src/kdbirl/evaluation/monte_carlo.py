"""The uncertainty of a mean over posterior draws: draws of a chain repeat themselves, so fewer of them count."""

from typing import Any

import numpy as np
from jaxtyping import Float

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
