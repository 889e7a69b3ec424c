"""Episodes of a policy in a simulator, side by side and compiled.

The random numbers depend on the key alone: episode i of two policies has the same start and the same chances at each
step (common random numbers), and a longer horizon changes nothing before its end.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from kdbirl._jax import float64
from kdbirl.data.demonstrations import Demonstrations
from kdbirl.errors import InputError
from kdbirl.progress import Progress, Silent
from kdbirl.random_streams import stream_key
from kdbirl.worlds.acting import Act, ConditionedPolicy, as_actor, conditioned_actor, with_noise
from kdbirl.worlds.policy import as_planner
from kdbirl.worlds.simulator import Simulator, identity
from kdbirl.worlds.tabular import Steps, TabularMDP

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


# Episodes of a vectorised simulator as rows: of one policy, or of the policies of many rewards side by side.


def is_simulator(env: Any) -> bool:
    """Whether this has what a simulator has."""
    return isinstance(env, Simulator)


@float64
def simulated_steps(
    simulator: Simulator, policy: Any, episodes: int, horizon: int | None, seed: int, noise: float = 0.0
) -> Steps:
    """Play all episodes side by side; states are the simulator's observations. Cut by our horizon is truncated too."""
    plan = Episodes(simulator, episodes, episode_steps(simulator, horizon), keep=True)
    act, parameters, alike, _ = as_actor(policy, simulator, plan.steps)
    act = with_noise(act, noise, simulator.n_actions)
    program = compiled(plan) if alike else jax.jit(plan.play, static_argnums=0)
    played = program(act, parameters, recorded_chances(seed, plan.steps), _nothing(simulator))
    check_actions(played, simulator)
    assert played.rows is not None  # they were to be kept
    return _steps(played.rows, simulator, plan.steps)


@float64
def simulated_tasks(
    simulator: Simulator,
    planner: Any,
    rewards: Float[np.ndarray, "r q"],
    seeds: Sequence[int],
    *,
    episodes: int,
    horizon: int | None,
    noise: float = 0.0,
    progress: Progress | None = None,
) -> list[Steps]:
    """Episodes of the policy of each reward, with random numbers of its own: as `simulated_steps` with its seed.

    A weight-conditioned planner plays many rewards side by side; another is asked for one policy after the other.
    """
    told = progress or Silent()
    if isinstance(planner, ConditionedPolicy):
        plan = Episodes(simulator, episodes, episode_steps(simulator, horizon), keep=True)
        return _side_by_side(plan, planner, rewards, seeds, noise, told)
    ask, found = as_planner(planner), []
    for reward, seed in zip(rewards, seeds, strict=True):
        found.append(simulated_steps(simulator, ask(simulator, reward), episodes, horizon, seed, noise))
        told.update("demonstrations", len(found), len(rewards))
    return found


def _side_by_side(
    plan: Episodes,
    planner: ConditionedPolicy,
    rewards: Float[np.ndarray, "r q"],
    seeds: Sequence[int],
    noise: float,
    progress: Progress,
) -> list[Steps]:
    act, shared, *_ = conditioned_actor(planner, plan.steps)
    act, program = with_noise(act, noise, plan.simulator.n_actions), compiled_for_many(plan, own_chances=True)
    found: dict[int, Steps] = {}
    for block in blocks(len(rewards), plan.number):
        each = [recorded_chances(seeds[number], plan.steps) for number in block]
        chances = jax.tree.map(lambda *keys: jnp.stack(keys), *each)
        played = program(act, shared, jnp.asarray(rewards[block]), chances, _nothing(plan.simulator))
        check_actions(played, plan.simulator)
        rows = jax.tree.map(np.asarray, played.rows)
        for place, number in enumerate(block):  # the last of a block may be there several times
            found[int(number)] = _steps(jax.tree.map(lambda x, p=place: x[p], rows), plan.simulator, plan.steps)
        progress.update("demonstrations", len(found), len(rewards))
    return [found[number] for number in range(len(rewards))]


def _nothing(simulator: Simulator) -> Float[jax.Array, "q 0"]:
    """A mixing of the features that collects none."""
    return jnp.zeros((len(simulator.feature_names), 0))


def _steps(rows: Rows, simulator: Simulator, limit: int) -> Steps:
    """Rows `(steps, n)` as those of one episode after the other, without what came after the ends."""
    by_episode = jax.tree.map(lambda x: np.asarray(x).swapaxes(0, 1), rows)
    running = by_episode.running
    terminated = by_episode.terminated[running]
    number, step = np.nonzero(running)
    return Steps(
        states=by_episode.observation[running].astype(np.float64),
        actions=by_episode.action[running].astype(np.int64),
        episodes=number.astype(np.int64),
        terminated=terminated,
        truncated=by_episode.truncated[running] | ((step == limit - 1) & ~terminated),
        n_states=None,
        n_actions=simulator.n_actions,
    )


# What an environment recorded, as `Demonstrations`.


def demonstrations_of(steps: Steps, mdp: TabularMDP | None = None, columns: tuple[str, ...] = ()) -> Demonstrations:
    """Rows with declared counts; the action's names are its labels where the world has some."""
    numbered = tuple(str(a) for a in range(steps.n_actions))
    named = mdp is not None and mdp.action_names != numbered
    states = None if mdp is None or mdp.state_names is None else mdp.state_names[: mdp.recorded_states]
    return Demonstrations(
        states=steps.states,
        actions=steps.actions,
        episodes=steps.episodes,
        terminated=steps.terminated,
        truncated=steps.truncated,
        state_names=columns,
        state_labels=states,
        action_labels=mdp.action_names if named and mdp is not None else None,
        n_states=steps.n_states,
        n_actions=steps.n_actions,
    )


# Demonstrations in a vectorised simulator; its observations are the state columns. JAX is imported when it plays.


def simulated_rollout(env: Any, policy: Any, episodes: int, horizon: int | None, seed: int) -> Demonstrations:
    """Episodes of one policy."""

    if not is_simulator(env):
        raise InputError(
            f"{type(env).__name__} is no environment: give a kb.TabularMDP, a Gymnasium environment or a simulator."
        )
    return demonstrations_of(simulated_steps(env, policy, episodes, horizon, seed), columns=env.observation_names)


def tasks_of_simulator(
    env: Any,
    planner: Any,
    rewards: Float[np.ndarray, "K q"],
    seeds: list[int],
    episodes: int,
    horizon: int | None,
    noise: float,
    progress: Progress | None,
) -> list[Demonstrations]:
    """Episodes of the policy of each reward, all rewards side by side where the planner is weight-conditioned."""

    if planner is None:
        raise InputError(
            "make_bank in a simulator needs planner=: a weight-conditioned policy, such as kb.DeepQ().plan_conditioned("
            "simulator, prior, seed=0), or a function of the simulator and a reward that gives a policy."
        )
    if not 0 <= noise <= 1:
        raise InputError(f"noise={noise!r} should be a fraction, from 0 to 1.")
    found = simulated_tasks(
        env, planner, rewards, seeds, episodes=episodes, horizon=horizon, noise=float(noise), progress=progress
    )
    return [demonstrations_of(steps, columns=env.observation_names) for steps in found]


def refuse_other_worlds(env: Any, temperature: Any) -> None:
    """Only a simulator can be played here, and its planners know no temperature."""

    if not is_simulator(env):
        raise InputError(
            f"make_bank plans, so it needs a kb.TabularMDP or a simulator with a planner, not {type(env).__name__}; "
            "see kb.rollout."
        )
    if temperature is not None:
        raise InputError("temperature= is for tabular worlds; in a simulator make experts imperfect with noise=.")
