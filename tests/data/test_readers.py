"""Reading tables as people have them: every dialect, every source, and one clear sentence for every mistake."""

import gzip
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kdbirl.data.demonstrations import Demonstrations, TaskBank
from kdbirl.data.readers import read_demonstrations, read_task_bank, step_order
from kdbirl.errors import FileProblem, InputError, KDBIRLWarning

PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01\x08\x06\0\0\0\x1f\x15\xc4\x89"
ROWS = pl.DataFrame(
    {
        "task": ["b", "a", "b", "a"],
        "x": [1.5, 2.5, 3.5, 4.5],
        "y": [1, 2, 3, 4],
        "action": ["left", "right", "left", "up"],
    }
)
REWARDS = pl.DataFrame({"task": ["a", "b"], "goal": [1.0, 0.0], "cost": [0.0, -1.0]})


def written(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def read(path: Any, **keywords: Any) -> Demonstrations:
    return read_demonstrations(path, **({"state": ["x", "y"], "action": "action"} | keywords))


def bank(source: Any = ROWS, rewards: Any = REWARDS, **keywords: Any) -> TaskBank:
    return read_task_bank(source, rewards=rewards, **({"state": ["x", "y"], "action": "action"} | keywords))


DIALECTS = {
    "comma": b"x,y,action\n1.5,2,left\n-3e2,4.25,right\n",
    "semicolon": b"x;y;action\n1.5;2;left\n-3e2;4.25;right\n",
    "tab": b"x\ty\taction\n1.5\t2\tleft\n-3e2\t4.25\tright\n",
    "pipe": b"x|y|action\n1.5|2|left\n-3e2|4.25|right\n",
    "decimal comma, semicolon": b"x;y;action\n1,5;2;left\n-3e2;4,25;right\n",
    "decimal comma, tab": b"x\ty\taction\n1,5\t2\tleft\n-3e2\t4,25\tright\n",
    "byte order mark": b"\xef\xbb\xbfx,y,action\n1.5,2,left\n-3e2,4.25,right\n",
    "gzip": gzip.compress(b"x,y,action\n1.5,2,left\n-3e2,4.25,right\n", mtime=0),
    "quotes": b'"x","y","action"\n"1.5","2","left"\n"-3e2","4.25","right"\n',
    "Windows lines": b"x,y,action\r\n1.5,2,left\r\n-3e2,4.25,right\r\n",
    "old Mac lines": b"x,y,action\r1.5,2,left\r-3e2,4.25,right\r",
    "no last line end": b"x,y,action\n1.5,2,left\n-3e2,4.25,right",
    "blank lines": b"x,y,action\n\n1.5,2,left\n\n\n-3e2,4.25,right\n,,\n\n",
    "spaces": b"x, y, action\n 1.5, 2, left\n -3e2 , 4.25 , right \n",
    "an index and a trailing separator": b",x,y,action,\n0,1.5,2,left,\n1,-3e2,4.25,right,\n",
    "Excel's first line": b"sep=;\nx;y;action\n1,5;2;left\n-3e2;4,25;right\n",
    "UTF-16": "x\ty\taction\n1,5\t2\tleft\n-3e2\t4,25\tright\n".encode("utf-16"),
    "a comma inside a quoted header": b'x;y;"action";"note, long, with, commas"\n1,5;2;left;n\n-3e2;4,25;right;n\n',
}


class TestCsv:
    @pytest.mark.parametrize("dialect", DIALECTS)
    def test_every_dialect_is_the_same_table(self, tmp_path: Path, dialect: str) -> None:
        data = read(written(tmp_path / "expert.csv", DIALECTS[dialect]))
        np.testing.assert_array_equal(data.states, [[1.5, 2.0], [-300.0, 4.25]])
        assert data.action_labels == ("left", "right")
        np.testing.assert_array_equal(data.actions, [0, 1])
        assert data.state_names == ("x", "y")

    @pytest.mark.parametrize("name", ["expert.csv.gz", "expert.tsv", "expert.txt", "expert.CSV", "expert.data"])
    def test_names(self, tmp_path: Path, name: str) -> None:
        content = DIALECTS["gzip"] if name.endswith("gz") else DIALECTS["comma"]
        assert read(written(tmp_path / name, content)).n_rows == 2

    @pytest.mark.parametrize("encoding", ["utf-8", "latin-1", "cp1252"])
    def test_encodings(self, tmp_path: Path, encoding: str) -> None:
        data = read(written(tmp_path / "e.csv", "x,y,action\n1,2,höher\n1,2,tiefer\n".encode(encoding)))
        assert data.action_labels == ("höher", "tiefer")

    def test_quoted_cells_may_hold_separators_quotes_and_line_breaks(self, tmp_path: Path) -> None:
        data = read(written(tmp_path / "e.csv", 'x,y,action\n1,2,"a, ""b""\nc"\n3,4,d\n'))
        assert data.action_labels == ('a, "b"\nc', "d")

    def test_labels_keep_leading_zeros(self, tmp_path: Path) -> None:
        data = read(written(tmp_path / "e.csv", "x,y,action\n1,2,01\n3,4,10\n"))
        assert data.action_labels == ("01", "10")

    def test_whole_numbers_are_codes(self, tmp_path: Path) -> None:
        data = read(written(tmp_path / "e.csv", "x,y,action\n1,2,0\n3,4,10\n"))
        assert data.action_labels is None
        np.testing.assert_array_equal(data.actions, [0, 10])

    def test_negative_whole_numbers_are_labels_in_their_order(self, tmp_path: Path) -> None:
        data = read(written(tmp_path / "e.csv", "x,y,action\n1,2,10\n3,4,-2\n3,4,-1\n"))
        assert data.action_labels == ("-2", "-1", "10")
        np.testing.assert_array_equal(data.actions, [2, 0, 1])

    def test_decimal_comma_only_where_the_separator_allows_it(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match=r"row 1 \(line 2\) of .*e.csv, column 'x' is '1,234', which is not"):
            read(written(tmp_path / "e.csv", 'x,y,action\n"1,234",2,a\n'))

    def test_decimal_comma_and_point_in_one_column(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match=r"row 2 .* is '1,234', but other cells there have a decimal point"):
            read(written(tmp_path / "e.csv", "x;y;action\n1.5;2;a\n1,234;2;a\n"))


class TestStatesAndActions:
    def test_one_text_column_is_discrete(self) -> None:
        data = read_demonstrations(pl.DataFrame({"room": ["hall", "attic", "hall"]}), state="room")
        assert data.state_labels == ("attic", "hall")
        np.testing.assert_array_equal(data.states, [1, 0, 1])

    def test_an_integer_state_is_discrete_on_request_only(self) -> None:
        frame = pl.DataFrame({"cell": [0, 3]})
        assert not read_demonstrations(frame, state="cell").discrete_states
        assert read_demonstrations(frame, state="cell", discrete_states=True).discrete_states
        assert read_demonstrations(frame, state="cell", n_states=4).n_states == 4

    def test_a_text_state_in_a_csv_is_discrete(self, tmp_path: Path) -> None:
        path = written(tmp_path / "e.csv", "room\nhall\nattic\n")
        assert read_demonstrations(path, state="room").state_labels == ("attic", "hall")

    def test_labels_and_numbers_mixed_need_a_word(self, tmp_path: Path) -> None:
        path = written(tmp_path / "e.csv", "room\n1\nattic\n")
        with pytest.raises(InputError, match=r"row 2 \(line 3\).* is 'attic', .* say so with discrete_states=True"):
            read_demonstrations(path, state="room")
        assert read_demonstrations(path, state="room", discrete_states=True).state_labels == ("1", "attic")
        with pytest.raises(InputError, match=r"'attic', which is not a number.*actions=\[\.\.\.\]"):
            read_demonstrations(written(tmp_path / "f.csv", "x,a\n1,1\n2,attic\n"), state="x", action="a")

    def test_actions_vector_and_scalar(self) -> None:
        frame = pl.DataFrame({"x": [1.0, 2.0], "f": [0.5, 1.0], "g": [0, 1], "whole": [1.0, 2.0]})
        assert read_demonstrations(frame, state="x", action=["f", "g"]).actions.shape == (2, 2)
        assert read_demonstrations(frame, state="x", action="f").actions.shape == (2, 1)
        assert read_demonstrations(frame, state="x", action="g").discrete_actions
        assert read_demonstrations(frame, state="x", action="whole").discrete_actions
        assert not read_demonstrations(frame, state="x", action=["whole"]).discrete_actions
        assert read_demonstrations(frame, state="x").actions is None

    def test_columns_of_lists_are_vectors(self) -> None:
        frame = pl.DataFrame({"obs": [[1.0, 2.0], [3.0, 4.0]], "act": [0, 1]})
        data = read_demonstrations(frame, state="obs", action="act")
        np.testing.assert_array_equal(data.states, [[1, 2], [3, 4]])
        assert data.state_names == ("obs0", "obs1")

    def test_lists_of_different_length(self) -> None:
        frame = pl.DataFrame({"obs": [[1.0, 2.0], [3.0]]})
        with pytest.raises(InputError, match="row 2 of the table, column 'obs' has 1 values, row 1 has 2"):
            read_demonstrations(frame, state="obs")

    def test_an_enum_keeps_its_order(self) -> None:
        frame = pl.DataFrame({"x": [1.0], "a": pl.Series(["up"], dtype=pl.Enum(["up", "down"]))})
        assert read_demonstrations(frame, state="x", action="a").action_labels == ("up", "down")

    def test_a_declared_set_of_actions(self) -> None:
        data = read(ROWS, actions=["up", "left", "right"])
        assert (data.action_labels, data.n_actions) == (("up", "left", "right"), 3)
        np.testing.assert_array_equal(data.actions, [1, 2, 1, 0])
        assert read(ROWS, actions={"up", "left", "right"}).action_labels == ("left", "right", "up")
        codes = read_demonstrations(ROWS, state="x", action="y", actions=range(5))
        assert (codes.action_labels, codes.n_actions) == (None, 5)

    @pytest.mark.parametrize(
        ("keywords", "message"),
        [
            ({"actions": ["left", "right"]}, r"row 4 of the table, column 'action' is 'up', outside the declared set"),
            (
                {"actions": ["left", "rigth", "up"]},
                r"row 2 .*'right', outside the declared set. Did you mean 'rigth'\?",
            ),
            ({"action": "y", "actions": [0, 1, 2, 3]}, "row 4 of the table, column 'y' is 4, outside the declared set"),
            ({"action": "y", "actions": [1, 2, 3]}, "row 4 of the table, column 'y' is '4', outside the declared set"),
            ({"action": "y", "n_actions": 4}, "row 4 of the table, column 'y' is 4, outside the declared set: 4"),
            ({"n_actions": 2}, "column 'action' has 3 different labels, but 2 were declared"),
            ({"actions": ["up", "left", "up"]}, "actions: the declared set names 'up' twice; name each once"),
            ({"actions": ["a"], "n_actions": 2}, "the declared set has 1 members, but the declared count is 2"),
            ({"state": "x", "n_states": 9}, "row 1 .* column 'x' is 1.5; discrete states must be whole"),
            ({"state": "y", "n_states": 4}, "row 4 of the table, column 'y' is 4, outside the declared set"),
            ({"state": ["x", "y"], "n_states": 4}, "needs one column of codes"),
            ({"state": "action", "action": None, "discrete_states": False}, "'left', which is not a number"),
            ({"state": []}, "state: give at least one column"),
            ({"state": ["x", "x"]}, "each only once"),
        ],
    )
    def test_refused(self, keywords: dict[str, Any], message: str) -> None:
        with pytest.raises(InputError, match=message):
            read(ROWS, **keywords)


class TestOtherColumns:
    FRAME = pl.DataFrame(
        {"episode": ["p", "q", "p", "q"], "step": [1, 0, 0, 1], "x": [1.0, 2.0, 3.0, 4.0], "done": [0, 0, 0, 1]}
    )

    def test_steps_sort_within_episodes(self) -> None:
        data = read_demonstrations(self.FRAME, state="x", terminated="done")
        np.testing.assert_array_equal(data.states[:, 0], [3, 2, 1, 4])
        np.testing.assert_array_equal(data.episodes, [0, 1, 0, 1])
        np.testing.assert_array_equal(data.terminated, [False, False, False, True])

    def test_switched_off(self) -> None:
        data = read_demonstrations(self.FRAME, state="x", episode=None, step=None)
        assert data.n_episodes == 1
        np.testing.assert_array_equal(data.states[:, 0], [1, 2, 3, 4])

    def test_steps_that_repeat_without_an_episode_column_sort_nothing(self) -> None:
        data = read_demonstrations(self.FRAME, state="x", episode=None)
        np.testing.assert_array_equal(data.states[:, 0], [1, 2, 3, 4])

    def test_times_are_steps_too(self) -> None:
        frame = pl.DataFrame({"step": ["2024-02-01", "2024-01-01"], "x": [1.0, 2.0]}).with_columns(
            pl.col("step").str.to_date()
        )
        np.testing.assert_array_equal(read_demonstrations(frame, state="x").states[:, 0], [2, 1])

    def test_column_mapping(self) -> None:
        data = read_demonstrations(self.FRAME, state="position", columns={"position": "x", "terminated": "done"})
        assert data.state_names == ("position",)
        assert data.terminated.sum() == 1

    def test_rows_of_several_tasks_are_not_pooled_without_a_word(self) -> None:
        frame = self.FRAME.with_columns(task=pl.Series(["a", "b", "a", None]))
        with pytest.warns(KDBIRLWarning, match=r"column 'task' names 2 tasks, .* kb.read_test_tasks, or --expert-task"):
            pooled = read_demonstrations(frame, state="x", task="task")
        assert pooled == read_demonstrations(self.FRAME, state="x")
        with pytest.warns(KDBIRLWarning, match="column 'who' names 2 tasks"):
            read_demonstrations(frame.rename({"task": "who"}), state="x", task="task", columns={"task": "who"})

    def test_one_task_by_name_is_no_reason_to_warn(self) -> None:
        frame = self.FRAME.with_columns(task=pl.Series(["a", "b", "a", "c"]))
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            read_demonstrations(frame.with_columns(task=pl.lit("a")), state="x", task="task")
            read_demonstrations(self.FRAME, state="x", task="task")
            read_demonstrations(frame, state="task", task="task")
            read_demonstrations(frame, state="x", action="a", task="task", columns={"a": "task"})
            read_demonstrations(frame, state="x", episode="task", task="task")
        assert said == []

    def test_mapping_of_something_else(self) -> None:
        with pytest.raises(InputError, match=r"columns: 'poition' is not a column that was asked for. Did you mean"):
            read_demonstrations(self.FRAME, state="position", columns={"poition": "x"})
        with pytest.raises(InputError, match=r"no column 'dne'. Did you mean 'done'\?"):
            read_demonstrations(self.FRAME, state="x", columns={"terminated": "dne"})

    def test_a_column_that_was_asked_for_by_name_must_be_there(self) -> None:
        with pytest.raises(InputError, match=r"the table has no column 'epsode'. Did you mean 'episode'\?"):
            read_demonstrations(self.FRAME, state="x", episode="epsode")

    @pytest.mark.parametrize("text", ["true,FALSE", "True,False", "1,0", "yes,no", "1.0,0.0", "t,f"])
    def test_booleans(self, tmp_path: Path, text: str) -> None:
        first, second = text.split(",")
        data = read_demonstrations(written(tmp_path / "e.csv", f"x,terminated\n1,{first}\n2,{second}\n"), state="x")
        np.testing.assert_array_equal(data.terminated, [True, False])

    def test_not_a_boolean(self, tmp_path: Path) -> None:
        with pytest.raises(
            InputError, match=r"row 2 \(line 3\) .*column 'terminated' is 'maybe'; expected true or false"
        ):
            read_demonstrations(written(tmp_path / "e.csv", "x,terminated\n1,true\n2,maybe\n"), state="x")

    @given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5)), min_size=1))
    def test_step_order_is_a_permutation_within_groups(self, rows: list[tuple[int, int]]) -> None:
        groups, steps = np.array(rows).T
        order = step_order(groups, steps)
        assert order is not None
        np.testing.assert_array_equal(np.sort(order), np.arange(len(rows)))
        np.testing.assert_array_equal(groups[order], groups)  # every place keeps its episode
        for group in set(groups.tolist()):
            assert (np.diff(steps[order][groups == group]) >= 0).all()


NEAR = [0, 2**53, 2**53 + 60, 2**62, 2**63 - 30, 2**63, 2**64 - 30, -(2**53) - 60, -(2**63)]  # and some more
WHOLE = st.builds(lambda base, more: base + more, st.sampled_from(NEAR), st.integers(0, 29))
INT64 = WHOLE.filter(lambda value: value < 2**63)
TIMES = (pl.Datetime("ns"), pl.Datetime("us", "UTC"), pl.Datetime("ms"), pl.Duration("ns"))
STEPS: dict[str, tuple[Any, Any]] = {
    "int64": (INT64, lambda values: pl.Series(values, dtype=pl.Int64)),
    "uint64": (WHOLE.filter(lambda value: value >= 0), lambda values: pl.Series(values, dtype=pl.UInt64)),
    "int128": (WHOLE, lambda values: pl.Series(values, dtype=pl.Int128)),
    "text": (WHOLE, lambda values: pl.Series([str(value) for value in values])),
    "text with decimals": (WHOLE, lambda values: pl.Series([f"{value}e-9" for value in values])),
    "decimal": (WHOLE, lambda values: pl.Series([str(value) for value in values]).cast(pl.Decimal(38, 4))),
    **{str(kind): (INT64, lambda values, kind=kind: pl.Series(values, dtype=pl.Int64).cast(kind)) for kind in TIMES},
    "dates": (st.integers(-(2**31), 2**31 - 1), lambda values: pl.Series(values, dtype=pl.Int32).cast(pl.Date)),
    "floats": (st.floats(-1e300, 1e300), lambda values: pl.Series(values, dtype=pl.Float64)),
}


class TestLargeNumbers:
    """Times in nanoseconds and hashes as ids: a float would round them."""

    @pytest.mark.parametrize("kind", STEPS)
    @settings(max_examples=40)
    @given(st.data())
    def test_rows_stand_in_the_order_of_their_steps(self, kind: str, data: st.DataObject) -> None:
        numbers, column = STEPS[kind]
        steps = data.draw(st.lists(numbers, min_size=1, max_size=12))
        episodes = data.draw(st.lists(st.integers(0, 1), min_size=len(steps), max_size=len(steps)))
        frame = pl.DataFrame({"x": np.arange(float(len(steps))), "episode": episodes, "step": column(steps)})
        found = read_demonstrations(frame, state="x")
        np.testing.assert_array_equal(found.episodes, episodes)  # every place keeps its episode
        for episode in (0, 1):
            own = [row for row in range(len(steps)) if episodes[row] == episode]
            expected = sorted(own, key=lambda row: steps[row])  # equal steps stay as they stand
            np.testing.assert_array_equal(found.states[found.episodes == episode, 0], expected)

    def test_steps_of_a_csv_file_are_not_rounded(self, tmp_path: Path) -> None:
        text = "x,step\n1,9007199254740993\n2,9007199254740992\n3,18446744073709551615\n4,18446744073709551614\n"
        found = read_demonstrations(written(tmp_path / "a.csv", text), state="x")
        np.testing.assert_array_equal(found.states[:, 0], [2, 1, 4, 3])
        seconds = "x;step\n1; 1700000000,000000002\n2;1700000000,000000001\n"
        found = read_demonstrations(written(tmp_path / "b.csv", seconds), state="x")
        np.testing.assert_array_equal(found.states[:, 0], [2, 1])

    @pytest.mark.parametrize("dtype", [pl.Int64, pl.Date, pl.Datetime("ns"), pl.Duration])
    def test_a_missing_step_is_named(self, dtype: Any) -> None:
        frame = pl.DataFrame({"x": [1.0, 2.0], "step": pl.Series([1, None], dtype=pl.Int64).cast(pl.Int32).cast(dtype)})
        with pytest.raises(InputError, match="row 2 of the table, column 'step' is missing; every row needs a step"):
            read_demonstrations(frame, state="x")

    @pytest.mark.parametrize("kind", ["int64", "uint64", "int128", "text"])
    @settings(max_examples=25)
    @given(st.data())
    def test_ids_of_tasks_and_episodes_stay_apart(self, kind: str, data: st.DataObject) -> None:
        numbers, column = STEPS[kind]
        ids = data.draw(st.lists(numbers, min_size=2, max_size=6, unique=True))
        rows = data.draw(st.permutations([*ids, *ids]))
        frame = pl.DataFrame({"x": np.arange(float(len(rows))), "task": column(rows), "episode": column(rows)})
        rewards = {str(value): [float(place)] for place, value in enumerate(ids)}
        found = read_task_bank(frame, rewards=rewards, state="x")
        expected = sorted(range(len(rows)), key=lambda row: ids.index(rows[row]))
        np.testing.assert_array_equal(found.demonstrations.states[:, 0], expected)
        np.testing.assert_array_equal(found.tasks, np.repeat(np.arange(len(ids)), 2))
        assert found.demonstrations.n_episodes == len(ids)
        if kind == "int64":
            np.testing.assert_array_equal(found.demonstrations.episodes, np.repeat(ids, 2))

    def test_floats_that_no_integer_holds_are_labels_too(self) -> None:
        rewards = pl.DataFrame({"task": [1e20, 1e300, 2.0], "w": [0.0, 1.0, 2.0]})
        assert bank(ROWS.with_columns(task=pl.Series([1e300, 1e20, 2.0, 2.0])), rewards).n_tasks == 3
        assert bank(ROWS.with_columns(task=pl.Series([1e20] * 4)), rewards.head(1)).names == (str(10**20),)

    def test_discrete_codes_that_would_be_rounded_are_refused(self) -> None:
        frame = ROWS.with_columns(action=pl.Series([2**53 + 1, 2**53, 0, 1]))
        with pytest.raises(InputError, match=r"row 1 .*'action' is 9007199254740993; discrete actions are told apart"):
            read(frame)


class TestSources:
    def test_all_sources_agree(self, tmp_path: Path) -> None:
        ROWS.write_parquet(tmp_path / "rows.parquet")
        ROWS.write_csv(tmp_path / "rows.csv")
        expected = read(ROWS)
        for source in (tmp_path / "rows.parquet", str(tmp_path / "rows.csv"), ROWS.to_pandas(), ROWS.lazy()):
            assert read(source) == expected

    def test_directories_globs_and_lists_are_joined_in_order_of_name(self, tmp_path: Path) -> None:
        ROWS[2:].write_parquet(tmp_path / "part-1.parquet")
        ROWS[:2].write_parquet(tmp_path / "part-0.parquet")
        (tmp_path / "_SUCCESS").touch()
        (tmp_path / ".hidden.parquet").touch()
        expected = read(ROWS)
        files = [tmp_path / "part-0.parquet", tmp_path / "part-1.parquet"]
        for source in (tmp_path, str(tmp_path / "part-*.parquet"), str(tmp_path / "**/part*"), files):
            assert read(source) == expected

    def test_several_csv_files(self, tmp_path: Path) -> None:
        ROWS[:2].write_csv(tmp_path / "0.csv")
        ROWS[2:].select("action", "y", "x", "task").write_csv(tmp_path / "1.csv")
        assert read(tmp_path) == read(ROWS)

    def test_directory_names_can_be_columns(self, tmp_path: Path) -> None:
        for task in ("a", "b"):
            (tmp_path / f"task={task}").mkdir()
            ROWS.filter(pl.col("task") == task).drop("task").write_parquet(tmp_path / f"task={task}" / "0.parquet")
        assert bank(tmp_path) == bank()

    def test_integers_and_floats_join(self, tmp_path: Path) -> None:
        pl.DataFrame({"x": [1]}).write_parquet(tmp_path / "0.parquet")
        pl.DataFrame({"x": [1.5]}).write_parquet(tmp_path / "1.parquet")
        np.testing.assert_array_equal(read_demonstrations(tmp_path, state="x").states, [[1], [1.5]])

    def test_a_row_is_found_in_its_file(self, tmp_path: Path) -> None:
        written(tmp_path / "0.csv", "x\n1\n2\n")
        written(tmp_path / "1.csv", "x\n3\n\nNA\n")
        with pytest.raises(InputError, match=r"row 2 \(line 4\) of .*1.csv, column 'x' is missing"):
            read_demonstrations(tmp_path, state="x")

    def test_pandas_with_awkward_columns(self) -> None:
        frame = pd.DataFrame({0: [1, 2], "a": pd.Categorical(["u", "v"]), "o": [1, "two"]})
        assert read_demonstrations(frame, state="0", action="a").action_labels == ("u", "v")
        with pytest.raises(InputError, match="row 2 of the table, column 'o' is 'two', which is not a number"):
            read_demonstrations(frame, state=["0", "o"])

    def test_pandas_with_missing_values(self) -> None:
        frame = pd.DataFrame({"x": [1.0, 2.0], "a": ["u", None]})
        with pytest.raises(InputError, match="row 2 of the table, column 'a' is empty"):
            read_demonstrations(frame, state="x", action="a")

    def test_only_the_columns_asked_for_need_to_be_sound(self, tmp_path: Path) -> None:
        assert read_demonstrations(written(tmp_path / "e.csv", "x,note\n1,\n2,NaN\n"), state="x").n_rows == 2


class TestBadTables:
    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("x,yy,action\n1,2,a\n", r"e.csv has no column 'y'. Did you mean 'yy'\?"),
            ("a,b\n1,2\n", r"e.csv has no column 'x'. There are: 'a', 'b'\."),
            ("X,y,action\n1,2,a\n", r"no column 'x'. Did you mean 'X'\?"),
            ("x,y,action\n1,2,a\n1,NaN,a\n", r"row 2 \(line 3\) of .*e.csv, column 'y' is missing"),
            ("x,y,action\n1,2,a\n1,,a\n", r"row 2 \(line 3\) of .*e.csv, column 'y' is missing"),
            ("x,y,action\n1,2,a\n1\n", r"row 2 \(line 3\) of .*e.csv, column 'y' is missing"),
            ("x,y,action\n-inf,2,a\n", r"row 1 \(line 2\) of .*e.csv, column 'x' is infinite"),
            (
                "x,y,action\n1,2,a\n1,abc,a\n",
                r"row 2 \(line 3\) of .*e.csv, column 'y' is 'abc', which is not a number",
            ),
            ("x,y,action\n1,2,a\n1,2,\n", r"row 2 \(line 3\) of .*e.csv, column 'action' is empty"),
            ("x,y,action\n1,2,1\n1,2,\n", r"row 2 \(line 3\) of .*e.csv, column 'action' is missing"),
            ("x,y,action\n", "e.csv: the table has no rows"),
            ("", "e.csv: the file is empty"),
            ("\n\n", "e.csv: the file is empty"),
            ("x,y,action\n1,2,a\n1,2,a,9\n", "line 3 has 4 fields, but the header has 3"),
            ('x,y,action\n1,2,"a\n1,2,b\n', "a quoted cell is never closed"),
            ("x,y,y,action\n1,2,3,a\n", "the column 'y' is there more than once"),
        ],
    )
    def test_csv(self, tmp_path: Path, text: str, message: str) -> None:
        with pytest.raises(InputError, match=message) as caught:
            read(written(tmp_path / "e.csv", text))
        assert "\n" not in str(caught.value)

    @pytest.mark.parametrize(
        ("column", "message"),
        [
            ([1.0, None], "row 2 of .*e.parquet, column 'x' is missing"),
            ([1.0, float("nan")], "row 2 of .*e.parquet, column 'x' is missing"),
            ([float("inf"), 1.0], "row 1 of .*e.parquet, column 'x' is infinite"),
            (["1", "two"], "row 2 of .*e.parquet, column 'x' is 'two', which is not a number"),
            (pl.Series(["2024-01-01"] * 2).str.to_date(), "column 'x' holds Date values, not numbers"),
            ([[1.0], [2.0]], r"column 'x' holds List\(Float64\) values, not numbers"),
        ],
    )
    def test_parquet(self, tmp_path: Path, column: Any, message: str) -> None:
        pl.DataFrame({"x": column, "y": [1, 2], "action": ["a", "b"]}).write_parquet(tmp_path / "e.parquet")
        with pytest.raises(InputError, match=message):
            read(tmp_path / "e.parquet")

    def test_empty_parquet(self, tmp_path: Path) -> None:
        ROWS.clear().write_parquet(tmp_path / "e.parquet")
        with pytest.raises(InputError, match=r"e.parquet: the table has no rows"):
            read(tmp_path / "e.parquet")

    @pytest.mark.parametrize("frame", [ROWS.clear(), ROWS.clear().to_pandas()])
    def test_empty_frame(self, frame: Any) -> None:
        with pytest.raises(InputError, match="the table has no rows"):
            read(frame)

    def test_files_with_other_columns_are_named(self, tmp_path: Path) -> None:
        ROWS.write_parquet(tmp_path / "0.parquet")
        ROWS.drop("y").write_parquet(tmp_path / "1.parquet")
        with pytest.raises(InputError, match=r"1.parquet has no column 'y', but .*0.parquet has"):
            read(tmp_path)

    def test_files_with_other_types_are_named(self, tmp_path: Path) -> None:
        ROWS.write_parquet(tmp_path / "0.parquet")
        ROWS.with_columns(pl.col("x").cast(pl.String)).write_parquet(tmp_path / "1.parquet")
        with pytest.raises(InputError, match=r"1.parquet: the column 'x' is String, but Float64 in .*0.parquet"):
            read(tmp_path)

    def test_csv_and_parquet_do_not_mix(self, tmp_path: Path) -> None:
        ROWS.write_parquet(tmp_path / "0.parquet")
        ROWS.write_csv(tmp_path / "1.csv")
        with pytest.raises(InputError, match=r"1.csv: CSV and Parquet files are mixed"):
            read(tmp_path)


class TestForeignFiles:
    @pytest.mark.parametrize(
        ("name", "content", "message"),
        [
            ("e.csv", PNG, "e.csv: this is a PNG image, not a table"),
            ("e.csv", b"PAR1....PAR1", "e.csv: this is a Parquet file: give it a name that ends in .parquet"),
            ("e.csv", b"PK\x03\x04rest", "e.csv: this is a zip archive or an Excel workbook"),
            ("e.csv", b"\x00\x01\x02binary", "e.csv: this is not a text file"),
            (
                "e.csv.gz",
                gzip.compress(b"x,y\n" * 1000, mtime=0)[:-20],
                "e.csv.gz: the gzip file is damaged or cut short",
            ),
            ("e.csv.gz", b"x,y\n1,2\n", "e.csv.gz: the name says gzip"),
            ("e.csv.gz", gzip.compress(PNG, mtime=0), "this is a PNG image"),
            (
                "e.parquet",
                b"x,y,action\n1,2,a\n",
                "e.parquet: the name says Parquet, but its content is something else",
            ),
            ("e.parquet", b"", "e.parquet: the name says Parquet, but it is empty"),
            ("e.parquet", PNG, "e.parquet: the name says Parquet"),
            ("e.parquet", b"PAR1" + b"\0" * 40, "e.parquet: the Parquet file is damaged or cut short"),
        ],
    )
    def test_one_sentence(self, tmp_path: Path, name: str, content: bytes, message: str) -> None:
        with pytest.raises(FileProblem, match=message) as caught:
            read(written(tmp_path / name, content))
        assert "\n" not in str(caught.value)

    @pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.99])
    def test_truncated_parquet(self, tmp_path: Path, share: float) -> None:
        ROWS.write_parquet(tmp_path / "e.parquet")
        content = (tmp_path / "e.parquet").read_bytes()
        with pytest.raises(FileProblem, match=r"e.parquet: the Parquet file is damaged or cut short"):
            read(written(tmp_path / "e.parquet", content[: int(share * len(content))]))

    @settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
    @given(content=st.binary())
    @pytest.mark.parametrize("name", ["e.csv", "e.parquet", "e.csv.gz"])
    def test_any_bytes_are_read_or_refused_in_one_sentence(self, tmp_path: Path, name: str, content: bytes) -> None:
        with pytest.raises(InputError) as caught:
            read(written(tmp_path / name, content))
        assert str(caught.value).endswith((".", "?"))

    def test_nothing_there(self, tmp_path: Path) -> None:
        written(tmp_path / "expert.csv", "x\n1\n")
        with pytest.raises(FileProblem, match=r"expart.csv: there is no such file. Did you mean 'expert.csv'\?"):
            read(tmp_path / "expart.csv")
        with pytest.raises(FileProblem, match=r"e.csv: there is no such file\.$"):
            read(tmp_path / "nowhere" / "e.csv")
        with pytest.raises(FileProblem, match=r"\*.parquet: no file matches this pattern"):
            read(tmp_path / "*.parquet")
        with pytest.raises(FileProblem, match="list of files is empty"):
            read([])
        with pytest.raises(InputError, match=r"A table is a file, .* not int"):
            read(3)

    def test_directory_without_a_table(self, tmp_path: Path) -> None:
        written(tmp_path / "notes.md", "hello")
        with pytest.raises(FileProblem, match="this directory has no table"):
            read(tmp_path)

    def test_a_directory_called_csv(self, tmp_path: Path) -> None:
        (tmp_path / "e.csv").mkdir()
        with pytest.raises(FileProblem, match=r"e.csv: this directory has no table"):
            read(tmp_path / "e.csv")


class TestTaskBank:
    def test_rows_meet_their_rewards(self) -> None:
        data = bank()
        assert (data.names, data.reward_names) == (("a", "b"), ("goal", "cost"))
        np.testing.assert_array_equal(data.rewards, [[1, 0], [0, -1]])
        np.testing.assert_array_equal(data.tasks, [0, 0, 1, 1])
        np.testing.assert_array_equal(data.demonstrations.states[:, 0], [2.5, 4.5, 1.5, 3.5])

    def test_sources(self, tmp_path: Path) -> None:
        ROWS.write_parquet(tmp_path / "rows.parquet")
        REWARDS.write_csv(tmp_path / "rewards.csv", separator=";", decimal_comma=True)
        assert bank(tmp_path / "rows.parquet", tmp_path / "rewards.csv") == bank()
        assert bank(ROWS.to_pandas(), REWARDS.to_pandas()) == bank()
        assert bank(rewards={"a": [1, 0], "b": [0, -1]}, reward=["goal", "cost"]) == bank()

    def test_reward_columns_and_task_column(self) -> None:
        data = bank(reward="cost")
        assert data.reward_names == ("cost",)
        assert bank(ROWS.rename({"task": "arm"}), REWARDS.rename({"task": "arm"}), task="arm") == bank()
        assert bank(ROWS.rename({"task": "arm"}), columns={"task": "arm"}) == bank()

    def test_rewards_as_lists(self) -> None:
        lists = pl.DataFrame({"task": ["a", "b"], "w": [[1.0, 0.0], [0.0, -1.0]]})
        np.testing.assert_array_equal(bank(rewards=lists).rewards, bank().rewards)
        ragged = pl.DataFrame({"task": ["a", "b"], "w": [[1.0, 0.0], [0.0]]})
        with pytest.raises(InputError, match=r"row 2 of the table, column 'w' has 1 values, row 1 has 2: .*different"):
            bank(rewards=ragged)

    @pytest.mark.parametrize("tasks", [[1, 2], [1.0, 2.0], ["1", "2"], pd.Series([1, 2], dtype="Int64")])
    def test_labels_compare_as_text(self, tmp_path: Path, tasks: Any) -> None:
        rows = pd.DataFrame({"task": tasks, "x": [10.0, 20.0]})
        for number, text in enumerate(["task,r\n2,20\n1,10\n", "task,r\n2.0,20\n1.0,10\n", 'task,r\n"2",20\n"1",10\n']):
            rewards = written(tmp_path / f"{number}.csv", text)
            data = read_task_bank(rows, rewards=rewards, state="x")
            np.testing.assert_array_equal(data.demonstrations.states[:, 0], data.rewards[:, 0])
            assert data.names == ("2", "1")

    def test_leading_zeros_stay(self, tmp_path: Path) -> None:
        rows = written(tmp_path / "rows.csv", "task,x\n01,1\n1,2\n")
        data = read_task_bank(rows, rewards={"01": [1.0], "1": [2.0]}, state="x")
        np.testing.assert_array_equal(data.demonstrations.states[:, 0], data.rewards[:, 0])
        with pytest.raises(InputError, match=r"task '01' is .* without a reward"):
            read_task_bank(rows, rewards={"1": [2.0]}, state="x")

    def test_numbers_that_are_not_whole_stay_apart(self, tmp_path: Path) -> None:
        rows = pl.DataFrame({"task": [1.0, 1.5], "x": [1.0, 2.0]})
        data = read_task_bank(rows, rewards=written(tmp_path / "r.csv", "task,r\n1.0,1\n1.5,2\n"), state="x")
        assert data.names == ("1.0", "1.5")

    def test_episodes_and_steps_within_tasks(self) -> None:
        rows = pl.DataFrame(
            {"task": ["b", "a", "a", "b"], "episode": [0, 0, 0, 0], "step": [1, 1, 0, 0], "x": [1.0, 2.0, 3.0, 4.0]}
        )
        data = read_task_bank(rows, rewards=REWARDS, state="x")
        np.testing.assert_array_equal(data.demonstrations.states[:, 0], [3, 2, 4, 1])
        assert data.n_episodes == 2

    @pytest.mark.parametrize(
        ("rewards", "message"),
        [
            (REWARDS[:1], "task 'b' is in the table without a reward in the table; every task needs both"),
            ({"a": [1.0], "b": [1.0], "c": [1.0]}, "task 'c' is in the rewards without rows in the table"),
            ({"a": [1.0], "bb": [1.0]}, r"task 'b' is in .*, and task 'bb' is in the rewards .* Did you mean 'bb'\?"),
            (
                pl.concat([REWARDS, REWARDS[1:]]),
                "row 3 of the table, column 'task': task 'b' is there already in row 2",
            ),
            ({"a": [1.0, 2.0], "b": [1.0]}, "reward vectors of different length: task 'b' has 1 values, 'a' has 2"),
            (REWARDS.with_columns(goal=pl.Series([1.0, None])), "row 2 of the table, column 'goal' is missing"),
            (REWARDS.with_columns(goal=pl.Series(["1", "x"])), "row 2 of the table, column 'goal' is 'x'"),
            (REWARDS.select("task"), "no reward columns besides 'task'"),
            (REWARDS.rename({"task": "tsk"}), r"no column 'task'. Did you mean 'tsk'\?"),
            (REWARDS.clear(), "the table has no rows"),
            ({}, "there are no tasks"),
        ],
    )
    def test_bad_rewards(self, rewards: Any, message: str) -> None:
        with pytest.raises(InputError, match=message):
            bank(rewards=rewards)

    def test_rewards_may_stand_in_every_row_of_the_training_table(self) -> None:
        rows = pl.DataFrame({"task": ["b", "b", "a"], "x": [1.0, 2.0, 3.0], "v": [0.5, 0.5, 0.1], "w": [1, 1, 2]})
        data = read_task_bank(rows, rewards=rows, state="x", reward=["v", "w"])
        assert (data.names, data.reward_names) == (("b", "a"), ("v", "w"))
        np.testing.assert_array_equal(data.rewards, [[0.5, 1.0], [0.1, 2.0]])
        changed = rows.with_columns(v=pl.Series([0.5, 0.6, 0.1]))
        with pytest.raises(InputError, match="row 2 of the table, column 'task': task 'b' has another reward in row 1"):
            read_task_bank(rows, rewards=changed, state="x", reward=["v", "w"])
        with pytest.raises(InputError, match=r"task 'b' is there already in row 1.*if their columns are named"):
            read_task_bank(rows, rewards=rows, state="x")

    def test_files_are_named(self, tmp_path: Path) -> None:
        ROWS.write_parquet(tmp_path / "rows.parquet")
        rewards = written(tmp_path / "rewards.csv", "task,r\na,1\nc,2\n")
        message = r"task 'b' is in .*rows.parquet without a reward in .*rewards.csv, and task 'c' is in .*rewards.csv"
        with pytest.raises(InputError, match=message):
            bank(tmp_path / "rows.parquet", rewards)
        written(tmp_path / "rewards.csv", "task,r\na,1\nb,2\na,3\n")
        with pytest.raises(InputError, match=r"row 3 \(line 4\) of .*rewards.csv.* task 'a' is there already in row 1"):
            bank(tmp_path / "rows.parquet", rewards)

    def test_many_missing_tasks_are_counted(self) -> None:
        rows = pl.DataFrame({"task": [str(i) for i in range(20)], "x": [0.0] * 20})
        with pytest.raises(InputError, match="tasks '1', '2', '3', '4', '5' and 14 more are in the table"):
            read_task_bank(rows, rewards={"0": [1.0]}, state="x")

    def test_a_missing_task_label(self) -> None:
        with pytest.raises(InputError, match="row 2 of the table, column 'task' is empty"):
            bank(ROWS.with_columns(task=pl.Series(["a", None, "b", "b"])))

    def test_a_large_bank_is_vectorised(self) -> None:
        """5,000 tasks and 200,000 rows: a Python loop over rows would take many times as long as the limit."""
        tasks = np.random.default_rng(0).permutation(np.arange(200_000) % 5_000)
        rows = pl.DataFrame({"task": tasks, "episode": tasks % 7, "step": tasks % 11, "x": tasks.astype(float)})
        rewards = pl.DataFrame({"task": np.arange(5_000)[::-1].copy(), "r": np.arange(5_000.0)[::-1].copy()})
        data = read_task_bank(rows, rewards=rewards, state="x")
        np.testing.assert_array_equal(data.demonstrations.states[:, 0], data.rewards[data.tasks, 0])
        assert (data.rows_per_task == 40).all()
