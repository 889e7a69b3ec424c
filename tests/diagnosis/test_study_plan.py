"""What more tasks or rows give, measured on parts of the bank."""

import numpy as np
import pytest

import kdbirl as kb
from kdbirl.diagnosis.held_out import HeldOutTasks
from kdbirl.diagnosis.study_plan import PlannedSize, StudyPlan, plan_study
from kdbirl.errors import InputError

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
        ((0.9, 1.0), (1.0, 1.0), "+0.10 +- 0.14 for training tasks, +0.00 +- 0.14 for demonstrations"),
        ((0.9, 1.0), (1.0, 1.0), "neither is clearly worth more than its error"),
    ],
)
def test_the_sentence_names_what_helped(by_tasks, by_rows, advice):
    plan = StudyPlan(sizes(by_tasks, (8, 16), (50, 50)), sizes(by_rows, (16, 16), (25, 50)))
    assert advice in plan.sentence


def test_three_tasks_are_too_few_for_a_plan():
    with pytest.raises(InputError, match="at least 4 training tasks"):
        plan_of(shifted_normals(tasks=3), 10)
