"""Environments that Gymnasium makes, and some of our own, as sources of demonstrations."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import kdbirl as kb
from kdbirl.errors import InputError
from kdbirl.worlds.gymnasium import GymnasiumSource


class Counter(gymnasium.Env):
    """Shows anything; ends after four steps."""

    def __init__(self, observation_space, action_space):
        self.observation_space, self.action_space = observation_space, action_space

    def observe(self):
        return self.observation_space.sample()

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        self.steps = 0
        return self.observe(), {}

    def step(self, action):
        assert self.action_space.contains(action), action
        self.steps += 1
        return self.observe(), 1.0, self.steps == 4, False, {}


def test_codes_start_at_zero_whatever_the_space_says():
    env = Counter(spaces.Discrete(5, start=3), spaces.Discrete(2, start=10))
    demos = kb.rollout(env, lambda observation: 11, episodes=2, horizon=None, seed=0)
    assert set(demos.actions) == {1}
    assert demos.states.min() >= 0
    assert demos.states.max() <= 4
    assert (demos.n_states, demos.n_actions) == (5, 2)


@pytest.mark.parametrize(
    ("space", "width"),
    [
        (spaces.Box(-1, 1, (2, 3)), 6),
        (spaces.MultiDiscrete([3, 2]), 5),
        (spaces.MultiBinary(4), 4),
        (spaces.Tuple([spaces.Discrete(3), spaces.Box(0, 1, (2,))]), 5),
        (spaces.Dict({"a": spaces.Discrete(2), "b": spaces.Box(0, 1, (1,))}), 3),
    ],
    ids=str,
)
def test_composite_observations_are_flat_columns(space, width):
    demos = kb.rollout(Counter(space, spaces.Discrete(2)), "random", episodes=2, horizon=3, seed=0)
    assert demos.states.shape == (6, width)
    assert demos.n_states is None


def test_several_discrete_actions_are_numbered_row_by_row():
    source = GymnasiumSource(Counter(spaces.Discrete(2), spaces.MultiDiscrete([3, 4])))
    assert source.n_actions == 12
    assert source.code([2, 1]) == 9
    assert source.action(9).tolist() == [2, 1]
    demos = kb.rollout(source.env, "random", episodes=3, horizon=None, seed=0)
    assert demos.n_actions == 12


def test_the_end_and_the_cut_are_kept_apart():
    env = Counter(spaces.Discrete(2), spaces.Discrete(2))
    ended = kb.rollout(env, "random", episodes=2, horizon=None, seed=0)
    assert ended.n_rows == 8
    assert ended.terminated.tolist() == [False, False, False, True] * 2
    assert not ended.truncated.any()
    cut = kb.rollout(env, "random", episodes=2, horizon=3, seed=0)
    assert cut.truncated.tolist() == [False, False, True] * 2
    assert not cut.terminated.any()
    both = kb.rollout(env, "random", episodes=1, horizon=4, seed=0)
    assert both.terminated[-1]
    assert not both.truncated[-1]


def test_the_environments_own_limit_is_a_cut():
    """Always left, against the border: FrozenLake gives up after 100 steps."""
    env = gymnasium.make("FrozenLake-v1", is_slippery=False)
    demos = kb.rollout(env, lambda observation: 0, episodes=1, horizon=None)
    assert demos.n_rows == 100
    assert demos.truncated[-1]
    assert not demos.terminated.any()


def test_the_same_seed_gives_the_same_rows():
    first, again, other = (kb.rollout("FrozenLake-v1", "random", 5, None, seed) for seed in (1, 1, 2))
    assert first == again
    assert first != other


class Model:
    """As stable-baselines3: an action and a hidden state."""

    def predict(self, observation):
        return np.array(2), None


def test_objects_with_predict_are_policies():
    demos = kb.rollout("FrozenLake-v1", Model(), episodes=3, horizon=5, seed=0)
    assert set(demos.actions) == {2}
    assert set(kb.rollout(kb.Gridworld(3), Model(), episodes=2, seed=0).actions) == {2}


def test_a_tables_policy_acts_in_the_environment_it_came_from():
    env = gymnasium.make("FrozenLake-v1", is_slippery=False)
    world = kb.TabularMDP.from_gymnasium(env, 0.9, features="env-reward")
    demos = kb.rollout(env, kb.plan(world, [1.0]), episodes=3, horizon=None, seed=0)
    assert demos.n_rows == 3 * 6  # the shortest way
    assert demos.terminated.sum() == 3


def test_bad_input_is_a_sentence():
    with pytest.raises(InputError, match=r"The actions of Pendulum-v1 are Box.*only discrete actions"):
        kb.rollout("Pendulum-v1", "random")
    with pytest.raises(InputError, match="which Gymnasium cannot flatten"):
        kb.rollout(Counter(spaces.Sequence(spaces.Discrete(2)), spaces.Discrete(2)), "random")
    with pytest.raises(InputError, match="chose 7, which is no action"):
        kb.rollout("FrozenLake-v1", lambda observation: 7)
    with pytest.raises(InputError, match="is no environment"):
        kb.rollout({"not": "an environment"}, "random")
    with pytest.raises(InputError, match="needs discrete observations"):
        kb.rollout("CartPole-v1", np.ones((4, 2)) / 2)
    with pytest.raises(InputError, match="The policy is for 3 states"):
        kb.rollout("FrozenLake-v1", kb.Policy.uniform(3, 4))
    with pytest.raises(InputError, match="the only policy with a name"):
        kb.rollout("FrozenLake-v1", "optimal")
