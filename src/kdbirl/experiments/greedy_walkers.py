"""The experts of the released grid scripts: walkers that look one step ahead; unfinished rollouts are dropped.

In cell s a walker takes the action that leads to the neighbouring cell with the highest reward, any of them where
several are as good: where no reward is in sight, that is a random walk. A rollout is finished when the walker stands in
a cell of the highest reward of all; that last row is recorded with NO ACTION. The horizon cuts rollouts, and those that
it cuts are dropped: what is left are the lucky ones.
"""

import numpy as np
from jaxtyping import Bool, Float, Int

from kdbirl.demos.data import Demonstrations
from kdbirl.envs.gridworld import Gridworld
from kdbirl.errors import InputError

ROLLOUTS = 1000  # of each task, as in the scripts
TIES = 1e-9  # of the largest reward


def walk(
    world: Gridworld, reward: Float[np.ndarray, " q"], horizon: int, rng: np.random.Generator, noise: float = 0.0
) -> Demonstrations:
    """The finished ones of 1,000 rollouts from random cells; a share `noise` of the moves is random."""
    cells = np.asarray(world.reward_table(reward[None]))[0, :, 0]
    after = np.argmax(world.transitions, axis=2)
    best = _best(cells[after], np.abs(cells).max())
    goal = cells >= cells.max() - TIES * np.abs(cells).max()
    state = rng.choice(world.n_states, ROLLOUTS, p=world.start)
    done, rows = np.zeros(ROLLOUTS, dtype=bool), []
    for step in range(horizon):
        arrived = goal[state] & ~done
        action = np.where(arrived, 0, _chosen(best[state], noise, rng))
        rows.append(np.stack([np.arange(ROLLOUTS), np.full(ROLLOUTS, step), state, action, arrived])[:, ~done])
        done, state = done | arrived, after[state, action]
    return _finished(np.concatenate(rows, axis=1), done, world)


def _best(ahead: Float[np.ndarray, "S A"], scale: float) -> Bool[np.ndarray, "S A"]:
    return np.asarray(ahead >= ahead.max(axis=1, keepdims=True) - TIES * scale)


def _chosen(allowed: Bool[np.ndarray, "k A"], noise: float, rng: np.random.Generator) -> Int[np.ndarray, " k"]:
    """One of the allowed actions of each row, or with probability `noise` any action."""
    free = np.where(rng.random((len(allowed), 1)) < noise, True, allowed)
    return np.asarray(np.argmax(np.where(free, rng.random(allowed.shape), -1.0), axis=1))


def _finished(rows: Int[np.ndarray, "5 r"], done: Bool[np.ndarray, " k"], world: Gridworld) -> Demonstrations:
    if not done.any():
        raise InputError("No walker reached its goal: a longer horizon, or less noise, is needed.")
    kept = rows[:, done[rows[0]]]
    episode, _, states, actions, last = kept[:, np.lexsort((kept[1], kept[0]))]
    return Demonstrations(
        states=states,
        actions=actions,
        episodes=episode,
        terminated=last.astype(bool),
        truncated=np.zeros(len(last), dtype=bool),
        action_labels=world.action_names,
        n_states=world.recorded_states,
        n_actions=world.n_actions,
    )
