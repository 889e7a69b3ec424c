"""Each use of a seed has random numbers of its own: agent and world, demonstrator and judge, seed and seed + 1.

Every chi-square test fails by chance once in a million (`RARE`, divided by the number of tables that a test looks at);
seeds are fixed, so it fails always or never.
"""

import ast
from collections import Counter
from functools import cache
from itertools import combinations
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import kdbirl as kb
from kdbirl.envs.simulator import TabularSimulator
from kdbirl.evaluation.paired_rollouts import collected_features
from kdbirl.planners.deep_q import DeepQ
from kdbirl.planners.q_episodes import Setup, look_around, starts_of
from kdbirl.planners.recorded_episodes import simulated_steps
from kdbirl.posterior.sampler import NoLikelihood
from kdbirl.posterior.target import Target, starting_points
from kdbirl.random_streams import stream, stream_key

PACKAGE = Path(__file__).parents[1] / "src" / "kdbirl"
RARE = 1e-6
K = 3  # states and actions of a world that is noise alone


def independent(*codes, alpha=RARE):
    """Pearson's chi-square of all columns of codes: each column is independent of all the others together."""
    table = np.stack([np.asarray(column).ravel() for column in codes])
    shape = (table.max(axis=1) + 1).tolist()
    counts = np.zeros(shape)
    np.add.at(counts, tuple(table), 1)
    expected = np.ones(shape)
    for axis, size in enumerate(shape):
        share = counts.sum(axis=tuple(other for other in range(len(shape)) if other != axis)) / counts.sum()
        expected *= share.reshape([size if axis == at else 1 for at in range(len(shape))])
    expected *= counts.sum()
    assert expected.min() > 3  # for the limit to hold
    degrees = int(np.prod(shape)) - 1 - sum(size - 1 for size in shape)
    found = float(((counts - expected) ** 2 / expected).sum())
    assert stats.chi2.sf(found, degrees) > alpha, f"chi-square {found:.0f} on {degrees} degrees of freedom"


def noise(**options):
    """A world whose next state is uniform whatever is done: state, action, next state and next action share nothing."""
    return kb.TabularMDP(np.full((K, K, K), 1 / K), np.full(K, 1 / K), 0.9, **options)


def in_gymnasium():
    return kb.as_gymnasium(noise(), np.zeros(K))


UNIFORM, IN_JAX = kb.Policy.uniform(K, K), TabularSimulator(noise())


def own_generator(seed):
    """An agent of the user's, who likes the same seed."""
    rng = np.random.default_rng(seed)
    return lambda observation: int(rng.integers(K))


def looked_around(n, length, seed):
    """What deep Q-learning sees first."""
    setup, key = Setup(IN_JAX, DeepQ(environments=n, episode_length=length)._settings(IN_JAX)), stream_key(seed, "test")
    seen = look_around(setup, starts_of(setup, jax.random.fold_in(key, 0)), length, jax.random.fold_in(key, 1))
    states, actions = (np.asarray(part).reshape(length, n).T for part in (seen.observation.argmax(axis=1), seen.action))
    return SimpleNamespace(states=states, actions=actions)


SOURCES = {
    "tabular, random": lambda *size: kb.rollout(noise(), "random", *size),
    "tabular, a table": lambda *size: kb.rollout(noise(), UNIFORM, *size),
    "Gymnasium, random": lambda *size: kb.rollout(in_gymnasium(), "random", *size),
    "Gymnasium, a table": lambda *size: kb.rollout(in_gymnasium(), UNIFORM, *size),
    "Gymnasium, the user's agent": lambda *size: kb.rollout(in_gymnasium(), own_generator(size[-1]), *size),
    "simulator, random": lambda *size: kb.rollout(IN_JAX, "random", *size),
    "simulator, a table": lambda *size: kb.rollout(IN_JAX, UNIFORM, *size),
    "simulator, noisy": lambda *size: simulated_steps(IN_JAX, UNIFORM, *size, noise=0.5),
    "a bank": lambda *size: kb.make_bank(noise(), np.zeros((1, K)), *size, temperature=1.0).demonstrations,
    "deep Q-learning": looked_around,
}


@cache
def shown(source, episodes, length, seed):
    """States and actions `(episodes, length)`, as codes."""
    rows = SOURCES[source](episodes, length, seed)
    states = np.asarray(rows.states).reshape(episodes, length, -1)
    return (states.argmax(axis=2) if states.shape[2] > 1 else states[:, :, 0]), np.reshape(
        rows.actions, states.shape[:2]
    )


@pytest.mark.parametrize("source", SOURCES)
def test_agent_and_world_share_no_random_numbers(source):
    """State, action, next state and next action of an episode; and of two episodes at the same step."""
    states, actions = shown(source, 4, 1000, 3)
    now, then = np.s_[:, :-1], np.s_[:, 1:]
    independent(states[now], actions[now], states[then], actions[then])
    independent(states[:-1], actions[:-1], states[1:], actions[1:])


@pytest.mark.parametrize("source", SOURCES)
def test_consecutive_seeds_do_not_overlap(source):
    """Step t of seed 3, and steps t - 1, t and t + 1 of seed 4."""
    one, two = (shown(source, 4, 1000, seed) for seed in (3, 4))
    for shift in (-1, 0, 1):
        independent(*one, *(np.roll(part, shift, axis=1) for part in two), alpha=RARE / 3)


FIRST = ("tabular, a table", "Gymnasium, random", "Gymnasium, a table", "Gymnasium, the user's agent")


@pytest.mark.parametrize("source", FIRST)
def test_first_steps_of_many_seeds_are_independent(source):
    """One episode a rollout, as in a loop over seeds: what the first draws of streams have in common shows here."""
    found = [shown(source, 1, 2, seed) for seed in range(600)]
    states, actions = (np.concatenate(part) for part in zip(*found, strict=True))
    independent(states[:, 0], actions[:, 0], states[:, 1], actions[:, 1])
    independent(states[:-1, 0], actions[:-1, 0], states[1:, 0], actions[1:, 0])


def test_tasks_of_a_bank_do_not_overlap():
    """All pairs of four tasks with equal rewards, whose experts act alike but for chance."""
    bank = kb.make_bank(noise(), np.zeros((4, K)), 4, 1000, 0, temperature=1.0)
    states, actions = (part.reshape(4, -1) for part in (bank.demonstrations.states, bank.demonstrations.actions))
    for i, j in combinations(range(4), 2):
        independent(states[i], actions[i], states[j], actions[j], alpha=RARE / 6)


def test_frozen_lake_slips_independently_of_the_next_action():
    """The chance that the audit found to be .745 .255 0 0 for a uniform agent: every action after each slip.

    In a lake of one row, who walks up or down comes to where the slip takes him: cell 0, 1 or 2, from cell 1.
    """
    import gymnasium

    lake = gymnasium.make("FrozenLake-v1", desc=["FSFG"])
    shown = [kb.rollout(lake, np.full((4, 4), 0.25), 1, 2, seed) for seed in range(600)]
    pairs = [(rows.states[1], rows.actions[1]) for rows in shown if rows.actions[0] in (1, 3)]
    independent(*np.transpose(pairs))


def test_a_judge_plays_other_episodes_than_the_demonstrator_of_the_same_seed():
    """The lengths of the random agent's episodes; correlations of independent numbers are within 5 / sqrt(n), but for
    once in 1.7 million."""
    pole = kb.CartPole(discount=0.99)
    n = 1000
    shown = kb.rollout(pole, "random", n, 20, 0)
    lengths = np.bincount(shown.episodes, minlength=n).astype(float)
    collected = collected_features(pole, "random", n, 20, 0)
    features = collected[:, collected.std(axis=0) > 0]
    correlations = np.corrcoef(lengths, features.T)[0, 1:]
    assert len(correlations) >= 1
    assert (np.abs(correlations) < 5 / np.sqrt(n)).all()


def test_prior_draws_are_shared_with_no_sampler_no_other_seed_and_no_user():
    """A user who draws true rewards by `default_rng(seed)` would otherwise find the truth among the starting points,
    and the prior draws of seed 0 among the starting points of seed 1."""
    prior, world = kb.Normal(0, 1).for_parameters(2), kb.Gridworld(2, features="xy")
    expert, target = kb.rollout(world, "random", 2, 3, 0), Target.build(prior, NoLikelihood())
    drawn = {f"of the user's seed {seed}": prior.sample(np.random.default_rng(seed), 64) for seed in range(3)}
    for seed in range(2):
        drawn[f"starting points {seed}"] = starting_points(target, prior, 64, seed, False).positions
        post = kb.BIRL(world, kb.Normal(0, 1), alpha=1.0, sampler=kb.Grid(draws=50, chains=1)).posterior(
            expert, seed=seed
        )
        drawn[f"prior draws {seed}"] = post.prior_draws[:64]
    first = np.concatenate([np.round(points[:, 0], 9) for points in drawn.values()])
    assert len(first) == 7 * 64
    assert len(np.unique(first)) == len(first)


def test_a_stream_is_of_nobody_else():
    """Neither of a seed, nor of a use, nor of a place; NumPy itself takes [seed, 0] for seed."""
    assert np.random.default_rng(5).random() == np.random.default_rng([5, 0]).random()  # why streams are spawned
    streams = [stream(seed, use, *place) for seed in (5, 6) for use in ("a", "b") for place in ((), (0,), (1,), (0, 0))]
    seeds = [np.random.SeedSequence(entropy) for entropy in (5, 6, [5, 1], [6, 1])]
    first = [tuple(own.generate_state(4)) for own in (*streams, *seeds)]
    assert len(set(first)) == len(first)
    assert tuple(stream(5, "a").generate_state(4)) == first[0]
    assert (jax.random.key_data(stream_key(5, "a")) == jnp.asarray(first[0][:2])).all()


def calls_of_package(*names):
    """Calls of functions of these names, and where they are. The experiments have streams `[seed, use, ...]` of their
    own, with uses from 1, so that the stored results stay theirs."""
    for path in sorted(PACKAGE.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if "experiments" not in path.parts and any(name in text for name in names):
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) in names:
                    yield f"{path.name}:{node.lineno}", node


def test_every_use_of_a_seed_has_one_name_and_every_name_one_use():
    named = [call.args[1] for _, call in calls_of_package("stream", "stream_key")]
    uses = [use.value for use in named if isinstance(use, ast.Constant)]
    assert len(uses) > 30
    assert [use for use, times in Counter(uses).items() if times > 1] == []
    assert len({stream(0, use).spawn_key for use in uses}) == len(uses)


def test_no_generator_is_made_from_a_seed_itself():
    """But from 0, where a fixed set of points is wanted."""
    made = list(calls_of_package("default_rng", "key", "PRNGKey", "SeedSequence", "RandomState", "seed"))
    assert len(made) > 20

    def is_right(call):
        return not call.args or getattr(call.args[0], "value", None) == 0 or "stream(" in ast.unparse(call.args[0])

    assert [place for place, call in made if not is_right(call) and not place.startswith("random_streams")] == []
