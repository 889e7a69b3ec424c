"""Environment + policy + seed -> `Demonstrations`; world + rewards -> `TaskBank`. NumPy only, all episodes at once
(those of a simulator are compiled, in `planners.recorded_episodes`)."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from kdbirl.data.demonstrations import Demonstrations, TaskBank
from kdbirl.data.readers import read_rewards
from kdbirl.errors import MEMORY_BYTES, InputError, did_you_mean
from kdbirl.progress import Progress, Silent
from kdbirl.random_streams import stream
from kdbirl.worlds.gymnasium import GymnasiumSource, is_gymnasium
from kdbirl.worlds.policy import Policy, Predictor, StepPredictor, as_policy, predicted_action
from kdbirl.worlds.simulated_rollouts import (
    demonstrations_of,
    refuse_other_worlds,
    simulated_rollout,
    tasks_of_simulator,
)
from kdbirl.worlds.tabular import Steps, TabularMDP, World
from kdbirl.worlds.tabular_arrays import as_rewards

BYTES_OF_A_ROW = 26  # state, action, episode, two flags


def rollout(env: Any, policy: Any, episodes: Any = 20, horizon: Any = 10, seed: Any = 0) -> Demonstrations:
    """Let a policy act, and record its rows (state, action) with their episodes.

    env: a `TabularMDP`; a Gymnasium environment with discrete actions, or the id of one, such as "FrozenLake-v1"; or a
        vectorised simulator, such as `kb.SepsisSim()`.
    policy: a `Policy` or a table of probabilities (discrete states); a function observation -> action or an object with
        `predict(observation)`, as stable-baselines3 has; or "random". In a simulator a function is one of all
        observations (n, d) at once, to actions (n,), in jax.numpy.
    horizon: an episode that has not ended after so many steps is truncated there; None leaves it to the environment.
    The row whose action ends an episode is `terminated`; the last row of one that was cut is `truncated`.
    """
    episodes, seed = whole_number(episodes, "episodes", 1), whole_number(seed, "seed", 0)
    horizon = None if horizon is None else whole_number(horizon, "horizon", 1)
    _check_rows(episodes, horizon)
    if isinstance(env, TabularMDP):
        return demonstrations_of(_tabular(env, policy, episodes, horizon, seed), env)
    if isinstance(env, str):
        import gymnasium

        env = gymnasium.make(env)
    if not is_gymnasium(env):
        return simulated_rollout(env, policy, episodes, horizon, seed)
    source = GymnasiumSource(env)
    return demonstrations_of(source.steps(_actor(policy, source, seed), episodes, horizon, seed))


def make_bank(
    mdp: Any,
    rewards: Any,
    episodes: Any = 20,
    horizon: Any = 10,
    seed: Any = 0,
    temperature: float | int | None = None,
    noise: float | int = 0.0,
    planner: Any = None,
    progress: Progress | None = None,
) -> TaskBank:
    """A bank of training tasks: for each reward, demonstrations of the policy that is optimal for it.

    mdp: a `TabularMDP`, which is planned exactly; or a simulator, such as `kb.SepsisSim()`, with a `planner`; its
        observations are the bank's state columns.
    rewards: `(K, q)`, or `{task name: vector}`. temperature: Boltzmann experts exp(Q*/temperature) instead of optimal
        ones, in a tabular world; noise: the fraction of their actions that is random. Each task has its own random
        numbers, made from the seed and its position, so that a task added at the end changes no other.
    planner: in a simulator, a weight-conditioned policy (`kb.DeepQ().plan_conditioned` gives one), by which all tasks
        are played side by side; or `planner(simulator, reward)` -> a policy.
    """
    if not isinstance(mdp, TabularMDP):
        refuse_other_worlds(mdp, temperature)
    elif planner is not None:
        raise InputError("planner= is for simulators; a kb.TabularMDP is planned exactly, so leave it out.")
    names = tuple(str(name) for name in rewards) if isinstance(rewards, Mapping) else ()
    table = as_rewards(
        [np.asarray(r) for r in rewards.values()] if names else np.atleast_2d(rewards), mdp.feature_names
    )
    of_tasks = stream(whole_number(seed, "seed", 0), "training tasks")
    seeds = of_tasks.generate_state(len(table), np.uint64).tolist()
    _check_rows(len(table) * whole_number(episodes, "episodes", 1), horizon)
    if isinstance(mdp, TabularMDP):
        demos = _tabular_tasks(mdp, table, seeds, episodes, horizon, temperature, noise, progress or Silent())
    else:
        episodes = whole_number(episodes, "episodes", 1)
        horizon = None if horizon is None else whole_number(horizon, "horizon", 1)
        demos = tasks_of_simulator(mdp, planner, table, seeds, episodes, horizon, noise, progress)
    labels = names or tuple(str(k) for k in range(len(table)))
    tasks = {label: (rows, reward) for label, rows, reward in zip(labels, demos, table, strict=True)}
    return TaskBank.from_tasks(tasks, reward_names=mdp.feature_names)


def _tabular_tasks(
    mdp: TabularMDP,
    rewards: Any,
    seeds: list[int],
    episodes: Any,
    horizon: Any,
    temperature: Any,
    noise: Any,
    progress: Progress,
) -> list[Demonstrations]:
    from kdbirl.worlds.planning import policies_for  # JAX-free too, but recording alone does not need a planner

    found: list[Demonstrations] = []
    progress.update("demonstrations", 0, len(seeds), "planning")
    for policy, own in zip(policies_for(mdp, rewards, temperature, noise), seeds, strict=True):
        found.append(rollout(mdp, policy, episodes, horizon, own))
        progress.update("demonstrations", len(found), len(seeds), "tasks")
    return found


def _check_rows(episodes: int, horizon: Any) -> None:
    steps = 1 if horizon is None else whole_number(horizon, "horizon", 1)
    MEMORY_BYTES.check(BYTES_OF_A_ROW * episodes * steps, "episodes, horizon: so many rows do not fit")


def whole_number(value: Any, what: str, least: int) -> int:
    """The value as an int, if it is a whole number of at least `least`; `what` is the argument's name."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise InputError(f"{what}={value!r} should be a whole number, at least {least}.")
    return int(value)


def _tabular(mdp: TabularMDP, policy: Any, episodes: int, horizon: int | None, seed: int) -> Steps:
    """All episodes side by side, a step at a time; episode i uses its own row of random numbers."""
    limit = _limit(mdp, horizon)
    sizes = mdp.n_states, mdp.n_actions
    table = Policy.uniform(*sizes) if _is_random(policy) else as_policy(policy, *sizes)
    if table.steps is not None and limit > table.steps:
        raise InputError(f"The policy is for {table.steps} steps, but episodes have up to {limit}; lower the horizon.")
    chance = np.random.default_rng(stream(seed, "tabular episodes")).random((episodes, 2 * limit + 1))
    state = _drawn(np.repeat(mdp.start[None], episodes, axis=0), chance[:, 0])
    active, rows = np.arange(episodes), []
    for step in range(limit):
        action = _drawn(table.at(step)[state], chance[active, 2 * step + 1])
        after = _drawn(mdp.transitions[state, action], chance[active, 2 * step + 2])
        ended = mdp.terminal[after]
        cut = ~ended & (step == limit - 1)
        rows.append(np.stack([active, np.full_like(active, step), state, action, ended, cut]))
        active, state = active[~ended], after[~ended]
        if not active.size:
            break
    episode, step, states, actions, terminated, truncated = np.concatenate(rows, axis=1)
    order = np.lexsort((step, episode))
    flags = {"terminated": terminated[order].astype(bool), "truncated": truncated[order].astype(bool)}
    return Steps(
        states[order], actions[order], episode[order], **flags, n_states=mdp.recorded_states, n_actions=mdp.n_actions
    )


def _is_random(policy: Any) -> bool:
    if isinstance(policy, str) and policy != "random":
        raise InputError(f'policy={policy!r}: the only policy with a name is "random".')
    return isinstance(policy, str)


def _limit(mdp: TabularMDP, horizon: int | None) -> int:
    known = [steps for steps in (horizon, mdp.horizon) if steps is not None]
    if not known:
        raise InputError("horizon=None: this world has no horizon of its own, so say how long episodes may be.")
    return min(known)


def _drawn(chances: Float[np.ndarray, "k c"], uniform: Float[np.ndarray, " k"]) -> Int[np.ndarray, " k"]:
    """One category per row, by the inverse of the cumulative distribution."""
    cumulated = np.cumsum(chances, axis=1)
    found = (cumulated <= uniform[:, None] * cumulated[:, -1:]).sum(axis=1)
    return np.minimum(found, chances.shape[1] - 1).astype(np.int64)


def _actor(policy: Any, source: GymnasiumSource, seed: int) -> Callable[[Any, int], Any]:
    """A function from an observation and the step to one of the environment's own actions."""
    rng = np.random.default_rng(stream(seed, "agent"))
    if _is_random(policy):
        return lambda observation, step: source.action(int(rng.integers(source.n_actions)))
    if isinstance(policy, StepPredictor):
        return policy.predict_at
    if isinstance(policy, Predictor):
        return lambda observation, step: predicted_action(policy, observation)
    if callable(policy):
        return lambda observation, step: policy(observation)
    if source.n_states is None:
        raise InputError(
            "A table of probabilities needs discrete observations; give a function observation -> action, or an object "
            "with predict(observation)."
        )
    table = policy if isinstance(policy, Policy) else Policy(np.asarray(policy, dtype=np.float64))
    if table.n_actions != source.n_actions or table.n_states < source.n_states or table.steps is not None:
        raise InputError(
            f"The policy is for {table.n_states} states and {table.n_actions} actions, but the environment has "
            f"{source.n_states} and {source.n_actions}."
        )

    def act(observation: Any, step: int) -> Any:
        chances = table.probabilities[source.observation(observation)]
        return source.action(int(_drawn(chances[None], rng.random(1))[0]))

    return act


# The rewards of training tasks in a world: from a table, or one task for each state.

Rewards = dict[str, Float[np.ndarray, " q"]]  # by the task's name


def one_per_state(world: World) -> Rewards:
    """A task for each state that demonstrations can name: reward 1 there, 0 everywhere else."""
    if not isinstance(world, TabularMDP) or world.n_parameters != world.recorded_states:
        shown = ", ".join(world.feature_names[:6])
        raise InputError(
            f"One task per state needs one reward parameter per state, but this world's are {shown}; give a table of "
            "rewards, or draw random ones."
        )
    return dict(zip(world.feature_names, np.eye(world.n_parameters), strict=True))


def rewards_for(path: str | Path, world: World) -> Rewards:
    """The rewards in a table (task, parameters): columns that are named as the world's parameters may stand in any
    order; columns with other names are taken in the world's order."""
    vectors, names, columns, origin = read_rewards(path)
    if len(columns) != len(world.feature_names):
        shown = ", ".join(world.feature_names[:6]) + (", ..." if len(world.feature_names) > 6 else "")
        raise InputError(
            f"{origin} has {len(columns)} reward columns, but a reward of this world has {len(world.feature_names)} "
            f"parameters ({shown})."
        )
    known = [column in world.feature_names for column in columns]
    if all(known):
        vectors = vectors[:, [columns.index(name) for name in world.feature_names]]
    elif any(known):
        other = columns[known.index(False)]
        free = [name for name in world.feature_names if name not in columns]
        raise InputError(f"{origin}: the column {other!r} is no parameter of this world.{did_you_mean(other, free)}")
    return dict(zip(names, vectors, strict=True))
