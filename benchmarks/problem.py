"""The seeded problem that every benchmark solves: a bank of tasks, and expert rows of a task that is not among them.

    w_k ~ Uniform(-1, 1)^q          the known reward of training task k
    x_j ~ Normal(w_k, 0.7 I)        features of a row of task k
    w*  ~ Uniform(-0.5, 0.5)^q      the held-out reward, inside the training rewards' hull
    x_i ~ Normal(w*, 0.7 I)         features of an expert row

Behaviour depends on the reward, so the likelihood informs every direction; the identity is the feature map, so d = q.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

FEATURE_SD = 0.7
PRIORS = {"normal": (0.0, 1.0), "uniform": (-1.5, 1.5)}  # mean and sd; low and high


@dataclass(frozen=True)
class Problem:
    """`expert (n, d)`; `features (m, d)` sorted by task; `tasks (m,)`; `rewards (K, q)`. Bandwidths are sds."""

    expert: np.ndarray
    features: np.ndarray
    tasks: np.ndarray
    rewards: np.ndarray
    held_out: np.ndarray
    h: float
    h_reward: float
    prior: str

    def __post_init__(self) -> None:
        if self.prior not in PRIORS:
            raise ValueError(f"The prior is one of {', '.join(PRIORS)}, not {self.prior!r}.")
        if (np.diff(self.tasks) < 0).any():
            raise ValueError("Training rows must be sorted by task.")

    @property
    def rewards_of_rows(self) -> np.ndarray:
        """(m, q): the reward of every training row, as Eq. 6 of the paper has it."""
        return self.rewards[self.tasks]

    @property
    def sizes(self) -> dict[str, int]:
        """n, m, K, q and d, for the records."""
        (n, d), (k, q) = self.expert.shape, self.rewards.shape
        return {"n": n, "m": len(self.features), "tasks": k, "reward_parameters": q, "feature_columns": d}


def make_problem(
    n: int, m: int, n_tasks: int, seed: int, q: int = 3, h: float = 0.5, h_reward: float = 0.4, prior: str = "normal"
) -> Problem:
    """The problem of the module's docstring; tasks have m // n_tasks rows, the first m % n_tasks of them one more."""
    random = np.random.default_rng(seed)
    rewards = random.uniform(-1.0, 1.0, (n_tasks, q))
    held_out = random.uniform(-0.5, 0.5, q)
    tasks = np.repeat(np.arange(n_tasks), np.bincount(np.arange(m) % n_tasks, minlength=n_tasks))
    features = rewards[tasks] + FEATURE_SD * random.standard_normal((m, q))
    expert = held_out + FEATURE_SD * random.standard_normal((n, q))
    return Problem(expert, features, tasks, rewards, held_out, h, h_reward, prior)


def save_problem(problem: Problem, path: Path) -> None:
    """To an .npz file, through which a fresh process gets exactly the same numbers."""
    np.savez(path, **vars(problem))


def load_problem(path: Path) -> Problem:
    """The inverse of `save_problem`."""
    with np.load(path, allow_pickle=False) as stored:
        arrays = {name: stored[name] for name in stored.files}
    h, h_reward, prior = (arrays.pop(name).item() for name in ("h", "h_reward", "prior"))
    return Problem(**arrays, h=h, h_reward=h_reward, prior=prior)


def direct_log_posterior(problem: Problem, rewards: np.ndarray) -> np.ndarray:
    """(r, q) -> (r,): log prior + the double sum of Eq. 6 over all n*m pairs, written out; up to a constant.

    The slow, obvious reference that Stan's density and kdbirl's are both held against.
    """
    from scipy.spatial.distance import cdist
    from scipy.special import logsumexp

    log_feature = -cdist(problem.expert, problem.features, "sqeuclidean") / (2 * problem.h**2)
    log_reward = -cdist(rewards, problem.rewards_of_rows, "sqeuclidean") / (2 * problem.h_reward**2)
    log_likelihood = [logsumexp(log_feature + b, axis=1).sum() - len(log_feature) * logsumexp(b) for b in log_reward]
    return np.asarray(log_likelihood) + log_prior(problem, rewards)


def log_prior(problem: Problem, rewards: np.ndarray) -> np.ndarray:
    """(r, q) -> (r,), up to a constant."""
    first, second = PRIORS[problem.prior]
    if problem.prior == "normal":
        return -0.5 * (((rewards - first) / second) ** 2).sum(axis=1)
    inside = ((rewards >= first) & (rewards <= second)).all(axis=1)
    return np.where(inside, 0.0, -np.inf)
