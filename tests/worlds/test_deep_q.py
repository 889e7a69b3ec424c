"""Deep Q-learning against exact plans: values, regrets, ends and cuts, seeds, and the two forms."""

from dataclasses import replace
from functools import partial

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import kdbirl as kb
from kdbirl.errors import InputError
from kdbirl.worlds.sepsis.deep_q import known_horizon
from kdbirl.worlds.sepsis.q_episodes import (
    Actors,
    Evaluation,
    Scales,
    Settings,
    Setup,
    Transitions,
    World,
    act,
    empty_replay,
    evaluate,
    recall,
    remember,
    starts_of,
)
from kdbirl.worlds.sepsis.q_network import ActionValueNetwork, action_values
from kdbirl.worlds.sepsis.q_policy import ConditionedQ, Learning, LearntValues
from kdbirl.worlds.sepsis.q_training import Returns, Stopping, Training, _optimizer, _update, double_q_goal
from kdbirl.worlds.simulator import TabularSimulator

from .cartpole import CartPole

SMALL = kb.DeepQ(hidden=(64, 64), updates=8000, evaluate_every=500, patience=4, averaging=0.01)
TINY = kb.DeepQ(hidden=(32,), updates=3000, evaluate_every=500, batch=64, learning_rate=3e-3, averaging=0.02)


def regret(mdp, reward, policy):
    """(best - value) / (best - random), exact."""
    best = kb.plan_many(mdp, [reward]).values[0]
    random = kb.value(mdp, kb.Policy.uniform(mdp.n_states, mdp.n_actions), reward)
    return (best - kb.value(mdp, policy, reward)) / (best - random)


def some_world(horizon=None, n_states=5, n_actions=3):
    """A random world whose last state is an end."""
    transitions = np.random.default_rng(0).dirichlet(np.full(n_states, 0.4), (n_states, n_actions))
    terminal = np.arange(n_states) == n_states - 1
    return kb.TabularMDP(transitions, "uniform", 0.8, terminal=terminal, horizon=horizon)


# The pieces


def transitions(n, first=0, d=2):
    number = jnp.arange(first, first + n)
    rows = jnp.broadcast_to(number[:, None].astype(float), (n, d))
    return Transitions(rows, number, number, rows, rows + 1, number % 2 == 0)


def test_the_memory_is_a_ring():
    replay = empty_replay(transitions(4), 12)
    for block in range(5):
        replay = remember(replay, transitions(4, 4 * block))
    assert sorted(np.asarray(replay.rows.action).tolist()) == list(range(8, 20))
    np.testing.assert_array_equal(replay.rows.following[:, 0], replay.rows.observation[:, 0] + 1)


def test_only_what_was_written_is_drawn():
    replay = remember(empty_replay(transitions(4), 12), transitions(4, first=1))
    drawn = recall(replay, jax.random.key(0), 1000)
    assert set(np.asarray(drawn.action).tolist()) == {1, 2, 3, 4}
    np.testing.assert_array_equal(drawn.observation[:, 1], drawn.action)


@pytest.mark.parametrize("limit", [None, 7])
def test_the_goal_is_double_q_learning_and_stops_only_at_ends(limit):
    """Against a plain loop: one network chooses the action, the other values it, both at the next step."""
    rng = np.random.default_rng(1)
    network, target = (ActionValueNetwork(3 + 2, (8,), 4, 2, 10.0, jax.random.key(k), limit) for k in (0, 1))
    following, features, weights = (jnp.asarray(rng.normal(size=(50, k))) for k in (3, 2, 2))
    ended, step = jnp.asarray(rng.random(50) < 0.5), jnp.asarray(rng.integers(0, 6, 50))
    rows = Transitions(following, step, jnp.zeros(50, int), features, following, ended)
    goal = double_q_goal(0.9, network, target, rows, weights)
    differ = 0
    for i in range(50):
        chosen = int(np.argmax(network(following[i], step[i] + 1, weights[i])))
        values = np.asarray(target(following[i], step[i] + 1, weights[i]))
        differ += chosen != values.argmax()
        expected = float(features[i] @ weights[i]) + (0.0 if ended[i] else 0.9 * values[chosen])
        assert float(goal[i]) == pytest.approx(expected, rel=1e-5, abs=1e-4)
    assert differ > 5, "the two networks would not be told apart"


def test_values_grow_with_the_weights():
    """Q = w . f: zero weights are worth nothing, and opposite advantages cancel over the actions."""
    network = ActionValueNetwork(3 + 2, (8,), 4, 2, 10.0, jax.random.key(0))
    observations = jax.random.normal(jax.random.key(1), (6, 3))
    assert not np.asarray(action_values(network, observations, jnp.arange(6), jnp.zeros((6, 2)))).any()


@pytest.mark.parametrize("limit", [None, 7])
def test_the_step_matters_only_where_the_horizon_is_known(limit):
    network = ActionValueNetwork(3 + 2, (8,), 4, 2, 10.0, jax.random.key(0), limit)
    observations, weights = jnp.ones((7, 3)), jnp.ones((7, 2))
    values = np.asarray(action_values(network, observations, jnp.arange(7), weights))
    assert len(np.unique(values[:, 0])) == (1 if limit is None else 7)


def written_out(leaves, observation, step, weights, horizon, limit):
    """Q of one row in NumPy, from Ba et al. 2016 (layer normalisation) and Wang et al. 2016 (dueling heads); leaves in
    the order: weight and bias of one hidden layer, gain and bias of its norm, of V, of A."""
    (w, b, gain, offset, w_v, b_v, w_a, b_a), inputs = leaves, [observation, weights]
    if limit is not None:
        to_go = (limit - step) / limit
        inputs, horizon = [*inputs, np.cos(np.pi * to_go * np.array([1, 2, 3, 4]))], horizon * to_go
    x = w @ np.concatenate(inputs) + b
    x = np.maximum(gain * (x - x.mean()) / np.sqrt(x.var() + 1e-5) + offset, 0)
    advantage = (w_a @ x + b_a).reshape(-1, len(weights)) @ weights
    return horizon * (w_v @ x + b_v) @ weights + advantage - advantage.mean()


def leaves_of(network):
    return [np.asarray(leaf, dtype=float) for leaf in jax.tree.leaves(network)]


def test_an_update_is_adam_on_the_double_q_loss_written_out():
    """Three updates in NumPy: targets, slopes by central differences, cut to length 10, Adam whose rate falls along
    half a cosine, and the moving average. A step moves a weight by .01, to 2e-4 in single precision."""
    limit = 7
    own = settings(hidden=(5,), batch=6, discount=0.8, limit=limit, learning_rate=0.01, averaging=0.3, updates=8)
    rng, rate, rest = np.random.default_rng(2), 0.01, 0.1
    network = ActionValueNetwork(3 + 2, (5,), 4, 2, 4.0, jax.random.key(5), limit)
    seen = [jnp.asarray(rng.normal(size=(20, k)), jnp.float32) for k in (3, 2, 3)]
    actions, steps, ended = rng.integers(0, 4, 20), rng.integers(0, 6, 20), rng.random(20) < 0.4
    rows = Transitions(seen[0], jnp.asarray(steps), jnp.asarray(actions), 20 * seen[1], seen[2], jnp.asarray(ended))
    replay = remember(empty_replay(rows, 20), rows)
    world = World(
        Scales(jnp.zeros(3), jnp.ones(3), jnp.eye(2)), jnp.asarray(rng.normal(size=(9, 2)), jnp.float32), None
    )
    training = Training(network, network, _optimizer(own).init(network), None, replay)
    leaves, target = leaves_of(network), leaves_of(network)
    first, second = ([np.zeros_like(leaf) for leaf in leaves] for _ in range(2))
    steepest, update = [], jax.jit(partial(_update, own))
    for t in range(3):
        key = jax.random.key(100 + t)
        pick, choose = jax.random.split(key)  # which rows and weights are drawn is the package's own
        drawn = [np.asarray(part, dtype=float) for part in recall(replay, pick, 6)]
        weights = np.asarray(world.pool, dtype=float)[jax.random.randint(choose, (6,), 0, 9)]
        batch = list(zip(*drawn, weights, strict=True))

        def q(given, state, step, w):
            return written_out(given, state, step, w, 4.0, limit)

        goals = []
        for _, step, _, phi, after, end, w in batch:
            best = np.argmax(q(leaves, after, step + 1, w))
            goals.append(phi @ w + (0 if end else 0.8 * q(target, after, step + 1, w)[best]))

        def loss(given):
            values = [q(given, o, step, w)[int(a)] for o, step, a, _, _, _, w in batch]  # noqa: B023
            return np.mean((np.array(goals) - values) ** 2)  # noqa: B023

        slopes = [np.zeros_like(leaf) for leaf in leaves]
        for leaf, slope in zip(leaves, slopes, strict=True):
            for place in np.ndindex(leaf.shape):
                kept, ends = leaf[place], []
                for moved in (kept + 1e-6, kept - 1e-6):
                    leaf[place] = moved
                    ends.append(loss(leaves))
                leaf[place], slope[place] = kept, (ends[0] - ends[1]) / 2e-6
        length = np.sqrt(sum(np.sum(slope**2) for slope in slopes))
        steepest.append(length)
        slopes = [slope * min(1, 10 / length) for slope in slopes]
        training, found = update(world, training, key)
        assert float(found) == pytest.approx(loss(leaves), rel=1e-4)
        first = [0.9 * m + 0.1 * g for m, g in zip(first, slopes, strict=True)]
        second = [0.999 * v + 0.001 * g**2 for v, g in zip(second, slopes, strict=True)]
        now = rate * (rest + (1 - rest) * (1 + np.cos(np.pi * t / 8)) / 2)
        for leaf, m, v in zip(leaves, first, second, strict=True):
            leaf -= now * m / (1 - 0.9 ** (t + 1)) / (np.sqrt(v / (1 - 0.999 ** (t + 1))) + 1e-8)
        target = [0.7 * old + 0.3 * leaf for old, leaf in zip(target, leaves, strict=True)]
    assert max(steepest) > 10, "no slope was cut"
    for found, expected in ((training.network, leaves), (training.target, target)):
        for ours, theirs in zip(leaves_of(found), expected, strict=True):
            np.testing.assert_allclose(ours, theirs, atol=2e-4)


def settings(**changes):
    values = {name: getattr(TINY, name) for name in Settings.__dataclass_fields__ if name != "limit"}
    return Settings(**values | {"discount": 0.8, "episode_length": 100, "limit": None} | changes)


def actors_of(simulator, cells, steps):
    state, _ = simulator.reset(jax.random.key(0), len(cells))
    state = state._replace(cell=jnp.asarray(cells, state.cell.dtype), step=jnp.asarray(steps, state.step.dtype))
    n = simulator.mdp.n_states
    return Actors(state, jnp.eye(n)[state.cell], jnp.ones((len(cells), 1)), jnp.asarray(steps, jnp.int32))


def plain_world(n, episodes=1):
    scales = Scales(jnp.zeros(n), jnp.ones(n), jnp.arange(n, dtype=float)[:, None])
    return World(scales, jnp.ones((1, 1)), jnp.ones((episodes, 1)))


@pytest.mark.parametrize("limit", [None, 5])
def test_a_cut_episode_starts_again_and_its_row_is_no_end(limit):
    """In a corridor 0 1 2 (end 3): one episode ends, one reaches the horizon, one the length, one goes on. Only a
    horizon that the network knows is an end too."""
    table = np.zeros((4, 1, 4))
    table[[0, 1, 2, 3], 0, [1, 2, 3, 3]] = 1.0
    mdp = kb.TabularMDP(table, 0, 0.8, terminal=np.arange(4) == 3, horizon=5)
    setup = Setup(TabularSimulator(mdp), settings(episode_length=3, limit=limit))
    before = actors_of(setup.simulator, [2, 1, 1, 1], [1, 4, 2, 1])
    starts = starts_of(setup, jax.random.key(1))
    after, rows = act(setup, plain_world(4), starts, before, jnp.zeros(4, int), jax.random.key(0))
    np.testing.assert_array_equal(rows.ended, [True, limit is not None, False, False])
    np.testing.assert_array_equal(rows.step, [1, 4, 2, 1])
    np.testing.assert_array_equal(np.argmax(rows.following, axis=1), [3, 2, 2, 2])  # where it led, not the new start
    np.testing.assert_array_equal(rows.features[:, 0], [2, 1, 1, 1])
    np.testing.assert_array_equal(after.state.cell, [0, 0, 0, 2])
    np.testing.assert_array_equal(after.step, [0, 0, 0, 2])
    np.testing.assert_array_equal(np.argmax(after.observation, axis=1), [0, 0, 0, 2])


def test_evaluation_earns_what_the_exact_value_says():
    """Random actions, within 4.5 standard errors; what comes after a cut is the network's word, which is 0 here."""
    mdp = some_world()
    setup, world = Setup(TabularSimulator(mdp), settings()), plain_world(5, episodes=4000)
    network = jax.tree.map(jnp.zeros_like, ActionValueNetwork(6, (8,), 3, 1, 5.0, jax.random.key(0)))
    found = evaluate(setup, world, network, jnp.ones(()), jax.random.key(1))
    exact = kb.value(mdp, kb.Policy.uniform(5, 3), np.arange(5.0))
    error = float(found.earned.std()) / np.sqrt(4000)
    assert float(found.earned.mean()) == pytest.approx(exact, abs=4.5 * error)
    np.testing.assert_array_equal(found.realised, found.earned)


@pytest.mark.parametrize(
    ("horizon", "length", "limit"),
    [(None, 6, None), (4, 6, None), (4, 4, 4)],
    ids=["cut by length", "truncated", "a horizon that is known"],
)
def test_evaluation_is_a_plain_loop(horizon, length, limit):
    """Greedy episodes in a certain world: what was earned, expected, and should have been. Only an end and a horizon
    that is known stop the sum; where an episode is cut, the network's value of its last state stands for the rest."""
    rng = np.random.default_rng(4)
    table = np.eye(6)[rng.integers(0, 6, (6, 3))]
    mdp = kb.TabularMDP(table, "uniform", 0.8, terminal=np.arange(6) == 5, horizon=horizon)
    network = ActionValueNetwork(6 + 1, (5,), 3, 1, 5.0, jax.random.key(1), limit)
    own = Setup(TabularSimulator(mdp), settings(episode_length=length, limit=limit))
    found = evaluate(own, plain_world(6, episodes=60), network, jnp.zeros(()), jax.random.key(3))

    def best(state, step):
        values = written_out(leaves_of(network), np.eye(6)[state], step, np.ones(1), 5.0, limit)
        return values.argmax(), values.max()

    expected = {}
    for start in range(5):
        state, earned, rest, kind = start, 0.0, 0.0, "cut"
        for step in range(length):
            earned += 0.8**step * state  # the feature of a state is its number
            state = int(table[state, best(state, step)[0]].argmax())
            if state == 5:
                kind = "end"
            elif horizon is not None and step + 1 == horizon:
                kind = "horizon"
            elif step + 1 < length:
                continue
            rest = 0.0 if kind == "end" or limit is not None else 0.8 ** (step + 1) * best(state, step + 1)[1]
            break
        expected[kind, start] = earned, best(start, 0)[1], earned + rest
    assert len({kind for kind, _ in expected}) == 2, "both an end and a cut"
    for row in np.stack(found, axis=1):
        assert min(np.abs(row - np.array(known)).max() for known in expected.values()) < 1e-4
    assert len(np.unique(np.round(np.asarray(found.earned), 3))) == len({round(v[0], 3) for v in expected.values()})


@pytest.mark.parametrize("limit", [None, 7])
def test_values_for_a_reward_are_those_of_the_network_written_out(limit):
    """Q(s, t, a, w) = |u w| f((s - centre) / spread, u w / |u w|) with the features' units u."""
    network = ActionValueNetwork(3 + 2, (5,), 4, 2, 4.0, jax.random.key(0), limit)
    centre, spread, units = np.array([0.5, -1, 2]), np.array([2.0, 0.1, 1]), np.array([0.3, 5.0])
    scales = Scales(jnp.asarray(centre), jnp.asarray(spread), jnp.eye(2))
    learning = Learning(False, "", 0, 0, (0.0,), 0.0, 0.0, 0.0)
    values = LearntValues(network, scales, ("a", "b", "c"), ("f", "g"), 4, None)
    observations, w = np.random.default_rng(0).normal(centre, spread, (8, 3)), np.array([-3.0, 0.7])
    found = ConditionedQ(learning, values, units).policy(w).q_values(observations, 2)
    size = np.linalg.norm(units * w)
    for row, observation in zip(found, observations, strict=True):
        plain = written_out(leaves_of(network), (observation - centre) / spread, 2, units * w / size, 4.0, limit)
        np.testing.assert_allclose(row, size * plain, rtol=1e-4, atol=1e-4)


# Whole trainings


@pytest.fixture(scope="module")
def small():
    """A world with an end and a horizon, its reward, and what was learnt in it."""
    mdp, reward = some_world(horizon=4), np.array([1.0, -0.5, 0.2, 2.0, 0.0])
    return mdp, reward, TINY.plan(mdp, reward, seed=3)


def test_values_with_a_horizon_are_those_of_backward_induction(small):
    """At each of the 4 steps, of which the last are worth much less than the first."""
    mdp, reward, policy = small
    exact = kb.action_values(mdp, reward)[:, :-1]
    found = np.stack([policy.q_values(np.arange(4), step) for step in range(4)])
    assert np.abs(found - exact).max() < 0.05 * np.abs(exact).max()
    assert np.abs(exact[0] - exact[3]).max() > 0.15 * np.abs(exact).max(), "steps could not be told apart"
    assert kb.value(mdp, policy, reward) == pytest.approx(kb.plan_many(mdp, [reward]).values[0], rel=1e-3)
    rows = policy.q_values(np.array([0, 1, 2]), np.array([3, 0, 2]))  # a step of its own for each
    np.testing.assert_allclose(rows, found[[3, 0, 2], [0, 1, 2]], rtol=1e-5)


def test_a_cut_is_not_an_end_where_the_horizon_is_too_far_to_count():
    """Episodes are cut after 4 steps and end in the last state: the cut must not be taken for an end."""
    reward = np.array([1.0, -0.5, 0.2, 2.0, 0.0])
    policy = replace(TINY, episode_length=4, updates=2000).plan(some_world(), reward, seed=3)
    exact = kb.action_values(some_world(), reward)[:-1]
    found = policy.q_values(np.arange(4))
    assert np.abs(found - exact).max() < 0.05 * np.abs(exact).max()
    np.testing.assert_array_equal(found.argmax(axis=1), exact.argmax(axis=1))
    limited = kb.action_values(some_world(horizon=4), reward)[0][:-1]
    assert np.abs(limited - exact).max() > 0.15 * np.abs(exact).max(), "the two could not be told apart"


def test_without_a_discount_there_are_values_up_to_a_horizon():
    mdp = kb.Gridworld(2, discount=1, horizon=5)
    reward = np.array([0.0, -1.0, 0.3, 1.0])
    policy = replace(TINY, updates=1500).plan(mdp, reward, seed=0)
    assert kb.value(mdp, policy, reward) == pytest.approx(kb.plan_many(mdp, [reward]).values[0], rel=0.02)


@pytest.mark.parametrize(
    ("discount", "horizon", "known"),
    [(0.99, 500, None), (0.99, 499, 499), (0.95, 18, 18), (0.9, None, None), (1.0, 9, 9)],
)
def test_a_horizon_is_known_where_what_comes_after_it_would_count(discount, horizon, known):
    assert known_horizon(discount, horizon) == known


def test_a_known_horizon_is_played_to_its_end():
    """However long: steps that no episode reaches would keep the values of the first weights."""
    assert kb.DeepQ(discount=1.0)._settings(TabularSimulator(some_world(horizon=6000))).episode_length == 6000
    assert kb.DeepQ(discount=1.0)._settings(TabularSimulator(some_world())).episode_length == 5000


def test_the_same_seed_gives_the_same_result(small):
    mdp, reward, policy = small
    again, other = TINY.plan(mdp, reward, seed=3), TINY.plan(mdp, reward, seed=4)
    assert again.learning == policy.learning
    np.testing.assert_array_equal(again.q_values(np.arange(5), 1), policy.q_values(np.arange(5), 1))
    assert (other.q_values(np.arange(5), 1) != policy.q_values(np.arange(5), 1)).any()


def test_the_users_precision_and_generator_do_not_matter(small):
    mdp, reward, policy = small
    with jax.enable_x64(True), jax.default_prng_impl("rbg"):
        again = TINY.plan(mdp, reward, seed=3)
    np.testing.assert_array_equal(again.q_values(np.arange(5), 2), policy.q_values(np.arange(5), 2))


def test_a_policy_plugs_in_everywhere(small):
    from kdbirl.evaluation.paired_rollouts import collected_features

    mdp, reward, policy = small
    table = policy.table()
    assert kb.value(mdp, policy, reward) == kb.value(mdp, table, reward)
    assert [policy.predict_at(s, 3) for s in range(5)] == policy.actions(np.arange(5), 3).tolist()
    assert policy.predict_at(np.eye(5)[2], 0) == policy.predict_at(2, 0)
    demos = kb.rollout(kb.as_gymnasium(mdp, reward), policy, episodes=8, seed=0)
    steps = np.concatenate([np.arange(np.sum(demos.episodes == episode)) for episode in range(8)])
    np.testing.assert_array_equal(demos.actions, policy.actions(demos.states, steps))
    assert (policy.actions(demos.states, steps) != policy.actions(demos.states, 0)).any(), "no step matters"
    sums = collected_features(TabularSimulator(mdp), policy, episodes=2000, horizon=None, seed=0) @ reward
    exact = kb.value(mdp, table, reward)
    assert sums.mean() == pytest.approx(exact, abs=4.5 * sums.std() / np.sqrt(2000))
    assert repr(policy).startswith("QPolicy(")


class Recorder:
    """Remembers what was reported."""

    def __init__(self):
        self.updates = []

    def update(self, name, done, total, note=""):
        self.updates.append((name, done, total, note))

    def close(self):
        return None


def test_a_small_grid_is_solved_and_training_stops_by_itself():
    mdp = kb.Gridworld(5)
    reward, progress = np.random.default_rng(0).normal(size=25), Recorder()
    policy = SMALL.plan(mdp, reward, seed=0, progress=progress)
    assert regret(mdp, reward, policy) < 0.02
    learning = policy.learning
    assert policy.converged
    assert policy.sentence.startswith(f"Converged after {learning.updates:,} updates: the greedy policy earns ")
    assert learning.best == max(learning.returns)
    assert learning.best > learning.random
    assert [done for _, done, _, _ in progress.updates] == list(range(500, learning.updates + 1, 500))
    assert progress.updates[-1][2] == SMALL.updates


def test_one_training_serves_many_rewards():
    """For rewards that were not trained with: by number of state, by observation, and through `evd`."""
    mdp = kb.Gridworld(3, features="xy")
    conditioned = replace(SMALL, updates=4000).plan_conditioned(mdp, kb.Uniform(-1, 1), seed=0)
    unseen = np.random.default_rng(99).uniform(-1, 1, (50, 2))
    regrets = np.array([regret(mdp, w, conditioned(mdp, w)) for w in unseen])
    assert regrets.mean() < 0.05
    values = conditioned.q_values(np.arange(9), unseen[:3])
    assert values.shape == (3, 9, 5)
    np.testing.assert_allclose(conditioned.q_values(np.arange(9), 7 * unseen[:3]), 7 * values, rtol=1e-4)
    rows = jnp.asarray(np.repeat(unseen, 9, axis=0))
    together = conditioned.act(jnp.tile(jnp.eye(9), (50, 1)), rows).reshape(50, 9)
    apart = np.stack([conditioned.policy(w).actions(np.arange(9)) for w in unseen])
    assert (np.asarray(together) == apart).mean() > 0.99  # rounding may break a tie otherwise
    truth = np.array([1.0, 0.5])
    assert kb.evd(np.array([[0.9, 0.6]]), mdp, truth, planner=conditioned).regret < 0.1
    simulated = kb.evd(unseen, TabularSimulator(mdp), truth, planner=conditioned, episodes=100, horizon=250, seed=1)
    worth = [kb.value(mdp, conditioned(mdp, w), truth) for w in (truth, *unseen)]
    assert simulated.mean == pytest.approx(worth[0] - np.mean(worth[1:]), abs=4.5 * simulated.simulation_error)


def course_of(returns, expected=None):
    """The course of a training with these mean returns, one evaluation after every 100 updates; random earns 0."""
    course = Returns(Stopping(patience=3, tolerance=0.01, agreement=0.1), random=0.0, unit=2.0)
    for number, value in enumerate(returns):
        said = value if expected is None else expected
        evaluation = Evaluation(*(jnp.full(4, number) for number in (value, said, value)))
        course.note(100 * number, evaluation, ActionValueNetwork(1, (2,), 2, 1, float(number), jax.random.key(0)))
    return course


@pytest.mark.parametrize(
    ("returns", "expected", "finite", "words"),
    [
        ([1, 9, 9.5, 9.55, 9.52, 9.5], None, True, "Converged after 500 updates: the greedy policy earns 19.1 "),
        ([1, 9, 9.5, 9.6, 9.8, 9.85], None, True, "Not converged after 500 updates, the return was still rising"),
        ([1, 9, 9.5, 9.55, 9.52, 9.5], 11, True, "Not converged after 500 updates, expected and real returns still"),
        ([1, 9, 9.5, 9.55, 9.52, 9.5], None, False, "Diverged after 500 updates; lower learning_rate"),
    ],
)
def test_how_it_went_is_a_value_and_a_sentence(returns, expected, finite, words):
    """Reported in the units of the reward, here two."""
    learning = course_of(returns, expected).learning(finite)
    assert learning.converged == words.startswith("Converged")
    assert learning.sentence.startswith(words)
    assert learning.best == pytest.approx(2 * max(returns), rel=1e-6)
    assert learning.returns == pytest.approx([2 * value for value in returns], rel=1e-6)


def test_the_best_network_is_kept_and_of_equals_the_later():
    assert course_of([1, 5, 7, 6, 7, 2]).network.horizon == 4
    assert course_of([1, 5, 7, 6, 7, 2]).best_update == 400


def test_training_waits_while_the_network_does_not_expect_what_happens():
    assert course_of([9, 9, 9, 9]).settled
    assert not course_of([9, 9, 9]).settled
    assert not course_of([9, 9, 9, 9], expected=8).settled


# Bad input


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"updates": 0}, "updates=0"),
        ({"batch": True}, "batch=True"),
        ({"hidden": ()}, "hidden"),
        ({"hidden": (32, 0)}, "hidden"),
        ({"episode_length": 0}, "episode_length=0"),
        ({"learning_rate": 0.0}, "learning_rate"),
        ({"exploration": 2.0}, "exploration"),
        ({"updates": 500}, "less than evaluate_every"),
        ({"updates_per_step": 3}, "multiple of updates_per_step"),
    ],
)
def test_bad_settings_are_refused(changes, words):
    with pytest.raises(InputError, match=words):
        kb.DeepQ(**changes)


def test_bad_worlds_and_rewards_are_refused():
    grid = kb.Gridworld(2, features="xy")
    cases = [
        (lambda: SMALL.plan("CartPole-v1", [1.0], seed=0), "str is no simulator"),
        (lambda: SMALL.plan(grid, [1.0], seed=0), "2 parameters"),
        (lambda: SMALL.plan(grid, np.ones((2, 2)), seed=0), "plan_conditioned"),
        (lambda: SMALL.plan(grid, [1.0, 2.0], seed=-1), "seed=-1"),
        (lambda: kb.DeepQ(episode_length=3).plan(kb.Gridworld(2, horizon=5), np.ones(4), seed=0), "horizon of 5 steps"),
        (lambda: kb.DeepQ(discount=1.5).plan(grid, [1.0, 2.0], seed=0), "discount=1.5"),
        (lambda: SMALL.plan_conditioned(grid, (1.0, -1.0), seed=0), "low below high"),
        (lambda: SMALL.plan_conditioned(grid, kb.Uniform([0, 0, 0], [1, 1, 1]), seed=0), "2 parameters"),
    ]
    for call, words in cases:
        with pytest.raises(InputError, match=words):
            call()


def test_bad_questions_are_refused(small):
    _, _, policy = small
    for question, step, words in [
        ([5], 0, "no state 5"),
        ([-1], 0, "no state -1"),
        (np.ones((2, 3)), 0, r"\(2, 3\), expected \(n, 5\)"),
        ([1], None, "depends on the step"),
        ([1], 4, "step=4: steps are whole numbers, from 0 to 3"),
        ([1], 0.5, "step=0.5"),
    ]:
        with pytest.raises(InputError, match=words):
            policy.q_values(np.asarray(question), step)
    with pytest.raises(InputError, match="depends on the step"):
        policy.predict(1)
    longer = TabularSimulator(some_world(horizon=9))
    with pytest.raises(InputError, match="for 4 steps, but episodes have up to 9"):
        kb.rollout(longer, policy, horizon=None)


# The acceptance of issue 3, in full


@pytest.mark.long
@pytest.mark.parametrize("size", [5, 10])
def test_grids_are_solved_over_five_seeds(size):
    mdp = kb.Gridworld(size)
    regrets = []
    for seed in range(5):
        reward = np.random.default_rng(seed).normal(size=mdp.n_states)
        regrets.append(regret(mdp, reward, kb.DeepQ().plan(mdp, reward, seed=seed).table()))
    assert max(regrets) < 0.02


@pytest.mark.long
@pytest.mark.parametrize("seed", [0, 1])
def test_unseen_weights_on_the_featurised_grid(seed):
    mdp = kb.Gridworld(10, features="xy")
    conditioned = kb.DeepQ().plan_conditioned(mdp, kb.Uniform(-1, 1), seed=seed)
    unseen = np.random.default_rng(1000 + seed).uniform(-1, 1, (300, 2))
    regrets = np.array([regret(mdp, w, conditioned(mdp, w)) for w in unseen])
    assert regrets.mean() < 0.02
    assert np.quantile(regrets, 0.95) < 0.05


@pytest.mark.long
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_cartpole_is_solved_in_gymnasium(seed):
    policy = kb.DeepQ().plan(CartPole(discount=0.99), [1.0], seed=seed)
    assert policy.learning.updates <= 40_000
    demos = kb.rollout(gymnasium.make("CartPole-v1"), policy, episodes=100, horizon=None, seed=seed)
    assert demos.n_rows / demos.n_episodes >= 475
