"""A direct Stan transcription of Eq. 6 of the paper (Eq. 10 with features), and the process that runs it.

Written for this project, as a Stan user would write the formula down:

    log p(R | expert) = log p(R) + sum_i log sum_j K(x_i, x_j) K'(R, R_j) - n log sum_j K'(R, R_j)

The kernel of the features does not depend on R, so its logarithm is tabulated once, in `transformed data`. The kernel
of the rewards is evaluated for every training row j, and one `log_sum_exp` is taken per expert row i: n*m terms for one
evaluation. Bandwidths are standard deviations. Nothing uses that rewards repeat within a task: that is kdbirl's part.

`direct` is the transcription. `matrix` is the same sum after what an experienced Stan user might do next, a
matrix-vector product of unlogged kernels; it is measured too, so that a reader sees what that would change.

    python -m benchmarks.stan_model PROBLEM.npz OUT.npz OUT.json --started SECONDS [--form direct] [...]
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.problem import PRIORS, Problem, load_problem

DATA = """
data {
  int<lower=1> n;                      // expert rows
  int<lower=1> m;                      // training rows
  int<lower=1> q;                      // reward parameters
  int<lower=1> d;                      // feature columns
  array[n] vector[d] expert;
  array[m] vector[d] features;
  array[m] vector[q] rewards;          // the reward of every training row
  real<lower=0> h;                     // bandwidths, as standard deviations
  real<lower=0> h_reward;
  real prior_first;                    // mean, or lower end
  real prior_second;                   // standard deviation, or upper end
}
"""

PARAMETERS = {
    "normal": ("vector[q] reward;", "reward ~ normal(prior_first, prior_second);"),
    "uniform": ("vector<lower=prior_first, upper=prior_second>[q] reward;", ""),
}

LOG_FEATURE_KERNEL = """
transformed data {
  array[n] vector[m] log_kernel;
  for (i in 1:n)
    for (j in 1:m)
      log_kernel[i][j] = -squared_distance(expert[i], features[j]) / (2 * square(h));
%s}
"""

REWARD_KERNEL = """
  vector[m] log_reward_kernel;
  for (j in 1:m)
    log_reward_kernel[j] = -squared_distance(reward, rewards[j]) / (2 * square(h_reward));
"""

SUMS = {
    "direct": """
  for (i in 1:n)
    target += log_sum_exp(log_kernel[i] + log_reward_kernel);
  target += -n * log_sum_exp(log_reward_kernel);
""",
    "matrix": """
  vector[m] weight = softmax(log_reward_kernel);
  target += sum(log(kernel * weight));
""",
}
TABLES = {
    "direct": "",
    "matrix": """  matrix[n, m] kernel;                 // scaled by each row's largest, so that nothing underflows
  for (i in 1:n)
    kernel[i] = exp(log_kernel[i] - max(log_kernel[i]))';
""",
}


def program(form: str, prior: str) -> str:
    """Stan code of one form of the sum and one prior."""
    declaration, statement = PARAMETERS[prior]
    model = f"model {{{REWARD_KERNEL}  {statement}{SUMS[form]}}}\n"
    return DATA + LOG_FEATURE_KERNEL % TABLES[form] + f"parameters {{\n  {declaration}\n}}\n" + model


def stan_data(problem: Problem) -> dict[str, Any]:
    """The problem as Stan's data block names it."""
    first, second = PRIORS[problem.prior]
    (n, d), (m, q) = problem.expert.shape, problem.rewards_of_rows.shape
    return {
        "n": n, "m": m, "q": q, "d": d,
        "expert": problem.expert, "features": problem.features, "rewards": problem.rewards_of_rows,
        "h": problem.h, "h_reward": problem.h_reward, "prior_first": first, "prior_second": second,
    }  # fmt: skip


def sample(
    problem: Problem, form: str, chains: int, warmup: int, draws: int, seed: int
) -> tuple[np.ndarray, dict[str, float]]:
    """Build and sample: draws (chain, draw, q), and the seconds of import, build and sampling.

    Where no model is cached, building runs stanc and g++. pystan runs each chain in a process of its own, as many at a
    time as there are cores. Sampling's time includes warm-up, the table of kernels and pystan's traffic.
    """
    start = time.perf_counter()
    import stan

    imported = time.perf_counter()
    posterior = stan.build(program(form, problem.prior), data=stan_data(problem), random_seed=seed)
    built = time.perf_counter()
    fit = posterior.sample(num_chains=chains, num_warmup=warmup, num_samples=draws)
    done = time.perf_counter()
    # pystan's array is (q, draws * chains), with the chain index running fastest.
    by_chain = fit["reward"].T.reshape(draws, chains, -1).swapaxes(0, 1)
    steps = float(np.mean(fit["n_leapfrog__"]))
    divergences = float(np.sum(fit["divergent__"]))
    seconds = {"import": imported - start, "build": built - imported, "sample": done - built}
    return by_chain, {**seconds, "leapfrog_steps_per_draw": steps, "divergences": divergences}


def log_densities(problem: Problem, form: str, rewards: np.ndarray, seed: int) -> np.ndarray:
    """Stan's own log density at `rewards` (r, q), up to a constant, without the Jacobian of its transform."""
    import stan

    posterior = stan.build(program(form, problem.prior), data=stan_data(problem), random_seed=seed)
    unconstrained = [posterior.unconstrain_pars({"reward": list(reward)}) for reward in rewards]
    return np.array([posterior.log_prob(u, adjust_transform=False) for u in unconstrained])


def main() -> None:
    """One cold run; the draws and the times go to files, because pystan owns the terminal."""
    parser = argparse.ArgumentParser(description="Sample a problem with Stan in this process.")
    parser.add_argument("problem", type=Path)
    parser.add_argument("draws_to", type=Path)
    parser.add_argument("times_to", type=Path)
    parser.add_argument("--started", type=float, required=True, help="time.time() of the parent as it started this")
    parser.add_argument("--form", choices=sorted(SUMS), default="direct")
    for name in ("chains", "warmup", "draws", "seed"):
        parser.add_argument(f"--{name}", type=int, required=True)
    given = parser.parse_args()
    problem = load_problem(given.problem)
    draws, times = sample(problem, given.form, given.chains, given.warmup, given.draws, given.seed)
    times["whole"] = time.time() - given.started
    points = draws.reshape(-1, draws.shape[-1])[:: max(1, draws[..., 0].size // 8)]
    densities = log_densities(problem, given.form, points, given.seed)
    np.savez(given.draws_to, draws=draws, points=points, densities=densities)
    given.times_to.write_text(json.dumps(times))


if __name__ == "__main__":
    main()
