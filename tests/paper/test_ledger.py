"""The ledger of claims, and the store that lets a run go on."""

import json
from dataclasses import replace

import pytest
from paper.ledger import Claim, opposite, read_ledger, update_ledger, withheld

from kdbirl.errors import FileProblem, InputError
from kdbirl.evaluation.cells import CellStore

CLAIM = Claim(
    "fig1", "narrow", "ours", 'it is "narrow", and √2 wide', "Section 5", "sd", 0.1, 0.05, 0.15, 12, "holds", "it is"
)


def test_rows_come_back_as_they_were(tmp_path):
    rows = [CLAIM, replace(CLAIM, variant="printed", number=1 / 3, verdict="does not hold")]
    update_ledger(tmp_path / "claims.csv", rows)
    assert read_ledger(tmp_path / "claims.csv") == rows


def test_an_experiment_replaces_its_own_rows_only(tmp_path):
    path = tmp_path / "claims.csv"
    other = replace(CLAIM, experiment="fig2")
    update_ledger(path, [CLAIM, replace(CLAIM, name="gone")])
    update_ledger(path, [other])
    update_ledger(path, [replace(CLAIM, number=0.2)])
    assert read_ledger(path) == [other, replace(CLAIM, number=0.2)]


def test_a_foreign_file_is_refused_and_kept(tmp_path):
    path = tmp_path / "claims.csv"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(FileProblem, match=r"claims\.csv is not a ledger of claims"):
        update_ledger(path, [CLAIM])
    assert path.read_text() == "a,b\n1,2\n"


def test_no_verdict_from_a_small_run():
    assert withheld(CLAIM, quick=False) == CLAIM
    assert withheld(CLAIM, quick=True).verdict == "not decided (quick)"
    few = withheld(replace(CLAIM, seeds=9), quick=False)
    assert few.verdict == "cannot be decided"
    assert few.why == "9 seeds; 10 are needed for a verdict"


def test_the_contrary():
    assert [opposite(v) for v in ("holds", "does not hold", "cannot be decided")] == [
        "does not hold",
        "holds",
        "cannot be decided",
    ]


@pytest.mark.parametrize("change", [{"verdict": "maybe"}, {"variant": "mine"}])
def test_only_known_words(change):
    with pytest.raises(InputError, match="should be one of"):
        replace(CLAIM, **change)


def test_a_cell_is_computed_once(tmp_path):
    store, calls = CellStore(tmp_path / "cells"), []

    def compute():
        calls.append(1)
        return {"x": 0.1, "pair": [1, 2]}

    assert store.get({"m": 1}, compute) == store.get({"m": 1}, compute) == {"x": 0.1, "pair": [1, 2]}
    assert len(calls) == 1
    store.get({"m": 2}, compute)
    assert len(calls) == 2


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"result": 3}', "null"])
def test_a_damaged_cell_is_computed_again(tmp_path, damage):
    store = CellStore(tmp_path)
    store.get({"m": 1}, lambda: {"x": 1})
    (file,) = tmp_path.glob("*.json")
    file.write_text(damage)
    assert store.get({"m": 1}, lambda: {"x": 2}) == {"x": 2}
    assert json.loads(file.read_text())["result"] == {"x": 2}


def test_a_failed_cell_leaves_nothing(tmp_path):
    with pytest.raises(ZeroDivisionError):
        CellStore(tmp_path).get({"m": 1}, lambda: {"x": 1 / 0})
    assert list(tmp_path.iterdir()) == []


def test_the_commit_is_part_of_the_name(tmp_path):
    CellStore(tmp_path, "one").get({"m": 1}, lambda: {"x": 1})
    assert not CellStore(tmp_path, "another").has({"m": 1})
    assert CellStore(tmp_path, "one").has({"m": 1})
