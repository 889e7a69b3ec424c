"""Minari data sets, made here with Minari itself."""

import builtins
import json
import warnings
from pathlib import Path
from typing import Any

import gymnasium as gym
import minari
import numpy as np
import polars as pl
import pytest
from minari.data_collector.episode_buffer import EpisodeBuffer

from kdbirl.data.demonstrations import Demonstrations, TaskBank
from kdbirl.data.minari import read_minari
from kdbirl.errors import FileProblem, InputError, MissingDependency

BOX = gym.spaces.Box(-10, 10, (2,), dtype=np.float32)
FOUR, THREE = gym.spaces.Discrete(4), gym.spaces.Discrete(3)


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    return tmp_path


def stacked(space: gym.Space, count: int) -> Any:
    """`count` samples, in the nesting that an episode buffer has."""
    if isinstance(space, gym.spaces.Dict):
        return {key: stacked(child, count) for key, child in space.spaces.items()}
    if isinstance(space, gym.spaces.Tuple):
        return tuple(stacked(child, count) for child in space.spaces)
    return [space.sample() for _ in range(count)]


def made(
    name: str, observations: gym.Space = BOX, actions: gym.Space = THREE, lengths: tuple[int, ...] = (3, 2)
) -> minari.MinariDataset:
    """A real data set on disk; the last step of each episode is the end of it."""
    observations.seed(0)
    actions.seed(0)
    buffers = [
        EpisodeBuffer(
            observations=stacked(observations, length + 1),
            actions=stacked(actions, length),
            rewards=[0.0] * length,
            terminations=[step == length - 1 for step in range(length)],
            truncations=[False] * length,
            infos={},
        )
        for length in lengths
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Minari wants an author, an environment, ...
        return minari.create_dataset_from_buffers(name, buffers, observation_space=observations, action_space=actions)


def demonstrations(*arguments: Any) -> Demonstrations:
    data = read_minari(*arguments)
    assert isinstance(data, Demonstrations)
    return data


def bank(*arguments: Any, **keywords: Any) -> TaskBank:
    data = read_minari(*arguments, **keywords)
    assert isinstance(data, TaskBank)
    return data


class TestDemonstrations:
    def test_one_row_per_action(self) -> None:
        dataset = made("box-v0")
        data = demonstrations("box-v0")
        assert data.n_rows == 5
        np.testing.assert_array_equal(data.episodes, [0, 0, 0, 1, 1])
        np.testing.assert_array_equal(data.terminated, [False, False, True, False, True])
        np.testing.assert_array_equal(data.truncated, [False] * 5)
        np.testing.assert_array_equal(data.states[3:], dataset[1].observations[:-1].astype(np.float64))
        np.testing.assert_array_equal(data.actions[:3], dataset[0].actions)
        assert (data.n_actions, data.state_names) == (3, ("s0", "s1"))

    def test_id_directory_and_object_agree(self, root: Path) -> None:
        dataset = made("group/box-v0")
        assert demonstrations("group/box-v0") == demonstrations(dataset) == demonstrations(root / "group" / "box-v0")

    def test_discrete_states_have_the_count_of_their_space(self) -> None:
        made("grid-v0", FOUR)
        data = demonstrations("grid-v0")
        assert data.discrete_states
        assert data.n_states == 4

    def test_a_discrete_space_that_starts_elsewhere_keeps_its_numbers_as_labels(self) -> None:
        dataset = made("grid-v0", gym.spaces.Discrete(4, start=-1))
        data = demonstrations("grid-v0")
        assert data.state_labels == ("-1", "0", "1", "2")
        labels = [int(data.state_labels[code]) for code in data.states[:3]]
        assert labels == dataset[0].observations[:-1].tolist()

    def test_vector_actions(self) -> None:
        made("box-v0", BOX, gym.spaces.Box(-1, 1, (1,)))
        assert demonstrations("box-v0").actions.shape == (5, 1)

    def test_nested_spaces_become_columns(self) -> None:
        space = gym.spaces.Dict(
            {"position": BOX, "inner": gym.spaces.Tuple((FOUR, gym.spaces.Box(0, 1, (2, 2), dtype=np.float64)))}
        )
        dataset = made("nested-v0", space)
        data = demonstrations("nested-v0")
        expected = ("inner_0", "inner_10", "inner_11", "inner_12", "inner_13", "position0", "position1")
        assert tuple(sorted(data.state_names)) == expected
        column = data.state_names.index("inner_0")
        np.testing.assert_array_equal(data.states[:3, column], dataset[0].observations["inner"][0][:-1])

    def test_text_is_refused(self) -> None:
        made("text-v0", gym.spaces.Text(4))
        with pytest.raises(InputError, match="a Text space has no numbers"):
            read_minari("text-v0")


class TestBank:
    def test_rewards_from_the_metadata(self) -> None:
        for name, reward in (("a-v0", [1.0, 0.0]), ("b-v0", [0.0, 1.0])):
            made(name).storage.update_metadata({"reward": reward})
        data = bank(["a-v0", "b-v0"])
        assert data.names == ("a-v0", "b-v0")
        np.testing.assert_array_equal(data.rewards, np.eye(2))
        assert data.task("b-v0") == demonstrations("b-v0")

    def test_named_parameters_in_the_metadata(self) -> None:
        made("a-v0").storage.update_metadata({"w": {"goal": 1.0, "cost": 2.0}})
        made("b-v0").storage.update_metadata({"w": {"cost": 4.0, "goal": 3.0}})
        data = bank({"first": "a-v0", "second": "b-v0"}, reward_key="w")
        assert (data.names, data.reward_names) == (("first", "second"), ("goal", "cost"))
        np.testing.assert_array_equal(data.rewards, [[1, 2], [3, 4]])

    def test_rewards_from_a_table(self, tmp_path: Path) -> None:
        made("a-v0")
        made("b-v0", lengths=(1,))
        (tmp_path / "rewards.csv").write_text("task,r\nsecond,2\nfirst,1\n")
        data = bank({"first": "a-v0", "second": "b-v0"}, rewards=tmp_path / "rewards.csv")
        assert data.names == ("second", "first")
        np.testing.assert_array_equal(data.rows_per_task, [1, 5])
        same = bank(
            {"second": "b-v0", "first": "a-v0"}, rewards=pl.DataFrame({"task": ["second", "first"], "r": [2, 1]})
        )
        assert same == data

    def test_refused(self) -> None:
        made("a-v0").storage.update_metadata({"reward": [1.0, 2.0]})
        made("b-v0").storage.update_metadata({"reward": [1.0], "named": {"x": 1.0}})
        made("c-v0").storage.update_metadata({"named": {"y": 1.0}})
        with pytest.raises(InputError, match="task 'b-v0' has 1 values, 'a-v0' has 2"):
            bank(["a-v0", "b-v0"])
        with pytest.raises(InputError, match="metadata of data set 'c-v0' has no 'reward'; give rewards="):
            bank(["a-v0", "c-v0"])
        with pytest.raises(InputError, match=r"'c-v0' names the reward parameters \['y'\], the first one \['x'\]"):
            bank(["b-v0", "c-v0"], reward_key="named")
        with pytest.raises(InputError, match="task 'c-v0' is in the data sets without a reward in the rewards"):
            bank(["a-v0", "c-v0"], rewards={"a-v0": [1.0]})
        with pytest.raises(InputError, match="a single data set has no tasks"):
            bank("a-v0", rewards={"a-v0": [1.0]})
        with pytest.raises(InputError, match="Two data sets have the same id"):
            bank(["a-v0", "a-v0"])
        with pytest.raises(InputError, match="There is no data set"):
            bank([])

    def test_spaces_that_differ(self) -> None:
        made("a-v0").storage.update_metadata({"reward": [1.0]})
        made("b-v0", FOUR).storage.update_metadata({"reward": [2.0]})
        with pytest.raises(InputError, match=r"states: these are discrete .* 2 number"):
            bank(["a-v0", "b-v0"])


class TestHostile:
    @pytest.mark.parametrize("missing", ["observation_space", "action_space"])
    def test_the_environment_in_the_metadata_is_not_made(self, root: Path, missing: str) -> None:
        """Without a space Minari makes the environment, and Gymnasium calls any function of any module for that."""
        made("a-v0")
        place = root / "a-v0" / "data" / "metadata.json"
        metadata = json.loads(place.read_text())
        spec = gym.envs.registration.EnvSpec("Evil-v0", "os:mkdir", kwargs={"path": str(root / "owned")}).to_json()
        without = {name: value for name, value in metadata.items() if name != missing}
        for content in ({**without, "env_spec": spec}, {**metadata, missing: 1, "env_spec": "{}"}):
            place.write_text(json.dumps(content))
            for source in ("a-v0", root / "a-v0", place.parent):
                with pytest.raises(FileProblem, match=f"metadata.json has no '{missing}'.*does not choose what is run"):
                    read_minari(source)
        assert not (root / "owned").exists()


class TestMissing:
    def test_unknown_id(self) -> None:
        made("known-v0")
        with pytest.raises(FileProblem, match=r"knwn-v0: there is no such Minari .* Did you mean 'known-v0'\?"):
            read_minari("knwn-v0")

    def test_another_directory(self, tmp_path: Path) -> None:
        (tmp_path / "other").mkdir()
        with pytest.raises(FileProblem, match=r"other/metadata\.json: there is no such file; expected a data set"):
            read_minari(tmp_path / "other")
        (tmp_path / "other" / "metadata.json").write_text(json.dumps({"what": 1}))
        with pytest.raises(FileProblem, match="other: this is not a Minari data set that can be read"):
            read_minari(tmp_path / "other")

    def test_another_type(self) -> None:
        with pytest.raises(InputError, match="an id, a directory or a MinariDataset, not int"):
            read_minari(3)

    def test_without_the_package(self, monkeypatch: pytest.MonkeyPatch) -> None:
        real = builtins.__import__

        def without_minari(name: str, *arguments: Any) -> Any:
            if name == "minari":
                raise ImportError(name)
            return real(name, *arguments)

        monkeypatch.setattr(builtins, "__import__", without_minari)
        with pytest.raises(MissingDependency, match=r"pip install 'kdbirl\[minari\]'"):
            read_minari("a-v0")
