"""PolicyWalk (Ramachandran and Amir 2007): a random walk over a lattice of rewards, with its optimal policy.

    1. R' is a neighbour of R on the lattice: one parameter, chosen evenly, goes up or down by its step.
    2. The optimal policy of R' is found by policy iteration from that of R; mostly it is the same one.
    3. R' and its policy are taken with probability min(1, p(R' | expert) / p(R | expert)).

The draws follow the posterior restricted to the lattice. Where the prior has bounds, the lattice points are the
midpoints of equal cells that fill them, so their mean is the midpoint rule for the posterior's mean: it errs by the
square of the step while the posterior is wider than a step: `posterior.convergence` asks for that, and names the step
that would do. Elsewhere they are the multiples of the step, as published. A lattice point costs one evaluation of
a policy and moves one parameter by one step, so an effective draw costs about q (width / step)^2 evaluations.
"""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from kdbirl._jax import float64
from kdbirl.errors import InputError
from kdbirl.methods.optimal_values import BIRLLikelihood
from kdbirl.posterior.mcmc import chain_keys
from kdbirl.posterior.priors import Prior
from kdbirl.posterior.target import Draws, Problem, Target, require_counts, starting_points
from kdbirl.progress import Progress

BLOCK = 50  # kept draws per compiled call
CELLS = 10  # per width of the prior, where no step is given
SPREAD_DRAWS = 4000  # from the prior, for the width of one without bounds


class Lattice(NamedTuple):
    """The points origin + place * step, for integers first <= place <= last, of each parameter."""

    origin: Float[Array, " q"]
    step: Float[Array, " q"]
    first: Int[Array, " q"]
    last: Int[Array, " q"]

    @classmethod
    def over(cls, prior: Prior, step: float | None) -> "Lattice":
        """Cells of about `step` over the prior; by default a tenth of its width (of sqrt(12) sd, without bounds)."""
        low, high = prior.support
        spread = prior.sample(np.random.default_rng(0), SPREAD_DRAWS).std(axis=0)
        bounded = np.isfinite(low) & np.isfinite(high)
        width = np.where(bounded, np.where(bounded, high, 1.0) - np.where(bounded, low, 0.0), np.sqrt(12) * spread)
        chosen = width / CELLS if step is None else np.full(len(width), float(step))
        cells = np.maximum(np.round(width / chosen), 1)
        size = np.where(bounded, width / cells, chosen)
        from_high = np.where(np.isfinite(high), high - size / 2, 0.0)
        origin = np.where(np.isfinite(low), np.where(np.isfinite(low), low, 0.0) + size / 2, from_high)
        far = np.iinfo(np.int32).max // 4
        first = np.where(np.isfinite(low), 0, -far)
        last = np.where(bounded, cells - 1, np.where(np.isfinite(high) & ~np.isfinite(low), 0, far))
        places = (jnp.asarray(first, dtype=jnp.int32), jnp.asarray(last, dtype=jnp.int32))
        return cls(jnp.asarray(origin), jnp.asarray(size), *places)

    def reward(self, place: Int[Array, " q"]) -> Float[Array, " q"]:
        """The point at a place."""
        return self.origin + self.step * place

    def nearest(self, reward: Float[Array, " q"]) -> Int[Array, " q"]:
        """The place nearest to a reward."""
        return jnp.clip(jnp.round((reward - self.origin) / self.step), self.first, self.last).astype(jnp.int32)


class Walker(NamedTuple):
    """Where a chain is: its place on the lattice, an optimal policy there, and the log density."""

    place: Int[Array, " q"]
    policy: Int[Array, " n"]
    log_density: Float[Array, ""]


@dataclass(frozen=True)
class PolicyWalk:
    """PolicyWalk on a lattice of rewards. warmup and draws count kept draws, of which each is `thin` steps of the walk.

    step: between neighbours (delta); on a bounded prior it is rounded so that whole cells fill the bounds. None: a
    tenth of the prior's width. thin: None is as many steps as there are parameters.
    """

    chains: int = 4
    warmup: int = 500
    draws: int = 1000
    step: float | int | None = None
    thin: int | None = None
    name: ClassVar[str] = "PolicyWalk"

    def __post_init__(self) -> None:
        counts = {"chains": self.chains, "draws": self.draws}
        optional = {"warmup": self.warmup or 1, "thin": 1 if self.thin is None else self.thin}  # no warm-up is allowed
        require_counts(self.name, **counts, **optional)
        if self.step is not None and not (np.isreal(self.step) and 0 < self.step < np.inf):
            raise InputError(f"PolicyWalk(step={self.step!r}): a positive number was expected.")

    @float64
    def sample(self, problem: Problem, seed: int, progress: Progress) -> Draws:
        """All chains, in blocks of kept draws."""
        target, lattice = problem.target, Lattice.over(problem.prior, self.step)
        thin = target.size if self.thin is None else self.thin
        starts = starting_points(target, problem.prior, self.chains, seed, differentiable=False)
        walkers = _walkers(target, lattice, jnp.asarray(starts.positions))
        keys, total = chain_keys(seed, range(self.chains)), self.warmup + self.draws
        kept = []
        for first in range(0, total, BLOCK):
            walkers, places, stats = _block(target, lattice, walkers, keys, np.arange(first, first + BLOCK), thin)
            kept.append((np.asarray(places), {name: np.asarray(values) for name, values in stats.items()}))
            done = min(first + BLOCK, total)
            phase = "warm-up" if done <= self.warmup else "sampling"
            progress.update(f"PolicyWalk, {self.chains} chains", done, total, phase)
        return self._collected(kept, lattice, thin)

    def _collected(self, kept: list[tuple[np.ndarray, dict[str, np.ndarray]]], lattice: Lattice, thin: int) -> Draws:
        def joined(blocks: list[np.ndarray]) -> np.ndarray:
            after_warmup = np.concatenate(blocks)[self.warmup : self.warmup + self.draws]
            return np.ascontiguousarray(np.swapaxes(after_warmup, 0, 1))

        places = joined([block for block, _ in kept])
        stats = {name: joined([info[name] for _, info in kept]) for name in kept[0][1]}
        step = np.asarray(lattice.step)
        facts = {"lattice_step": step.tolist(), "steps_per_draw": thin}
        size = f"{step.min():.3g}" if np.ptp(step) == 0 else f"{step.min():.3g} to {step.max():.3g}"
        note = f"PolicyWalk draws lie on a lattice of step {size}"
        return Draws(np.asarray(lattice.origin) + step * places, stats, self.name, (note,), facts)


@jax.jit
def _walkers(target: Target, lattice: Lattice, positions: Float[Array, "chain q"]) -> Walker:
    """Walkers at the lattice points nearest to the starting points, with their optimal policies."""

    def one(position: Array) -> Walker:
        place, values = lattice.nearest(target.constrain(position)[0]), _likelihood(target).optimal_values
        return _at(target, lattice, place, values.first_policy(values.reward_table(lattice.reward(place))))

    return jax.vmap(one)(positions)


def _likelihood(target: Target) -> BIRLLikelihood:
    """The likelihood, which must have action values: nothing else has policies to walk along with."""
    if not isinstance(target.likelihood, BIRLLikelihood):
        raise InputError("PolicyWalk walks over rewards and their optimal policies: it is a sampler of kb.BIRL only.")
    return target.likelihood


def _at(target: Target, lattice: Lattice, place: Int[Array, " q"], policy: Int[Array, " n"]) -> Walker:
    """A walker at a place, its policy found from `policy`."""
    likelihood, reward = _likelihood(target), lattice.reward(place)
    q_values, optimal = likelihood.optimal_values.warm(reward, policy)
    log_density = target.log_prior(reward) + target.power * likelihood.of_action_values(q_values)
    inside = jnp.all((place >= lattice.first) & (place <= lattice.last))
    return Walker(place, optimal, jnp.where(inside, log_density, -jnp.inf))


def _step(key: Array, walker: Walker, target: Target, lattice: Lattice) -> tuple[Walker, Array, Array]:
    """One step of the walk; whether it was taken, and whether the policy changed with it."""
    which_key, side_key, chance_key = jax.random.split(key, 3)
    which = jax.random.randint(which_key, (), 0, target.size)
    side = 2 * jax.random.bernoulli(side_key).astype(jnp.int32) - 1
    proposal = _at(target, lattice, walker.place.at[which].add(side), walker.policy)
    taken = jnp.log(jax.random.uniform(chance_key)) < proposal.log_density - walker.log_density
    changed = taken & (proposal.policy != walker.policy).any()
    return jax.tree.map(lambda new, old: jnp.where(taken, new, old), proposal, walker), taken, changed


@jax.jit
def _block(
    target: Target, lattice: Lattice, walkers: Walker, keys: Array, numbers: Int[Array, " draws"], thin: Array
) -> tuple[Walker, Array, dict[str, Array]]:
    """Kept draws of all chains, `thin` steps each: places (draw, chain, q) and statistics (draw, chain)."""

    def one(walker: Walker, key: Array, number: Array) -> tuple[Walker, dict[str, Array]]:
        def step(i: Array, state: tuple[Walker, Array, Array]) -> tuple[Walker, Array, Array]:
            walker, taken, changed = _step(jax.random.fold_in(key, number * thin + i), state[0], target, lattice)
            return walker, state[1] + taken, state[2] + changed

        walker, taken, changed = jax.lax.fori_loop(0, thin, step, (walker, jnp.asarray(0), jnp.asarray(0)))
        stats = {"acceptance_rate": taken / thin, "policy_changes": changed, "log_density": walker.log_density}
        return walker, stats

    def kept(walkers: Walker, number: Array) -> tuple[Walker, tuple[Array, dict[str, Array]]]:
        walkers, stats = jax.vmap(one, in_axes=(0, 0, None))(walkers, keys, number)
        return walkers, (walkers.place, stats)

    walkers, (places, stats) = jax.lax.scan(kept, walkers, numbers)
    return walkers, places, stats
