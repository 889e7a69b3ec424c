"""What is written reads back equal, and a file is there whole or not at all."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kdbirl.data.demonstrations import Demonstrations, TaskBank
from kdbirl.data.readers import read_demonstrations, read_task_bank
from kdbirl.data.writers import write_demonstrations, write_task_bank
from kdbirl.errors import FileProblem, InputError

same_directory = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
numbers = st.floats(allow_nan=False, allow_infinity=False)
# Any text that a CSV can carry and that nobody would take for a number.
labels = st.text(st.characters(codec="utf-8", exclude_characters="\0\r"), min_size=1, max_size=8).map(
    lambda text: f"L{text.strip()}".strip()
)


@st.composite
def variables(draw: st.DrawFn, rows: int, kind: str, text: st.SearchStrategy[str]) -> dict[str, Any]:
    """Fields of `Demonstrations` for states or actions of every kind, in the coding that a reader gives."""
    shape = draw(st.sampled_from(["vector", "codes", "labels"]))
    if shape == "vector":
        width = draw(st.integers(1, 3))
        cells = draw(st.lists(st.lists(numbers, min_size=width, max_size=width), min_size=rows, max_size=rows))
        return {f"{kind}s": np.array(cells).reshape(rows, width)}
    if shape == "codes":
        return {f"{kind}s": draw(st.lists(st.integers(0, 9), min_size=rows, max_size=rows)), f"n_{kind}s": 10}
    return {f"{kind}s": draw(st.lists(text, min_size=rows, max_size=rows))}


@st.composite
def demonstrations(draw: st.DrawFn, rows: int | None = None, text: st.SearchStrategy[str] = labels) -> dict[str, Any]:
    """Arguments of `Demonstrations` (the object is made in the test: beartype may not run inside a strategy)."""
    rows = draw(st.integers(1, 12)) if rows is None else rows
    flags = st.none() | st.lists(st.booleans(), min_size=rows, max_size=rows)
    return {
        **draw(variables(rows, "state", text)),
        **draw(st.just({}) | variables(rows, "action", text)),
        "episodes": draw(st.lists(st.integers(-3, 3), min_size=rows, max_size=rows)),
        "terminated": draw(flags),
        "truncated": draw(flags),
    }


@st.composite
def banks(draw: st.DrawFn, text: st.SearchStrategy[str] = labels) -> tuple[dict[str, Any], dict[str, Any]]:
    """Arguments of `Demonstrations` and the other arguments of `TaskBank`."""
    names = draw(st.lists(text, min_size=1, max_size=4, unique=True))
    tasks = sorted([*range(len(names)), *draw(st.lists(st.integers(0, len(names) - 1), max_size=8))])
    rewards = draw(st.lists(st.tuples(numbers, numbers), min_size=len(names), max_size=len(names)))
    bank = {"tasks": tasks, "rewards": rewards, "names": names, "reward_names": ("goal", "cost")}
    return draw(demonstrations(len(tasks), text)), bank


def declarations(data: Demonstrations) -> dict[str, Any]:
    """What a CSV does not say by itself. A list of one column is a vector action."""
    action = None if data.actions is None else list(data.action_names)
    return {
        "state": list(data.state_names),
        "action": action[0] if action and data.discrete_actions else action,
        "discrete_states": data.discrete_states,
        "n_states": data.n_states,
        "n_actions": data.n_actions,
    }


class TestRoundTrip:
    @pytest.mark.parametrize("name", ["d.csv", "d.tsv", "d.csv.gz", "d.parquet", "d.pq"])
    @same_directory
    @given(arguments=demonstrations())
    def test_demonstrations(self, tmp_path: Path, name: str, arguments: dict[str, Any]) -> None:
        data = Demonstrations(**arguments)
        write_demonstrations(data, tmp_path / name)
        assert read_demonstrations(tmp_path / name, **declarations(data)) == data

    @pytest.mark.parametrize("suffix", [".csv", ".parquet"])
    @same_directory
    @given(arguments=banks())
    def test_banks(self, tmp_path: Path, suffix: str, arguments: tuple[dict[str, Any], dict[str, Any]]) -> None:
        bank = TaskBank(Demonstrations(**arguments[0]), **arguments[1])
        rows, rewards = tmp_path / f"rows{suffix}", tmp_path / f"rewards{suffix}"
        write_task_bank(bank, rows, rewards)
        assert read_task_bank(rows, rewards=rewards, **declarations(bank.demonstrations)) == bank

    @same_directory
    @given(arguments=banks(st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1)))
    def test_parquet_needs_no_declarations_and_carries_any_text(
        self, tmp_path: Path, arguments: tuple[dict[str, Any], dict[str, Any]]
    ) -> None:
        bank = TaskBank(Demonstrations(**arguments[0]), **arguments[1])
        write_task_bank(bank, tmp_path / "rows.parquet", tmp_path / "rewards.parquet")
        data = bank.demonstrations
        read = read_task_bank(
            tmp_path / "rows.parquet",
            rewards=tmp_path / "rewards.parquet",
            state=list(data.state_names),
            action=None if data.actions is None else list(data.action_names),
        )
        assert read == bank

    def test_parquet_keeps_the_order_of_labels_and_those_not_used(self, tmp_path: Path) -> None:
        data = Demonstrations(["b", "a"], [1, 0], state_labels=("b", "c", "a"), n_actions=5)
        write_demonstrations(data, tmp_path / "d.parquet")
        assert read_demonstrations(tmp_path / "d.parquet", state="state", action="action") == data

    def test_declarations_of_the_caller_win_over_the_notes(self, tmp_path: Path) -> None:
        write_demonstrations(Demonstrations([0, 1], n_states=2), tmp_path / "d.parquet")
        assert read_demonstrations(tmp_path / "d.parquet", state="state", n_states=7).n_states == 7
        assert not read_demonstrations(tmp_path / "d.parquet", state=["step"]).discrete_states

    @same_directory
    @given(data=st.lists(labels, min_size=1), other=st.lists(labels, min_size=1))
    def test_labels_align_across_files(self, tmp_path: Path, data: list[str], other: list[str]) -> None:
        """Labels read from two files of two formats are equal codes exactly where they are equal text."""
        write_demonstrations(Demonstrations(data), tmp_path / "d.csv")
        write_demonstrations(Demonstrations(other), tmp_path / "o.parquet")
        reference = read_demonstrations(tmp_path / "o.parquet", state="state")
        aligned = read_demonstrations(tmp_path / "d.csv", state="state").aligned_to(reference)
        equal_codes = aligned.states[:, None] == reference.states[None, :]
        np.testing.assert_array_equal(equal_codes, [[a == b for b in other] for a in data])


class TestFiles:
    data = Demonstrations([[1.0], [2.0]], [0, 1], [5, 5])
    bank = TaskBank.from_arrays([[1.0], [2.0]], None, [0, 1], [[1.0], [2.0]])

    def test_the_table_is_as_described(self, tmp_path: Path) -> None:
        write_task_bank(self.bank, tmp_path / "rows.csv", tmp_path / "rewards.csv")
        assert (tmp_path / "rows.csv").read_text() == "task,episode,step,s0\n0,0,0,1.0\n1,0,0,2.0\n"
        assert (tmp_path / "rewards.csv").read_text() == "task,r0\n0,1.0\n1,2.0\n"
        write_demonstrations(self.data, tmp_path / "d.parquet")
        assert pl.read_parquet(tmp_path / "d.parquet").columns == ["episode", "step", "s0", "action"]

    def test_an_old_file_is_replaced_and_nothing_else_is_left(self, tmp_path: Path) -> None:
        (tmp_path / "d.csv").write_text("old")
        write_demonstrations(self.data, str(tmp_path / "d.csv"))
        assert [p.name for p in tmp_path.iterdir()] == ["d.csv"]
        assert read_demonstrations(tmp_path / "d.csv", state="s0").n_rows == 2

    def test_a_failure_leaves_the_old_file_and_no_rest(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "d.csv").write_text("old")

        def full(descriptor: int) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr("os.fsync", full)
        with pytest.raises(FileProblem, match=r"d.csv: cannot be written \(No space left on device\)"):
            write_demonstrations(self.data, tmp_path / "d.csv")
        assert [p.name for p in tmp_path.iterdir()] == ["d.csv"]
        assert (tmp_path / "d.csv").read_text() == "old"

    @pytest.mark.parametrize(
        ("name", "message"),
        [
            ("d.xlsx", r"d.xlsx: the name must end in one of \.parquet"),
            ("nowhere/d.csv", r"the directory .*nowhere does not exist"),
            ("taken.csv", r"taken.csv: this is a directory"),
        ],
    )
    def test_unwritable(self, tmp_path: Path, name: str, message: str) -> None:
        (tmp_path / "taken.csv").mkdir()
        with pytest.raises(InputError, match=message):
            write_demonstrations(self.data, tmp_path / name)

    @pytest.mark.parametrize("label", [" a", "a\rb"])
    def test_labels_that_a_csv_would_change(self, tmp_path: Path, label: str) -> None:
        with pytest.raises(InputError, match="does not survive in a CSV; write Parquet instead"):
            write_demonstrations(Demonstrations([label, "b"]), tmp_path / "d.csv")

    def test_names_that_collide(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match="Two columns would be called 'step'"):
            write_demonstrations(Demonstrations([[1.0]], state_names=("step",)), tmp_path / "d.csv")
        bank = TaskBank.from_arrays([[1.0]], None, [0], [[1.0]], reward_names=["task"])
        with pytest.raises(InputError, match="called 'task'"):
            write_task_bank(bank, tmp_path / "rows.csv", tmp_path / "rewards.csv")
        with pytest.raises(InputError, match="two different files"):
            write_task_bank(self.bank, tmp_path / "rows.csv", tmp_path / "rows.csv")
