"""Effective sample sizes, and whether two sets of draws come from the same distribution."""

import math

import numpy as np

# Six comparisons for each of two samplers: some |z| > 4.5 happens by chance once in 12,000 runs.
LARGEST_Z = 4.5


def smallest_bulk_ess(draws: np.ndarray) -> float:
    """Bulk effective sample size of draws (chain, draw, q): the smallest over the parameters."""
    from arviz_stats.base.array import array_stats

    return float(min(array_stats.ess(draws[..., p], method="bulk") for p in range(draws.shape[-1])))


def largest_r_hat(draws: np.ndarray) -> float:
    """Rank-normalised split R-hat of draws (chain, draw, q): the largest over the parameters."""
    from arviz_stats.base.array import array_stats

    return float(max(array_stats.rhat(draws[..., p]) for p in range(draws.shape[-1])))


def moments(draws: np.ndarray) -> dict[str, list[float]]:
    """Mean and sd of each parameter, with their Monte-Carlo standard errors."""
    from arviz_stats.base.array import array_stats

    columns = [draws[..., p] for p in range(draws.shape[-1])]
    return {
        "mean": [float(column.mean()) for column in columns],
        "mean_error": [float(array_stats.mcse(column, method="mean")) for column in columns],
        "sd": [float(column.std()) for column in columns],
        "sd_error": [float(array_stats.mcse(column, method="sd")) for column in columns],
    }


def agreement(ours: np.ndarray, theirs: np.ndarray) -> dict[str, object]:
    """Differences of means and sds in units of their Monte-Carlo error, for draws (chain, draw, q)."""
    a, b = moments(ours), moments(theirs)
    z = {
        name: [
            (x - y) / math.hypot(e, f)
            for x, y, e, f in zip(a[name], b[name], a[f"{name}_error"], b[f"{name}_error"], strict=True)
        ]
        for name in ("mean", "sd")
    }
    largest = max(abs(value) for values in z.values() for value in values)
    return {"kdbirl": a, "stan": b, "z": z, "largest_z": largest, "agree": largest < LARGEST_Z}


def same_up_to_a_constant(a: np.ndarray, b: np.ndarray) -> float:
    """Largest difference of two log densities at the same points after removing a constant, relative to their size."""
    difference = a - b
    return float(np.abs(difference - difference.mean()).max() / np.abs(b).max())
