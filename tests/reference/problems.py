"""Ten small problems whose posterior is known without any sampler, and without any code of the library.

    python tests/reference/problems.py        writes posteriors.json beside this file: moments and quantiles

The likelihood is the paper's double sum over expert and training rows, the posterior a fine grid of rewards.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

FILE = Path(__file__).with_name("posteriors.json")
POINTS = {1: 20_001, 2: 501}  # of the grid, a side
LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)

KERNELS = {
    "gaussian": lambda u: np.exp(-(u**2) / 2),
    "laplace": lambda u: np.exp(-u),
    "epanechnikov": lambda u: np.maximum(0.0, 1 - u**2),
}


@dataclass(frozen=True)
class Case:
    """A bank of `tasks` tasks with q parameters, n expert rows, and the model's choices."""

    seed: int
    q: int = 2
    tasks: int = 5
    rows: int = 6
    n: int = 8
    h: float = 0.8
    h_reward: float = 0.6
    kernel: str = "gaussian"
    power: float = 1.0
    weights: str = "rows"
    prior: tuple = ("uniform", -2.0, 2.0)
    data: dict = field(default_factory=dict, compare=False)

    def arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Training rows (m, 2), their tasks (m,), rewards (K, q), expert rows (n, 2)."""
        rng = np.random.default_rng(self.seed)
        rewards = np.round(rng.uniform(-1.5, 1.5, (self.tasks, self.q)), 3)
        sizes = self.rows + rng.integers(0, 5, self.tasks)
        tasks = np.repeat(np.arange(self.tasks), sizes)
        centres = np.column_stack([rewards[:, 0], rewards[:, -1] ** 2])
        training = np.round(centres[tasks] + rng.normal(0, 0.7, (len(tasks), 2)), 3)
        expert = np.round(centres[0] + rng.normal(0, 0.7, (self.n, 2)), 3)
        return training, tasks, rewards, expert

    def density(self, points: np.ndarray) -> np.ndarray:
        """log of the prior's density at points (p, q), up to a constant."""
        name, a, b = self.prior
        if name == "uniform":
            return np.zeros(len(points))
        return stats.norm.logpdf(points, a, b).sum(axis=1)

    @property
    def box(self) -> tuple[float, float]:
        name, a, b = self.prior
        return (a, b) if name == "uniform" else (a - 6 * b, a + 6 * b)


CASES = {
    "two parameters": Case(1),
    "one parameter": Case(2, q=1),
    "two tasks": Case(3, q=1, tasks=2, n=5),
    "one expert row": Case(4, n=1),
    "many expert rows": Case(5, n=40),
    "a power of the likelihood": Case(6, power=0.3),
    "equal weights of tasks": Case(7, weights="equal"),
    "a normal prior": Case(8, prior=("normal", 0.2, 0.8)),
    "the Laplace kernel": Case(9, kernel="laplace"),
    "a compact kernel on the features": Case(10, kernel="epanechnikov", h=4.0, q=1),
}


def log_likelihood(case: Case, points: np.ndarray) -> np.ndarray:
    """sum_i log of sum_j w_j K(x_i, x_j) K'(R, R_j) / sum_j w_j K'(R, R_j), j over training rows; w_j = 1 or 1/n_k."""
    training, tasks, rewards, expert = case.arrays()
    own = np.bincount(tasks)[tasks] if case.weights == "equal" else np.ones(len(tasks))
    close = KERNELS[case.kernel](np.linalg.norm(expert[:, None] - training[None], axis=2) / case.h)  # (n, m)
    total = np.empty(len(points))
    for first in range(0, len(points), 2000):
        part = points[first : first + 2000]
        near = np.exp(-(np.linalg.norm(part[:, None] - rewards[tasks][None], axis=2) ** 2) / (2 * case.h_reward**2))
        near = near / own
        with np.errstate(divide="ignore"):
            total[first : first + 2000] = np.log(near @ close.T / near.sum(axis=1)[:, None]).sum(axis=1)
    return total


def exact(case: Case) -> dict[str, Any]:
    """Means, standard deviations and quantiles of every parameter."""
    low, high = case.box
    count = POINTS[case.q]
    side = low + (np.arange(count) + 0.5) * (high - low) / count
    points = np.stack(np.meshgrid(*[side] * case.q, indexing="ij"), axis=-1).reshape(-1, case.q)
    logs = case.density(points) + case.power * log_likelihood(case, points)
    weights = np.exp(logs - logs.max())
    weights /= weights.sum()
    mean = weights @ points
    marginals = [
        weights.reshape([count] * case.q).sum(axis=tuple({0, 1} - {j}) if case.q == 2 else ()) for j in range(case.q)
    ]
    quantiles = [np.interp(LEVELS, np.cumsum(marginal) - marginal / 2, side).tolist() for marginal in marginals]
    return {
        "mean": mean.tolist(),
        "sd": np.sqrt(weights @ (points - mean) ** 2).tolist(),
        "quantiles": quantiles,
        "log_likelihood_at_mean": float(log_likelihood(case, mean[None])[0]),
    }


if __name__ == "__main__":
    found = {name: exact(case) for name, case in CASES.items()}
    FILE.write_text(json.dumps(found, indent=1) + "\n")
    print(f"wrote {FILE}")
