"""(c) Planning: 1,000 rewards of a 10x10 grid, and EVD of thousands of draws.

Competitors plan one reward after the other: a plain NumPy loop of value iteration, and pymdptoolbox's value iteration
and policy iteration. Each gives a policy, whose value must be within 1e-6 of the optimum (some are checked). Numbers
are rewards per second; the slow ones are measured on fewer rewards, since each costs the same.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

import kdbirl as kb
from benchmarks.measuring import interleaved, rates, seconds_of

REWARDS, TOLERANCE, DISCOUNT = 1000, 1e-6, 0.95
SHARE = {"kdbirl": 1, "numpy loop": 4, "pymdptoolbox value iteration": 20, "pymdptoolbox policy iteration": 20}

Planner = Callable[[np.ndarray], np.ndarray]  # rewards (r, 100) -> an optimal action of each state (r, 100)


def compare(quick: bool, repeats: int) -> dict[str, Any]:
    """Rewards per second of each contender, ratios to ours, and seconds of EVD."""
    grid = kb.Gridworld(10, discount=DISCOUNT)
    count = 100 if quick else REWARDS
    rewards = np.random.default_rng(0).random((count, 100))
    planners = _planners(grid)
    _check(grid, planners, rewards[:3])
    chosen = {name: rewards[: max(1, count // SHARE[name])] for name in planners}
    times = interleaved({name: _call(planners[name], chosen[name]) for name in planners}, repeats)
    speed = {name: rates(times[name], len(chosen[name])) for name in planners}
    others = [name for name in speed if name != "kdbirl"]
    measured_on = {name: len(some) for name, some in chosen.items()}
    return {
        "problem": {"grid": "10x10", "rewards": count, "discount": DISCOUNT, "measured_on": measured_on},
        "rewards_per_second": {name: spread.record() for name, spread in speed.items()},
        "fastest_competitor": max(others, key=lambda name: speed[name].median),
        "ratios": {f"kdbirl over {name}": speed["kdbirl"].over(speed[name]).record() for name in others},
        "seconds": _evd_seconds(grid, quick),
    }


def _call(planner: Planner, rewards: np.ndarray) -> Callable[[], object]:
    return lambda: planner(rewards)


def _planners(grid: kb.Gridworld) -> dict[str, Planner]:
    found: dict[str, Planner] = {
        "kdbirl": lambda rewards: kb.plan_many(grid, rewards).best.argmax(axis=2),
        "numpy loop": lambda rewards: np.array([_value_iteration(grid, reward) for reward in rewards]),
    }
    try:
        from mdptoolbox import mdp
    except ImportError:
        return found
    by_action = np.ascontiguousarray(grid.transitions.transpose(1, 0, 2))

    def with_toolbox(kind: Callable[..., Any], **options: float) -> Planner:
        def plan(rewards: np.ndarray) -> np.ndarray:
            solvers = [kind(by_action, reward, DISCOUNT, **options) for reward in rewards]
            for solver in solvers:
                solver.run()
            return np.array([solver.policy for solver in solvers])

        return plan

    found["pymdptoolbox value iteration"] = with_toolbox(mdp.ValueIteration, epsilon=TOLERANCE / 10, max_iter=10_000)
    found["pymdptoolbox policy iteration"] = with_toolbox(mdp.PolicyIteration)
    return found


def _value_iteration(grid: kb.Gridworld, reward: np.ndarray) -> np.ndarray:
    """As anybody would write it with NumPy; it stops when its contraction bound is below a tenth of the tolerance."""
    rows, table = grid.transitions.reshape(-1, grid.n_states), grid.reward_table(reward)
    values = np.zeros(grid.n_states)
    while True:
        q_values = table + DISCOUNT * (rows @ values).reshape(table.shape)
        better = q_values.max(axis=1)
        if DISCOUNT / (1 - DISCOUNT) * np.abs(better - values).max() < TOLERANCE / 10:
            return q_values.argmax(axis=1)
        values = better


def _check(grid: kb.Gridworld, planners: dict[str, Planner], rewards: np.ndarray) -> None:
    best = kb.plan_many(grid, rewards).values
    for name, planner in planners.items():
        policies = np.eye(grid.n_actions)[planner(rewards)]
        values = [kb.value(grid, policy, reward) for policy, reward in zip(policies, rewards, strict=True)]
        if not np.allclose(values, best, atol=TOLERANCE):
            raise RuntimeError(f"{name} does not find optimal policies ({values} for {best}): nothing is compared.")


def _evd_seconds(grid: kb.Gridworld, quick: bool) -> dict[str, Any]:
    """One call each: EVD of draws around a true reward, wide ones, so that hardly two have the same policy."""
    rng = np.random.default_rng(1)
    draws = 100 if quick else 1000
    learnt, truth = rng.random((draws, 100)), rng.random(100)
    found = {f"EVD of {draws} draws on the 10x10 grid": seconds_of(lambda: kb.evd(learnt, grid, truth))}
    world, draws = kb.ICUSepsis(outcome=True), 100 if quick else 4000
    weights = np.array([-1.0, -0.3, -0.2, 10.0, -10.0])
    around = weights + np.abs(weights) * rng.normal(0, 0.5, (draws, 5))
    found[f"EVD of {draws} draws on ICUSepsis"] = seconds_of(lambda: kb.evd(around, world, weights))
    return {name: {"median": value, "low": value, "high": value} for name, value in found.items()}
