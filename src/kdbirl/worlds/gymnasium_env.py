"""A tabular world as a Gymnasium environment. Imported only by `as_gymnasium`, since Gymnasium is imported here."""

from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np

from kdbirl._jax import float64
from kdbirl.errors import InputError
from kdbirl.worlds.simulator import Simulator
from kdbirl.worlds.tabular import TabularMDP


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


# One patient of a sepsis simulator as a Gymnasium environment. Imported only where Gymnasium is to be used.

FAR = 1e6
TERMINAL = 15.0  # the original's reward: +15 for release, -15 for death, 0 before


class PatientEnvironment(gymnasium.Env[Any, Any]):
    """A `SepsisSim` or `GymSepsis` for one patient at a time.

    ## Observation and action space
    `Box` of the 46 covariates, between bounds that no value reaches; `Discrete` with the simulator's treatments.

    ## Rewards
    reward="terminal": +15 when the patient is released, -15 at death, as in gym-sepsis; a `SepsisSim` also
    draws the outcome of a stay that was cut. A vector: w.phi(s, a) of the simulator's features.

    ## Start and end
    As of the simulator; the same seed gives the same patient and the same course under the same actions.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 (Gymnasium declares it so)

    def __init__(self, simulator: Simulator, reward: Any = "terminal") -> None:
        width = len(simulator.observation_names)
        self.simulator = simulator
        self.weights = None if isinstance(reward, str) and reward == "terminal" else _weights(reward, simulator)
        self.observation_space = gymnasium.spaces.Box(-FAR, FAR, (width,), np.float64)
        self.action_space = gymnasium.spaces.Discrete(simulator.n_actions)
        self.state: Any = None

    @float64
    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Admit a patient."""
        super().reset(seed=seed)
        self.state, observation = self.simulator.reset(self._key(), 1)
        return np.asarray(observation[0], dtype=np.float64), {}

    @float64
    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Treat for four hours."""
        if self.state is None:
            raise InputError("step before reset: admit a patient with reset(seed=...) first.")
        outcome = self.simulator.step(self.state, jnp.full(1, int(action), jnp.int32), self._key())
        self.state = outcome.state
        info = jax.tree.map(lambda value: np.asarray(value)[0], outcome.info)
        if self.weights is None:
            reward = TERMINAL * (float(info["released"]) - float(info["died"]))
        else:
            reward = float(np.asarray(outcome.features[0]) @ self.weights)
        seen = np.asarray(outcome.observation[0], dtype=np.float64)
        return seen, reward, bool(outcome.terminated[0]), bool(outcome.truncated[0]), info

    def _key(self) -> Any:
        words = jnp.asarray(self.np_random.integers(2**32, size=2, dtype=np.uint32))
        return jax.random.wrap_key_data(words, impl="threefry2x32")


def _weights(reward: Any, simulator: Simulator) -> np.ndarray:
    weights = np.asarray(reward, dtype=np.float64) if not isinstance(reward, str) else np.empty(0)
    if weights.shape != (len(simulator.feature_names),) or not np.isfinite(weights).all():
        raise InputError(
            f'reward={reward!r} should be "terminal" or one finite weight for each of {simulator.feature_names}.'
        )
    return weights
