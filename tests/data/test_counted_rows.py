"""A bank of whole numbers is counted in one pass: against its rows, however they are cut, and whatever is odd."""

from collections import Counter
from functools import reduce

import numpy as np
import polars as pl
import pytest

import kdbirl as kb
from kdbirl.data import large_pass as bank_pass
from kdbirl.data import large_pass as counted_rows
from kdbirl.data import large_pass as piece_reading
from kdbirl.data import large_pieces as piece_summary
from kdbirl.data import large_rows as row_source
from kdbirl.data import large_samples as row_sampling
from kdbirl.data.large_pass import merged, summarise, summarise_piece
from kdbirl.data.large_rows import ParquetRows
from kdbirl.data.large_summary import BankSummary
from kdbirl.errors import InputError

REWARDS = {"4": [0.0], "5": [1.0], "9": [2.0]}
GIVEN = {"rewards": REWARDS, "state": "state", "action": "action", "discrete_states": True}
GROUP = 100


def rows_of(n=1000, seed=0, high=12):
    rng = np.random.default_rng(seed)
    tasks = np.array([4, 5, 9])[np.repeat(rng.integers(0, 3, n // 10), 10)]
    columns = {"task": tasks, "state": rng.integers(0, high, n), "action": rng.integers(0, 3, n)}
    return pl.DataFrame(columns, schema=dict.fromkeys(columns, pl.Int32))


def opened(frame, folder, **given):
    frame.write_parquet(folder / "rows.parquet", row_group_size=GROUP)
    return kb.stream_task_bank(folder / "rows.parquet", **(GIVEN | given))


def told(bank, found):
    """The rows that a summary has, with their weights, under the tasks' names."""
    rows = found.rows.demonstrations
    tasks = [bank.names[task] for task in found.rows.tasks]
    keys = zip(tasks, rows.states.tolist(), rows.actions.tolist(), strict=True)
    return dict(zip(keys, found.weights.astype(int).tolist(), strict=True))


def one_by_one(frame):
    return Counter((str(task), state, action) for task, state, action in frame.select("task", "state", "action").rows())


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    monkeypatch.setattr(row_source, "PIECE_ROWS", GROUP)


@pytest.fixture
def reads(monkeypatch):
    """How often each piece is read."""
    counts, read = Counter(), ParquetRows.read

    def counting(self, piece, columns, rows):
        counts[piece] += 1
        return read(self, piece, columns, rows)

    monkeypatch.setattr(ParquetRows, "read", counting)
    return counts


@pytest.mark.parametrize("order", ["mixed", "by task"])
@pytest.mark.parametrize("block_rows", [7, 10**6], ids=["many blocks", "one block"])
def test_every_row_is_counted_in_one_reading(order, block_rows, tmp_path, reads):
    frame = rows_of() if order == "mixed" else rows_of().sort("task", "state")
    bank = opened(frame, tmp_path, block_rows=block_rows)
    found = summarise(bank, 0)
    assert found.exact
    assert told(bank, found) == one_by_one(frame)
    assert set(reads.values()) == {1}
    workers = reduce(merged, (summarise_piece(bank, piece, 0) for piece in range(bank.source.n_pieces)), None)
    there = BankSummary.of(bank, workers)
    assert told(bank, there) == told(bank, found)
    np.testing.assert_array_equal(there.rows_per_task, found.rows_per_task)
    assert [facts.moments.mean.tolist() for facts in there.facts if facts.moments] == [
        facts.moments.mean.tolist() for facts in found.facts if facts.moments
    ]


@pytest.mark.parametrize("at", [0, 555, 999])
def test_a_value_far_away_costs_no_second_pass(at, tmp_path, reads):
    frame = rows_of()
    states = frame["state"].to_numpy().copy()
    states[at] = 2**30
    frame = frame.with_columns(pl.Series("state", states))
    bank = opened(frame, tmp_path, discrete_states=None)
    found = summarise(bank, 0)
    assert found.exact
    assert found.n_rows == 1000
    assert found.weights.sum() == 1000
    assert reads.total() <= bank.source.n_pieces + 4  # those that were being read when counting ended


def test_rows_that_are_too_many_to_be_kept_are_sampled_from_there_on(tmp_path, reads, monkeypatch):
    monkeypatch.setattr(piece_summary, "DISTINCT_KEPT", 150)
    frame = rows_of(high=1000)
    bank = opened(frame, tmp_path)
    found = summarise(bank, 0)
    expected = [frame.filter(pl.col("task") == task).height for task in (4, 5, 9)]
    np.testing.assert_array_equal(found.rows_per_task, expected)
    assert reads.total() <= bank.source.n_pieces + 4


def test_few_distinct_rows_far_apart_are_all_kept(tmp_path):
    frame = rows_of(300)
    shifted = frame.with_columns(pl.col("state") + pl.Series(np.repeat([0, 2**24, 2**25], 100)).cast(pl.Int32))
    shifted.write_parquet(tmp_path / "rows.parquet", row_group_size=300)
    bank = kb.stream_task_bank(tmp_path / "rows.parquet", **(GIVEN | {"discrete_states": None}), block_rows=25)
    found = summarise(bank, 0)
    assert found.exact
    assert found.weights.sum() == 300
    assert len(found.weights) == len(one_by_one(shifted))


def test_only_small_pieces_wait_in_memory(tmp_path, monkeypatch):
    """A large row group is decoded batch by batch, never as a whole."""
    waiting = []
    monkeypatch.setattr(bank_pass._Pass, "counted", lambda self, pieces: waiting.append(pieces) or (None, pieces))
    summarise(opened(rows_of(), tmp_path))
    assert waiting == [range(10)]
    waiting.clear()
    monkeypatch.setattr(piece_reading, "SUMMARY_BLOCKS", 1)
    found = summarise(opened(rows_of(), tmp_path, block_rows=10))
    assert (waiting, found.n_rows) == ([], 1000)


def test_labels_without_a_reward_are_named(tmp_path):
    frame = rows_of().with_columns(pl.col("task").replace(9, 77))
    with pytest.raises(InputError, match=r"77"):
        summarise(opened(frame, tmp_path), 0)


@pytest.mark.parametrize("kind", [pl.Int32, pl.Float64])
def test_a_task_without_a_sampled_episode_keeps_its_rows(kind, tmp_path, monkeypatch):
    """Episodes are sampled by their key; a rare task may have none, and its counted or sampled rows stand for it."""
    monkeypatch.setattr(row_sampling, "PLAYED_ROWS", 10)
    episodes = np.repeat(np.arange(100), 10)
    frame = rows_of().with_columns(
        pl.Series("task", np.where(episodes == 50, 4, np.where(episodes % 2, 5, 9))),
        pl.Series("episode", episodes),
        pl.Series("step", np.tile(np.arange(10), 100)),
        pl.col("state").cast(kind),
    )
    found = [summarise(opened(frame, tmp_path, discrete_states=None), seed) for seed in range(8)]
    for one in found:
        plays = one.plays
        assert set(plays.tasks.tolist()) == {0, 1, 2}
        own = [set(plays.demonstrations.episodes[plays.tasks == task].tolist()) for task in range(3)]
        assert not own[0] & own[1]
    assert any(50 not in one.plays.demonstrations.episodes for one in found)


def test_few_long_episodes_of_which_none_is_sampled(tmp_path, monkeypatch):
    monkeypatch.setattr(row_sampling, "PLAYED_ROWS", 1)
    frame = rows_of().with_columns(pl.Series("episode", np.repeat([0, 1], 500)))
    for seed in range(5):
        assert set(summarise(opened(frame, tmp_path), seed).plays.tasks.tolist()) == {0, 1, 2}


def test_an_episode_without_a_label_is_named(tmp_path):
    frame = rows_of().with_columns(pl.Series("episode", [*range(150), None, *range(849)]))
    with pytest.raises(InputError, match=r"row 151 of .*rows.parquet, column 'episode' is empty"):
        summarise(opened(frame, tmp_path), 0)


@pytest.mark.parametrize("kind", [pl.Int64, pl.Float64])
def test_empty_partitions_of_a_dask_frame(kind):
    dask = pytest.importorskip("dask.dataframe")
    pandas = rows_of(400).with_columns(pl.col("state").cast(kind)).with_row_index("number").to_pandas()
    frame = dask.from_pandas(pandas, npartitions=4)
    given = GIVEN | {"discrete_states": None}
    filtered = kb.stream_task_bank(frame[frame["number"] >= 200], **given)
    assert filtered.source.n_pieces == 4
    assert summarise_piece(filtered, 0, 0) is None
    assert summarise(filtered).n_rows == 200
    with pytest.raises(InputError, match="has no rows"):
        summarise(kb.stream_task_bank(frame[frame["number"] > 400], **given), 0)


@pytest.mark.parametrize("played", [10**6, 20], ids=["all plays wait", "some are chosen on the way"])
def test_files_whose_tasks_are_of_different_kinds(played, tmp_path, monkeypatch):
    """Signed and unsigned numbers have no common kind that NumPy knows."""
    monkeypatch.setattr(row_sampling, "PLAYED_ROWS", played)
    frame, kinds = rows_of(), (pl.Int64, pl.UInt64, pl.Int8, pl.UInt64)
    for number, kind in enumerate(kinds):
        part = frame[250 * number : 250 * (number + 1)].with_columns(pl.col("task").cast(kind))
        part.write_parquet(tmp_path / f"{number}.parquet", row_group_size=GROUP)
    bank = kb.stream_task_bank(tmp_path, **GIVEN)
    found = summarise(bank, 0)
    assert found.exact
    assert told(bank, found) == one_by_one(frame)
    frame.write_parquet(tmp_path / "all.parquet")
    alike = summarise(kb.stream_task_bank(tmp_path / "all.parquet", **GIVEN), 0)
    np.testing.assert_array_equal(found.rows_per_task, alike.rows_per_task)
    assert set(found.plays.tasks.tolist()) == {0, 1, 2}
    assert found.plays.demonstrations.n_rows <= 1000


def test_plays_are_chosen_on_the_way_where_they_are_many(tmp_path, monkeypatch):
    """Else those of a hundred million rows would wait in memory."""
    monkeypatch.setattr(row_sampling, "PLAYED_ROWS", 20)
    monkeypatch.setattr(row_sampling, "RUN", 5)
    bank, heights = opened(rows_of(), tmp_path), []
    choose = counted_rows.CountedRows._all_plays

    def watched(self):
        heights.append(sum(part.height for part in self.plays))
        return choose(self)

    monkeypatch.setattr(counted_rows.CountedRows, "_all_plays", watched)
    monkeypatch.setattr(row_sampling, "play_rate", lambda n_rows: 1.0)
    found = summarise(bank, 0)
    assert len(heights) > 3
    assert max(heights) <= 4 * 20 + GROUP + 30
    assert found.plays.demonstrations.n_rows <= 3 * (20 // 3 + 5)
