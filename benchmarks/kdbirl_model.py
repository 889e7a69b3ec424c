"""kdbirl's own side of the comparison with Stan: the same problem through the public interface, in a fresh process.

    python -m benchmarks.kdbirl_model PROBLEM.npz OUT.npz OUT.json --started SECONDS --sampler auto|nuts [...]

The first run is the cold one. Further runs, each with a new model and another seed, are warm as Stan is once its
program is built: JAX has compiled, but the bank, the kernel sums, the warm-up and the draws are all done again.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.problem import PRIORS, Problem, load_problem


def sample(problem: Problem, sampler: str, chains: int, warmup: int, draws: int, seed: int) -> tuple[np.ndarray, str]:
    """Draws (chain, draw, q), and the name of the sampler that made them."""
    import kdbirl as kb

    chosen = "auto" if sampler == "auto" else kb.NUTS(chains=chains, warmup=warmup, draws=draws)
    posterior = _fitted(problem, chosen).posterior(kb.Demonstrations(states=problem.expert), seed=seed)
    return np.asarray(posterior.draws), posterior.sampler


def log_likelihood(problem: Problem, rewards: np.ndarray) -> np.ndarray:
    """(r, q) -> (r,) by the public interface."""
    import kdbirl as kb

    return np.asarray(_fitted(problem, "auto").log_likelihood(kb.Demonstrations(states=problem.expert), rewards))


def _fitted(problem: Problem, sampler: Any) -> Any:
    """A model of the problem, as a user makes one."""
    import kdbirl as kb

    bank = kb.TaskBank.from_arrays(states=problem.features, actions=None, tasks=problem.tasks, rewards=problem.rewards)
    prior = (kb.Normal if problem.prior == "normal" else kb.Uniform)(*PRIORS[problem.prior])
    bandwidth = (problem.h, problem.h_reward)
    return kb.KDBIRL(prior=prior, features=kb.Identity(), bandwidth=bandwidth, sampler=sampler).fit(bank)


def main() -> None:
    """One cold run, then warm ones; the draws and the times go to files."""
    parser = argparse.ArgumentParser(description="Sample a problem with kdbirl in this process.")
    parser.add_argument("problem", type=Path)
    parser.add_argument("draws_to", type=Path)
    parser.add_argument("times_to", type=Path)
    parser.add_argument("--started", type=float, required=True, help="time.time() of the parent as it started this")
    parser.add_argument("--sampler", choices=("auto", "nuts"), required=True)
    for name in ("chains", "warmup", "draws", "seed", "warm_runs"):
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, required=True)
    given = parser.parse_args()
    problem = load_problem(given.problem)
    settings = (given.sampler, given.chains, given.warmup, given.draws)
    cold, sampler = sample(problem, *settings, given.seed)
    whole = time.time() - given.started
    warm, seconds = [], []
    for run in range(1, given.warm_runs + 1):
        start = time.perf_counter()
        warm.append(sample(problem, *settings, given.seed + run)[0])
        seconds.append(time.perf_counter() - start)
    points = cold.reshape(-1, cold.shape[-1])[:: max(1, cold[..., 0].size // 8)]
    np.savez(given.draws_to, draws=np.stack(warm), points=points, densities=log_likelihood(problem, points))
    given.times_to.write_text(json.dumps({"whole": whole, "sample": seconds, "sampler": sampler}))


if __name__ == "__main__":
    main()
