"""The two data types: what they accept, what they refuse and in which words."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdbirl.data.demonstrations import Demonstrations, TaskBank, concatenate
from kdbirl.errors import InputError


def bank_of_three(**keywords: object) -> TaskBank:
    states = np.arange(12.0).reshape(6, 2)
    return TaskBank.from_arrays(states, [0, 1, 2, 0, 1, 2], [1, 0, 1, 0, 2, 2], np.eye(3), **keywords)


class TestShapes:
    def test_matrix_of_numbers_is_continuous(self) -> None:
        data = Demonstrations([[1, 2], [3, 4]], actions=[[0.5], [1.5]])
        assert data.states.dtype == np.float64
        assert not data.discrete_states
        assert not data.discrete_actions
        assert data.state_names == ("s0", "s1")
        assert data.action_names == ("a0",)

    def test_one_dimension_of_integers_is_discrete(self) -> None:
        data = Demonstrations(np.array([0, 3], dtype=np.int8), actions=np.array([1, 0]))
        assert data.discrete_states
        assert data.states.dtype == np.int64
        assert (data.state_names, data.action_names) == (("state",), ("action",))

    def test_one_dimension_of_floats_is_one_column(self) -> None:
        assert Demonstrations([0.5, 1.0]).states.shape == (2, 1)

    def test_whole_floats_are_discrete_actions_but_not_states(self) -> None:
        data = Demonstrations([0.0, 1.0], actions=[0.0, 1.0])
        assert not data.discrete_states
        assert data.discrete_actions
        assert data.actions.dtype == np.int64

    @pytest.mark.parametrize("actions", [[0.5, 1.0], [-1.0, 1.0]])
    def test_other_floats_are_a_vector_action(self, actions: list[float]) -> None:
        assert Demonstrations([0.5, 1.0], actions=actions).actions.shape == (2, 1)

    def test_declared_count_makes_whole_floats_discrete(self) -> None:
        data = Demonstrations([[0.0], [3.0]], n_states=4)
        assert data.discrete_states
        assert data.n_states == 4

    def test_text_is_coded_by_its_sorted_values(self) -> None:
        data = Demonstrations(["b", "a", "b"], actions=np.array(["up", "down", "up"], dtype=object))
        np.testing.assert_array_equal(data.states, [1, 0, 1])
        assert data.state_labels == ("a", "b")
        assert data.action_labels == ("down", "up")

    def test_text_with_given_labels_keeps_their_order(self) -> None:
        np.testing.assert_array_equal(Demonstrations(["b", "a"], state_labels=("b", "a")).states, [0, 1])

    @pytest.mark.parametrize("library", [pl, pd])
    def test_frames_bring_their_names(self, library: object) -> None:
        frame = library.DataFrame({"x": [1.0, 2.0], "y": [3, 4]})
        data = Demonstrations(frame)
        assert Demonstrations(pl.DataFrame(frame).lazy()) == data
        assert data.state_names == ("x", "y")
        np.testing.assert_array_equal(data.states, [[1, 3], [2, 4]])

    def test_arrays_are_private_copies(self) -> None:
        states = np.ones((2, 2))
        data = Demonstrations(states)
        states[:] = 7
        assert (data.states == 1).all()
        with pytest.raises(ValueError, match="read-only"):
            data.states[0, 0] = 7

    def test_episodes(self) -> None:
        assert Demonstrations(np.zeros((3, 1))).n_episodes == 1
        np.testing.assert_array_equal(Demonstrations(np.zeros((3, 1)), episodes=["z", "a", "z"]).episodes, [0, 1, 0])

    def test_negative_zero_is_zero(self) -> None:
        assert Demonstrations([[-0.0]]) == Demonstrations([[0.0]])


LARGE = [2**53 + 1, 2**53, 2**63 - 1, 2**63 - 2]


class TestLargeNumbers:
    """Hashes as ids: a float would round them."""

    @pytest.mark.parametrize(
        "ids", [LARGE, np.array(LARGE), np.array(LARGE, dtype=np.uint64), np.array(LARGE, dtype=object),
                pd.Series(LARGE, dtype="Int64"), pd.Series(LARGE, dtype="UInt64")],
    )  # fmt: skip
    def test_ids_are_whole(self, ids: object) -> None:
        np.testing.assert_array_equal(Demonstrations(np.zeros((4, 1)), episodes=ids).episodes, LARGE)
        rewards = {str(name): [float(place)] for place, name in enumerate(LARGE)}
        bank = TaskBank.from_arrays(states=np.arange(4.0), actions=None, tasks=ids, rewards=rewards)
        np.testing.assert_array_equal(bank.demonstrations.states[:, 0], np.arange(4))
        assert bank.names == tuple(rewards)

    @pytest.mark.parametrize("dtype", [None, np.uint64, object])
    def test_episodes_that_no_int64_holds_are_numbered_like_text(self, dtype: object) -> None:
        ids = [2**64 - 1, 5, 2**63, 2**64 - 1]
        ids = ids if dtype is None else np.array(ids, dtype=dtype)
        np.testing.assert_array_equal(Demonstrations(np.zeros((4, 1)), episodes=ids).episodes, [0, 1, 2, 0])
        mixed = Demonstrations(np.zeros((3, 1)), episodes=[-1, 2**63, 2**63 + 1])
        np.testing.assert_array_equal(mixed.episodes, [0, 1, 2])

    def test_codes_that_would_be_rounded_or_wrapped_are_refused(self) -> None:
        with pytest.raises(InputError, match="row 2 is 18446744073709551615, beyond what an int64 holds; give it as t"):
            Demonstrations(np.array([0, 2**64 - 1], dtype=np.uint64))
        with pytest.raises(InputError, match=r"row 1 is 9007199254740992, a float, which is rounded from 2\^53 on"):
            Demonstrations(np.zeros((2, 1)), episodes=np.array([2.0**53, 1.0]))


class TestRefused:
    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"states": np.empty((0, 2))}, "states: there are no rows"),
            ({"states": np.empty((2, 0))}, "states: there are no columns"),
            ({"states": [[1.0], [np.nan]]}, r"row 2, column 's0' is NaN"),
            ({"states": [[1.0, 2.0], [1.0, np.inf]], "state_names": ("x", "y")}, r"row 2, column 'y' is infinite"),
            ({"states": [[1.0], ["left"]]}, "row 2, column 's0' is 'left', which is not a number"),
            ({"states": [[1.0], [None]]}, "row 2, column 's0' is NaN"),
            ({"states": [[1.0, 2.0], [3.0]]}, "rows have different lengths"),
            ({"states": np.zeros((2, 2, 2))}, r"got shape \(2, 2, 2\)"),
            ({"states": np.zeros(2, dtype="datetime64[s]")}, "not numbers"),
            ({"states": np.ma.masked_array([1.0, 2.0], [0, 1])}, "masked entries"),
            ({"states": [0, 1, 5], "n_states": 4}, "states: row 3 is 5; codes must be 0 to 3"),
            ({"states": [0, -1]}, "states: row 2 is -1"),
            ({"states": [0.0, 0.5], "n_states": 4}, "row 2 is 0.5; discrete values must be whole"),
            ({"states": np.zeros((2, 2)), "n_states": 4}, "2 columns; give one column of codes"),
            ({"states": [0, 1], "n_states": 0}, "must be at least 1"),
            ({"states": ["a", "bb"], "state_labels": ("a", "b")}, "row 2 is 'bb', not a declared label"),
            ({"states": ["a", ""]}, "states: row 2 is empty"),
            ({"states": ["a", "b"], "n_states": 1}, "2 different labels, but only 1"),
            ({"states": [0, 1], "state_labels": ("a", "a")}, "not distinct"),
            ({"states": [0, 2], "state_labels": ("a", "b")}, "row 2 is 2"),
            ({"states": [[1.0]], "state_names": ("x", "y")}, "2 names for 1 columns"),
            ({"states": [[1.0, 2.0]], "state_names": ("x", "x")}, "not distinct"),
            ({"states": [[1.0]], "actions": [0, 1]}, "actions: 2 rows, but the states have 1"),
            (
                {"states": [[1.0], [2.0]], "actions": [0, 3], "n_actions": 3},
                "actions: row 2 is 3; codes must be 0 to 2",
            ),
            ({"states": [[1.0]], "n_actions": 3}, "actions: there are none"),
            ({"states": [[1.0]], "episodes": [0, 1]}, "episodes: 2 rows"),
            ({"states": [[1.0], [1.0]], "episodes": [0, 0.5]}, "episodes: row 2 is 0.5"),
            ({"states": [[1.0]], "terminated": [2]}, "terminated: expected one true/false"),
            ({"states": [[1.0]], "truncated": [True, False]}, "truncated: 2 rows"),
        ],
    )
    def test_one_sentence(self, arguments: dict[str, object], message: str) -> None:
        with pytest.raises(InputError, match=message) as caught:
            Demonstrations(**arguments)
        assert "\n" not in str(caught.value)


class TestTake:
    def test_positions_masks_and_slices_agree(self) -> None:
        data = Demonstrations([[1.0], [2.0], [3.0]], ["a", "b", "a"], [0, 0, 1], [False, False, True])
        assert data.take([0, 2]) == data.take(np.array([True, False, True])) == data.take(slice(0, 3, 2))
        assert data.take([0]).action_labels == ("a", "b")

    def test_nothing_is_refused(self) -> None:
        with pytest.raises(InputError, match="no rows"):
            Demonstrations([[1.0]]).take([])


class TestAlignment:
    def test_equal_labels_get_equal_codes_and_new_ones_come_last(self) -> None:
        bank = Demonstrations(["b", "c"])
        expert = Demonstrations(["a", "c", "b"]).aligned_to(bank)
        np.testing.assert_array_equal(expert.states, [2, 1, 0])
        assert expert.state_labels == ("b", "c", "a")

    def test_a_label_outside_a_declared_set_is_refused(self) -> None:
        bank = Demonstrations([0, 1], ["left", "right"], action_labels=("left", "right"), n_actions=2)
        with pytest.raises(
            InputError, match=r"actions: row 2 is 'lft', outside the declared set. Did you mean 'left'\?"
        ):
            Demonstrations([0, 1], ["left", "lft"]).aligned_to(bank)

    def test_a_code_outside_a_declared_count_is_refused(self) -> None:
        with pytest.raises(InputError, match="states: row 1 is 7; codes must be 0 to 3"):
            Demonstrations([7]).aligned_to(Demonstrations([0], n_states=4))

    def test_the_declared_count_is_taken_over(self) -> None:
        assert Demonstrations([1]).aligned_to(Demonstrations([0], n_states=4)).n_states == 4
        assert Demonstrations([1], n_states=3).aligned_to(Demonstrations([0])).n_states == 3

    def test_columns_are_put_in_one_order(self) -> None:
        bank = Demonstrations([[1.0, 2.0]], state_names=("x", "y"))
        expert = Demonstrations([[20.0, 10.0]], state_names=("y", "x")).aligned_to(bank)
        np.testing.assert_array_equal(expert.states, [[10.0, 20.0]])
        assert expert.state_names == ("x", "y")

    def test_codes_meet_labels_that_are_whole_numbers(self) -> None:
        labelled = Demonstrations([0, 0], ["-1", "2"])
        codes = Demonstrations([0, 0], [2, 0])
        np.testing.assert_array_equal(codes.aligned_to(labelled).actions, [1, 2])
        assert codes.aligned_to(labelled).action_labels == ("-1", "2", "0")
        np.testing.assert_array_equal(labelled.aligned_to(codes).actions, [3, 2])

    @pytest.mark.parametrize(
        ("mine", "other", "message"),
        [
            (Demonstrations([0]), Demonstrations([0], [0]), "actions: these demonstrations have none, the other have"),
            (Demonstrations([0], [0]), Demonstrations([0]), "actions: the other demonstrations have none, these have"),
            (Demonstrations([0]), Demonstrations([[0.0]]), r"states: these are discrete .*other.* 1 number"),
            (Demonstrations([[1.0, 2.0]]), Demonstrations([[0.0]]), r"these have 2 columns \['s0', 's1'\], the other"),
            (Demonstrations([[1.0]], [0]), Demonstrations([[0.0]], [[0.5]]), "actions: these are discrete"),
            (Demonstrations([0]), Demonstrations(["a"]), "these are plain codes, .* labelled"),
            (Demonstrations(["a"]), Demonstrations([0]), "these are labelled, .* plain codes"),
            (
                Demonstrations([[1.0, 2.0]], state_names=("x", "y")),
                Demonstrations([[1.0, 2.0]], state_names=("y", "z")),
                r"columns \['x', 'y'\], the other demonstrations \['y', 'z'\]",
            ),
        ],
    )
    def test_what_cannot_be_compared_is_refused(
        self, mine: Demonstrations, other: Demonstrations, message: str
    ) -> None:
        with pytest.raises(InputError, match=message):
            mine.aligned_to(other)

    @given(st.lists(st.sampled_from("abcdef"), min_size=1), st.lists(st.sampled_from("abcdef"), min_size=1))
    def test_labels_never_change_meaning(self, first: list[str], second: list[str]) -> None:
        other, mine = Demonstrations(first), Demonstrations(second)
        aligned = mine.aligned_to(other)
        assert [aligned.state_labels[code] for code in aligned.states] == second
        assert aligned.state_labels[: len(other.state_labels)] == other.state_labels
        assert aligned.aligned_to(other) == aligned

    @given(st.lists(st.lists(st.sampled_from("abcdef"), min_size=1), min_size=1, max_size=5))
    def test_concatenation_keeps_every_label(self, parts: list[list[str]]) -> None:
        data = concatenate([Demonstrations(part) for part in parts])
        assert [data.state_labels[code] for code in data.states] == [label for part in parts for label in part]


class TestEquality:
    def test_by_content(self) -> None:
        first, second = Demonstrations([[1.0]], [0]), Demonstrations([[1.0]], [0])
        assert first == second
        assert hash(first) == hash(second)
        assert first != Demonstrations([[1.0]], [1])
        assert first != Demonstrations([[1.0]], [0], state_names=("x",))
        assert first != "something else"

    def test_fingerprint_is_stable(self) -> None:
        """A stored fingerprint must mean the same data in every later process."""
        assert Demonstrations([[1.0, 2.0]], [3]).fingerprint() == Demonstrations([[1, 2]], [3.0]).fingerprint()
        assert len(bank_of_three().fingerprint()) == 64

    def test_fingerprint_of_a_bank_sees_the_rewards(self) -> None:
        bank = bank_of_three()
        assert bank.fingerprint() != TaskBank(bank.demonstrations, bank.tasks, 2 * bank.rewards).fingerprint()


class TestBank:
    def test_rows_are_sorted_stably(self) -> None:
        bank = bank_of_three()
        np.testing.assert_array_equal(bank.tasks, [0, 0, 1, 1, 2, 2])
        np.testing.assert_array_equal(bank.demonstrations.states[:, 0], [2, 6, 0, 4, 8, 10])
        np.testing.assert_array_equal(bank.rows_per_task, [2, 2, 2])
        assert (bank.n_rows, bank.n_tasks, bank.n_parameters) == (6, 3, 3)
        assert (bank.names, bank.reward_names) == (("0", "1", "2"), ("r0", "r1", "r2"))

    def test_labels(self) -> None:
        bank = TaskBank.from_arrays([[0.0], [1.0]], None, ["b", "a"], [[1.0], [2.0]], names=["a", "b"])
        np.testing.assert_array_equal(bank.demonstrations.states, [[1.0], [0.0]])

    def test_number_names_are_labels_and_text_names_leave_positions(self) -> None:
        by_label = TaskBank.from_arrays([[0.0], [1.0]], None, [10, 20], [[1.0], [2.0]], names=[20, 10])
        assert by_label.task("10").states[0, 0] == 0.0
        by_position = TaskBank.from_arrays([[0.0], [1.0]], None, [0, 1], [[1.0], [2.0]], names=["x", "y"])
        assert by_position.task("x").states[0, 0] == 0.0

    @pytest.mark.parametrize("library", [pl, pd])
    def test_rewards_as_a_frame_or_a_mapping(self, library: object) -> None:
        frame = library.DataFrame({"task": ["a", "b"], "goal": [1.0, 0.0], "cost": [0, 1]})
        bank = TaskBank.from_arrays([[0.0], [1.0]], None, ["b", "a"], frame)
        assert (bank.names, bank.reward_names) == (("a", "b"), ("goal", "cost"))
        same = TaskBank.from_arrays([[0.0], [1.0]], None, ["b", "a"], {"a": [1, 0], "b": [0, 1]})
        np.testing.assert_array_equal(same.rewards, bank.rewards)

    def test_rewards_that_name_their_tasks_make_integer_tasks_labels(self) -> None:
        frame = pl.DataFrame({"task": [20, 10], "r": [2.0, 1.0]})
        for rewards in (frame, frame.lazy(), frame.to_pandas(), {20: [2.0], 10: [1.0]}):
            bank = TaskBank.from_arrays([[1.0], [2.0]], None, [10, 20], rewards)
            np.testing.assert_array_equal(bank.demonstrations.states, bank.rewards)

    def test_arrays_of_names_and_positions(self) -> None:
        bank = TaskBank.from_arrays([[0.0], [1.0]], None, [0, 1], np.eye(2), names=np.array(["a", "b"]))
        assert bank.names == ("a", "b")
        assert bank.select(np.array([1])).task(np.int64(0)) == bank.task("b")

    def test_from_tasks(self) -> None:
        first, second = Demonstrations(["u", "v"]), Demonstrations(["w", "v"])
        bank = TaskBank.from_tasks({"a": (first, [1, 2]), "b": (second, [3, 4])}, reward_names=("p", "q"))
        np.testing.assert_array_equal(bank.demonstrations.states, [0, 1, 2, 1])
        assert bank.demonstrations.state_labels == ("u", "v", "w")
        assert bank.reward_names == ("p", "q")

    def test_task_select_without(self) -> None:
        bank = bank_of_three()
        assert bank.task(1) == bank.task("1")
        np.testing.assert_array_equal(bank.task(1).states[:, 0], [0, 4])
        chosen = bank.select(["2", 0])
        assert chosen.names == ("2", "0")
        assert chosen.task("2") == bank.task(2)
        np.testing.assert_array_equal(chosen.rewards, bank.rewards[[2, 0]])
        assert bank.without(1) == bank.select([0, 2])

    def test_episodes_are_counted_within_tasks(self) -> None:
        bank = bank_of_three(episodes=[0, 0, 0, 1, 0, 0])
        assert bank.n_episodes == 4
        np.testing.assert_array_equal(bank.episode_index, [0, 1, 2, 2, 3, 3])

    def test_one_task_is_a_bank(self) -> None:
        assert TaskBank.from_arrays([[0.0]], None, [0], [[1.0]]).n_tasks == 1

    @pytest.mark.parametrize(
        ("tasks", "rewards", "keywords", "message"),
        [
            ([0, 0], np.eye(2), {}, "Task '1' has a reward but no rows"),
            ([0, 2], np.eye(2), {}, "row 2 is task 2, but there are 2 reward vectors, 0 to 1"),
            ([0, -1], np.eye(2), {}, "row 2 is task -1"),
            ([0], np.eye(2), {}, "tasks: 1 rows"),
            ([[0], [1]], np.eye(2), {}, "one task per row"),
            ([0, 1], [[1.0, 2.0, 3.0], [1.0, 2.0]], {"names": ["a", "b"]}, "task 'b' has 2 values, 'a' has 3"),
            ([0, 1], [[1.0], [np.nan]], {"names": ["a", "b"]}, "task 'b', parameter 'r0' is nan"),
            ([0, 1], [["x"], ["y"]], {}, "'x', which is not a number"),
            ([0, 1], np.eye(2), {"names": ["a", "a"]}, "task 'a' is there twice"),
            ([0, 1], np.eye(2), {"names": ["a", ""]}, "a task has an empty name"),
            ([0, 1], np.eye(2), {"names": ["a"]}, "2 reward vectors for 1 task names"),
            ([0, 1], np.eye(2), {"reward_names": ["a"]}, "reward_names: 1 names for 2 columns"),
            ([0, 1], np.empty((2, 0)), {}, "rewards: there are no columns"),
            ([0, 1], [], {}, "there are no tasks"),
            (["a", "bq"], np.eye(2), {"names": ["a", "bb"]}, r"'bq' has rows but no reward.* Did you mean 'bb'\?"),
        ],
    )
    def test_refused(self, tasks: object, rewards: object, keywords: dict[str, object], message: str) -> None:
        with pytest.raises(InputError, match=message):
            TaskBank.from_arrays([[0.0], [1.0]], None, tasks, rewards, **keywords)

    def test_unknown_tasks_are_refused(self) -> None:
        bank = bank_of_three()
        with pytest.raises(InputError, match=r"There is no task 'x' in the bank. There are: '0', '1', '2'"):
            bank.task("x")
        with pytest.raises(InputError, match="no task number 3: the bank has 3 tasks, 0 to 2"):
            bank.without(3)
        with pytest.raises(InputError, match="each only once"):
            bank.select([0, 0])

    def test_unsorted_rows_are_refused_by_the_constructor(self) -> None:
        with pytest.raises(InputError, match="sorted by task"):
            TaskBank(Demonstrations([[0.0], [1.0]]), np.array([1, 0]), np.eye(2))

    @given(st.data())
    def test_every_row_keeps_its_reward(self, data: st.DataObject) -> None:
        """Whatever the order of the rows, a row and the reward of its task stay together."""
        count = data.draw(st.integers(1, 5))
        tasks = data.draw(st.permutations([*range(count), *data.draw(st.lists(st.integers(0, count - 1)))]))
        bank = TaskBank.from_arrays([[float(t)] for t in tasks], None, tasks, [[10.0 * k] for k in range(count)])
        np.testing.assert_array_equal(10 * bank.demonstrations.states[:, 0], bank.rewards[bank.tasks, 0])
        assert bank.rows_per_task.sum() == len(tasks)
