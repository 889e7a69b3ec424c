"""Cells that are computed side by side: fixed groups, whatever is stored already."""

import pytest

from kdbirl.evaluation.cells import CellStore, get_all

KEYS = [{"seed": seed} for seed in range(5)]


def asked(store, at_once=2, keys=KEYS):
    groups = []

    def compute(group):
        groups.append(list(group))
        return [{"value": 10 * place} for place in group]

    return get_all(store, keys, compute, at_once), groups


def test_missing_cells_are_computed_in_groups_and_then_read(tmp_path):
    store = CellStore(tmp_path)
    cells, groups = asked(store)
    assert [cell["value"] for cell in cells] == [0, 10, 20, 30, 40]
    assert groups == [[0, 1], [2, 3], [4]]
    assert asked(store) == (cells, [])


def test_a_group_that_was_interrupted_is_computed_whole(tmp_path):
    store = CellStore(tmp_path)
    store.get(KEYS[0], lambda: {"value": 0})
    store.get(KEYS[1], lambda: {"value": 10})
    store.get(KEYS[3], lambda: {"value": 30})
    cells, groups = asked(store)
    assert groups == [[2, 3], [4]]
    assert [cell["value"] for cell in cells] == [0, 10, 20, 30, 40]


def test_a_failure_stores_nothing(tmp_path):
    store = CellStore(tmp_path)
    with pytest.raises(ZeroDivisionError):
        get_all(store, KEYS, lambda group: 1 / 0, 5)
    assert not list(tmp_path.iterdir())
