"""A tabular world as a Gymnasium environment. Imported only by `as_gymnasium`, since Gymnasium is imported here."""

from typing import Any

import gymnasium
import numpy as np

from kdbirl.envs.base import TabularMDP


class TabularEnvironment(gymnasium.Env[Any, Any]):
    """The states and actions of a `TabularMDP` as Discrete spaces, with R(s, a) of one reward.

    ## Observation and action space
    `Discrete(S)`, `Discrete(A)`; the names of the actions are in `mdp.action_names`.

    ## Rewards
    R(s, a), earned for the action taken in the state.

    ## Start and end
    The first state is drawn from `mdp.start`. Terminated when a terminal state is reached, truncated at the horizon.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 (Gymnasium declares it so)

    def __init__(self, mdp: TabularMDP, reward: Any) -> None:
        self.mdp = mdp
        self.observation_space = gymnasium.spaces.Discrete(mdp.n_states)
        self.action_space = gymnasium.spaces.Discrete(mdp.n_actions)
        self.table = mdp.reward_table(np.asarray(reward, dtype=np.float64).reshape(-1))
        self.state, self.step_count = 0, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        """Draw a first state."""
        super().reset(seed=seed)
        self.state = int(self.np_random.choice(self.mdp.n_states, p=self.mdp.start))
        self.step_count = 0
        return self.state, {}

    def step(self, action: Any) -> tuple[int, float, bool, bool, dict[str, Any]]:
        """Take an action: the next state, the reward of this one, terminated, truncated, nothing else to say."""
        reward = float(self.table[self.state, int(action)])
        self.state = int(self.np_random.choice(self.mdp.n_states, p=self.mdp.transitions[self.state, int(action)]))
        self.step_count += 1
        terminated = bool(self.mdp.terminal[self.state])
        return self.state, reward, terminated, self.step_count == self.mdp.horizon and not terminated, {}
