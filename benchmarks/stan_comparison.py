"""(a) Effective samples per second, and whole-process time from a cold start, of kdbirl and of Stan.

Every repeat starts a fresh process for each side, with a cache directory of its own that is empty: Stan's program is
translated and compiled, and so is JAX's. *Whole process* is the time from just before that process starts until the
draws are in its memory. *Once warm* leaves out import and compilation on both sides.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.effective import agreement, largest_r_hat, same_up_to_a_constant, smallest_bulk_ess
from benchmarks.measuring import Spread
from benchmarks.problem import Problem, direct_log_posterior, log_prior, make_problem, save_problem

ROOT = Path(__file__).resolve().parents[1]
STAN = {"stan direct": "direct", "stan matrix": "matrix"}
OURS = {"kdbirl default": "auto", "kdbirl nuts": "nuts"}
CACHES = ("JAX_COMPILATION_CACHE_DIR", "KDBIRL_CACHE_DIR")  # a cold start has none
LARGEST_DENSITY_ERROR = 1e-10
Run = tuple[dict[str, Any], dict[str, np.ndarray]]


def compare(quick: bool, repeats: int) -> dict[str, Any]:
    """The record of the whole comparison. About five minutes a repeat; `quick` is a rehearsal on a small problem."""
    size, length = (100, 200) if quick else (500, 1000)
    problem = make_problem(n=size, m=size, n_tasks=20, seed=0)
    settings = {"chains": 4, "warmup": length, "draws": length}
    runs: dict[str, list[Run]] = {name: [] for name in (*OURS, *STAN)}
    with tempfile.TemporaryDirectory(prefix="kdbirl-bench-") as directory:
        path = Path(directory) / "problem.npz"
        save_problem(problem, path)
        for repeat in range(repeats):
            seed = {"seed": 1000 * repeat + 1}
            for name, sampler in OURS.items():
                own = {"sampler": sampler, "warm-runs": 5}
                runs[name].append(fresh_process("kdbirl_model", path, settings | seed | own))
            for name, form in STAN.items():
                runs[name].append(fresh_process("stan_model", path, settings | seed | {"form": form}))
    return _record(problem, settings, runs)


def fresh_process(module: str, problem: Path, options: dict[str, Any]) -> Run:
    """Run a worker module from a cold start: its times and its arrays."""
    with tempfile.TemporaryDirectory(prefix="kdbirl-cold-") as directory:
        draws, times, log = (Path(directory) / name for name in ("draws.npz", "times.json", "log.txt"))
        environment = {name: value for name, value in os.environ.items() if name not in CACHES}
        environment["XDG_CACHE_HOME"] = directory  # where httpstan keeps compiled models
        given = [f"--{name}={value}" for name, value in options.items()]
        command = [sys.executable, "-m", f"benchmarks.{module}", str(problem), str(draws), str(times), *given]
        with log.open("w") as output:
            command.append(f"--started={time.time()!r}")
            done = subprocess.run(command, cwd=ROOT, env=environment, stdout=output, stderr=output, check=False)
        if done.returncode:
            raise RuntimeError(f"{module} failed ({done.returncode}):\n" + log.read_text()[-3000:])
        with np.load(draws) as stored:
            return json.loads(times.read_text()), {name: stored[name] for name in stored.files}


def _record(problem: Problem, settings: dict[str, int], runs: dict[str, list[Run]]) -> dict[str, Any]:
    sides = {name: _side(name, of_side) for name, of_side in runs.items()}
    per_second = {name: Spread(tuple(side["per_second"])) for name, side in sides.items()}
    whole = {name: Spread(tuple(times["whole"] for times, _ in of_side)) for name, of_side in runs.items()}
    return {
        "problem": problem.sizes | {"h": problem.h, "h_reward": problem.h_reward, "prior": problem.prior},
        "settings": settings,
        "sides": {name: side["record"] | {"whole_seconds": whole[name].record()} for name, side in sides.items()},
        "ratios": {
            f"{ours} over {stan}": {
                "effective_per_second_warm": per_second[ours].over(per_second[stan]).record(),
                "whole_process_time": whole[stan].over(whole[ours]).record(),
            }
            for ours in OURS
            for stan in STAN
        },
        "density_error": {name: _density_error(problem, name, of_side) for name, of_side in runs.items()},
        "agreement": {ours: agreement(_all_draws(runs[ours]), _all_draws(runs["stan direct"])) for ours in OURS},
    }


def _side(name: str, runs: list[Run]) -> dict[str, Any]:
    """Effective samples per second of every repeat (the median of its warm runs), and what else is worth knowing."""
    sets = [_draw_sets(arrays) for _, arrays in runs]
    ess = [[smallest_bulk_ess(draws) for draws in of_run] for of_run in sets]
    seconds = [np.atleast_1d(times["sample"]) for times, _ in runs]
    per_second = [float(np.median(np.array(e) / s)) for e, s in zip(ess, seconds, strict=True)]
    record: dict[str, Any] = {
        "effective_per_second_warm": Spread(tuple(per_second)).record(),
        "smallest_bulk_ess": Spread(tuple(value for of_run in ess for value in of_run)).record(),
        "sample_seconds": Spread(tuple(float(value) for of_run in seconds for value in of_run)).record(),
        "draws": int(sets[0][0][..., 0].size),
        "largest_r_hat": max(largest_r_hat(draws) for of_run in sets for draws in of_run),
    }
    for extra in ("import", "build", "leapfrog_steps_per_draw", "divergences"):
        if extra in runs[0][0]:
            record[extra] = Spread(tuple(times[extra] for times, _ in runs)).record()
    if "sampler" in runs[0][0]:
        record["sampler"] = runs[0][0]["sampler"]
    return {"per_second": per_second, "record": record}


def _draw_sets(arrays: dict[str, np.ndarray]) -> list[np.ndarray]:
    """Draws (chain, draw, q) of every timed run of one process: one for Stan, several for kdbirl."""
    draws = arrays["draws"]
    return [draws] if draws.ndim == 3 else list(draws)


def _all_draws(runs: list[Run]) -> np.ndarray:
    """All timed runs as more chains of one."""
    return np.concatenate([draws for _, arrays in runs for draws in _draw_sets(arrays)])


def _density_error(problem: Problem, name: str, runs: list[Run]) -> float:
    """How far a side's own log density is from the double sum of Eq. 6, at some of its draws."""
    points, densities = runs[0][1]["points"], runs[0][1]["densities"]
    prior = log_prior(problem, points) if name in OURS else 0.0  # kdbirl reports the likelihood alone
    error = same_up_to_a_constant(densities + prior, direct_log_posterior(problem, points))
    if not error < LARGEST_DENSITY_ERROR:
        raise RuntimeError(f"{name} does not compute Eq. 6: its log density is off by {error:.2g}, relatively.")
    return error
