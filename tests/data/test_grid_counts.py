"""Rows counted in a dense array, against counting them one by one."""

from collections import Counter

import numpy as np
import polars as pl
import pytest

from kdbirl.data import large_counts as grid_counts
from kdbirl.data.large_counts import CHUNK, MOST_CELLS, WEIGHT, GridTally

NAMES = ("task", "state", "action")
KINDS = {
    "int8": (np.int8, (-100, -2, 0)),
    "uint8": (np.uint8, (0, 200, 7)),
    "int32": (np.int32, (0, 0, 0)),
    "int32, far from zero": (np.int32, (-(2**31), 2**31 - 50, 5)),
    "uint32": (np.uint32, (2**32 - 20, 0, 3)),
    "int64": (np.int64, (-3, 10**6, 0)),
    "int64, the largest": (np.int64, (2**63 - 50, -(2**63), 0)),
    "uint64, the largest": (np.uint64, (2**63 - 8, 2**63 - 40, 0)),
}


def frame_of(dtype, lows, rows=500, seed=0):
    rng = np.random.default_rng(seed)
    sizes = (8, 40, 5)
    columns = [
        np.array([low + int(x) for x in rng.integers(0, n, rows)], dtype=dtype)
        for low, n in zip(lows, sizes, strict=True)
    ]
    return pl.DataFrame(dict(zip(NAMES, columns, strict=True)))


def counted(frame, names):
    tally = GridTally(names)
    return tally.grid if tally.add(frame) else None


def one_by_one(*frames):
    return Counter(row for frame in frames for row in frame.select(NAMES).rows())


def told(counts):
    return {
        tuple(low + int(i) for low, i in zip(counts.lows, place, strict=True)): int(counts.counts[tuple(place)])
        for place in np.argwhere(counts.counts)
    }


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("chunk", [1, 7, 499, 500, 501, grid_counts.CHUNK])
def test_every_row_is_counted_once(kind, chunk, monkeypatch):
    monkeypatch.setattr(grid_counts, "CHUNK", chunk)
    frame = frame_of(*KINDS[kind])
    counts = counted(frame, NAMES)
    assert told(counts) == one_by_one(frame)
    assert counts.occupied == len(one_by_one(frame))


def test_columns_of_different_widths():
    frame = frame_of(np.int32, (0, 0, 0)).with_columns(
        pl.col("state").cast(pl.Int64) + 2**40, pl.col("action").cast(pl.UInt8)
    )
    assert told(counted(frame, NAMES)) == one_by_one(frame)


@pytest.mark.parametrize("kind", KINDS)
def test_rows_may_be_added_frame_by_frame(kind):
    dtype, lows = KINDS[kind]
    info, most = np.iinfo(dtype), min(np.iinfo(dtype).max, 2**63 - 1)
    shifted = [tuple(min(max(low + by, info.min), most - 40) for low in lows) for by in (0, 3, -3)]
    frames = [frame_of(dtype, low, seed=seed) for seed, low in enumerate(shifted)]
    tally = GridTally(NAMES)
    assert all(tally.add(frame) for frame in frames)
    assert told(tally.grid) == one_by_one(*frames)
    assert {row[:3]: row[3] for row in tally.grid.frame().rows()} == one_by_one(*frames)


def test_a_tally_says_when_the_values_spread_too_far():
    tally = GridTally(NAMES)
    near, far = (pl.DataFrame({"task": [0], "state": [at], "action": [0]}) for at in (0, MOST_CELLS))
    assert tally.add(near)
    assert not tally.add(far)


@pytest.mark.parametrize("lows", [(0, 0, 0), (3, -10, 2)])
def test_merging_counts_the_rows_of_both(lows):
    frames = [frame_of(np.int32, (0, 0, 0), seed=1), frame_of(np.int32, lows, seed=2)]
    merged = counted(frames[0], NAMES).merged(counted(frames[1], NAMES))
    assert told(merged) == one_by_one(*frames)


def test_the_frame_has_the_rows_with_their_weights():
    frame = frame_of(np.int32, (-4, 9, 0))
    table = counted(frame, NAMES).frame()
    assert {row[:3]: row[3] for row in table.select(*NAMES, WEIGHT).rows()} == one_by_one(frame)


def test_relabelled_tasks_leave_out_what_has_no_code():
    frame = frame_of(np.int32, (5, 0, 0))
    codes = np.array([2, -1, 0, 1, -1, 3, 4, 5])
    counts = counted(frame, NAMES).relabelled(codes, 6, "(task)")
    expected = {
        (int(codes[task - 5]), *rest): n for (task, *rest), n in one_by_one(frame).items() if codes[task - 5] >= 0
    }
    assert told(counts) == expected
    assert counts.names[0] == "(task)"


def test_relabelled_tasks_that_would_need_too_many_counters_are_a_frame():
    frame = frame_of(np.int32, (5, 0, 0))
    codes = np.array([2, -1, 0, 1, -1, 3, 4, 10**6])
    table = counted(frame, NAMES).relabelled(codes, 10**6 + 1, "(task)")
    assert isinstance(table, pl.DataFrame)
    found = {row[:3]: row[3] for row in table.select("(task)", "state", "action", WEIGHT).rows()}
    assert found == {
        (int(codes[task - 5]), *rest): n for (task, *rest), n in one_by_one(frame).items() if codes[task - 5] >= 0
    }


def test_rows_can_be_taken_back():
    frames = [frame_of(np.int32, (0, 0, 0), seed=1), frame_of(np.int32, (3, -10, 2), seed=2)]
    tally = GridTally(NAMES)
    assert all(tally.add(frame) for frame in frames)
    tally.take_back(frames[1])
    assert told(tally.grid) == one_by_one(frames[0])


@pytest.mark.parametrize(
    "frame",
    [
        pl.DataFrame({"task": [0, 1], "state": [0, MOST_CELLS], "action": [0, 0]}),
        pl.DataFrame({"task": [0, 1], "state": [0.0, 1.0], "action": [0, 0]}),
        pl.DataFrame({"task": [0, None], "state": [0, 1], "action": [0, 0]}),
        pl.DataFrame({"task": [0, 1], "state": pl.Series([2**63, 2**63], dtype=pl.UInt64), "action": [0, 0]}),
    ],
    ids=["too many combinations", "numbers with fractions", "a gap", "more than int64 holds"],
)
def test_others_are_not_counted_here(frame):
    assert counted(frame, NAMES) is None


def test_ranges_that_are_too_wide_together_are_not_merged():
    near, far = (pl.DataFrame({"task": [0], "state": [at], "action": [0]}) for at in (0, MOST_CELLS))
    assert counted(near, NAMES).merged(counted(far, NAMES)) is None


def test_values_beyond_int64_are_not_counted_as_negative_ones():
    tally = GridTally(("a",))
    assert tally.add(pl.DataFrame({"a": [-5, 5]}))
    assert not tally.add(pl.DataFrame({"a": [2**64 - 1]}, schema={"a": pl.UInt64}))
    assert not tally.add(pl.DataFrame({"a": [1]}, schema={"a": pl.Int128}))
    assert tally.add(pl.DataFrame({"a": [4, 5]}, schema={"a": pl.UInt64}))
    assert tally.distinct == tally.grid.occupied == 3


def test_a_value_outside_of_the_grid_in_a_later_chunk_counts_nothing_there():
    """The grid grows then, and every row is counted once."""
    tally = GridTally(("a",))
    assert tally.add(pl.DataFrame({"a": [0, 9]}))
    values = np.arange(3 * CHUNK) % 10
    values[-1] = 11
    assert tally.add(pl.DataFrame({"a": values}))
    expected = np.bincount(np.append(values, [0, 9]), minlength=12)
    np.testing.assert_array_equal(tally.grid.counts, expected)
    assert tally.distinct == 11
    values[-2] = 10**9
    assert not tally.add(pl.DataFrame({"a": values}))
    np.testing.assert_array_equal(tally.grid.counts, expected)
    assert tally.distinct == 11
