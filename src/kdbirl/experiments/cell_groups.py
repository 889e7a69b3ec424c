"""Cells that are computed side by side, in groups that do not depend on what is stored already."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from kdbirl.experiments.cell_store import Cell, CellStore


def get_all(
    store: CellStore,
    keys: Sequence[Mapping[str, Any]],
    compute: Callable[[Sequence[int]], Sequence[Cell]],
    at_once: int,
) -> list[Cell]:
    """The stored or computed results of `keys`; `compute` is given the places of `at_once` of them.

    A group of which any cell is missing is computed whole: what is computed side by side is then the same wherever a
    run was interrupted, and so are the results.
    """
    found: list[Cell] = []
    for start in range(0, len(keys), at_once):
        group = range(start, min(start + at_once, len(keys)))
        if not all(store.has(keys[place]) for place in group):
            for place, cell in zip(group, compute(group), strict=True):
                store.get(keys[place], partial(dict, cell))
        found += [store.get(keys[place], dict) for place in group]  # all are stored now
    return found
