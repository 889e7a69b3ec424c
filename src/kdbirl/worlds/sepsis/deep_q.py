"""`DeepQ`: deep Q-learning in a simulator, for one reward or for all rewards of a prior at once.

Double Q-learning with a dueling network and a slowly following target network (`q_network`, `q_training`), on many
episodes of a vectorised simulator side by side. Networks compute in single precision; everything else about a run is
fixed by its seed.
"""

import math
import sys
from dataclasses import dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from kdbirl._jax import single_precision
from kdbirl.errors import InputError
from kdbirl.progress import Progress, Silent
from kdbirl.random_streams import stream
from kdbirl.worlds.sepsis.q_episodes import Settings, Setup
from kdbirl.worlds.sepsis.q_policy import ConditionedQ, LearntValues, QPolicy, load_conditioned
from kdbirl.worlds.sepsis.q_training import Rewards, Stopping, Trained, looking, train
from kdbirl.worlds.simulator import Simulator, TabularSimulator
from kdbirl.worlds.tabular import TabularMDP
from kdbirl.worlds.tabular_arrays import as_rewards

EFFECTIVE_HORIZONS = 5.0  # an episode without an end is cut when discount^t has fallen to exp(-5), below one per cent
LONGEST = 5000  # steps of such an episode
POOL = 8192  # rewards drawn to train with
COUNTS = (
    *("updates", "environments", "updates_per_step", "batch", "replay", "patience"),
    *("evaluate_every", "evaluation_episodes"),
)
SHARES = ("learning_rate", "averaging", "exploration", "tolerance", "agreement")


@dataclass(frozen=True)
class DeepQ:
    """Deep Q-learning with these settings; `plan` is for one reward, `plan_conditioned` for many.

    discount: None takes the simulator's; 1 is allowed with a horizon or a certain end.
    With a horizon Q(s, t, a, w) knows the step, since nothing follows the last one, and policies depend on it, as exact
        ones do. But where what comes after the horizon would count for less than one per cent (discount^horizon
        < exp(-5), as in CartPole: 500 steps, 0.99), or in a world without one, they do not: there a truncated episode
        is taken to go on in its last state.
    updates: gradient steps at most, in whole blocks of `evaluate_every`; after each block the greedy policy plays
        `evaluation_episodes` episodes, always the same. Training stops when their mean return has not risen by
        `tolerance` times (best - random) in `patience` blocks, and the network's own estimate of it is within
        `agreement` times (best - random). The best network is kept; whether training stopped by itself is
        `converged` of the result.
    episode_length: steps after which an episode is cut, in training and in evaluation, where policies do not depend on
        the step; None: the simulator's horizon, or 5 / (1 - discount) if that is less.
    hidden: sizes of the layers. environments: episodes side by side; each step of them is followed by
        `updates_per_step` updates with `batch` rows out of the last `replay`. learning_rate: of Adam, falling to a
        tenth. averaging: how fast the target network follows. exploration: the share of random actions of the most
        careful episode; the others have more, up to all.
    """

    discount: float | None = None
    updates: int = 40_000
    hidden: tuple[int, ...] = (128, 128)
    learning_rate: float = 1e-3
    environments: int = 32
    updates_per_step: int = 1
    batch: int = 128
    replay: int = 32_768
    averaging: float = 0.005
    exploration: float = 0.02
    episode_length: int | None = None
    evaluate_every: int = 1000
    evaluation_episodes: int = 256
    patience: int = 8
    tolerance: float = 0.002
    agreement: float = 0.1

    def __post_init__(self) -> None:
        object.__setattr__(self, "hidden", tuple(self.hidden))  # a list would be as good, but cannot be hashed
        counts = {name: getattr(self, name) for name in COUNTS} | {"hidden": min(self.hidden, default=0)}
        counts |= {} if self.episode_length is None else {"episode_length": self.episode_length}
        for name, value in counts.items():
            if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
                raise InputError(f"DeepQ({name}={getattr(self, name)!r}) should be a whole number, at least 1.")
        for name in SHARES:
            if not 0 < getattr(self, name) <= 1:
                raise InputError(f"DeepQ({name}={getattr(self, name)!r}) should be above 0, and 1 at most.")
        if self.updates < self.evaluate_every:
            raise InputError(f"DeepQ(updates={self.updates}) is less than evaluate_every={self.evaluate_every}.")
        if self.evaluate_every % self.updates_per_step:
            raise InputError(
                f"DeepQ(evaluate_every={self.evaluate_every}) should be a multiple of updates_per_step"
                f"={self.updates_per_step}."
            )

    @single_precision
    def plan(self, world: Any, reward: Any, *, seed: int, progress: Progress | None = None) -> QPolicy:
        """The policy that earns most of one reward `(q,)` in a simulator or a `TabularMDP`."""
        simulator, seed = as_simulator(world), _whole(seed)
        if np.ndim(reward) != 1:
            raise InputError(f"reward: shape {np.shape(reward)}, expected one vector; see plan_conditioned for many.")
        weights = as_rewards(reward, simulator.feature_names)
        trial = np.repeat(weights, self.evaluation_episodes, axis=0)
        found = self._train(simulator, Rewards(weights, trial, single=True), seed, progress)
        return QPolicy(weights[0], found.learning, _values(found, simulator), np.ones(1), float(found.units[0]))

    @single_precision
    def plan_conditioned(
        self, world: Any, rewards: Any, *, seed: int, progress: Progress | None = None
    ) -> ConditionedQ:
        """Policies for all rewards of a distribution, by one training of Q(s, a, w).

        rewards: a prior, such as `kb.Uniform(-1, 1)`; a box `(low, high)` of two numbers or vectors; or an array
        `(r, q)` of rewards, such as a posterior's draws. The evaluation episodes are for other draws than the training.
        """
        simulator, seed = as_simulator(world), _whole(seed)
        rng = np.random.default_rng(stream(seed, "rewards to learn"))
        pool, trial = _drawn(rewards, simulator.feature_names, rng, self.evaluation_episodes)
        found = self._train(simulator, Rewards(pool, trial, single=False), seed, progress)
        return ConditionedQ(found.learning, _values(found, simulator), found.units)

    def _train(self, simulator: Simulator, rewards: Rewards, seed: int, progress: Progress | None) -> Trained:
        stopping = Stopping(self.patience, self.tolerance, self.agreement)
        return train(Setup(simulator, self._settings(simulator)), rewards, stopping, seed, progress or Silent())

    def _settings(self, simulator: Simulator) -> Settings:
        """With nothing left open."""
        discount = _discount(simulator.discount if self.discount is None else self.discount)
        limit = known_horizon(discount, simulator.horizon)
        if limit is not None and self.episode_length not in (None, limit):
            raise InputError(
                f"DeepQ(episode_length={self.episode_length}): this world has a horizon of {limit} steps, which the "
                "policy knows; leave it out."
            )
        length = limit or self.episode_length or _episode_length(discount, simulator.horizon)
        rows = self.environments * looking(length)
        replay = -(-max(self.replay, rows) // self.environments) * self.environments
        given = {item.name: getattr(self, item.name) for item in fields(Settings) if item.name != "limit"}
        return Settings(**given | {"discount": discount, "episode_length": length, "limit": limit, "replay": replay})


def policies_of(
    simulator: Simulator,
    rewards: Float[np.ndarray, "r q"],
    stored: str | Path | None,
    seed: int,
    progress: Progress | None = None,
) -> ConditionedQ:
    """Policies for all weights from - to + the largest size of each column of `rewards`; from a file if there is one.

    Both signs of each weight are learnt, so that a posterior's draws have policies too, not the tasks at hand alone.
    """
    if stored is not None:
        return _fitting(load_conditioned(stored), simulator, stored)
    reach = np.abs(rewards).max(axis=0)
    reach = np.where(reach > 0, reach, max(float(reach.max()), 1.0))
    return DeepQ().plan_conditioned(simulator, (-reach, reach), seed=seed, progress=progress)


def _fitting(found: ConditionedQ, simulator: Simulator, place: str | Path) -> ConditionedQ:
    """A file of another world or other features would give sensible-looking nonsense."""
    for what, ours, theirs in (
        ("observations", tuple(simulator.observation_names), found.values.observation_names),
        ("features", tuple(simulator.feature_names), found.values.feature_names),
        ("actions", simulator.n_actions, found.values.n_actions),
        ("steps", known_horizon(simulator.discount, simulator.horizon), found.values.limit),
    ):
        if ours != theirs:
            raise InputError(
                f"{place} holds policies for other {what} ({theirs}) than this world's ({ours}); leave it out to learn."
            )
    return found


def as_simulator(world: Any) -> Simulator:
    """A vectorised simulator as it is, or one of a tabular world."""
    if isinstance(world, TabularMDP):
        return _tabular(world)
    if not isinstance(world, Simulator):
        raise InputError(
            f"{type(world).__name__} is no simulator: deep Q-learning needs a kb.TabularMDP, or an object with the "
            "attributes of kdbirl.worlds.simulator.Simulator."
        )
    return world


@lru_cache(maxsize=16)
def _tabular(mdp: TabularMDP) -> TabularSimulator:
    """One simulator for each world, so that what was compiled for it is used again."""
    return TabularSimulator(mdp)


def _values(found: Trained, simulator: Simulator) -> LearntValues:
    states = None
    if isinstance(simulator, TabularSimulator):
        states = np.eye(simulator.mdp.n_states) if simulator.observations is None else simulator.observations
    names = tuple(simulator.observation_names), tuple(simulator.feature_names)
    return LearntValues(found.network, found.scales, *names, simulator.n_actions, states)


def _discount(discount: float) -> float:
    if not 0 <= discount <= 1:
        raise InputError(f"DeepQ(discount={discount!r}) should be a number from 0 to 1.")
    return float(discount)


def known_horizon(discount: float, horizon: int | None) -> int | None:
    """The horizon if Q is to know it: if it is near enough for what would come after it to count."""
    return None if horizon is None or horizon >= _far(discount) else int(horizon)


def _episode_length(discount: float, horizon: int | None) -> int:
    return min(LONGEST, _far(discount)) if horizon is None else min(LONGEST, _far(discount), int(horizon))


def _far(discount: float) -> int:
    """The step from which rewards count for less than one per cent."""
    return sys.maxsize if discount == 1 else math.ceil(EFFECTIVE_HORIZONS / (1 - discount))


def _whole(seed: Any) -> int:
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise InputError(f"seed={seed!r} should be a whole number, at least 0.")
    return int(seed)


def _drawn(
    rewards: Any, names: tuple[str, ...], rng: np.random.Generator, episodes: int
) -> tuple[Float[np.ndarray, "r q"], Float[np.ndarray, "episodes q"]]:
    """Rewards to train with, and others for the evaluation episodes."""
    if hasattr(rewards, "for_parameters"):  # a prior; their module comes after this one in the order of imports
        table = as_rewards(rewards.for_parameters(len(names), names).sample(rng, POOL + episodes), names)
    elif isinstance(rewards, tuple) and len(rewards) == 2:
        low, high = (np.broadcast_to(np.asarray(end, dtype=np.float64), len(names)) for end in rewards)
        if not (np.isfinite(low) & np.isfinite(high) & (low < high)).all():
            raise InputError(f"rewards={rewards!r}: a box is (low, high) with low below high, both finite.")
        table = rng.uniform(low, high, (POOL + episodes, len(names)))
    else:
        table = rng.permutation(as_rewards(rewards, names))
        if len(table) < 2 * episodes:  # too few to hold some back
            return table, table[np.arange(episodes) % len(table)]
    return table[episodes:], table[:episodes]
