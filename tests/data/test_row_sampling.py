"""Which episodes of a streamed bank are kept: a function of the seed and the rows, not of how they are read."""

from functools import reduce

import numpy as np
import polars as pl
import pytest
from scipy import stats

import kdbirl as kb
from kdbirl.data import large_pieces as piece_summary
from kdbirl.data import large_pieces as variable_facts
from kdbirl.data import large_rows as row_source
from kdbirl.data import large_samples as row_sampling
from kdbirl.data.large_pass import summarise, summarise_piece
from kdbirl.data.large_pieces import PieceSummary
from kdbirl.data.large_samples import RUN, keys, some_episodes
from kdbirl.data.large_summary import BankSummary
from kdbirl.data.tables import Part, Table
from kdbirl.errors import InputError

REWARDS = {"0": [0.0], "1": [1.0], "2": [2.0]}


def table_of(frame):
    return Table(frame, (Part("rows", frame.height),), tuple(frame.columns))


@pytest.mark.parametrize("kind", ["in order", "mixed", "text"])
def test_episodes_are_chosen_by_a_hash_of_their_number(kind):
    rng = np.random.default_rng(0)
    numbers = rng.integers(0, 60, 500) if kind == "mixed" else np.repeat(np.arange(50), 10)
    label = pl.Series("episode", [f"e{n}" for n in numbers] if kind == "text" else numbers)
    hashed = label.hash(4).to_numpy() if kind == "text" else numbers
    rows, key = some_episodes(table_of(label.to_frame()), "episode", 2, 0, 4, 8 * 3 * row_sampling.PLAYED_ROWS)
    expected = keys(hashed, 4, 3)  # of each row apart
    kept = np.flatnonzero(expected <= np.uint64(2.0**64 / 3))
    assert 0 < len(kept) < 500
    np.testing.assert_array_equal(rows, kept)
    np.testing.assert_array_equal(key, expected[kept])


def test_without_episodes_runs_of_neighbours_are_chosen_wherever_a_block_begins():
    frame = pl.DataFrame({"x": np.arange(40 * RUN + 5)})
    known = 8 * 3 * row_sampling.PLAYED_ROWS
    whole, keys_of_whole = some_episodes(table_of(frame), None, 1, 0, 7, known)
    assert 0 < len(whole) < frame.height
    found = []
    for first in range(0, frame.height, 3000):
        rows, key = some_episodes(table_of(frame[first : first + 3000]), None, 1, first, 7, known)
        found.append((first + rows, key))
    np.testing.assert_array_equal(np.concatenate([rows for rows, _ in found]), whole)
    np.testing.assert_array_equal(np.concatenate([key for _, key in found]), keys_of_whole)


@pytest.mark.parametrize("kind", ["counted", "sampled"])
def test_plays_do_not_depend_on_how_pieces_are_merged(kind, tmp_path, monkeypatch):
    monkeypatch.setattr(row_sampling, "PLAYED_ROWS", 150)
    monkeypatch.setattr(row_source, "PIECE_ROWS", 100)
    monkeypatch.setattr(piece_summary, "DISTINCT_KEPT", 50)
    monkeypatch.setattr(row_sampling, "ROWS_SAMPLED", 300)
    monkeypatch.setattr(row_sampling, "FEWEST_OF_A_TASK", 5)
    rng = np.random.default_rng(1)
    episodes = np.repeat(np.arange(200), 10)
    x = rng.integers(0, 9, 2000) if kind == "counted" else rng.normal(size=2000)
    frame = pl.DataFrame({"task": episodes % 3, "episode": episodes, "x": x})
    frame.write_parquet(tmp_path / "rows.parquet", row_group_size=100)

    def bank():
        return kb.stream_task_bank(tmp_path / "rows.parquet", rewards=REWARDS, state="x")

    pieces = [summarise_piece(bank(), piece, 3) for piece in range(bank().source.n_pieces)]
    assert len(pieces) == 20
    halves = [reduce(PieceSummary.merged, part) for part in (pieces[:13], pieces[13:])]
    ways = [summarise(bank(), 3), BankSummary.of(bank(), reduce(PieceSummary.merged, pieces))]
    ways.append(BankSummary.of(bank(), halves[0].merged(halves[1])))
    assert {way.exact for way in ways} == {kind == "counted"}
    plays = [way.plays for way in ways]
    assert 150 <= plays[0].n_rows < 400
    for other in plays[1:]:
        np.testing.assert_array_equal(other.demonstrations.states, plays[0].demonstrations.states)
        np.testing.assert_array_equal(other.demonstrations.episodes, plays[0].demonstrations.episodes)
        np.testing.assert_array_equal(other.tasks, plays[0].tasks)


@pytest.mark.parametrize("discrete", [True, False])
def test_the_sample_of_many_small_blocks_is_that_of_all_rows(discrete, tmp_path, monkeypatch):
    """Blocks are counted at first, and are as large as each other: each must draw for itself."""
    monkeypatch.setattr(piece_summary, "DISTINCT_KEPT", 50)
    monkeypatch.setattr(row_sampling, "ROWS_SAMPLED", 1000)
    monkeypatch.setattr(row_sampling, "FEWEST_OF_A_TASK", 5)
    monkeypatch.setattr(row_source, "PIECE_ROWS", 60)
    rng = np.random.default_rng(0)
    x = rng.permutation(6000) if discrete else rng.normal(size=6000)
    frame = pl.DataFrame({"task": rng.integers(0, 3, 6000), "x": x})
    frame.write_parquet(tmp_path / "rows.parquet", row_group_size=60)
    bank = kb.stream_task_bank(tmp_path / "rows.parquet", rewards=REWARDS, state="x", block_rows=5)
    found = summarise(bank, 0)
    assert not found.exact
    sample = found.rows.demonstrations.states[:, 0]
    assert 500 < len(sample) < 4000
    assert stats.ks_2samp(sample, x).pvalue > 1e-3  # was below 1e-30
    np.testing.assert_allclose(np.bincount(found.rows.tasks, found.weights), np.bincount(frame["task"]))


def test_discrete_states_below_zero_are_told_apart_up_to_a_number(tmp_path, monkeypatch):
    """They are numbered by their rank, which a block alone does not know."""
    monkeypatch.setattr(piece_summary, "DISTINCT_KEPT", 50)
    monkeypatch.setattr(variable_facts, "MOST_LEVELS", 100)
    frame = pl.DataFrame({"task": np.arange(600) % 3, "cell": np.arange(600) - 300})
    frame.write_parquet(tmp_path / "rows.parquet", row_group_size=60)
    given = {"rewards": REWARDS, "state": "cell", "discrete_states": True}
    with pytest.raises(InputError, match=r"Column 'cell': .* 100 discrete states apart .* Number them from 0"):
        summarise(kb.stream_task_bank(tmp_path / "rows.parquet", **given), 0)
    frame.with_columns(pl.col("cell") + 300).write_parquet(tmp_path / "rows.parquet", row_group_size=60)
    assert summarise(kb.stream_task_bank(tmp_path / "rows.parquet", **given), 0).n_rows == 600
