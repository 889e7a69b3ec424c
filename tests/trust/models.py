"""Small banks and models for the tests of diagnosis: features lie around the reward of their task."""

from typing import Any

import numpy as np

import kdbirl as kb
from kdbirl.posterior.result import Posterior

NOISE = 0.5


def bank_of(rewards: np.ndarray, rows: Any = 30, seed: int = 0, behaviour: np.ndarray | None = None) -> kb.TaskBank:
    """Each task's rows are normal around its reward, or around its `behaviour`; rows: one count, or one per task."""
    rng = np.random.default_rng(seed)
    of_task = np.repeat(np.arange(len(rewards)), rows)
    centres = rewards if behaviour is None else behaviour
    states = centres[of_task] + rng.normal(0, NOISE, (len(of_task), centres.shape[1]))
    return kb.TaskBank.from_arrays(states=states, actions=None, tasks=of_task, rewards=rewards)


def scattered(tasks: int, q: int = 2, seed: int = 0) -> np.ndarray:
    """Rewards in [-1, 1]^q."""
    return np.random.default_rng(seed).uniform(-1, 1, (tasks, q))


def expert_at(reward: np.ndarray, rows: int = 24, episodes: int = 6, seed: int = 5) -> kb.Demonstrations:
    """Independent rows around a reward, in episodes of equal length."""
    states = reward + np.random.default_rng(seed).normal(0, NOISE, (rows, len(reward)))
    return kb.Demonstrations(states=states, episodes=np.arange(rows) * episodes // rows)


def model_of(bank: kb.TaskBank, **choices: Any) -> kb.KDBIRL:
    """Identity features, so that numbers stay readable."""
    given = {"prior": kb.Uniform(-1.5, 1.5), "features": kb.Identity(), "sampler": "grid", **choices}
    return kb.KDBIRL(**given).fit(bank)


def normal_draws(mean: Any, sd: Any, **fields: Any) -> Posterior:
    """A posterior whose draws are the quantiles of a normal distribution: its mean and sd are exact to a percent."""
    from scipy.stats import norm

    mean, sd = np.atleast_1d(np.asarray(mean, float)), np.atleast_1d(np.asarray(sd, float))
    quantiles = norm.ppf((np.arange(2000) + 0.5) / 2000)
    draws = mean + sd * np.random.default_rng(0).permuted(np.tile(quantiles[:, None], (1, len(mean))), axis=0)
    names = tuple(f"w{j}" for j in range(len(mean)))
    return Posterior(
        **{"draws": draws[None], "names": names, "method": "test", "sampler": "exact", "seed": 0, **fields}
    )
