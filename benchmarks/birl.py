"""BIRL: seconds per effective sample of its three samplers on grids of 9, 36 and 144 states, one reward parameter each.

50 demonstration pairs of a Boltzmann expert, uniform prior, alpha = 1, discount 0.95. Seconds are of a whole warm
`posterior(...)`: warm-up, draws, and the pointwise likelihood; compilation is recorded apart, as the first call less
the median of the others. They are divided by the smallest bulk effective sample size over the states (ArviZ), all
samplers under the same rule, each with settings of its own that a user would choose. Published, on other machines and
for comparison only: ValueWalk 0.274, 0.712, 0.766 s; PolicyWalk 0.859, 9.00, 246 s.
"""

import time
from typing import Any

import numpy as np

import kdbirl as kb
from benchmarks.effective import largest_r_hat, smallest_bulk_ess
from benchmarks.measuring import Spread
from kdbirl.methods.birl import BIRL
from kdbirl.methods.policy_walk import PolicyWalk

SIDES = (3, 6, 12)
ALPHA, DISCOUNT, EPISODES, STEPS = 1.0, 0.95, 5, 10
SAMPLERS = ("nuts", "metropolis", "policywalk")


def compare(quick: bool, repeats: int) -> dict[str, Any]:
    """Seconds per effective sample of each sampler on each grid, and of the best."""
    sides = SIDES[:1] if quick else SIDES
    found = {f"{side**2} states": {name: _measured(side, name, repeats, quick) for name in SAMPLERS} for side in sides}
    return {
        "problem": {"alpha": ALPHA, "discount": DISCOUNT, "pairs": EPISODES * STEPS, "prior": "Uniform(0, 1)"},
        "samplers": found,
        "best": {grid: _best(of_grid) for grid, of_grid in found.items()},
    }


def _best(of_grid: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The record of the sampler with the lowest median, with its name."""
    name = min(of_grid, key=lambda each: of_grid[each]["seconds_per_effective_sample"]["median"])
    return {"sampler": name, **of_grid[name]["seconds_per_effective_sample"]}


def _expert(grid: kb.Gridworld) -> kb.Demonstrations:
    truth = np.eye(grid.n_states)[-1]
    policy = kb.plan(grid, truth, temperature=1 / ALPHA)
    return kb.rollout(grid, policy, episodes=EPISODES, horizon=STEPS, seed=0)


def _sampler(name: str, q: int, quick: bool) -> Any:
    """Lengths that give each some hundred effective samples where that takes minutes at most."""
    draws = 100 if quick else 1000
    return {
        "nuts": kb.NUTS(warmup=draws // 2, draws=draws),
        "metropolis": kb.Metropolis(warmup=2 * draws, draws=draws, thin=q),
        "policywalk": PolicyWalk(warmup=draws // 4, draws=draws, thin=4 * q),
    }[name]


def _measured(side: int, name: str, repeats: int, quick: bool) -> dict[str, Any]:
    """One sampler on one grid; every repeat has another seed."""
    grid = kb.Gridworld(side, discount=DISCOUNT)
    model, expert = BIRL(grid, kb.Uniform(0, 1), ALPHA, sampler=_sampler(name, side**2, quick)), _expert(grid)
    seconds, sizes, r_hats = [], [], []
    for seed in range(repeats + 1):
        start = time.perf_counter()
        draws = model.posterior(expert, seed=seed).draws
        seconds.append(time.perf_counter() - start)
        sizes.append(smallest_bulk_ess(draws))
        r_hats.append(largest_r_hat(draws))
    per_sample = Spread(tuple(s / size for s, size in zip(seconds[1:], sizes[1:], strict=True)))
    print(f"  {side**2} states, {name}: {per_sample} s per effective sample", flush=True)
    return {
        "seconds_per_effective_sample": per_sample.record(),
        "seconds": Spread(tuple(seconds[1:])).record(),
        "effective": Spread(tuple(sizes[1:])).record(),
        "r_hat": Spread(tuple(r_hats[1:])).record(),
        "compile_seconds": round(seconds[0] - float(np.median(seconds[1:])), 2),
        "sampler": repr(model.sampler),
    }
