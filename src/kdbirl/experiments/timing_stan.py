"""Eq. 6 as a Stan user writes it down, to compare what a sample costs. Needs pystan, which `kdbirl[stan]` installs.

The kernel of the features is tabulated once; that of the rewards is evaluated for every training row, so one evaluation
of the density costs n*m terms. Nothing uses that rewards repeat within a task: that is our part.
"""

import time
from contextlib import redirect_stderr
from importlib.util import find_spec
from io import StringIO
from typing import Any

import numpy as np
from jaxtyping import Float

PROGRAM = """
data {
  int<lower=1> n; int<lower=1> m; int<lower=1> q; int<lower=1> d;
  array[n] vector[d] expert; array[m] vector[d] features; array[m] vector[q] rewards;
  real<lower=0> h; real<lower=0> h_reward;
}
transformed data {
  array[n] vector[m] log_kernel;
  for (i in 1:n) for (j in 1:m) log_kernel[i][j] = -squared_distance(expert[i], features[j]) / (2 * square(h));
}
parameters { vector<lower=0, upper=1>[q] reward; }
model {
  vector[m] log_weight;
  for (j in 1:m) log_weight[j] = -squared_distance(reward, rewards[j]) / (2 * square(h_reward));
  for (i in 1:n) target += log_sum_exp(log_kernel[i] + log_weight);
  target += -n * log_sum_exp(log_weight);
}
"""


def installed() -> bool:
    """Whether pystan is there."""
    return find_spec("stan") is not None


def sampled(
    expert: Float[np.ndarray, "n d"],
    features: Float[np.ndarray, "m d"],
    rewards: Float[np.ndarray, "m q"],
    widths: tuple[float, float],
    lengths: tuple[int, int, int],
    seed: int,
) -> tuple[Float[np.ndarray, "chains draws q"], float]:
    """Draws and the seconds that sampling took; building the program is not counted. lengths: chains, warmup, draws."""
    import stan

    sizes: dict[str, Any] = {"n": len(expert), "m": len(features), "q": rewards.shape[1], "d": expert.shape[1]}
    tables = {"expert": expert, "features": features, "rewards": rewards, "h": widths[0], "h_reward": widths[1]}
    chains, warmup, draws = lengths
    with redirect_stderr(StringIO()):  # Stan's own progress, which would stand between the lines of ours
        built = stan.build(PROGRAM, data=sizes | tables, random_seed=seed + 1)
        start = time.perf_counter()
        fit = built.sample(num_chains=chains, num_warmup=warmup, num_samples=draws)
        seconds = time.perf_counter() - start
    return fit["reward"].T.reshape(draws, chains, -1).swapaxes(0, 1), seconds  # the chain index runs fastest
