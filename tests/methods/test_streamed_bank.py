"""A streamed bank gives the numbers of the same bank in memory."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

import kdbirl as kb
from kdbirl.data import large_pieces as piece_summary
from kdbirl.data import large_rows as row_source
from kdbirl.data import large_samples as row_sampling
from kdbirl.data.large import RowBlock
from kdbirl.data.large_pass import summarise
from kdbirl.likelihood import large_sums as all_rows
from kdbirl.likelihood import large_sums as streamed_rows
from kdbirl.likelihood.large_sums import TABLES_KEPT

from .streamed import CONTINUOUS, DISCRETE, expert, table, written

PRIOR = kb.Uniform(0, 1)
POINTS = np.random.default_rng(3).random((7, 2))
GIVEN = (0.5, 0.3)


@pytest.fixture(scope="module")
def frame():
    return table(3000)


@pytest.fixture(scope="module")
def directory(frame, tmp_path_factory):
    return written(tmp_path_factory.mktemp("bank") / "rows", frame)


@pytest.fixture
def large(monkeypatch):
    """Limits that make a few thousand rows a bank of many pieces that does not fit into memory."""
    monkeypatch.setattr(row_source, "PIECE_ROWS", 300)
    monkeypatch.setattr(row_sampling, "ROWS_SAMPLED", 600)
    monkeypatch.setattr(row_sampling, "FEWEST_OF_A_TASK", 5)
    monkeypatch.setattr(row_sampling, "PLAYED_ROWS", 900)
    monkeypatch.setattr(piece_summary, "DISTINCT_KEPT", 400)


def fitted(bank, **choices):
    return kb.KDBIRL(prior=PRIOR, **{"bandwidth": GIVEN, **choices}).fit(bank)


@pytest.mark.parametrize(
    "choices",
    [
        {},
        {"conditional": "action", "task_weights": "equal"},
        {"features": kb.Standardize(kb.Identity()), "kernel": "laplace"},
        {"features": kb.Columns(["y"]) + kb.OneHotActions(), "kernel": "epanechnikov", "bandwidth": (4.0, 0.3)},
    ],
    ids=["default", "conditional", "standardised", "concatenated"],
)
def test_the_likelihood_is_that_of_all_rows(large, directory, frame, choices):
    in_memory = fitted(kb.read_task_bank(directory, **CONTINUOUS), **choices)
    streamed = fitted(kb.stream_task_bank(directory, **CONTINUOUS, block_rows=128), **choices)
    assert streamed.fitted.ckde.all_rows is not None
    assert len(streamed.fitted.ckde.rows) < frame.height / 2
    shown = expert(frame)
    expected = in_memory.log_likelihood(shown, POINTS)
    np.testing.assert_allclose(streamed.log_likelihood(shown, POINTS), expected, rtol=1e-11)
    np.testing.assert_array_equal(streamed.fitted.ckde.rows_per_task, in_memory.fitted.ckde.rows_per_task)
    assert streamed.fitted.features.names == in_memory.fitted.features.names


def test_posterior_and_support_are_those_of_all_rows(large, directory, frame):
    shown = expert(frame)
    in_memory = fitted(kb.read_task_bank(directory, **CONTINUOUS)).posterior(shown, seed=1)
    streamed = fitted(kb.stream_task_bank(directory, **CONTINUOUS)).posterior(shown, seed=1)
    np.testing.assert_allclose(streamed.draws, in_memory.draws, rtol=1e-8)
    of_support = [post.settings["diagnosis"]["support"]["effective_rows"] for post in (streamed, in_memory)]
    np.testing.assert_allclose(*of_support, rtol=1e-9)
    assert any("sampled rows stand for 3,000" in note for note in streamed.settings["notes"])


def test_sizes_of_blocks_pieces_and_files_change_nothing(large, directory, frame, tmp_path, monkeypatch):
    shown = expert(frame)
    values = [
        fitted(kb.stream_task_bank(directory, **CONTINUOUS, block_rows=n)).log_likelihood(shown, POINTS)
        for n in (7, 3000)
    ]
    monkeypatch.setattr(row_source, "PIECE_ROWS", 10_000)
    one = written(tmp_path / "one", frame, files=1, row_group=frame.height)
    values.append(fitted(kb.stream_task_bank(one, **CONTINUOUS)).log_likelihood(shown, POINTS))
    np.testing.assert_allclose(values[1:], [values[0]] * 2, rtol=1e-12)


def test_a_discrete_bank_is_counted_and_never_read_again(large, directory, frame, monkeypatch):
    in_memory = fitted(kb.read_task_bank(directory, **DISCRETE))
    bank = kb.stream_task_bank(directory, **DISCRETE)
    streamed = fitted(bank)
    assert streamed.fitted.ckde.all_rows is None
    monkeypatch.setattr(type(bank.source), "read", None)
    shown = expert(frame, cells=True)
    expected = in_memory.log_likelihood(shown, POINTS)
    np.testing.assert_allclose(streamed.log_likelihood(shown, POINTS), expected, rtol=1e-12)
    assert streamed.fitted.ckde.weights.sum() == frame.height


@pytest.mark.parametrize("rule", ["paper", "median", "silverman", "cv", "loto"])
def test_rules_choose_the_same_where_all_rows_fit_into_the_sample(directory, rule):
    in_memory = fitted(kb.read_task_bank(directory, **CONTINUOUS), bandwidth=rule).fitted.choices.for_rows(20)
    streamed = fitted(kb.stream_task_bank(directory, **CONTINUOUS), bandwidth=rule).fitted.choices.for_rows(20)
    np.testing.assert_allclose(streamed.bandwidths.h, in_memory.bandwidths.h, rtol=1e-9)
    np.testing.assert_allclose(streamed.bandwidths.h_reward, in_memory.bandwidths.h_reward, rtol=1e-9)
    assert streamed.power == pytest.approx(in_memory.power, rel=1e-12)  # sums in another order


def test_finished_sums_are_kept_and_not_made_again(large, directory, frame, tmp_path, monkeypatch):
    """Even if they took no time: one call of the sums is the probe that names their file."""
    calls, real = [], streamed_rows.task_log_sums

    def counted(*arguments):
        calls.append(len(arguments[1]))
        return real(*arguments)

    monkeypatch.setattr(streamed_rows, "task_log_sums", counted)
    found = []
    for _ in range(2):
        bank = kb.stream_task_bank(directory, **CONTINUOUS, block_rows=128)
        with kb.keep_checkpoints(tmp_path / "sums"):
            found.append(fitted(bank).log_likelihood(expert(frame), POINTS))
        found.append(len(calls))
    assert found[1] > 2
    assert found[3] == found[1]
    np.testing.assert_array_equal(found[0], found[2])


def test_only_the_last_tables_are_kept(large, directory, frame, monkeypatch):
    """Rows are read again for a table that was asked for long ago, not for one of just now; memory stays bounded."""
    calls, real = [], streamed_rows.task_log_sums
    monkeypatch.setattr(streamed_rows, "task_log_sums", lambda *given: calls.append(1) or real(*given))
    model = fitted(kb.stream_task_bank(directory, **CONTINUOUS, block_rows=3000))
    several = [expert(frame[500 * i :], rows=8) for i in range(TABLES_KEPT + 1)]

    def asked(shown):
        calls.clear()
        return model.log_likelihood(shown, POINTS), len(calls)

    found = [asked(shown) for shown in several]
    assert all(count > 0 for _, count in found)
    for i in (-1, 1):
        value, count = asked(several[i])
        np.testing.assert_array_equal(value, found[i][0])
        assert count == 0
    value, count = asked(several[0])
    np.testing.assert_array_equal(value, found[0][0])
    assert count > 0
    assert len(model.fitted.ckde.all_rows._kept._tables) == TABLES_KEPT

    monkeypatch.setattr(all_rows, "BYTES_KEPT", 1)  # fewer of large tables, but what one likelihood is made of
    asked(several[1])
    assert [asked(several[i])[1] > 0 for i in (0, 1, 2)] == [False, False, True]


@pytest.mark.parametrize("digits", [1, 9])
def test_rows_of_a_block_are_collapsed_where_they_repeat(digits):
    """Numbers that a few digits were kept of are summed once, with weights; each task has its own."""
    rng = np.random.default_rng(0)
    states, tasks = np.round(rng.uniform(0.05, 0.95, 400), digits)[:, None], rng.integers(2, size=400)
    features = kb.Identity().fit(kb.TaskBank.from_arrays(states, None, tasks, np.eye(2)))
    block = RowBlock(kb.Demonstrations(states), tasks)
    rows, weights, of_task = streamed_rows._sorted_by_task(block, features, (0,))
    assert (np.diff(of_task) >= 0).all()
    for k in (0, 1):
        own, counts = np.unique(states[tasks == k], return_counts=True)
        order = np.argsort(rows[of_task == k, 0])
        np.testing.assert_array_equal(rows[of_task == k, 0][order], own)
        np.testing.assert_array_equal(weights[of_task == k][order], counts)


def test_a_bank_without_a_summary_is_what_is_sent_to_others(directory):
    bank = kb.stream_task_bank(directory, **CONTINUOUS)
    summarise(bank, 0)
    assert bank._summaries
    assert replace(bank).fingerprint() == bank.fingerprint()
    assert bank.__getstate__()["_summaries"] == {}


@pytest.mark.parametrize("lowest", [2**53, 2**63 - 3, 2**63, 2**64 - 3])
def test_large_ids_and_steps_are_streamed_as_they_are_read(tmp_path, lowest):
    """NumPy counts up to 2^63 in floats, and floats round steps in nanoseconds."""
    rng, dtype = np.random.default_rng(0), pl.Int64 if lowest + 2 < 2**63 else pl.UInt64
    tasks = rng.permutation(np.repeat(np.arange(3), 20))
    columns = {"task": tasks, "episode": tasks, "step": rng.permutation(60)}
    large = {
        name: pl.Series([lowest + int(value) % 3 for value in values], dtype=dtype) for name, values in columns.items()
    }
    large["step"] = pl.Series([1_700_000_000_000_000_000 + int(value) for value in columns["step"]])
    frame = pl.DataFrame({**large, "x": np.arange(60.0)})
    frame.write_parquet(tmp_path / "rows.parquet", row_group_size=7)
    asked = {"rewards": {str(lowest + k): [float(k)] for k in range(3)}, "state": "x"}
    streamed = summarise(kb.stream_task_bank(tmp_path / "rows.parquet", **asked, block_rows=5))
    read = kb.read_task_bank(frame, **asked)
    np.testing.assert_array_equal(streamed.plays.demonstrations.states, read.demonstrations.states)
    np.testing.assert_array_equal(streamed.plays.tasks, read.tasks)
    np.testing.assert_array_equal(streamed.rows_per_task, [20, 20, 20])
    expected = sorted(range(60), key=lambda row: (tasks[row], columns["step"][row]))
    np.testing.assert_array_equal(read.demonstrations.states[:, 0], expected)
