"""Any Gymnasium environment with discrete actions as a source of behaviour, and a tabular world as one.

Gymnasium is imported when it is first needed: its import changes Python's warning filters, which ours must not.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from kdbirl.errors import InputError
from kdbirl.random_streams import stream
from kdbirl.worlds.tabular import Steps, TabularMDP

Act = Callable[[Any, int], Any]  # an observation, as the environment gives it, and the step -> an action of its space


def is_gymnasium(env: Any) -> bool:
    """Whether this looks like a Gymnasium environment, without importing Gymnasium."""
    return all(hasattr(env, name) for name in ("observation_space", "action_space", "reset", "step"))


@dataclass(frozen=True, eq=False)
class GymnasiumSource:
    """A Gymnasium (1.0 or newer) environment whose episodes become rows.

    Observations: Discrete spaces give codes 0 .. n - 1, Box spaces their numbers, flat; Dict, Tuple, MultiDiscrete and
    MultiBinary spaces what Gymnasium's own `flatten` makes of them. Actions: Discrete spaces give codes; MultiDiscrete
    ones are numbered row by row, so that (i, j) of (m, n) is i * n + j. Continuous actions are refused.
    """

    env: Any

    def __post_init__(self) -> None:
        from gymnasium import spaces

        if not is_gymnasium(self.env):
            raise InputError(f"{type(self.env).__name__} is no Gymnasium environment: it needs reset, step and spaces.")
        if not isinstance(self.env.action_space, spaces.Discrete | spaces.MultiDiscrete):
            raise InputError(
                f"The actions of {self._name} are {self.env.action_space}; only discrete actions can be demonstrated "
                "here. Write continuous demonstrations to a table, and read them with kb.read_demonstrations."
            )
        if not self.env.observation_space.is_np_flattenable:
            raise InputError(
                f"The observations of {self._name} are {self.env.observation_space}, which Gymnasium cannot flatten; "
                "wrap the environment so that it gives a Box, a Discrete, or a Dict or Tuple of such."
            )

    @property
    def _name(self) -> str:
        spec = getattr(self.env, "spec", None)
        return str(spec.id) if spec is not None else type(self.env).__name__

    @property
    def n_states(self) -> int | None:
        """The number of observations where they are discrete, else None."""
        from gymnasium import spaces

        space = self.env.observation_space
        return int(space.n) if isinstance(space, spaces.Discrete) else None

    @property
    def n_actions(self) -> int:
        from gymnasium import spaces

        space = self.env.action_space
        return int(space.n) if isinstance(space, spaces.Discrete) else int(np.prod(space.nvec))

    def observation(self, value: Any) -> Any:
        """A code, or a flat vector of numbers."""
        from gymnasium import spaces

        space = self.env.observation_space
        if isinstance(space, spaces.Discrete):
            return int(value) - int(space.start)
        return np.asarray(spaces.flatten(space, value), dtype=np.float64).reshape(-1)

    def action(self, code: int) -> Any:
        """The environment's own action of a code."""
        from gymnasium import spaces

        space = self.env.action_space
        if isinstance(space, spaces.Discrete):
            return int(code) + int(space.start)
        return np.asarray(np.unravel_index(int(code), space.nvec), dtype=space.dtype) + space.start

    def code(self, action: Any) -> int:
        """The code of one of the environment's own actions; an action outside the space is refused."""
        from gymnasium import spaces

        space = self.env.action_space
        if isinstance(space, spaces.Discrete):
            number = int(np.asarray(action).reshape(()))
            inside, code = space.start <= number < space.start + space.n, number - int(space.start)
        else:
            parts = np.asarray(action, dtype=np.int64) - space.start
            inside = parts.shape == space.nvec.shape and bool(((parts >= 0) & (parts < space.nvec)).all())
            code = int(np.ravel_multi_index(tuple(parts), tuple(space.nvec))) if inside else -1
        if not inside:
            raise InputError(f"The policy chose {action!r}, which is no action of {self._name} ({space}).")
        return code

    def steps(self, act: Act, episodes: int, horizon: int | None, seed: int) -> Steps:
        """Let `act(observation, step)` play episodes of at most `horizon` steps (None: until they end).

        The environment is reset once, with a number made from `seed` and not with `seed`: an agent that has made its
        own generator from the same seed would otherwise act by the very numbers that move the world.
        """
        own = int(stream(seed, "world").generate_state(1)[0] >> 1)  # 31 bits: some environments take no more
        rows = [row for episode in range(episodes) for row in self._episode(act, episode, horizon, own)]
        states, actions, numbers, rewards, terminated, truncated = zip(*rows, strict=True)
        discrete = self.n_states is not None
        return Steps(
            states=np.array(states, dtype=np.int64 if discrete else np.float64),
            actions=np.array(actions, dtype=np.int64),
            episodes=np.array(numbers, dtype=np.int64),
            terminated=np.array(terminated, dtype=bool),
            truncated=np.array(truncated, dtype=bool),
            n_states=self.n_states,
            n_actions=self.n_actions,
            rewards=np.array(rewards, dtype=np.float64),
        )

    def _episode(self, act: Act, episode: int, horizon: int | None, seed: int) -> Iterator[tuple[Any, ...]]:
        """Rows (state, action, episode, reward, terminated, truncated); cut by our horizon is truncated too."""
        given, _ = self.env.reset(seed=seed if episode == 0 else None)
        step, over = 0, False
        while not over:
            code = self.code(act(given, step))
            state = self.observation(given)
            given, reward, terminated, truncated, _ = self.env.step(self.action(code))
            step += 1
            cut = bool(truncated) or (step == horizon and not terminated)
            yield state, code, episode, float(reward), bool(terminated), cut
            over = bool(terminated) or cut


def as_gymnasium(world: Any, reward: Any) -> Any:
    """A world with this reward as a Gymnasium environment.

    A `TabularMDP` has Discrete observations and actions; an episode terminates when a terminal state is reached (the
    last observation), and is truncated at the horizon. `kb.SepsisSim` and `kb.GymSepsis`, for one patient at a time:
    a Box of covariates, and the reward may be "terminal" too, which is the original's (+15 release, -15 death).
    """
    if isinstance(world, TabularMDP):
        from kdbirl.worlds.gymnasium_env import TabularEnvironment

        return TabularEnvironment(world, reward)
    if not hasattr(world, "with_features"):  # what the two sepsis simulators have
        raise InputError(
            f"as_gymnasium takes a kb.TabularMDP, kb.SepsisSim or kb.GymSepsis, not {type(world).__name__}."
        )
    from kdbirl.worlds.gymnasium_env import PatientEnvironment

    return PatientEnvironment(world, reward)
