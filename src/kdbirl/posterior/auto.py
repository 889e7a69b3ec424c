"""The default sampler: exact draws where the grid can give them, NUTS elsewhere; it says which, and why."""

from dataclasses import dataclass
from typing import ClassVar

from kdbirl.errors import InputError, did_you_mean
from kdbirl.posterior.grid import MOST_DIMENSIONS, Grid, GridUnsuitable
from kdbirl.posterior.mcmc import HMC, NUTS, Metropolis
from kdbirl.posterior.sampler import Draws, Problem, Sampler
from kdbirl.posterior.smc import SMC
from kdbirl.posterior.vi import VI
from kdbirl.progress import Progress


@dataclass(frozen=True)
class Auto:
    """Grid where at most three directions are informed and its error is small; else NUTS, or SMC without a gradient."""

    name: ClassVar[str] = "auto"

    def sample(self, problem: Problem, seed: int, progress: Progress) -> Draws:
        """Draws by the first sampler that suits."""
        reason = "more than three reward directions are informed"
        rank = problem.target.size if problem.informed is None else len(problem.informed)
        if min(problem.target.size, rank) <= MOST_DIMENSIONS:
            try:
                return Grid().sample(problem, seed, progress)
            except GridUnsuitable as unsuitable:
                reason = str(unsuitable)
        chosen: Sampler = NUTS() if problem.differentiable else SMC()
        result = chosen.sample(problem, seed, progress)
        note = f"{chosen.name} instead of the grid: {reason}"
        return Draws(result.draws, result.stats, result.sampler, (*result.notes, note), result.facts)


SAMPLERS: dict[str, type[Sampler]] = {
    "auto": Auto,
    "nuts": NUTS,
    "hmc": HMC,
    "metropolis": Metropolis,
    "smc": SMC,
    "vi": VI,
    "grid": Grid,
}


def as_sampler(sampler: "str | Sampler") -> Sampler:
    """A sampler from its name, with its default settings, or as it is."""
    if not isinstance(sampler, str):
        return sampler
    if sampler.lower() not in SAMPLERS:
        raise InputError(f"There is no sampler called {sampler!r}.{did_you_mean(sampler, SAMPLERS)}")
    return SAMPLERS[sampler.lower()]()
