"""Many trainings of AVRIL side by side: `avril_training.train` with one more axis, in one compiled program.

Each training keeps its own rows, prior, seed and stream of batches, in the same blocks of steps, so it learns what it
would have learnt alone. Only the order in which a matrix product adds may differ: a rounding of single precision, which
grows with the steps as every rounding does in a training. What one learns does not depend on its neighbours: groups
always have `lanes` places, and places left over are filled with copies of the first training.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from kdbirl.errors import InputError
from kdbirl.methods.avril_elbo import Transitions, Weights
from kdbirl.methods.avril_network import RewardAndValueNetwork
from kdbirl.methods.avril_training import BLOCK, Course, Plan, Schedule, begin, drawn_batches, learn, training_numbers
from kdbirl.progress import Progress

_learn = jax.jit(jax.vmap(learn, in_axes=(0, 0, 0, 0, None, None)))


class Case(NamedTuple):
    """What one training is given; rows to learn from only, since an early stop would stop its neighbours too."""

    plan: Plan
    schedule: Schedule
    weights: Weights
    rows: Transitions
    seed: int


def train_together(cases: Sequence[Case], lanes: int, progress: Progress) -> list[tuple[RewardAndValueNetwork, Course]]:
    """The network of each case, and how its training went. All cases have one plan, schedule and width of states."""
    alike = {(case.plan, case.schedule, case.rows.state.shape[1]) for case in cases}
    if len(alike) > 1:
        raise InputError("Trainings that differ in sizes, steps, rate or inputs cannot be run side by side.")
    most = max((len(case.rows.action) for case in cases), default=1)
    found: list[tuple[RewardAndValueNetwork, Course]] = []
    for start in range(0, len(cases), lanes):
        group = list(cases[start : start + lanes])
        filled = group + group[:1] * (lanes - len(group))
        found += list(_train_group(filled, 2 ** int(np.ceil(np.log2(most))), progress))[: len(group)]
    return found


def _train_group(
    cases: Sequence[Case], size: int, progress: Progress
) -> Iterator[tuple[RewardAndValueNetwork, Course]]:
    plan, schedule = cases[0].plan, cases[0].schedule
    randoms = [training_numbers(case.seed) for case in cases]
    width, counts = cases[0].rows.state.shape[1], [len(case.rows.action) for case in cases]
    training = _stacked([begin(plan, width, rng) for rng in randoms])
    rows = _stacked([_filled_up(case.rows, size) for case in cases])
    weights = _stacked([case.weights for case in cases])
    best, kept = training.network, np.zeros(len(cases), dtype=int)
    record: list[np.ndarray] = []
    for done in range(0, schedule.steps, BLOCK):
        todo = min(BLOCK, schedule.steps - done)
        batches = np.stack([drawn_batches(rng, n, plan.batch) for rng, n in zip(randoms, counts, strict=True)])
        training, elbo = _learn(training, weights, rows, batches, todo, schedule.learning_rate)
        record.append(np.asarray(elbo))
        going = np.all(np.isfinite(np.stack(record)), axis=0)  # the others diverged, and keep the network of before
        best, kept = _chosen(np.asarray(going), training.network, best), np.where(going, done + todo, kept)
        progress.update("AVRIL", done + todo, schedule.steps, f"{len(cases)} trainings side by side")
    courses = np.array(record).T
    for lane, own in enumerate(courses):
        network = jax.tree.map(lambda leaf, lane=lane: leaf[lane], best)
        yield network, _course(own, schedule.steps, int(kept[lane]))


def _course(elbo: np.ndarray, steps: int, kept: int) -> Course:
    """As the training alone would tell it: it ends with the first block whose objective is no number."""
    lost = np.flatnonzero(~np.isfinite(elbo))
    if not len(lost):
        return Course(steps, kept, "finished", tuple(elbo.tolist()), ())
    until = int(lost[0]) + 1
    return Course(min(until * BLOCK, steps), kept, "diverged", tuple(elbo[:until].tolist()), ())


def _filled_up(rows: Transitions, size: int) -> Transitions:
    """Repeat the last row up to `size` rows; no batch takes the copies."""
    more = size - len(rows.action)
    return Transitions(*(jnp.concatenate([part, jnp.repeat(part[-1:], more, axis=0)]) for part in rows))


def _stacked(parts: Sequence[Any]) -> Any:
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *parts)


def _chosen(choose: np.ndarray, new: Any, old: Any) -> Any:
    """`new` in the lanes that are chosen, `old` in the others."""
    if choose.all():
        return new
    return jax.tree.map(lambda a, b: jnp.where(choose.reshape(-1, *[1] * (a.ndim - 1)), a, b), new, old)
