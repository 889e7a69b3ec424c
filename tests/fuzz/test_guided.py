"""The campaign that chooses inputs by what they reach does reach more, and keeps what it finds."""

import sys

import pytest

from .guided import guided_campaign

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="atheris is built for Linux alone")


def test_inputs_reach_branches_that_the_seeds_do_not(tmp_path):
    found = guided_campaign("world", 1, 150, tmp_path / "work", tmp_path / "finds")
    assert found["accepted"] + found["refused"] == 149  # libFuzzer's first input is empty
    assert found["listed"] == {}
    first, last = found["branches"]
    assert last > first > 50


def test_a_find_is_counted_and_kept(tmp_path, monkeypatch):
    """With a limit that even good inputs exceed."""
    monkeypatch.setenv("KDBIRL_FUZZ_SECONDS", "0")
    found = guided_campaign("request", 1, 30, tmp_path / "work", tmp_path / "finds")
    assert found["find"] == 29
    assert found["listed"] == {"hang": 29}
    assert len(list((tmp_path / "finds" / "request").glob("hang-?"))) == 3
