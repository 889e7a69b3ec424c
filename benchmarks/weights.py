"""(j) Many reward weights: EVD of 10,000 draws, and deep Q and simulators as the number of weights grows.

EVD in tables: seconds for 10,000 distinct draws on the 10x10 grid (one weight per cell) and on ICUSepsis. Deep Q:
updates per second of one weight-conditioned training, for pools of 10 to 10,000 reward vectors of a 5x5 grid, and for
vectors of 2 to 100 weights. Simulator: draws per second that `kb.evd` plays with such a network, for 100 to 10,000
draws.
"""

import contextlib
from typing import Any

import numpy as np

import kdbirl as kb
from benchmarks.measuring import Spread, seconds_of
from kdbirl.errors import MissingDependency

DRAWS = 10_000
POOLS, SIZES = (10, 100, 1000, 10_000), (5, 10)
PLAYED = (100, 1000, 10_000)
UPDATES, EPISODES, HORIZON = 4000, 16, 20


def compare(quick: bool, repeats: int) -> dict[str, Any]:
    """Seconds of EVD, and rates against the number of weights, with the slowest over the fastest."""
    draws, pools = (200, POOLS[:2]) if quick else (DRAWS, POOLS)
    training = _training(pools, 1 if quick else repeats)
    by_size = _by_size(1 if quick else repeats)
    playing = _playing(PLAYED[:1] if quick else PLAYED)
    return {
        "problem": {"draws": draws, "updates": UPDATES, "episodes": EPISODES, "horizon": HORIZON},
        "seconds": _tables(draws),
        "updates_per_second": {f"{pool} rewards": spread.record() for pool, spread in training.items()},
        "updates_per_second_by_length": {f"{q} weights": spread.record() for q, spread in by_size.items()},
        "draws_per_second_played": {f"{count} draws": rate for count, rate in playing.items()},
        "ratios": {
            "updates, most rewards over fewest": training[pools[-1]].over(training[pools[0]]).record(),
            "updates, most weights over fewest": by_size[100].over(by_size[2]).record(),
        },
    }


def _tables(draws: int) -> dict[str, Any]:
    rng, found = np.random.default_rng(0), {}
    worlds: dict[str, Any] = {"grid of 100 cells": kb.Gridworld(10, discount=0.95)}
    with contextlib.suppress(MissingDependency):
        worlds["ICUSepsis"] = kb.ICUSepsis()
    for name, world in worlds.items():
        rewards = rng.uniform(-1, 1, (draws, world.n_parameters))
        seconds = seconds_of(lambda world=world, rewards=rewards: kb.evd(rewards, world, rewards[0]))
        found[f"EVD of {draws} draws, {name}"] = Spread((seconds,)).record()
    return found


def _rate(world: Any, rewards: np.ndarray, repeats: int) -> Spread:
    """Updates per second of a training of fixed length, without the first, which compiles."""
    learner = kb.DeepQ(updates=UPDATES, evaluate_every=1000, patience=1000, evaluation_episodes=32)
    times = [seconds_of(lambda i=i: learner.plan_conditioned(world, rewards, seed=i)) for i in range(repeats + 1)]
    return Spread(tuple(UPDATES / value for value in times[1:]))


def _training(pools: tuple[int, ...], repeats: int) -> dict[int, Spread]:
    world, rng = kb.Gridworld(5, features="xy", discount=0.9), np.random.default_rng(0)
    return {pool: _rate(world, rng.uniform(-1, 1, (pool, 2)), repeats) for pool in pools}


def _by_size(repeats: int) -> dict[int, Spread]:
    rng = np.random.default_rng(0)
    worlds = [kb.Gridworld(5, features="xy", discount=0.9), *(kb.Gridworld(size, discount=0.9) for size in SIZES)]
    return {w.n_parameters: _rate(w, rng.uniform(-1, 1, (100, w.n_parameters)), repeats) for w in worlds}


def _playing(counts: tuple[int, ...]) -> dict[int, float]:
    """Draws per second of EVD in SepsisSim, all played by one network."""
    world, rng = kb.SepsisSim(memory=False), np.random.default_rng(0)
    q = len(world.feature_names)
    network = kb.DeepQ(updates=1000, evaluate_every=1000, evaluation_episodes=32).plan_conditioned(
        world, (np.zeros(q), np.ones(q)), seed=0
    )
    found = {}
    for count in counts:
        draws = rng.uniform(0, 1, (count, q))
        run = {"planner": network, "episodes": EPISODES, "horizon": HORIZON}
        kb.evd(draws, world, draws[0], **run)
        seconds = seconds_of(lambda draws=draws, run=run: kb.evd(draws, world, draws[0], **run))
        found[count] = float(f"{count / seconds:.4g}")
    return found
