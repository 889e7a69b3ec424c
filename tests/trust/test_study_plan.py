"""What more tasks or rows give, measured on parts of the bank."""

import numpy as np
import pytest

import kdbirl as kb
from kdbirl.errors import InputError
from kdbirl.trust.held_out import HeldOutTasks
from kdbirl.trust.study_plan import PlannedSize, StudyPlan, plan_study, planned_sizes

from .test_loto import shifted_normals


def fitted_to(bank):
    return kb.KDBIRL(prior=kb.Uniform(-2, 2), features=kb.Identity(), bandwidth=(0.5, 0.5)).fit(bank).fitted


def plan_of(bank, n):
    fitted = fitted_to(bank)
    return plan_study(fitted.ckde, fitted.choices.plays, fitted.prior, fitted.choices.start, n, bank.reward_names)


def test_more_rows_explain_more_of_the_variance():
    plan = plan_of(shifted_normals(tasks=17, episodes=10, seed=4), 12)
    assert [size.rows for size in plan.by_rows] == [3, 6, 12, 24, 48]
    assert plan.by_rows[-1].contraction > plan.by_rows[0].contraction + 0.1
    assert [size.tasks for size in plan.by_tasks] == [4, 8, 16, 32]
    assert [size.measured for size in plan.by_tasks] == [True, True, True, False]
    assert plan.by_tasks[2] == plan.by_rows[2]
    assert all(len(line) <= 80 for line in plan.describe()[2:])


def test_rows_stop_at_what_a_task_has():
    plan = plan_of(shifted_normals(tasks=9, episodes=2, steps=10), 15)
    assert max(size.rows for size in plan.by_rows) == 20


def test_a_part_of_the_other_tasks_is_drawn_anew_for_each_play_and_never_the_task_itself():
    fitted = fitted_to(shifted_normals(tasks=10))
    whole = HeldOutTasks.of(fitted.ckde, fitted.choices.plays, np.arange(10), 20, 1, np.zeros((1, 1)))
    part = whole.thinned(4, 0)
    assert (part.kept.sum(axis=1) == 4).all()
    assert not part.kept[np.arange(10), np.arange(10)].any()
    assert len(np.unique(part.kept, axis=0)) > 5


def sizes(scores, tasks, rows):
    return tuple(PlannedSize(k, n, 0.5, score, 0.1, 0.9) for score, k, n in zip(scores, tasks, rows, strict=True))


@pytest.mark.parametrize(
    ("by_tasks", "by_rows", "advice"),
    [
        ((0.3, 1.1), (0.8, 1.1), "more training tasks would help most"),
        ((1.0, 0.9), (0.3, 0.9), "more demonstrations of the new task would help most"),
        ((0.9, 1.0), (1.0, 1.0), "+0.10 +- 0.14 (8 to 16) for training tasks, +0.00 +- 0.14 (25 to 50) for demonst"),
        ((0.9, 1.0), (1.0, 1.0), "neither is clearly worth more than its error"),
    ],
)
def test_the_sentence_names_what_helped(by_tasks, by_rows, advice):
    plan = StudyPlan(sizes(by_tasks, (8, 16), (50, 50)), sizes(by_rows, (16, 16), (25, 50)))
    assert advice in plan.sentence


def test_three_tasks_are_too_few_for_a_plan():
    with pytest.raises(InputError, match="at least 4 training tasks"):
        plan_of(shifted_normals(tasks=3), 10)


@pytest.mark.parametrize("n", [1, 2, 3, 5, 7, 12, 20, 21, 50])
@pytest.mark.parametrize("most", [1, 2, 3, 7, 20, 22, 1000])
def test_half_of_the_largest_size_is_always_measured(n: int, most: int):
    for others in (3, 4, 5, 8, 9, 16, 39):
        counts, rows = planned_sizes(others, n, most)
        assert rows[-1] == min(4 * n, most)
        assert {(rows[-1] + 1) // 2, min(n, most)} <= set(rows)
        assert counts[-1] == others
        assert (others + 1) // 2 in counts or (others + 1) // 2 < 3
        assert min(counts) >= 3
        assert min(rows) >= 1


def test_the_last_doubling_compares_the_most_rows_with_half_of_them():
    """Two episodes of 3 rows and an expert of 5: 5 and 6 rows are both measured, but 6 is no doubling of 5."""
    plan = plan_of(shifted_normals(tasks=6, episodes=2, steps=3), 5)
    rows = [size.rows for size in plan.by_rows]
    assert rows == [2, 3, 5, 6]
    gain = plan.by_rows[-1].score - plan.by_rows[1].score
    assert f"{gain:+.2f} +- " in plan.sentence
    assert "(3 to 6) for demonstrations of the new task" in plan.sentence
    assert "(3 to 5) for training tasks" in plan.sentence  # five others: three are half of them, rounded up


def test_what_cannot_be_halved_is_not_called_a_doubling():
    plan = plan_of(shifted_normals(tasks=5, episodes=1, steps=1), 1)
    assert [size.rows for size in plan.by_rows] == [1]
    assert [(size.tasks, size.measured) for size in plan.by_tasks] == [(4, True)]  # nothing to extrapolate from, either
    assert plan.sentence == ("Too few to halve, so not measured: training tasks and demonstrations of the new task.")
    assert all(len(line) <= 80 for line in plan.describe()[2:])


def test_a_gain_beside_something_unmeasured_is_not_called_the_most():
    plan = StudyPlan(sizes((0.3,), (4,), (50,)), sizes((0.3, 0.9), (4, 4), (25, 50)))
    assert (
        "more demonstrations of the new task would help. Too few to halve, so not measured: training" in plan.sentence
    )
