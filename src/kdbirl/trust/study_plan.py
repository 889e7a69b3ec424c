"""How many training tasks and demonstrations are worth having? Measured on the bank itself.

Each training task plays the test task with n of its rows, as in `loto`, and is judged by a random part of the others:
what the posterior gains from one part to the next is what further tasks gave. Rows likewise. Sizes are halved from the
largest that the bank has: what a doubling gives is the largest against its half. Only sizes that the bank has can be
measured; what twice as many tasks would give is extrapolated, by the last doubling, and is called so.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from kdbirl.errors import InputError
from kdbirl.likelihood.bandwidths import Bandwidths
from kdbirl.likelihood.ckde import CKDE
from kdbirl.posterior.priors import Prior
from kdbirl.progress import Progress, Silent
from kdbirl.trust.held_out import Plays
from kdbirl.trust.loto import Loto, LotoSettings, leave_one_task_out

QUICK = LotoSettings(h_factors=(0.25, 1.0), h_reward_factors=tuple((2.0 ** np.arange(-3.0, 0.5, 0.5)).tolist()))
FEWEST = 3  # tasks, below which there is nothing to interpolate between
LARGEST_SHARE = 4  # times the expert's rows: as far as the plan looks
SMALLEST_SHARE = 4  # parts of the tasks, and of the expert's rows, that the smallest size is one of

WHAT = {"tasks": "training tasks", "rows": "demonstrations of the new task"}


@dataclass(frozen=True)
class PlannedSize:
    """What one size gives: mean contraction 1 - var_post/var_prior over parameters, and the mean score of the truth."""

    tasks: int
    rows: int
    contraction: float
    score: float
    standard_error: float
    coverage: float
    measured: bool = True


@dataclass(frozen=True)
class StudyPlan:
    """Sizes by number of tasks (at the expert's rows), then by number of rows (with all tasks)."""

    by_tasks: tuple[PlannedSize, ...]
    by_rows: tuple[PlannedSize, ...]

    @property
    def sentence(self) -> str:
        """What more tasks, and more rows, have given so far."""
        gains = {name: _gain(sizes) for name, sizes in (("tasks", self.by_tasks), ("rows", self.by_rows))}
        words = ", ".join(f"{gain.words} for {WHAT[name]}" for name, gain in gains.items() if gain is not None)
        unknown = " and ".join(WHAT[name] for name, gain in gains.items() if gain is None)
        clear = {name: gain.score for name, gain in gains.items() if gain is not None and gain.clear}
        if clear:
            most = "" if unknown else " most"
            advice = f"more {WHAT[max(clear, key=lambda name: clear[name])]} would help{most}"
        elif unknown:
            advice = "no gain is clearly more than its error"
        else:
            advice = "neither is clearly worth more than its error; better features, or tasks of another kind, may be"
        measured = f"What the last doubling added to the score of the truth: {words}: {advice}." if words else ""
        missing = f"Too few to halve, so not measured: {unknown}." if unknown else ""
        return f"{measured} {missing}".strip()

    def describe(self) -> list[str]:
        """A table of at most 80 columns."""
        head = f"{'tasks':>6}{'rows':>7}{'variance explained':>21}{'score of the truth':>21}{'90 % intervals hold':>22}"
        lines = [head, *(_line(size) for size in (*self.by_tasks, *self.by_rows))]
        return [self.sentence, "", *lines]

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "sentence": self.sentence,
            "by_tasks": [vars(size) for size in self.by_tasks],
            "by_rows": [vars(size) for size in self.by_rows],
        }


def plan_study(
    ckde: CKDE,
    plays: Plays,
    prior: Prior,
    start: Bandwidths,
    n: int,
    names: tuple[str, ...],
    seed: int = 0,
    progress: Progress | None = None,
) -> StudyPlan:
    """Measure parts of the bank, with the bandwidths and power that each part would choose."""
    progress, others = progress or Silent(), ckde.n_tasks - 1
    if others < FEWEST:
        raise InputError(f"A plan needs at least {FEWEST + 1} training tasks, to leave one out and vary the others.")
    most = int(np.median(plays.sizes))
    shown, (counts, rows) = min(n, most), planned_sizes(others, n, most)
    sizes = [(count, shown) for count in counts] + [(others, size) for size in rows]
    found: dict[tuple[int, int], PlannedSize] = {}
    for done, (count, size) in enumerate(sizes):
        progress.update("plan", done, len(sizes))
        if (count, size) not in found:
            result = leave_one_task_out(ckde, plays, prior, start, size, names, QUICK, None, count, seed)
            found[count, size] = _size(count, size, result)
    progress.update("plan", len(sizes), len(sizes))
    measured = tuple(found[count, shown] for count in counts)
    return StudyPlan((*measured, *_extrapolated(measured)), tuple(found[others, size] for size in rows))


def planned_sizes(others: int, n: int, most: int) -> tuple[list[int], list[int]]:
    """Numbers of tasks, of the `others`, and of rows: n of them, and up to four times as many if tasks have the rows.

    Each list has its largest size, half of it, and so on: the last doubling is always among them.
    """
    shown, largest = min(n, most), min(LARGEST_SHARE * n, most)
    counts = _halved(others, max(-(-others // SMALLEST_SHARE), FEWEST))
    return counts, sorted({shown, *_halved(largest, -(-shown // SMALLEST_SHARE))})


def _size(tasks: int, rows: int, result: Loto) -> PlannedSize:
    contraction = float(np.mean(result.calibration.contraction))
    return PlannedSize(tasks, rows, contraction, result.mean, result.standard_error, result.calibration.headline[1])


def _half(size: int) -> int:
    """Rounded up: of 21 rows, 11."""
    return (size + 1) // 2


def _halved(largest: int, smallest: int) -> list[int]:
    """The largest size, its half, the half of that, ..., in ascending order, none of them below the smallest."""
    sizes = [largest]
    while sizes[0] > 1 and _half(sizes[0]) >= smallest:
        sizes.insert(0, _half(sizes[0]))
    return sizes


def _extrapolated(measured: tuple[PlannedSize, ...]) -> tuple[PlannedSize, ...]:
    """Twice as many tasks, if the next doubling shrinks what is left as the last one did; nothing without one."""
    if len(measured) < 2:
        return ()
    before, last = measured[-2:]
    doublings = np.log2(last.tasks / before.tasks)
    left = np.clip((1 - last.contraction) / max(1 - before.contraction, 1e-9), 0.0, 1.0) ** (1 / doublings)
    contraction = float(1 - (1 - last.contraction) * left)
    return (PlannedSize(2 * last.tasks, last.rows, contraction, np.nan, np.nan, np.nan, measured=False),)


@dataclass(frozen=True)
class _Gain:
    """What a doubling added to the mean score, its standard error, and the two sizes."""

    score: float
    standard_error: float
    before: int
    last: int

    @property
    def clear(self) -> bool:
        return self.score > 2 * self.standard_error

    @property
    def words(self) -> str:
        return f"{self.score:+.2f} +- {self.standard_error:.2f} ({self.before} to {self.last})"


def _gain(sizes: tuple[PlannedSize, ...]) -> _Gain | None:
    """The largest measured size against its half; None where that was not measured, since there are too few to halve.

    The same tasks play both sizes, so the true error is smaller than this, which takes them as independent.
    """
    measured = [size for size in sizes if size.measured]
    last = measured[-1]
    for before in measured[:-1]:
        error = float(np.hypot(last.standard_error, before.standard_error))
        if (before.tasks, before.rows) == (_half(last.tasks), last.rows):
            return _Gain(last.score - before.score, error, before.tasks, last.tasks)
        if (before.tasks, before.rows) == (last.tasks, _half(last.rows)):
            return _Gain(last.score - before.score, error, before.rows, last.rows)
    return None


def _line(size: PlannedSize) -> str:
    numbers = f"{size.tasks:>6}{size.rows:>7}{size.contraction:>20.0%} "
    if not size.measured:
        return f"{numbers}{'extrapolated':>21}"
    return f"{numbers}{size.score:>13.2f} +- {size.standard_error:.2f}{size.coverage:>22.0%}"
