"""Which reward directions the training tasks can inform, and which keep the prior whatever the expert does.

For a Gaussian reward kernel on Euclidean distance the likelihood depends on R only through R . (R_k - mean), so K tasks
inform at most K - 1 directions: an SVD of the centred rewards, exact. For other kernels the directions are spanned by
gradients at prior draws (`reward_gradients`), with a stated tolerance. *Given* the informed directions, the others keep
the prior's conditional: with an isotropic normal prior, and for single parameters under any prior with independent
parameters, the posterior there is the prior; a box couples combinations of parameters to the rest.

The rank is an upper bound: tasks that behave alike inform less (`contraction`, `Identifiability.describe_with`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float

from kdbirl.diagnosis.next_task import NextTask, suggest_task
from kdbirl.diagnosis.reward_gradients import reward_gradients
from kdbirl.diagnosis.wording import axis_in_words, complement_in_words, listed, readable_complement
from kdbirl.errors import InputError, did_you_mean
from kdbirl.likelihood.ckde import CKDE
from kdbirl.likelihood.distances import euclidean
from kdbirl.likelihood.kernels import Categorical
from kdbirl.posterior.priors import Prior
from kdbirl.posterior.product_prior import CustomPrior

PRIOR_DRAWS = 1024  # for the prior's spread, gradients and suggestions
TOLERANCE = 1e-9  # singular values below this share of the gradients' size are rounding (kernels without closed form)
MOST_LINES = 10  # informed directions described one by one
WEAK_CONTRACTION = 0.1  # of the variance: an informed direction that narrows less has learnt nothing worth the name


@dataclass(frozen=True, eq=False)
class Identifiability:
    """What the training tasks can say about a reward of q parameters called `names`.

    informed `(rank, q)`, uninformed `(q - rank, q)`: orthonormal rows; together they span everything.
    strengths `(rank,)`, descending: how many nats the log weight of a typical task moves (root mean square over tasks)
    when R moves one prior standard deviation along that direction.
    exact: by the closed form; otherwise numerically, with `TOLERANCE`. next_task: the task that would add most.
    coupled: the prior ties uninformed directions to informed ones, so that they move with them (see above).
    """

    informed: Float[np.ndarray, "rank q"]
    uninformed: Float[np.ndarray, "u q"]
    strengths: Float[np.ndarray, " rank"]
    names: tuple[str, ...]
    n_tasks: int
    exact: bool
    next_task: NextTask | None = None
    coupled: bool = False

    def __post_init__(self) -> None:
        both = np.concatenate([self.informed, self.uninformed])
        if both.shape != (len(self.names),) * 2 or not np.allclose(both @ both.T, np.eye(len(both)), atol=1e-8):
            raise InputError("identifiability: the informed and uninformed directions must be one orthonormal basis.")

    @property
    def rank(self) -> int:
        """How many directions are informed, from 0 to q."""
        return len(self.informed)

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
        kept = ", and ".join(listed(part) for part in self._kept_in_words if part)
        given = ", given the informed ones" if self.coupled else ""
        return f"{tasks} {self.rank} of {q} reward directions; {kept} {verb} prior{given}, whatever the expert does."

    @cached_property  # a thousand posteriors over one bank say it
    def _kept_in_words(self) -> tuple[list[str], list[str]]:
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
        lines = [self.sentence]
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
            "uninformed_in_words": [phrase for part in self._kept_in_words for phrase in part],
            "strengths": self.strengths.tolist(),
            "keeps_prior": list(self.keeps_prior()),
            "exact": self.exact,
            "next_task": None if self.next_task is None else self.next_task.to_dict(),
            "sentence": self.sentence,
        }


def identify(ckde: CKDE, prior: Prior, names: Sequence[str], h_reward: float, seed: int = 0) -> Identifiability:
    """What a bank can say, before any expert. `prior` is spelled out for the q parameters (`prior.for_parameters`)."""
    draws = prior.sample(np.random.default_rng(seed), PRIOR_DRAWS)
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
        coupled=_coupled(prior, informed, uninformed),
    )


def _coupled(prior: Prior, informed: Float[np.ndarray, "rank q"], uninformed: Float[np.ndarray, "u q"]) -> bool:
    """Whether the prior lets what is learnt about the informed directions move the others."""
    if not len(informed) or not len(uninformed):
        return False
    if prior.normal is not None:
        return not np.allclose((informed * prior.normal[1] ** 2) @ uninformed.T, 0.0, atol=1e-9)
    single = (np.abs(uninformed) > 1e-9).sum(axis=1) == 1
    return isinstance(prior, CustomPrior) or not single.all()


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
