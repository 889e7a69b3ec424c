"""Golden numbers of small cases: what a refactoring may not change.

`python tests/golden/test_golden.py` writes them anew (after a change that is meant to move them; say so in the commit).
Likelihoods, bandwidths and values are sums of doubles in some order: relative 1e-9. Seeded draws follow the same random
numbers, but compiled programs may round differently, and a chain may then accept another proposal: moments of draws
agree within 1e-6 where draws are exact (the grid), within a tenth of the posterior's sd where they come from chains.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kdbirl as kb

STORED = Path(__file__).with_name("golden.json")
ROUNDING, EXACT_DRAWS = 1e-9, 1e-6
CHAINS = 0.1  # of the posterior's sd
POINTS = np.random.default_rng(1).uniform(-0.9, 0.9, (5, 2))


def bank(tasks: int = 9, rows: int = 30, seed: int = 0) -> kb.TaskBank:
    """Rows of each task scatter around its weights; actions follow their first coordinate."""
    rng = np.random.default_rng(seed)
    weights = rng.uniform(-1, 1, (tasks, 2))
    of = np.repeat(np.arange(tasks), rows)
    states = weights[of] + 0.4 * rng.normal(size=(len(of), 2))
    actions = (states[:, 0] + 0.3 * rng.normal(size=len(of)) > 0).astype(int)
    episodes = np.arange(len(of)) // 6
    return kb.TaskBank.from_arrays(states=states, actions=actions, tasks=of, rewards=weights, episodes=episodes)


def expert(rows: int = 12, seed: int = 7) -> kb.Demonstrations:
    rng = np.random.default_rng(seed)
    states = np.array([0.4, -0.3]) + 0.4 * rng.normal(size=(rows, 2))
    return kb.Demonstrations(
        states=states, actions=(states[:, 0] > 0).astype(int), episodes=np.arange(rows) // 6, n_actions=2
    )


def model(**choices: Any) -> kb.KDBIRL:
    return kb.KDBIRL(**{"prior": kb.Uniform(-1, 1), "bandwidth": (0.6, 0.5), **choices}).fit(bank())


def likelihood(**choices: Any) -> list[float]:
    return model(**choices).log_likelihood(expert(), POINTS).tolist()


def widths(rule: str) -> list[float]:
    post = model(bandwidth=rule, sampler=kb.Grid(draws=50, chains=1)).posterior(expert(), seed=0)
    return [*np.atleast_1d(post.h).tolist(), float(post.h_reward), float(post.power)]


def moments(**choices: Any) -> list[float]:
    post = model(**choices).posterior(expert(), seed=3)
    return [*post.flat.mean(axis=0).tolist(), *post.flat.std(axis=0).tolist()]


def calibration() -> list[float]:
    found = model(bandwidth="median").calibration(n=12)
    return [float(found.coverage(0.9)) if callable(getattr(found, "coverage", None)) else float(np.mean(found.ranks))]


def informed() -> list[float]:
    found = model().identifiability()
    return [float(found.rank), *np.abs(found.informed).ravel().tolist()]


def world() -> kb.Gridworld:
    return kb.Gridworld(4, features="xy", discount=0.9)


def evd() -> list[float]:
    draws = np.random.default_rng(2).normal([1.0, -0.5], 0.3, (40, 2))
    found = kb.evd(draws, world(), [1.0, -0.5], seed=0)
    return [float(found.mean), float(found.standard_error)]


def values() -> list[float]:
    policy = kb.plan(world(), [1.0, 0.5])
    return [float(kb.value(world(), policy, [1.0, 0.5])), *kb.occupancy(world(), policy).ravel()[:5].tolist()]


def rollouts() -> list[float]:
    made = kb.rollout(world(), kb.plan(world(), [1.0, 0.5]), episodes=3, horizon=6, seed=4)
    return [float(made.n_rows), *np.asarray(made.states, dtype=float).ravel()[:8].tolist()]


def birl() -> list[float]:
    shown = kb.rollout(world(), kb.plan(world(), [1.0, 0.5]), episodes=4, horizon=6, seed=4)
    post = kb.BIRL(world(), kb.Uniform(-1, 1), alpha=3.0, sampler=kb.Grid(draws=400, chains=1)).posterior(shown, seed=0)
    return [*post.flat.mean(axis=0).tolist(), *post.flat.std(axis=0).tolist()]


def entropy() -> list[float]:
    shown = kb.rollout(world(), kb.plan(world(), [1.0, 0.5]), episodes=4, horizon=6, seed=4)
    return kb.MaxCausalEntropy(world()).posterior(shown, seed=0).mean().tolist()


def many() -> list[float]:
    found = model().posteriors({"a": expert(), "b": expert(seed=8)}, seed=0)
    return found.mean().ravel().tolist()


CASES: dict[str, tuple[Callable[[], list[float]], float]] = {
    "likelihood": (likelihood, ROUNDING),
    "likelihood: laplace": (lambda: likelihood(kernel="laplace", distance="manhattan"), ROUNDING),
    "likelihood: wide epanechnikov": (lambda: likelihood(kernel="epanechnikov", bandwidth=(6.0, 0.5)), ROUNDING),
    "likelihood: cosine rewards": (lambda: likelihood(reward_distance="cosine"), ROUNDING),
    "likelihood: action given state": (lambda: likelihood(conditional="action"), ROUNDING),
    "likelihood: equal tasks": (lambda: likelihood(task_weights="equal"), ROUNDING),
    "likelihood: one-hot actions": (lambda: likelihood(features=kb.OneHotActions()), ROUNDING),
    "likelihood: product kernel": (
        lambda: likelihood(
            kernel=kb.ProductKernel(state="gaussian", action=kb.Categorical(0.2)), bandwidth=((0.6, 1.0), 0.5)
        ),
        ROUNDING,
    ),
    **{
        f"bandwidths: {rule}": (lambda rule=rule: widths(rule), ROUNDING)
        for rule in ("paper", "silverman", "scott", "median", "cv", "loto")
    },
    "posterior: grid": (lambda: moments(sampler=kb.Grid(draws=2000, chains=2)), EXACT_DRAWS),
    "posterior: normal prior, grid": (
        lambda: moments(prior=kb.Normal(0, 0.5), sampler=kb.Grid(draws=2000, chains=2)),
        EXACT_DRAWS,
    ),
    "posterior: NUTS": (lambda: moments(sampler=kb.NUTS(chains=2, draws=400, warmup=300)), CHAINS),
    "posterior: Metropolis": (lambda: moments(sampler=kb.Metropolis(chains=2, draws=2000, warmup=1000)), CHAINS),
    "posterior: SMC": (lambda: moments(sampler=kb.SMC()), CHAINS),
    "posterior: independence": (lambda: moments(sampler=kb.Independence()), CHAINS),
    "posterior: VI": (lambda: moments(sampler=kb.VI()), CHAINS),
    "posterior: power": (lambda: moments(power=0.3, sampler=kb.Grid(draws=2000, chains=2)), EXACT_DRAWS),
    "posteriors of two tasks": (many, CHAINS),
    "calibration": (calibration, ROUNDING),
    "identifiability": (informed, ROUNDING),
    "expected value difference": (evd, ROUNDING),
    "plan, value, occupancy": (values, ROUNDING),
    "rollout": (rollouts, ROUNDING),
    "BIRL": (birl, EXACT_DRAWS),
    "maximum entropy": (entropy, 1e-5),  # where the search stops
}


@pytest.mark.parametrize("name", CASES)
def test_numbers_are_those_of_before(name: str) -> None:
    compute, tolerance = CASES[name]
    stored = json.loads(STORED.read_text())[name]
    if tolerance == CHAINS:
        half = len(stored) // 2
        scale = max(stored[half:]) if name != "posteriors of two tasks" else 0.5
        np.testing.assert_allclose(compute(), stored, rtol=0, atol=CHAINS * scale)
    else:
        np.testing.assert_allclose(compute(), stored, rtol=tolerance, atol=tolerance)


if __name__ == "__main__":
    STORED.write_text(json.dumps({name: compute() for name, (compute, _) in CASES.items()}, indent=1) + "\n")
