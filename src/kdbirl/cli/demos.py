"""`kdbirl demos`: from a world to the tables that `kdbirl fit` takes."""

import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kdbirl.cli import demos_options as options
from kdbirl.cli.terminal import at_home, say, telling

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kdbirl.data.demonstrations import Demonstrations
    from kdbirl.progress import Progress
    from kdbirl.worlds.rollouts import Rewards
    from kdbirl.worlds.sepsis.q_policy import ConditionedQ
    from kdbirl.worlds.sepsis.simulator import SepsisSim
    from kdbirl.worlds.tabular import TabularMDP, World

DEFAULT_PRIOR = "uniform:0,1"  # of random rewards: the paper's prior on its grids


def demos(
    *,  # so that the options stand in the order in which they are explained, whether required or not
    env: options.Env,
    discount: options.Discount = None,
    policy: options.Policy = None,
    planning_horizon: options.PlanningHorizon = None,
    rewards: options.Rewards = None,
    one_per_state: options.OnePerState = False,
    random_rewards: options.RandomRewards = None,
    reward_prior: options.RewardPrior = None,
    true_reward: options.TrueReward,
    episodes: options.Episodes = 20,
    expert_episodes: options.ExpertEpisodes = 5,
    horizon: options.Horizon = 10,
    temperature: options.Temperature = None,
    noise: options.Noise = 0.0,
    expert_temperature: options.ExpertTemperature = None,
    expert_noise: options.ExpertNoise = None,
    seed: options.Seed = 0,
    out: options.Out,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
) -> None:
    """Demonstrations of training tasks and of an expert, made in a world."""
    asked = dict(locals())
    from kdbirl.installation import package_versions
    from kdbirl.progress import for_stream
    from kdbirl.report.directories import FILES, POLICY, demos_text, fit_command, write_demos
    from kdbirl.report.run import as_json as json_text
    from kdbirl.report.run import refuse_existing
    from kdbirl.store import request_of, resumable
    from kdbirl.worlds.named import WorldFile, named_world, parse_reward
    from kdbirl.worlds.rollouts import make_bank

    out = at_home(out)
    refuse_existing(out)
    world = named_world(env, discount, planning_horizon)
    truth = parse_reward(true_reward, world)
    seeds = _seeds(seed)
    tasks, origin = _training_rewards(world, rewards, one_per_state, random_rewards, reward_prior, seeds["rewards"])
    expert_temperature = temperature if expert_temperature is None else expert_temperature
    expert_noise = noise if expert_noise is None else expert_noise
    silent = quiet or as_json
    with resumable(out, request_of(asked), telling(silent)), closing(for_stream(sys.stderr, silent)) as progress:
        policies = _policies(world, [truth, *tasks.values()], policy, seeds["training"], progress)
        own_choices = (expert_episodes, horizon, seeds["expert"], expert_temperature, expert_noise)
        expert = _expert(world, truth, policies, *own_choices)
        bank = make_bank(world, tasks, episodes, horizon, seeds["training"], temperature, noise, policies, progress)
        quality, own = _quality(temperature, noise), _quality(expert_temperature, expert_noise)
        made: dict[str, Any] = {
            "rewards": origin,
            "demonstrators": quality if quality == own else f"{quality}; the expert {own}",
            "seed": seed,
            "seeds": seeds,
            "training": {"tasks": bank.n_tasks, "episodes_per_task": episodes, "rows": bank.n_rows},
            "expert": {"episodes": expert_episodes, "rows": expert.n_rows},
            **({} if policies is None else {"policies": policies.sentence}),
            "world": world.describe(),
            "fit": fit_command(out, world, reward_prior or [DEFAULT_PRIOR]),
            "versions": package_versions(),
        }
        record = WorldFile(
            env, world.discount, planning_horizon, horizon, world.feature_names, tuple(truth.tolist()), made
        )
        write_demos(out, bank, expert, record, policies)
    if as_json and not quiet:
        files = {name: str(out / name) for name in (FILES if policies is None else FILES | POLICY)}
        content = {"out": str(out), "files": files, "env": env, "discount": world.discount, "horizon": horizon}
        say(json_text(content | {"made": made}), nl=False)
    elif not quiet:
        say(demos_text(out, bank, expert, record, world))


def _policies(
    world: "TabularMDP | SepsisSim", rewards: "Sequence[Any]", stored: Path | None, seed: int, progress: "Progress"
) -> "ConditionedQ | None":
    """Of a simulator, learnt or from a file; a table is planned exactly."""
    from kdbirl.errors import InputError
    from kdbirl.worlds.tabular import TabularMDP

    if isinstance(world, TabularMDP):
        if stored is not None:
            raise InputError("--policy is for simulators, such as sepsis; the policies of this world are exact.")
        return None
    import numpy as np

    from kdbirl.worlds.sepsis.deep_q import policies_of

    return policies_of(world, np.stack(rewards), stored, seed, progress)


def _expert(
    world: "TabularMDP | SepsisSim",
    reward: Any,
    policies: "ConditionedQ | None",
    episodes: int,
    horizon: int,
    seed: int,
    temperature: float | None,
    noise: float,
) -> "Demonstrations":
    from kdbirl.worlds.planning import plan
    from kdbirl.worlds.rollouts import make_bank, rollout
    from kdbirl.worlds.tabular import TabularMDP

    if isinstance(world, TabularMDP):
        return rollout(world, plan(world, reward, temperature, noise), episodes, horizon, seed)
    return make_bank(world, {"expert": reward}, episodes, horizon, seed, temperature, noise, policies).task(0)


def _training_rewards(
    world: "World",
    table: str | None,
    each_state: bool,
    random: int | None,
    prior: list[str] | None,
    seed: int,
) -> "tuple[Rewards, str]":
    """The rewards by task, and in words where they come from."""
    from kdbirl.errors import InputError
    from kdbirl.worlds.rollouts import one_per_state, rewards_for

    if (table is not None) + each_state + (random is not None) != 1:
        raise InputError("Give the training tasks one of --rewards TABLE, --one-per-state or --random-rewards K.")
    if prior is not None and random is None:
        raise InputError("--reward-prior is for --random-rewards K, which is not given.")
    if table is not None:
        return rewards_for(table, world), f"from {table}"
    if random is None:
        return one_per_state(world), "one task per state"
    return _random_rewards(world, random, prior or [DEFAULT_PRIOR], seed)


def _random_rewards(world: "World", count: int, prior: list[str], seed: int) -> "tuple[Rewards, str]":
    import numpy as np

    from kdbirl.errors import MEMORY_BYTES, InputError
    from kdbirl.posterior.product_prior import parse_priors
    from kdbirl.random_streams import stream

    if count < 1:
        raise InputError(f"--random-rewards {count} should be a number of tasks, at least 1.")
    MEMORY_BYTES.check(8 * count * len(world.feature_names), "--random-rewards: so many tasks do not fit")
    drawn = parse_priors(prior).for_parameters(len(world.feature_names), world.feature_names)
    vectors = drawn.sample(np.random.default_rng(stream(seed, "random rewards")), count)
    return {str(k): vector for k, vector in enumerate(vectors)}, f"{count} drawn from {' '.join(prior)}"


def _seeds(seed: int) -> dict[str, int]:
    """Different random numbers for the training tasks, the expert and the rewards, from one seed."""
    from kdbirl.errors import InputError
    from kdbirl.random_streams import stream

    if seed < 0:
        raise InputError(f"seed={seed} should be a whole number, at least 0.")
    expert, rewards = stream(seed, "expert and rewards").generate_state(2).tolist()
    return {"training": seed, "expert": expert, "rewards": rewards}


def _quality(temperature: float | None, noise: float) -> str:
    """How well demonstrators act, in words with every digit."""
    kind = "optimal" if temperature is None else f"Boltzmann with temperature {temperature!r}"
    return f"{kind}, fraction {noise!r} of random actions" if noise else kind
