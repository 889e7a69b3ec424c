"""Markov chains: NUTS, Hamiltonian Monte Carlo and random-walk Metropolis, through one driver loop.

The transition kernels, dual averaging and the mass-matrix estimate are BlackJAX's. The driver is ours for three
reasons: warm-up and sampling share one compiled step, which halves the compile time; iterations run in blocks, so that
progress can be shown and chains that were stopped can go on; and the random key of an iteration depends on the seed,
the chain and the iteration alone.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
import numpy as np
from blackjax.adaptation.mass_matrix import MassMatrixAdaptationState, mass_matrix_adaptation
from blackjax.adaptation.step_size import DualAveragingAdaptationState, dual_averaging_adaptation
from blackjax.adaptation.window_adaptation import build_schedule
from blackjax.mcmc import hmc, nuts, random_walk
from jaxtyping import Array, Float

from kdbirl._jax import float64
from kdbirl.errors import InputError, SamplingError
from kdbirl.posterior.target import Draws, Problem, Starts, Target, require_counts, starting_points
from kdbirl.progress import Progress
from kdbirl.random_streams import stream
from kdbirl.store import checkpoint_of

BLOCK = 100  # iterations per compiled call
DONE = 2  # the stage after warm-up; before it, 0 adapts the step size alone and 1 the mass matrix too
DENSE_UP_TO = 30  # parameters up to which the mass matrix is dense by default

MassMatrix = Literal["auto", "dense", "diagonal"]


class Adaptation(NamedTuple):
    """What warm-up learns."""

    step: DualAveragingAdaptationState
    mass: MassMatrixAdaptationState
    step_size: Float[Array, ""]


class Chain(ABC):
    """A Markov chain sampler: configuration plus one transition. Subclasses are frozen dataclasses."""

    name: ClassVar[str]
    chains: int
    warmup: int
    draws: int
    target_acceptance: float
    mass_matrix: MassMatrix
    thin: int

    @abstractmethod
    def start(self, points: Starts) -> Any:
        """The kernel's states at the starting points, one per chain."""

    @abstractmethod
    def transition(
        self, key: Array, state: Any, target: Target, adaptation: Adaptation
    ) -> tuple[Any, dict[str, Array]]:
        """One step of the chain, and its statistics; `acceptance_rate` drives the adaptation."""

    @property
    def needs_gradient(self) -> bool:
        """Whether the density must have a gradient."""
        return True

    def diagonal(self, size: int) -> bool:
        """Whether the mass matrix is diagonal for that many parameters."""
        return size > DENSE_UP_TO if self.mass_matrix == "auto" else self.mass_matrix == "diagonal"

    def sample(self, problem: Problem, seed: int, progress: Progress) -> Draws:
        """Run all chains: the driver loop."""
        return run_chains(self, problem, seed, progress)

    def _check(self) -> None:
        require_counts(self.name, chains=self.chains, draws=self.draws, thin=self.thin)
        if self.warmup < 0 or not 0 < self.target_acceptance < 1:
            raise InputError(f"{self.name}: warmup must not be negative and target_acceptance must lie in (0, 1).")
        if self.mass_matrix not in get_args(MassMatrix):
            raise InputError(
                f"{self.name}(mass_matrix={self.mass_matrix!r}) must be one of {', '.join(get_args(MassMatrix))}."
            )


@dataclass(frozen=True)
class NUTS(Chain):
    """The no-U-turn sampler (Hoffman and Gelman 2014), with Stan's windows of warm-up."""

    chains: int = 4
    warmup: int = 1000
    draws: int = 1000
    target_acceptance: float = 0.8
    max_depth: int = 10
    mass_matrix: MassMatrix = "auto"
    thin: int = 1
    name: ClassVar[str] = "NUTS"

    def __post_init__(self) -> None:
        self._check()
        require_counts(self.name, max_depth=self.max_depth)

    def start(self, points: Starts) -> Any:
        return hmc.HMCState(*points)

    def transition(
        self, key: Array, state: Any, target: Target, adaptation: Adaptation
    ) -> tuple[Any, dict[str, Array]]:
        kernel = nuts.build_kernel()
        inverse_mass = adaptation.mass.inverse_mass_matrix
        state, info = kernel(key, state, target.on_whole_space, adaptation.step_size, inverse_mass, self.max_depth)
        return state, {
            "acceptance_rate": info.acceptance_rate,
            "diverging": info.is_divergent,
            "energy": info.energy,
            "n_steps": info.num_integration_steps,
            "tree_depth": info.num_trajectory_expansions,
        }


@dataclass(frozen=True)
class HMC(Chain):
    """Hamiltonian Monte Carlo; each trajectory has between one and `steps` leapfrog steps, at random.

    A fixed length would let a trajectory come back to where it began, for a posterior of just that period.
    """

    chains: int = 4
    warmup: int = 1000
    draws: int = 1000
    steps: int = 10
    target_acceptance: float = 0.8
    mass_matrix: MassMatrix = "auto"
    thin: int = 1
    name: ClassVar[str] = "HMC"

    def __post_init__(self) -> None:
        self._check()
        require_counts(self.name, steps=self.steps)

    def start(self, points: Starts) -> Any:
        return hmc.HMCState(*points)

    def transition(
        self, key: Array, state: Any, target: Target, adaptation: Adaptation
    ) -> tuple[Any, dict[str, Array]]:
        key, length_key = jax.random.split(key)
        length = jax.random.randint(length_key, (), 1, self.steps + 1)
        inverse_mass = adaptation.mass.inverse_mass_matrix
        state, info = hmc.build_kernel()(key, state, target.on_whole_space, adaptation.step_size, inverse_mass, length)
        return state, {
            "acceptance_rate": info.acceptance_rate,
            "diverging": info.is_divergent,
            "energy": info.energy,
            "n_steps": info.num_integration_steps,
        }


@dataclass(frozen=True)
class Metropolis(Chain):
    """Random-walk Metropolis; the proposal's covariance and scale are learnt in warm-up. Needs no gradient."""

    chains: int = 4
    warmup: int = 2000
    draws: int = 1000
    target_acceptance: float = 0.3
    mass_matrix: MassMatrix = "auto"
    thin: int = 20
    name: ClassVar[str] = "Metropolis"

    def __post_init__(self) -> None:
        self._check()

    @property
    def needs_gradient(self) -> bool:
        return False

    def start(self, points: Starts) -> Any:
        return random_walk.RWState(points.positions, points.values)

    def transition(
        self, key: Array, state: Any, target: Target, adaptation: Adaptation
    ) -> tuple[Any, dict[str, Array]]:
        covariance = adaptation.mass.inverse_mass_matrix
        root = jnp.linalg.cholesky(covariance) if covariance.ndim == 2 else jnp.diag(jnp.sqrt(covariance))

        def random_step(step_key: Array, position: Array) -> Array:
            return adaptation.step_size * (root @ jax.random.normal(step_key, position.shape, position.dtype))

        state, info = random_walk.build_additive_step()(key, state, target.on_whole_space, random_step)
        return state, {"acceptance_rate": info.acceptance_rate, "accepted": info.is_accepted}


def _adaptation(sampler: Chain, size: int) -> tuple[Any, Any]:
    return mass_matrix_adaptation(sampler.diagonal(size)), dual_averaging_adaptation(sampler.target_acceptance)


def _adapted(
    sampler: Chain, adaptation: Adaptation, position: Array, rate: Array, stage: Array, end: Array
) -> Adaptation:
    """One step of Stan's warm-up. `stage` and `end` are the same for all chains, so the branches stay branches."""
    (_, mass_update, mass_final), (step_init, step_update, step_final) = _adaptation(sampler, position.shape[0])

    def fast() -> Adaptation:
        step = step_update(adaptation.step, rate)
        return Adaptation(step, adaptation.mass, jnp.exp(step.log_step_size))

    def slow() -> Adaptation:
        step = step_update(adaptation.step, rate)
        moved = Adaptation(step, mass_update(adaptation.mass, position, None), jnp.exp(step.log_step_size))
        return jax.lax.cond(end, lambda: closed(moved), lambda: moved)

    def closed(now: Adaptation) -> Adaptation:
        step = step_init(step_final(now.step))
        return Adaptation(step, mass_final(now.mass), jnp.exp(step.log_step_size))

    def done() -> Adaptation:
        return adaptation

    return jax.lax.switch(stage, (fast, slow, done))


@partial(jax.jit, static_argnames=("sampler", "size"))
def _unadapted(sampler: Chain, size: int) -> Adaptation:
    """Where warm-up begins."""
    (mass_init, _, _), (step_init, _, _) = _adaptation(sampler, size)
    step_size = jnp.asarray(0.5, float)
    return Adaptation(step_init(step_size), mass_init(size), step_size)


def _first_adaptation(sampler: Chain, size: int) -> Adaptation:
    """The same beginning for every chain.

    As NumPy arrays, which have one type: BlackJAX starts from Python numbers, whose weaker type would make the second
    block of iterations compile everything again.
    """

    def for_chains(value: Array) -> np.ndarray:
        return np.repeat(np.asarray(value)[None], sampler.chains, axis=0)

    adaptation: Adaptation = jax.tree.map(for_chains, _unadapted(sampler, size))
    return adaptation


def chain_keys(seed: int, chains: Sequence[int]) -> Array:
    """A random key per chain, from the seed and the chain's number alone; made by NumPy, which compiles nothing."""
    words = [stream(seed, "chains", chain).generate_state(2) for chain in chains]
    return jax.random.wrap_key_data(jnp.asarray(np.stack(words)), impl="threefry2x32")


@partial(jax.jit, static_argnames="sampler")
def _block(
    sampler: Chain,
    target: Target,
    state: Any,
    adaptation: Adaptation,
    keys: Array,
    iterations: Array,
    stages: Array,
    ends: Array,
    last: Array,
) -> tuple[Any, Adaptation, Array, dict[str, Array]]:
    """A block of iterations of all chains. `last` marks the end of warm-up, where the averaged step size is taken."""
    step_final = _adaptation(sampler, target.size)[1][2]

    def step(carry: tuple[Any, Adaptation], now: tuple[Array, Array, Array, Array]) -> Any:
        iteration, stage, end, is_last = now

        def one(state: Any, adaptation: Adaptation, key: Array) -> Any:
            state, info = sampler.transition(jax.random.fold_in(key, iteration), state, target, adaptation)
            new = _adapted(sampler, adaptation, state.position, info["acceptance_rate"], stage, end)
            settled = new._replace(step_size=step_final(new.step))
            new = jax.lax.cond(is_last, lambda: settled, lambda: new)
            return state, new, info | {"step_size": adaptation.step_size, "log_density": state.logdensity}

        state, adapted, info = jax.vmap(one)(*carry, keys)
        return (state, adapted), (jax.vmap(target.constrain)(state.position)[0], info)

    (state, adaptation), (rewards, info) = jax.lax.scan(step, (state, adaptation), (iterations, stages, ends, last))
    return state, adaptation, rewards, info


class _Schedule(NamedTuple):
    """The stage of every iteration, as the compiled block wants it."""

    iterations: np.ndarray
    stages: np.ndarray
    ends: np.ndarray
    last: np.ndarray

    @classmethod
    def build(cls, warmup: int, draws: int, thin: int) -> "_Schedule":
        total = warmup + draws * thin
        padded = -(-total // BLOCK) * BLOCK  # whole blocks: the surplus is computed and dropped
        stages, ends = np.full(padded, DONE), np.zeros(padded, dtype=bool)
        if warmup:
            plan = np.asarray(build_schedule(warmup))  # as one array: taking a JAX array apart compiles a program
            stages[:warmup], ends[:warmup] = plan[:, 0], plan[:, 1]
        return cls(np.arange(padded), stages, ends, np.arange(padded) == warmup - 1)


@float64
def run_chains(sampler: Chain, problem: Problem, seed: int, progress: Progress) -> Draws:
    """Starting points, warm-up and sampling of all chains, in blocks."""
    target = problem.target
    if sampler.needs_gradient and not problem.differentiable:
        raise SamplingError(
            f"{sampler.name} needs a gradient, and the uniform kernel has none; use Grid, SMC or Metropolis."
        )
    starts = starting_points(target, problem.prior, sampler.chains, seed, sampler.needs_gradient)
    now = sampler.start(starts), _first_adaptation(sampler, target.size)
    checkpoint = checkpoint_of(sampler.name, sampler, seed, target, starts)
    held = checkpoint.held() or {"first": 0, "now": jax.tree.leaves(now), "kept": []}
    state, adaptation = jax.tree.unflatten(jax.tree.structure(now), held["now"])
    kept: list[tuple[np.ndarray, dict[str, np.ndarray]]] = [(rewards, info) for rewards, info in held["kept"]]
    kernel = replace(sampler, warmup=0, draws=1, thin=1)  # type: ignore[type-var]  # other counts, the same program
    keys = chain_keys(seed, range(sampler.chains))
    schedule = _Schedule.build(sampler.warmup, sampler.draws, sampler.thin)
    total = sampler.warmup + sampler.draws * sampler.thin
    for first in range(held["first"], len(schedule.iterations), BLOCK):
        part = _Schedule(*(column[first : first + BLOCK] for column in schedule))
        state, adaptation, rewards, info = _block(kernel, target, state, adaptation, keys, *part)
        if first + BLOCK > sampler.warmup:
            kept.append((np.asarray(rewards), {name: np.asarray(values) for name, values in info.items()}))
        after, done = first + BLOCK, min(first + BLOCK, total)
        state_now = {"first": after, "now": jax.tree.leaves((state, adaptation)), "kept": kept}
        checkpoint.keep(state_now, last=after >= len(schedule.iterations))
        phase = "warm-up" if done <= sampler.warmup else "sampling"
        progress.update(f"{sampler.name}, {sampler.chains} chains", done, total, phase)
    return _collected(sampler, kept, skipped=sampler.warmup % BLOCK if sampler.warmup >= BLOCK else sampler.warmup)


def _collected(sampler: Chain, kept: list[tuple[np.ndarray, dict[str, np.ndarray]]], skipped: int) -> Draws:
    """(iteration, chain, ...) blocks -> (chain, draw, ...), without the rest of warm-up, thinned."""
    chosen = slice(skipped + sampler.thin - 1, skipped + sampler.draws * sampler.thin, sampler.thin)

    def joined(blocks: list[np.ndarray]) -> np.ndarray:
        return np.ascontiguousarray(np.swapaxes(np.concatenate(blocks)[chosen], 0, 1))

    stats = {name: joined([info[name] for _, info in kept]) for name in kept[0][1]}
    facts = {"step_size": float(np.mean(stats["step_size"]))}
    return Draws(joined([rewards for rewards, _ in kept]), stats, sampler.name, (), facts)
