"""The default sampler: exact draws where the grid can give them, NUTS elsewhere; it says which, and why."""

from dataclasses import dataclass, fields
from typing import Any, ClassVar

from kdbirl.errors import InputError, did_you_mean
from kdbirl.posterior.grid import MOST_DIMENSIONS, Grid, GridUnsuitable
from kdbirl.posterior.independence import Independence
from kdbirl.posterior.mcmc import HMC, NUTS, Metropolis
from kdbirl.posterior.smc import SMC
from kdbirl.posterior.target import Draws, Problem, Sampler, require_counts
from kdbirl.posterior.vi import VI
from kdbirl.progress import Progress


@dataclass(frozen=True)
class Auto:
    """Grid where three directions or fewer are informed and it is exact; else NUTS, or SMC without a gradient.

    chains, and draws of each, are those of whichever is taken; warmup is for NUTS. SMC never takes fewer than usual.
    """

    chains: int = 4
    warmup: int = 1000
    draws: int = 1000
    name: ClassVar[str] = "auto"

    def __post_init__(self) -> None:
        require_counts(self.name, chains=self.chains, warmup=self.warmup, draws=self.draws)

    def sample(self, problem: Problem, seed: int, progress: Progress) -> Draws:
        """Draws by the first sampler that suits."""
        reason = "more than three reward directions are informed"
        rank = problem.target.size if problem.informed is None else len(problem.informed)
        if min(problem.target.size, rank) <= MOST_DIMENSIONS:
            try:
                return Grid(draws=self.draws, chains=self.chains).sample(problem, seed, progress)
            except GridUnsuitable as unsuitable:
                reason = str(unsuitable)
        chosen = self._with_gradient() if problem.differentiable else self._without_gradient()
        result = chosen.sample(problem, seed, progress)
        note = f"{chosen.name} instead of the grid: {reason}"
        return Draws(result.draws, result.stats, result.sampler, (*result.notes, note), result.facts)

    def _with_gradient(self) -> Sampler:
        return NUTS(chains=self.chains, warmup=self.warmup, draws=self.draws)

    def _without_gradient(self) -> Sampler:
        return SMC(runs=self.chains, particles=max(self.draws, SMC.particles))


SAMPLERS: dict[str, type[Sampler]] = {
    "auto": Auto,
    "nuts": NUTS,
    "hmc": HMC,
    "metropolis": Metropolis,
    "smc": SMC,
    "vi": VI,
    "grid": Grid,
    "independence": Independence,
}


def as_sampler(sampler: Any) -> Sampler:
    """A sampler from its name, with its default settings, or as it is."""
    if isinstance(sampler, type) or not isinstance(sampler, str | Sampler):
        raise InputError(f"sampler={sampler!r} is no sampler: give a name, or an object such as kb.NUTS(chains=4).")
    if not isinstance(sampler, str):
        return sampler
    return SAMPLERS[_known(sampler)]()


def _known(sampler: str) -> str:
    if sampler.lower() not in SAMPLERS:
        raise InputError(f"There is no sampler called {sampler!r}.{did_you_mean(sampler, SAMPLERS)}")
    return sampler.lower()


SPELLINGS = {"smc": {"chains": "runs", "draws": "particles"}}  # what a count is called where it has another name


def named_sampler(sampler: str, **counts: int | None) -> Sampler:
    """A sampler from its name and the counts that were asked for (`chains`, `warmup`, `draws`); None: its default."""
    kind = SAMPLERS[_known(sampler)]
    spelling = SPELLINGS.get(sampler.lower(), {})
    asked = {spelling.get(name, name): value for name, value in counts.items() if value is not None}
    settings = [item.name for item in fields(kind)]  # type: ignore[arg-type]
    for name in asked:
        if name not in settings:
            raise InputError(f"The sampler {sampler!r} has no {name} to choose; leave it out.")
    return kind(**asked)
