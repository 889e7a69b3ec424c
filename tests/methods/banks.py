"""Small banks for the tests of methods: rewards in [-1, 1]^q, features near the reward of their task."""

import numpy as np

import kdbirl as kb


def continuous(tasks: int = 8, rows: int = 30, q: int = 2, seed: int = 0) -> tuple[kb.TaskBank, kb.Demonstrations]:
    """Features drawn around each task's reward; the expert's reward is not among them."""
    rng = np.random.default_rng(seed)
    rewards = rng.uniform(-1, 1, (tasks, q))
    of_task = np.repeat(np.arange(tasks), rows)
    states = rewards[of_task] + rng.normal(0, 0.5, (tasks * rows, q))
    bank = kb.TaskBank.from_arrays(states=states, actions=None, tasks=of_task, rewards=rewards)
    expert = kb.Demonstrations(states=rng.normal(0.2, 0.5, (25, q)))
    return bank, expert


def corners(training: int) -> tuple[kb.TaskBank, kb.Demonstrations]:
    """The 2x2 grid: task k demonstrates going to cell k and staying there. The expert goes to the last cell."""
    rng = np.random.default_rng(1)
    rewards = np.eye(4)[:training]

    def rows(goal: int, count: int) -> tuple[np.ndarray, np.ndarray]:
        cells = np.where(rng.random(count) < 0.7, goal, rng.integers(0, 4, count))
        return cells, np.where(cells == goal, 0, 1 + cells % 4)

    parts = [rows(goal, 100) for goal in range(training)]
    bank = kb.TaskBank.from_arrays(
        states=np.concatenate([cells for cells, _ in parts]),
        actions=np.concatenate([actions for _, actions in parts]),
        tasks=np.repeat(np.arange(training), 100),
        rewards=rewards,
        n_states=4,
        n_actions=5,
    )
    cells, actions = rows(3, 100)
    return bank, kb.Demonstrations(states=cells, actions=actions, n_states=4, n_actions=5)
