"""Episodes of a policy in a simulator, side by side and compiled.

The random numbers depend on the key alone: episode i of two policies has the same start and the same chances at each
step (common random numbers), and a longer horizon changes nothing before its end.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from kdbirl.envs.simulator import Simulator, identity
from kdbirl.errors import InputError
from kdbirl.planners.acting import Act
from kdbirl.random_streams import stream_key

TOGETHER = 2**14  # episodes of all rewards that are played side by side: their network layers stay near the processor


class Rows(NamedTuple):
    """What n episodes did, `(steps, n)` each; rows of an episode that is over are not `running`."""

    observation: Float[Array, "steps n d"]
    action: Int[Array, "steps n"]
    terminated: Bool[Array, "steps n"]
    truncated: Bool[Array, "steps n"]
    running: Bool[Array, "steps n"]


class Played(NamedTuple):
    """collected: discounted sums of the features (times `mixing`) of each episode; sensible: whether every action was
    one of the simulator's; rows: None unless they were to be kept."""

    collected: Float[Array, "n p"]
    sensible: Bool[Array, ""]
    rows: Rows | None


class Chances(NamedTuple):
    """Keys of the random numbers: of the starts, and of each step's actions and outcomes.

    Made before and not within the compiled episodes, where they would double the time that compiling takes.
    """

    start: Array
    choose: Array
    on: Array


class _Walk(NamedTuple):
    """Where all episodes are, and what they have collected."""

    state: Any
    observation: Float[Array, "n d"]
    running: Bool[Array, " n"]
    weight: Float[Array, ""]
    collected: Float[Array, "n p"]
    sensible: Bool[Array, ""]


def play(
    simulator: Simulator,
    act: Act,
    parameters: Any,
    chances: Chances,
    mixing: Float[Array, "q p"],
    episodes: int,
    keep: bool = False,
) -> Played:
    """Let `act` play; to be compiled by the caller, for which everything but the arrays is fixed."""
    state, observation = simulator.reset(chances.start, episodes)
    ones = jnp.ones(episodes, bool)
    first = _Walk(state, observation, ones, jnp.ones(()), jnp.zeros((episodes, mixing.shape[1])), jnp.asarray(True))

    def step(walk: _Walk, given: tuple[Int[Array, ""], Array, Array]) -> tuple[_Walk, Rows | None]:
        number, choose, on = given
        action = _checked(act(parameters, walk.state, walk.observation, number, choose), episodes)
        outcome = simulator.step(walk.state, action, on)
        earned = jnp.where(walk.running[:, None], walk.weight * (outcome.features @ mixing), 0.0)
        running = walk.running & ~(outcome.terminated | outcome.truncated)
        sensible = (action >= 0) & (action < simulator.n_actions)
        after = _Walk(
            outcome.state,
            outcome.observation,
            running,
            walk.weight * simulator.discount,
            walk.collected + earned,
            walk.sensible & (sensible | ~walk.running).all(),
        )
        rows = Rows(walk.observation, action, outcome.terminated, outcome.truncated, walk.running)
        return after, rows if keep else None

    last, rows = jax.lax.scan(step, first, (jnp.arange(len(chances.on)), chances.choose, chances.on))
    return Played(last.collected, last.sensible, rows)


@dataclass(frozen=True, eq=False)
class Episodes:
    """Which episodes are played: what a compiled program depends on."""

    simulator: Simulator
    number: int
    steps: int
    keep: bool = False

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Episodes) and self._identity == other._identity

    def __hash__(self) -> int:
        return hash(self._identity)

    @property
    def _identity(self) -> tuple[Any, int, int, bool]:
        return identity(self.simulator), self.number, self.steps, self.keep

    def play(self, act: Act, parameters: Any, chances: Chances, mixing: Float[Array, "q p"]) -> Played:
        """To be compiled."""
        return play(self.simulator, act, parameters, chances, mixing, self.number, self.keep)


@lru_cache(maxsize=16)
def compiled(episodes: Episodes) -> Callable[..., Played]:
    """One program for all policies of a kind, also those of the next call: (act, parameters, chances, mixing)."""
    return jax.jit(episodes.play, static_argnums=0)


@lru_cache(maxsize=16)
def compiled_for_many(episodes: Episodes, own_chances: bool) -> Callable[..., Played]:
    """One program that plays a block of rewards side by side: (act, shared parameters, rewards, chances, mixing).

    own_chances: each reward has random numbers of its own; else all have the same.
    """

    def many(act: Act, shared: Any, rewards: Float[Array, "r q"], chances: Chances, mixing: Float[Array, "q p"]) -> Any:
        def one(reward: Float[Array, " q"], chances: Chances) -> Played:
            return episodes.play(act, (shared, reward), chances, mixing)

        return jax.vmap(one, in_axes=(0, 0 if own_chances else None))(rewards, chances)

    return jax.jit(many, static_argnums=0)


def blocks(rewards: int, episodes: int) -> list[Int[np.ndarray, " size"]]:
    """Which rewards are played side by side: blocks of one size, the last filled up with the last reward, so that one
    program serves all. Sizes are powers of two: another number of rewards seldom needs another program."""
    size = 1
    while size < rewards and 2 * size * episodes <= TOGETHER:
        size *= 2
    return [np.minimum(np.arange(begin, begin + size), rewards - 1) for begin in range(0, rewards, size)]


def _checked(action: Array, episodes: int) -> Int[Array, " n"]:
    if action.shape != (episodes,) or not jnp.issubdtype(action.dtype, jnp.integer):
        raise InputError(
            f"The policy gives {action.dtype} actions of shape {action.shape}, expected one whole number for each of "
            f"{episodes} observations."
        )
    return action


def check_actions(played: Played, simulator: Simulator) -> None:
    """JAX takes an index that is too large for the last one, without a word."""
    if not bool(played.sensible.all()):
        raise InputError(f"The policy chose an action that there is not; they are 0 to {simulator.n_actions - 1}.")


def episode_steps(simulator: Simulator, horizon: int | None) -> int:
    """How long episodes may be: the shorter of what was asked for and the simulator's own horizon."""
    known = [steps for steps in (horizon, simulator.horizon) if steps is not None]
    if not known:
        raise InputError("horizon: this simulator has no horizon of its own, so say how long episodes may be.")
    return min(known)


def recorded_chances(seed: int, steps: int) -> Chances:
    """Of episodes that are recorded as demonstrations."""
    return _chances(stream_key(seed, "simulated episodes"), steps)


def evaluation_chances(seed: int, steps: int) -> Chances:
    """Of episodes by which policies are judged: others than those that a demonstrator of the same seed has shown."""
    return _chances(stream_key(seed, "evaluation episodes"), steps)


def _chances(key: Array, steps: int) -> Chances:
    start, later = jax.random.split(key)
    choose, on = jax.vmap(lambda step: jax.random.split(jax.random.fold_in(later, step)), out_axes=1)(jnp.arange(steps))
    return Chances(start, choose, on)
