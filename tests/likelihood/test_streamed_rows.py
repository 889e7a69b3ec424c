"""A streamed block's rows, as they are summed: sorted by task, and collapsed where they repeat."""

from collections import Counter

import numpy as np
import pytest

import kdbirl as kb
from kdbirl.data.large import RowBlock
from kdbirl.likelihood.large_sums import _sorted_by_task


def block_of(states: np.ndarray, tasks: np.ndarray, **given: int) -> RowBlock:
    return RowBlock(kb.Demonstrations(states=states, **given), tasks)


def counted(rows: np.ndarray, weights: np.ndarray, tasks: np.ndarray) -> Counter[tuple[float, ...]]:
    """The weight of each (task, row), one after the other."""
    found: Counter[tuple[float, ...]] = Counter()
    for row, weight, task in zip(rows, weights, tasks, strict=True):
        found[(float(task), *row.tolist())] += weight
    return found


@pytest.mark.parametrize("repeats", [1, 40])
@pytest.mark.parametrize("discrete", [True, False])
@pytest.mark.parametrize("in_order", [True, False])
def test_every_row_of_a_block_counts_for_its_task(repeats: int, discrete: bool, in_order: bool) -> None:
    rng = np.random.default_rng(0)
    tasks = rng.integers(0, 3, 300)
    if discrete:
        states = rng.permutation(300) // repeats
        features: kb.FeatureMap = kb.OneHot()
        block = block_of(states, np.sort(tasks) if in_order else tasks, n_states=300)
    else:
        states = (rng.permutation(300) // repeats)[:, None] * np.array([1.0, -0.5])
        features = kb.Identity()
        block = block_of(states, np.sort(tasks) if in_order else tasks)
    fitted = features.fit(block.demonstrations)
    rows, weights, of_task = _sorted_by_task(block, fitted, tuple(range(len(fitted.names))))
    assert (np.diff(of_task) >= 0).all()
    whole = fitted(block.demonstrations)
    assert counted(rows, weights, of_task) == counted(whole, np.ones(300), block.tasks)
    assert (len(rows) < 300) is (repeats > 1)


def test_rows_of_a_task_stay_in_their_order() -> None:
    """Sums are then the same to the bit, whichever sort NumPy takes."""
    states = np.random.default_rng(1).normal(size=(500, 1))
    tasks = np.random.default_rng(2).integers(0, 4, 500)
    block = block_of(states, tasks)
    rows, weights, of_task = _sorted_by_task(block, kb.Identity().fit(block.demonstrations), (0,))
    np.testing.assert_array_equal(rows, np.concatenate([states[tasks == task] for task in range(4)]))
    np.testing.assert_array_equal(of_task, np.sort(tasks))
    assert (weights == 1).all()
