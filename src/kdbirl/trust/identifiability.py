"""Which reward directions the training tasks can inform, and which keep the prior whatever the expert does.

For a Gaussian reward kernel on Euclidean distance the likelihood depends on R only through R . (R_k - mean), so K tasks
inform at most K - 1 directions: an SVD of the centred rewards, exact. For other kernels the directions are spanned by
gradients at prior draws (`reward_gradients`), with a stated tolerance. *Given* the informed directions, the others keep
the prior's conditional: with an isotropic normal prior, and for single parameters under any prior with independent
parameters, the posterior there is the prior. Any other prior (a box, Laplace) ties combinations of parameters to the
rest: their marginals move with what is learnt elsewhere, by the prior's shape alone, and `beside` measures how far.

The rank is an upper bound: tasks that behave alike inform less (`contraction`, `Identifiability.describe_with`).
"""

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float

from kdbirl.errors import InputError, did_you_mean
from kdbirl.likelihood.ckde import CKDE
from kdbirl.likelihood.distances import euclidean
from kdbirl.likelihood.kernels import Categorical
from kdbirl.posterior.priors import Prior
from kdbirl.posterior.product_prior import CustomPrior
from kdbirl.random_streams import stream
from kdbirl.trust.directions import Phrase, axis_in_words, complement_in_words, listed, readable_complement
from kdbirl.trust.next_task import NextTask, reward_gradients, suggest_task

PRIOR_DRAWS = 1024  # for the prior's spread, gradients and suggestions
TOLERANCE = 1e-9  # singular values below this share of the gradients' size are rounding (kernels without closed form)
MOST_LINES = 10  # informed directions described one by one
MOST_MOVED = 3  # uninformed directions whose change is told
WEAK_SHIFT = 0.3  # prior sds by which an uninformed mean moves before it is told; chance moves it by some 0.05
WEAK_CONTRACTION = 0.1  # of the variance: an informed direction that narrows less has learnt nothing worth the name


@dataclass(frozen=True, eq=False)
class Identifiability:
    """What the training tasks can say about a reward of q parameters called `names`.

    informed `(rank, q)`, uninformed `(q - rank, q)`: orthonormal rows; together they span everything.
    strengths `(rank,)`, descending: how many nats the log weight of a typical task moves (root mean square over tasks)
    when R moves one prior standard deviation along that direction.
    exact: by the closed form; otherwise numerically, with `TOLERANCE`. next_task: the task that would add most.
    tied: of each uninformed direction, whether the prior ties it to informed ones, so that it moves with them (above).
    changes `(phrases, 2)`: of each phrase for uninformed directions, the reduction in prior variance and the shift of
    the mean in prior sds, in draws; zero where nothing is tied. None before `beside` has seen draws.
    """

    informed: Float[np.ndarray, "rank q"]
    uninformed: Float[np.ndarray, "u q"]
    strengths: Float[np.ndarray, " rank"]
    names: tuple[str, ...]
    n_tasks: int
    exact: bool
    next_task: NextTask | None = None
    tied: tuple[bool, ...] = ()
    changes: Float[np.ndarray, "p 2"] | None = None

    def __post_init__(self) -> None:
        both = np.concatenate([self.informed, self.uninformed])
        if both.shape != (len(self.names),) * 2 or not np.allclose(both @ both.T, np.eye(len(both)), atol=1e-8):
            raise InputError("identifiability: the informed and uninformed directions must be one orthonormal basis.")

    @property
    def rank(self) -> int:
        """How many directions are informed, from 0 to q."""
        return len(self.informed)

    @property
    def coupled(self) -> bool:
        """Whether an uninformed direction moves with the informed ones."""
        return any(self.tied)

    def beside(self, draws: Float[np.ndarray, "n q"], prior_draws: Float[np.ndarray, "p q"]) -> "Identifiability":
        """The same, with what became of the uninformed directions in these draws; unchanged without prior draws."""
        if not len(prior_draws):
            return self
        changes, row = np.zeros((len(self._kept), 2)), 0
        for change, phrase in zip(changes, self._kept, strict=True):
            if any(self.tied[row : row + len(phrase.rows)]):
                change[:] = _change(draws @ phrase.rows.T, prior_draws @ phrase.rows.T)
            row += len(phrase.rows)
        same = copy(self)  # with its phrases
        object.__setattr__(same, "changes", changes)
        return same

    @property
    def moved(self) -> list[str]:
        """What the prior's shape alone did to uninformed directions, the largest change first."""
        if self.changes is None:
            return []
        size = np.maximum(np.abs(self.changes[:, 0]) / WEAK_CONTRACTION, self.changes[:, 1] / WEAK_SHIFT)
        order = [int(i) for i in np.argsort(-size, kind="stable") if size[i] >= 1]
        return [_changed(self._kept[i].words, *self.changes[i]) for i in order]

    @property
    def suggested_reward(self) -> Float[np.ndarray, " q"] | None:
        """The reward of the training task that would add most."""
        return None if self.next_task is None else self.next_task.reward

    @property
    def informed_share(self) -> Float[np.ndarray, " q"]:
        """For each parameter, how much of its axis is informed: 0 keeps the prior, 1 is fully informed."""
        return np.sum(self.informed**2, axis=0)

    def keeps_prior(self, names: Sequence[str] | None = None) -> tuple[str, ...]:
        """Those of the named parameters (default: all) about which the tasks say nothing at all."""
        asked = self.names if names is None else names
        for name in asked:
            if name not in self.names:
                raise InputError(f"There is no reward parameter {name!r}.{did_you_mean(name, self.names)}")
        nothing = dict(zip(self.names, self.informed_share < 1e-12, strict=True))
        return tuple(name for name in asked if nothing[name])

    @property
    def sentence(self) -> str:
        """The finding, in the user's own parameter names."""
        q, tasks = len(self.names), f"The {self.n_tasks} training tasks inform"
        if self.rank == q:
            return f"{tasks} {'the only reward direction' if q == 1 else f'all {q} reward directions'}."
        if not self.rank:
            return f"{tasks} none of the {q} reward directions: the posterior is the prior, whatever the expert does."
        verb = "keeps its" if q - self.rank == 1 else "keep their"
        parts = [[phrase.words for phrase in self._kept if phrase.single == single] for single in (True, False)]
        kept = ", and ".join(listed(part) for part in parts if part)
        given = ", given the informed ones" if self.coupled else ""
        found = f"{tasks} {self.rank} of {q} reward directions; {kept} {verb} prior{given}, whatever the expert does."
        if not self.moved:
            return found
        return f"{found} By the prior's shape alone, {listed(self.moved, MOST_MOVED)}."

    @cached_property  # a thousand posteriors over one bank say it
    def _kept(self) -> list[Phrase]:
        return complement_in_words(self.informed, self.names)

    @property
    def warning(self) -> str | None:
        """The sentence for `fit`, where a direction keeps its prior."""
        return None if self.rank == len(self.names) else self.sentence

    def describe(self) -> list[str]:
        """Lines for a terminal: the finding, the informed directions by strength, what would help."""
        found = [
            f"informed: {axis_in_words(direction, self.names)} ({strength:.2g} nats per prior sd)"
            for direction, strength in zip(self.informed, self.strengths, strict=True)
        ]
        lines = [self.sentence, *_shortened(found)]
        if not self.exact:
            lines.append(f"Found numerically, by gradients at prior draws (tolerance {TOLERANCE:g}).")
        return lines if self.next_task is None else [*lines, self.next_task.sentence]

    def describe_with(self, draws: Float[np.ndarray, "n q"], prior_draws: Float[np.ndarray, "p q"]) -> list[str]:
        """Lines given a posterior: how much it narrowed along the informed directions, turned to where it did most."""
        lines = [self.beside(draws, prior_draws).sentence]
        if self.rank:
            values, directions = principal_contractions(draws, prior_draws, self.informed)
            found = [_narrowed(v, axis_in_words(d, self.names)) for v, d in zip(values, directions, strict=True)]
            lines += _shortened(found)
        return lines if self.next_task is None else [*lines, self.next_task.sentence]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "rank": self.rank,
            "parameters": list(self.names),
            "tasks": self.n_tasks,
            "informed": self.informed.tolist(),
            "uninformed": self.uninformed.tolist(),
            "uninformed_in_words": [phrase.words for phrase in self._kept],
            "uninformed_contractions": None if self.changes is None else self.changes[:, 0].tolist(),
            "strengths": self.strengths.tolist(),
            "keeps_prior": list(self.keeps_prior()),
            "exact": self.exact,
            "next_task": None if self.next_task is None else self.next_task.to_dict(),
            "sentence": self.sentence,
        }


def identify(ckde: CKDE, prior: Prior, names: Sequence[str], h_reward: float, seed: int = 0) -> Identifiability:
    """What a bank can say, before any expert. `prior` is spelled out for the q parameters (`prior.for_parameters`)."""
    draws = prior.sample(np.random.default_rng(stream(seed, "prior to compare")), PRIOR_DRAWS)
    closed = ckde.informed_directions()
    if closed is not None:
        slopes = (ckde.task_rewards - ckde.task_rewards.mean(axis=0)) / h_reward**2
        span = closed
    else:
        slopes, scale = reward_gradients(ckde.reward_kernel, ckde.task_rewards, h_reward, draws)
        span = _span(slopes, scale, draws.std(axis=0))
    informed, strengths = _by_strength(slopes, span, draws)
    uninformed = readable_complement(informed)
    kernel = ckde.reward_kernel
    distance = euclidean if isinstance(kernel, Categorical) else kernel.distance
    task = suggest_task(ckde.task_rewards, uninformed, prior, draws, distance, h_reward, names)
    return Identifiability(
        informed=informed,
        uninformed=uninformed,
        strengths=strengths,
        names=tuple(names),
        n_tasks=ckde.n_tasks,
        exact=closed is not None,
        next_task=task,
        tied=_tied(prior, informed, uninformed),
    )


def _tied(
    prior: Prior, informed: Float[np.ndarray, "rank q"], uninformed: Float[np.ndarray, "u q"]
) -> tuple[bool, ...]:
    """Of each uninformed direction, whether the prior lets what is learnt about the informed ones move it."""
    combined = (np.abs(uninformed) > 1e-9).sum(axis=1) > 1
    if prior.normal is not None:
        return tuple((combined & (np.abs((informed * prior.normal[1] ** 2) @ uninformed.T) > 1e-9).any()).tolist())
    return tuple(((combined | isinstance(prior, CustomPrior)) & bool(len(informed))).tolist())


def _change(draws: Float[np.ndarray, "n d"], prior_draws: Float[np.ndarray, "p d"]) -> tuple[float, float]:
    """Reduction in the prior's variance, summed over directions, and the shift of the mean in prior sds."""
    spread = float(prior_draws.var(axis=0).sum())
    if not spread > 0:
        return 0.0, 0.0
    shift = float(np.linalg.norm(draws.mean(axis=0) - prior_draws.mean(axis=0)))
    return 1 - float(draws.var(axis=0).sum()) / spread, shift / spread**0.5


def _changed(words: str, fallen: float, shift: float) -> str:
    """`the variance of a - b fell by 94 % (its mean moved by 0.8 prior sds)`, as far as these are worth the words."""
    if abs(fallen) < WEAK_CONTRACTION:
        return f"the mean of {words} moved by {shift:.2g} prior sds"
    mean = f" (its mean moved by {shift:.2g} prior sds)" if shift >= WEAK_SHIFT else ""
    if fallen <= -1:
        return f"the variance of {words} grew to {1 - fallen:.2g} times the prior's{mean}"
    return f"the variance of {words} {'fell' if fallen > 0 else 'rose'} by {100 * abs(fallen):.3g} %{mean}"


def kept_words(fallen: float) -> str:
    """What a picture says of an uninformed direction whose variance fell by this share."""
    if abs(fallen) < WEAK_CONTRACTION:
        return "keeps the prior"
    return f"{fallen:.0%}, by the prior's shape" if fallen > 0 else "wider, by the prior's shape"


def _span(
    slopes: Float[np.ndarray, "s q"], scale: Float[np.ndarray, " q"], spread: Float[np.ndarray, " q"]
) -> Float[np.ndarray, "rank q"]:
    """Orthonormal rows spanning the gradients; in units of the prior's spread, so that no parameter's unit decides."""
    spread = np.maximum(spread, np.finfo(float).tiny)
    sizes, directions = np.linalg.svd(slopes * spread, full_matrices=False)[1:]
    kept = directions[sizes > TOLERANCE * np.linalg.norm(scale * spread)] / spread
    lengths = np.linalg.norm(kept, axis=1, keepdims=True)
    return np.linalg.qr((kept / lengths).T)[0].T


def _by_strength(
    slopes: Float[np.ndarray, "s q"], span: Float[np.ndarray, "rank q"], draws: Float[np.ndarray, "p q"]
) -> tuple[np.ndarray, np.ndarray]:
    """The same span turned to the directions in which the weights move most, and their strengths, descending."""
    if not len(span):
        return span, np.zeros(0)
    rotation = np.linalg.svd(slopes @ span.T, full_matrices=False)[2]
    directions = rotation @ span
    strengths = np.sqrt(np.mean((slopes @ directions.T) ** 2, axis=0)) * (draws @ directions.T).std(axis=0)
    order = np.argsort(-strengths, kind="stable")
    return directions[order], strengths[order]


def contraction(
    draws: Float[np.ndarray, "n q"], prior_draws: Float[np.ndarray, "p q"], directions: Float[np.ndarray, "r q"]
) -> Float[np.ndarray, " r"]:
    """1 - var(posterior) / var(prior) along each direction: 0 has learnt nothing, 1 all; NaN where the prior is fixed.

    Negative where the posterior is wider than the prior, which can happen.
    """
    before, after = (prior_draws @ directions.T).var(axis=0), (draws @ directions.T).var(axis=0)
    return 1 - np.divide(after, before, out=np.full(len(directions), np.nan), where=before > 0)


def principal_contractions(
    draws: Float[np.ndarray, "n q"], prior_draws: Float[np.ndarray, "p q"], directions: Float[np.ndarray, "r q"]
) -> tuple[Float[np.ndarray, " r"], Float[np.ndarray, "r q"]]:
    """Contractions, descending, along the directions of their span in which the posterior narrowed most and least.

    Generalised eigenvectors of the two covariances, of length one. A fixed basis could hide a direction that learnt
    nothing between two that learnt something.
    """
    from scipy.linalg import eigh

    before = np.atleast_2d(np.cov(prior_draws @ directions.T, rowvar=False))
    after = np.atleast_2d(np.cov(draws @ directions.T, rowvar=False))
    ratios, vectors = eigh(after, before)
    found = vectors.T @ directions
    return 1 - ratios, found / np.linalg.norm(found, axis=1, keepdims=True)


def _shortened(lines: list[str]) -> list[str]:
    """The first and the last lines, where there are many: the strongest and the weakest."""
    if len(lines) <= MOST_LINES:
        return lines
    half = MOST_LINES // 2
    return [*lines[:half], f"... {len(lines) - 2 * half} directions in between ...", *lines[-half:]]


def _narrowed(value: float, words: str) -> str:
    if value >= WEAK_CONTRACTION:
        return f"learnt: {words} (its variance fell by {value:.0%})"
    return f"informed in principle, but not by these demonstrations: {words} (its variance fell by {max(value, 0):.0%})"
