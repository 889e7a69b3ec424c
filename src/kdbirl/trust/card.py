"""The report card: one colour and one sentence for each thing that can be wrong with a posterior.

A sentence says what was found and what to do about it, to a reader who knows the patients and not the method. What
nobody looked at is "not assessed", with how to look: silence is not green.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kdbirl.posterior.convergence import Convergence
from kdbirl.trust.calibration import FEWEST_POINTS, Calibration, percent
from kdbirl.trust.directions import listed
from kdbirl.trust.identifiability import WEAK_CONTRACTION, Identifiability
from kdbirl.trust.predictive import Predictive
from kdbirl.trust.sensitivity import MOVED, Sensitivity
from kdbirl.trust.support import LARGEST_IMBALANCE, Support

Card = tuple[str, str]

NOT_ASSESSED = "not assessed"
# Half a posterior sd moves one end of a 90 % interval by a third of its half-width: visible, and worth saying.
SHIFTED = 0.5
# Halving the power widens a normal posterior by 1.41, and a parameter that only has its prior follows it by 2.
RESIZED = 1.75
# One row in twenty is what chance and rounding do; with one in four, a good part of the likelihood is extrapolation.
MANY_OUTSIDE, MOST_OUTSIDE = 0.05, 0.25
# Intervals that miss at least twice as often as they promise are wrong in kind, not in degree.
TWICE = 2.0
# Before a posterior is called calibrated, a coverage this low must be excluded: that takes 40 or so test tasks.
LOWEST_COVERAGE = 0.75
# Ranks that are this unlikely are not uniform, even where the coverage looks right: the posterior is shifted.
UNLIKELY_RANKS = 0.01

# The advice of a fixed bandwidth rule. `card` puts another in its place where held-out tasks did choose, or cannot.
LET_TASKS_CHOOSE = "Let held-out tasks choose the bandwidths and the power: bandwidth='loto' (--bandwidth loto)."

HOW_TO = {
    "convergence": "Nobody has looked at whether the draws have settled: ask for posterior.convergence.",
    "identifiability": "Nobody has looked at what the training tasks can say: run `kdbirl diagnose RUN`.",
    "support": "Nobody has looked at whether the expert stays where the training tasks have been: run "
    "`kdbirl diagnose RUN`.",
    "calibration": "Nobody has checked these intervals against tasks with known rewards: call model.calibration(n), or "
    "run `kdbirl diagnose RUN --calibrate`.",
    "sensitivity": "Nobody has looked at whether other bandwidths or priors give another answer: call "
    "model.sensitivity(expert), or run `kdbirl diagnose RUN --sensitivity`.",
}


@dataclass(frozen=True)
class InUse:
    """What the posterior was made with, so that no advice is what was done: the bandwidth rule and the power.

    searched: whether the rule is "loto" and chose the power, too. possible: whether "loto" can choose for this bank.
    """

    rule: str = ""
    power: float = 1.0
    searched: bool = False
    possible: bool = True

    @property
    def advice(self) -> str:
        """How to make the posterior less sure of itself, or less dependent on a choice, that was not done yet."""
        if self.rule != "loto" and self.possible:
            return LET_TASKS_CHOOSE
        if self.rule == "loto" and not self.searched:
            return "Let held-out tasks choose the power, too: leave power out (no --power)."
        lower = f"{self.power / 2:.2g}"
        return f"Add training tasks, or take half of the power in use: power={lower} (--power {lower})."


def card(
    convergence: Convergence | None = None,
    identifiability: Identifiability | None = None,
    support: Support | None = None,
    calibration: Calibration | None = None,
    sensitivity: Sensitivity | None = None,
    contractions: Sequence[float] | np.ndarray[Any, np.dtype[Any]] | None = None,
    predictive: Predictive | None = None,
    in_use: InUse | None = None,
) -> dict[str, Card]:
    """(colour, sentence) of each part; `contractions`: of the posterior along the informed directions, if known.

    predictive: whether the expert's rows as a whole are unusual, which the card says with their support.
    """
    used = in_use or InUse()
    found: dict[str, Card | None] = {
        "convergence": None if convergence is None else (convergence.colour, convergence.sentence),
        "identifiability": None if identifiability is None else _of_identifiability(identifiability, contractions),
        "support": None if support is None else _of_support(support, predictive),
        "calibration": None if calibration is None else _of_calibration(calibration, used),
        "sensitivity": None if sensitivity is None else _of_sensitivity(sensitivity),
    }
    parts = {name: (NOT_ASSESSED, HOW_TO[name]) if part is None else part for name, part in found.items()}
    return {name: (colour, text.replace(LET_TASKS_CHOOSE, used.advice)) for name, (colour, text) in parts.items()}


def _of_identifiability(found: Identifiability, contractions: Any) -> Card:
    q = len(found.names)
    if not found.rank:
        return "red", f"{found.sentence} Do not use this posterior; add training tasks with other rewards."
    if found.rank < q:
        return "amber", f"{found.sentence} {_of_uninformed(found)} {_more_tasks(found)}"
    weak = 0 if contractions is None else int(np.sum(~(np.asarray(contractions, dtype=float) >= WEAK_CONTRACTION)))
    if weak:
        return "amber", (
            f"{found.sentence[:-1]}, but along {weak} of {q} the demonstrations narrowed the prior by less than "
            f"{percent(WEAK_CONTRACTION)}: there the posterior is still the prior. Add demonstrations, or training "
            "tasks that differ in that direction."
        )
    return "green", found.sentence


def _of_uninformed(found: Identifiability) -> str:
    """What the posterior is worth along the directions that keep their prior."""
    if found.moved:
        return "That is no better than the prior: one of another shape would give another answer."
    if not found.coupled:
        return "There the posterior repeats the prior, and tells nothing new."
    if found.changes is None:
        return "There the data add nothing of their own, but the prior's shape may move the posterior."
    return (
        f"There the posterior stays within {percent(WEAK_CONTRACTION)} of the prior's variance: it tells nothing new."
    )


def _more_tasks(found: Identifiability) -> str:
    return "Add training tasks with other rewards." if found.next_task is None else found.next_task.sentence


def _of_support(found: Support, predictive: Predictive | None = None) -> Card:
    share = found.share_outside
    if predictive is not None and predictive.unexplained:
        return "red", f"{found.sentence} {predictive.sentence}"
    if share > MOST_OUTSIDE:
        return "red", (
            f"{found.sentence} There the model guesses: do not use this posterior; add training tasks that go where "
            "the expert goes, or check that features and units agree."
        )
    problems = [f"{found.sentence} Look at these rows before you rely on the result."] if share > MANY_OUTSIDE else []
    if predictive is not None and predictive.unlike_training:
        problems.append(predictive.sentence)
    if found.thin.mean() > MOST_OUTSIDE:
        problems.append(
            f"{int(found.thin.sum())} of {len(found.thin)} expert rows rest on fewer than 5 effective training rows: "
            "seen in training, but seldom. Add demonstrations of the training tasks, or use a wider h: "
            "bandwidth=(h, h_reward) (--bandwidth h,h_reward)."
        )
    if found.small_tasks:
        verb = "has" if len(found.small_tasks) == 1 else "have"
        problems.append(
            f"{_tasks(found.small_tasks)} {listed(found.small_tasks)} {verb} fewer than {found.fewest_in_task} rows, "
            "too few to tell a task by: "
            "add demonstrations or leave them out."
        )
    if found.imbalance > LARGEST_IMBALANCE and not found.equal_weights:
        problems.append(
            f"The largest training task has {found.imbalance:.3g} times the rows of the smallest and dominates it: use "
            'task_weights="equal" (--task-weights equal).'
        )
    return ("amber", " ".join(problems)) if problems else ("green", found.sentence)


def _of_calibration(found: Calibration, used: InUse) -> Card:
    """Over-confidence first: whatever else is wrong with the judgement, it does not excuse it."""
    level, seen, low, high = found.headline
    if high < level:
        if 1 - seen >= TWICE * (1 - level):
            return "red", f"{found.sentence} Do not rely on the intervals. {LET_TASKS_CHOOSE}"
        return "amber", f"{found.sentence} Read every interval as somewhat wider than it is drawn. {LET_TASKS_CHOOSE}"
    if found.effective_draws < FEWEST_POINTS:
        return "amber", (
            f"{found.sentence} But the posteriors of the test tasks are so narrow that they rest on few points (about "
            f"{found.effective_draws:.0f} each, {FEWEST_POINTS:.0f} are wanted), and over-confidence may be missed. "
            f"{LET_TASKS_CHOOSE}"
        )
    if low > level:
        return "amber", f"{found.sentence} The result is on the safe side. {_sharper(used)}"
    if found.p_value < UNLIKELY_RANKS:
        return "amber", (
            f"{found.sentence} The posterior is shifted or misshapen: look at the rank histograms "
            "(kb.plot_calibration, or the figures of kdbirl diagnose --calibrate)."
        )
    if low < LOWEST_COVERAGE:
        return "amber", (
            f"{found.sentence} That is too few tasks to be sure: over-confidence cannot be excluded. Add training "
            "tasks."
        )
    return "green", found.sentence


def _sharper(used: InUse) -> str:
    """How to make a posterior that is wider than it needs to be say more."""
    if used.rule != "loto" and used.possible:
        return LET_TASKS_CHOOSE
    if used.searched:
        return "With more training tasks, held-out tasks would choose less cautiously."
    higher = f"{2 * used.power:.2g}"
    return f"A larger power would say more: power={higher} (--power {higher})."


def _remedy(change: str) -> str:
    if change.startswith("prior"):
        return "Say why the prior is as wide as it is, or add training tasks and demonstrations until it matters less."
    return LET_TASKS_CHOOSE


def _tasks(names: Sequence[str]) -> str:
    return "Training task" if len(names) == 1 else "Training tasks"


def _moved_by_bandwidths(found: Sensitivity) -> bool:
    """Whether another change than the prior's moves a mean as far."""
    others = [not change.startswith("prior") for change in found.changes]
    return bool((np.abs(found.shift[others]) >= MOVED).any())


def _of_sensitivity(found: Sensitivity) -> Card:
    change, name, shift = found.largest
    if abs(shift) >= MOVED and change.startswith("prior") and not _moved_by_bandwidths(found):
        return "amber", (
            f"The prior's width matters: with {change}, the mean of {name!r} moves by {abs(shift):.2g} sd. What "
            "behaviour does not reveal, such as the size of the weights, the prior decides: say why it is so wide."
        )
    if abs(shift) >= MOVED:
        return "red", (
            f"The answer depends on a choice, not on the data alone: with {change}, the mean of {name!r} moves by "
            f"{abs(shift):.2g} sd. Report the range over these choices, not this posterior alone. {_remedy(change)}"
        )
    if abs(shift) >= SHIFTED:
        return "amber", (
            f"With {change}, the mean of {name!r} moves by {abs(shift):.2g} sd. Read its interval as somewhat wider "
            "than it is drawn, and show the sensitivity figure beside it."
        )
    change, name, ratio = found.largest_ratio
    if not 1 / RESIZED <= ratio <= RESIZED:
        return "amber", (
            f"The centre stays, but the width does not: with {change}, the interval of {name!r} becomes {ratio:.2g} "
            "times as wide. Do not lean on how narrow it is; show the sensitivity figure beside it."
        )
    return "green", found.sentence
