"""How many training tasks and demonstrations are worth having? Measured on the bank itself.

Each training task plays the test task with n of its rows, as in `loto`, and is judged by a random part of the others:
what the posterior gains from one part to the next is what further tasks gave. Rows likewise. Only sizes that the bank
has can be measured; what twice as many tasks would give is extrapolated, by the last doubling, and is called so.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from kdbirl.diagnosis.loto import Loto, LotoSettings, leave_one_task_out
from kdbirl.diagnosis.plays import Plays
from kdbirl.errors import InputError
from kdbirl.likelihood.bandwidths import Bandwidths
from kdbirl.likelihood.ckde import CKDE
from kdbirl.posterior.priors import Prior
from kdbirl.progress import Progress, Silent

QUICK = LotoSettings(h_factors=(0.25, 1.0), h_reward_factors=tuple((2.0 ** np.arange(-3.0, 0.5, 0.5)).tolist()))
SHARES = (0.25, 0.5, 1.0)  # of the other tasks
FEWEST = 3  # tasks, below which there is nothing to interpolate between


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
        gains = {"training tasks": _gain(self.by_tasks), "demonstrations of the new task": _gain(self.by_rows)}
        words = ", ".join(f"{gain:+.2f} +- {error:.2f} for {what}" for what, (gain, error) in gains.items())
        clear = {what: gain for what, (gain, error) in gains.items() if gain > 2 * error}
        advice = (
            f"more {max(clear, key=lambda what: clear[what])} would help most"
            if clear
            else "neither is clearly worth more than its error; better features, or tasks of another kind, may be"
        )
        return f"What the last doubling added to the score of the truth: {words}: {advice}."

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
    counts = sorted({max(round(share * others), FEWEST) for share in SHARES})
    most = int(np.median(plays.sizes))
    rows = sorted({max(min(size, most), 1) for size in (n // 4, n // 2, n, 2 * n, 4 * n)})
    sizes = [(count, min(n, most)) for count in counts] + [(others, size) for size in rows]
    found: dict[tuple[int, int], PlannedSize] = {}
    for done, (count, size) in enumerate(sizes):
        progress.update("plan", done, len(sizes))
        if (count, size) not in found:
            result = leave_one_task_out(ckde, plays, prior, start, size, names, QUICK, None, count, seed)
            found[count, size] = _size(count, size, result)
    progress.update("plan", len(sizes), len(sizes))
    measured = tuple(found[count, min(n, most)] for count in counts)
    return StudyPlan((*measured, _extrapolated(measured)), tuple(found[others, size] for size in rows))


def _size(tasks: int, rows: int, result: Loto) -> PlannedSize:
    contraction = float(np.mean(result.calibration.contraction))
    return PlannedSize(tasks, rows, contraction, result.mean, result.standard_error, result.calibration.headline[1])


def _extrapolated(measured: tuple[PlannedSize, ...]) -> PlannedSize:
    """Twice as many tasks, if the next doubling shrinks what is left as the last one did."""
    last = measured[-1]
    before = measured[-2] if len(measured) > 1 else last
    doublings = np.log2(last.tasks / before.tasks) if last.tasks > before.tasks else 1.0
    left = np.clip((1 - last.contraction) / max(1 - before.contraction, 1e-9), 0.0, 1.0) ** (1 / doublings)
    contraction = float(1 - (1 - last.contraction) * left)
    return PlannedSize(2 * last.tasks, last.rows, contraction, np.nan, np.nan, np.nan, measured=False)


def _gain(sizes: tuple[PlannedSize, ...]) -> tuple[float, float]:
    """What the last measured doubling added to the mean score, and a standard error of it.

    The same tasks play both sizes, so the true error is smaller than this, which takes them as independent.
    """
    measured = [size for size in sizes if size.measured]
    if len(measured) < 2:
        return 0.0, 0.0
    before, last = measured[-2:]
    doublings = max(np.log2(last.tasks / before.tasks) + np.log2(last.rows / before.rows), 1.0)
    error = np.hypot(last.standard_error, before.standard_error)
    return float((last.score - before.score) / doublings), float(error / doublings)


def _line(size: PlannedSize) -> str:
    numbers = f"{size.tasks:>6}{size.rows:>7}{size.contraction:>20.0%} "
    if not size.measured:
        return f"{numbers}{'extrapolated':>21}"
    return f"{numbers}{size.score:>13.2f} +- {size.standard_error:.2f}{size.coverage:>22.0%}"
