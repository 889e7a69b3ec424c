"""A toy with a known posterior: R ~ N(0, 1), n observations y ~ N(R, noise^2), so R | y is normal."""

import numpy as np

PRIOR_SD = 1.0


def normal_posteriors(
    tasks: int, draws: int, q: int = 2, seed: int = 0, noise: float = 0.7
) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """Truths (T, q), posterior draws (T, draws, q), posterior means (T, q) and their common sd."""
    rng = np.random.default_rng(seed)
    truths = rng.normal(size=(tasks, q))
    observed = truths + noise * rng.normal(size=truths.shape)
    variance = 1 / (1 + 1 / noise**2)
    means = variance * observed / noise**2
    sample = means[:, None] + np.sqrt(variance) * rng.normal(size=(tasks, draws, q))
    return truths, sample, means, float(np.sqrt(variance))
