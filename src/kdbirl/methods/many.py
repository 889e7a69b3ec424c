"""The posteriors of many test tasks over one bank, with everything that tasks can share done once.

Shared: the bandwidths for each number of rows, one table of kernel sums over all distinct expert rows, the findings
about the bank, and the sampling itself: independence Metropolis (`posterior.independence`) draws for blocks of tasks in
large matrix products, a block on each core. Tasks come in batches, so that memory is bounded however many there are.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from jax import tree

from kdbirl._jax import float64, on_all_cores
from kdbirl.data.demonstrations import Demonstrations
from kdbirl.data.rewards import labels_of_rows
from kdbirl.errors import InputError, KDBIRLError
from kdbirl.installation import package_versions
from kdbirl.likelihood.ckde import likelihood_of_each
from kdbirl.methods.diagnosed import with_findings
from kdbirl.methods.fitted import Choice, ExpertRows, drawn_prior
from kdbirl.methods.posteriors import Posteriors
from kdbirl.posterior.auto import Auto, as_sampler
from kdbirl.posterior.independence import Independence, accepted_enough
from kdbirl.posterior.result import Posterior
from kdbirl.posterior.target import Draws, Sampler, Target, log_posteriors
from kdbirl.progress import Progress, Silent
from kdbirl.random_streams import stream
from kdbirl.trust.identifiability import Identifiability, identify
from kdbirl.trust.support import Support, assess_support

TABLE_ENTRIES = 2**23  # of the kernel sums of one batch: 64 MB
BLOCK = 32  # tasks that are sampled by one compiled program
Finished = Callable[[str, Draws], Posterior]


def posteriors(model: Any, experts: Any, seed: int, tasks: Any, progress: Progress) -> Posteriors:
    """See `KDBIRL.posteriors`."""
    shown = {name: model._shown(expert) for name, expert in named_experts(experts, tasks).items()}
    fitted, lean = model._ready(), dict[str, Posterior]()
    for choice, names in _by_choice(model, shown, progress):
        h_reward = choice.bandwidths.h_reward
        known = identify(fitted.ckde, fitted.prior, fitted.reward_names, h_reward, seed)
        for batch in _batches({name: shown[name] for name in names}, len(fitted.task_names)):
            lean |= _Batch(model, batch, choice, known, seed, progress).posteriors()
            progress.update("test tasks", len(lean), len(shown))
    progress.close()
    return Posteriors(model, {name: lean[name] for name in shown})


def named_experts(experts: Any, tasks: Any = None) -> dict[str, Demonstrations]:
    """Demonstrations of each test task by its name, from whatever was given."""
    if isinstance(experts, Demonstrations):
        if tasks is None:
            raise InputError("One Demonstrations for many tasks needs tasks=, the task's name of each of its rows.")
        labels = labels_of_rows(tasks, "tasks")
        if labels.shape != (experts.n_rows,):
            raise InputError(f"tasks has shape {labels.shape}; expected ({experts.n_rows},): a name for each row.")
        return {str(name): experts.take(np.flatnonzero(labels == name)) for name in dict.fromkeys(labels.tolist())}
    if tasks is not None:
        raise InputError("tasks= goes with one Demonstrations; a mapping or a list says itself whose rows are whose.")
    if not isinstance(experts, Mapping | Sequence) or isinstance(experts, str | bytes):
        raise InputError(f"The experts must be a mapping or a list of Demonstrations, not {type(experts).__name__}.")
    pairs = experts.items() if isinstance(experts, Mapping) else enumerate(experts)
    named = {str(name): expert for name, expert in pairs}
    if not named or len(named) != len(experts):
        raise InputError("There must be at least one test task, and no two of one name.")
    return named


def _by_choice(model: Any, shown: Mapping[str, ExpertRows], progress: Progress) -> Iterator[tuple[Choice, list[str]]]:
    """The tasks with the same bandwidths and power: all of them, or those with the same number of rows."""
    choices, groups = model._ready().choices, dict[int, list[str]]()
    for name, expert in shown.items():
        groups.setdefault(len(expert.rows) if choices.searches else 0, []).append(name)
    for names in groups.values():
        yield choices.for_rows(len(shown[names[0]].rows), progress), names


def _batches(shown: Mapping[str, ExpertRows], n_tasks: int) -> Iterator[dict[str, ExpertRows]]:
    """Batches whose kernel sums stay below TABLE_ENTRIES; at least one task each."""
    batch: dict[str, ExpertRows] = {}
    entries = 0
    for name, expert in shown.items():
        size = len(expert.rows) * n_tasks
        if batch and entries + size > TABLE_ENTRIES:
            yield batch
            batch, entries = {}, 0
        batch[name] = expert
        entries += size
    yield batch


@dataclass(frozen=True)
class _Batch:
    """Tasks with one choice of bandwidths whose kernel sums are in memory together."""

    model: Any
    shown: Mapping[str, ExpertRows]
    choice: Choice
    known: Identifiability
    seed: int
    progress: Progress

    @float64
    def posteriors(self) -> dict[str, Posterior]:
        """The posterior of every task, without the pointwise likelihoods."""
        support = self._support()
        prior_draws = drawn_prior(self.model._ready().prior, self.seed)
        prior_draws.setflags(write=False)  # so that all posteriors share it
        versions = package_versions()
        found = self._drawn(partial(self._finished, support=support, prior_draws=prior_draws, versions=versions))
        return {name: found[name] for name in self.shown}

    @float64
    def _finished(
        self, name: str, draws: Draws, support: dict[str, Support], prior_draws: np.ndarray, versions: dict[str, str]
    ) -> Posterior:
        choice = self.choice
        noted = {"versions": versions, "test_task": name}
        recorded = self.model._recorded(self.shown[name], choice, draws, prior_draws, self.seed, noted)
        calibration = None if choice.loto is None else choice.loto.calibration
        return with_findings(recorded, self.known, support[name], calibration, choice)

    @cached_property
    def _box(self) -> tuple[np.ndarray, np.ndarray]:
        return self.model._ready().prior.box

    def _support(self) -> dict[str, Support]:
        """The support of all rows in one call, cut to tasks."""
        fitted, widths = self.model._ready(), self.choice.bandwidths
        rows = np.concatenate([expert.rows for expert in self.shown.values()])
        whole = assess_support(
            fitted.ckde, rows, widths.h, fitted.features.names, fitted.task_names, self.seed, self.progress
        )
        ends = np.cumsum([len(expert.rows) for expert in self.shown.values()])
        parts = [slice(end - len(expert.rows), end) for end, expert in zip(ends, self.shown.values(), strict=True)]
        return {name: _cut(whole, part) for name, part in zip(self.shown, parts, strict=True)}

    def _drawn(self, finished: Finished) -> dict[str, Posterior]:
        """Every task, finished on the thread that drew: while Python works on one block, another one is computed."""
        fitted, widths = self.model._ready(), self.choice.bandwidths
        rows = {name: expert.rows for name, expert in self.shown.items()}
        of = likelihood_of_each(fitted.ckde, rows, widths.h, widths.h_reward, fitted.prior.box, self.progress)
        one = Target.build(fitted.prior, of(next(iter(rows))), self.choice.power)

        def target_of(name: str) -> Target:
            return replace(one, likelihood=of(name))

        targets = {name: target_of(name) for name in rows}
        together = _together(as_sampler(self.model.sampler))
        done: dict[str, Posterior] = {}
        if together is not None:
            done = self._in_blocks(together, targets, target_of, finished)
        left = [name for name in targets if name not in done]
        return done | _by_item(lambda name: finished(name, self._alone(targets, name)), left)

    def _in_blocks(
        self,
        sampler: Independence,
        targets: Mapping[str, Target],
        target_of: Callable[[str], Target],
        finished: Finished,
    ) -> dict[str, Posterior]:
        """The tasks for which the proposals fit."""
        alike: dict[Any, list[str]] = {}  # of one program: as many rows, and sums of the same form
        for name, target in targets.items():
            of_rows = target.likelihood.counts.shape[0]  # type: ignore[attr-defined]
            alike.setdefault((of_rows, tree.structure(target)), []).append(name)
        blocks = [names[i : i + BLOCK] for names in alike.values() for i in range(0, len(names), BLOCK)]

        def of_block(names: Sequence[str]) -> dict[str, Posterior]:
            size = max(2, 1 << (len(names) - 1).bit_length())  # a power of two: few programs are compiled
            padding = [target_of(names[-1]) for _ in range(size - len(names))]
            drawn = self._block(sampler, [*(targets[name] for name in names), *padding], names)
            return {name: finished(name, draws) for name, draws in drawn.items() if self._usable(draws)}

        return {name: one for part in _by_item(of_block, blocks).values() for name, one in part.items()}

    def _block(self, sampler: Independence, targets: Sequence[Target], names: Sequence[str]) -> dict[str, Draws]:
        """The first targets are those of the names; a lone one has company, so that the same program serves it."""
        padded = [*names, *[names[-1]] * (len(targets) - len(names))]
        of_task = (int(self.shown[name].fingerprint[:15], 16) for name in padded)
        generators = [np.random.default_rng(stream(self.seed, "tasks", own)) for own in of_task]
        found = sampler.sample_many(targets, self.model._ready().prior, generators)
        return dict(zip(names, found, strict=False))

    def _usable(self, draws: Draws) -> bool:
        """Enough proposals were accepted, and no draw left the box in which the likelihood's fast form is safe."""
        low, high = self._box
        return accepted_enough(draws) and not ((draws.draws < low) | (draws.draws > high)).any()

    @float64
    def _alone(self, targets: Mapping[str, Target], name: str) -> Draws:
        """A task by the model's own sampler, as `KDBIRL.posterior` does it."""
        try:
            draws = self.model._sampled(self.shown[name].rows, self.choice, self.seed, Silent())[0]
        except KDBIRLError as error:
            raise type(error)(f"Test task {name!r}: {error}") from error
        chains, per_chain, q = draws.draws.shape
        lp = log_posteriors(targets[name], draws.draws.reshape(-1, q)).reshape(chains, per_chain)
        return replace(draws, stats={**draws.stats, "lp": lp})


def _together(sampler: Sampler) -> Independence | None:
    """The sampler of many tasks at once that stands for the default; None where another one was asked for."""
    if isinstance(sampler, Auto):
        return Independence(sampler.chains, sampler.draws)
    return sampler if isinstance(sampler, Independence) else None


def _cut(support: Support, part: slice) -> Support:
    """The support of some of the rows."""
    per_row = ("effective_rows", "relative_density", "few", "unusual", "unseen")
    return replace(support, **{name: getattr(support, name)[part] for name in per_row})


def _by_item(work: Callable[[Any], Any], items: Sequence[Any]) -> dict[Any, Any]:
    """work(item) of each, on all cores: compiled programs run outside of Python's lock."""
    keys = [tuple(item) if isinstance(item, list) else item for item in items]
    return dict(zip(keys, on_all_cores(work, items), strict=True))
