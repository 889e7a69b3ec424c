"""Tempered sequential Monte Carlo, for posteriors with several modes and for densities without a gradient.

Particles from the prior follow p(R) L(R)^(power * t) from t = 0 to t = 1. Each temperature is chosen so that the
reweighted particles keep `target_ess` of their effective number; they are resampled, and then moved by Markov chain
steps that leave the new density as it is, with a proposal shaped like the particles (Del Moral et al. 2006; Fearnhead
and Taylor 2013). The moves are BlackJAX's. The driver is ours for three reasons: the number of moves adapts to how far
the particles have come; a density that is zero in places (compact kernels) must not stop the temperature; and weights
and resampling need no compilation in NumPy.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from blackjax.mcmc import hmc, random_walk
from blackjax.smc.base import update_and_take_last
from jaxtyping import Array, Float, Int
from scipy.optimize import brentq
from scipy.special import logsumexp

from kdbirl._jax import float64
from kdbirl.errors import InputError, SamplingError
from kdbirl.posterior.mcmc import chain_keys
from kdbirl.posterior.target import Draws, Problem, Target, density_problem, require_counts, require_numbers
from kdbirl.progress import Progress
from kdbirl.random_streams import stream
from kdbirl.store import checkpoint_of

ACCEPTANCE = {"random-walk": 0.3, "hmc": 0.8}  # of each inner kernel: what the length of its moves is tuned to
LEAPFROG_STEPS = 5
MOST_ENTRIES = 20_000_000  # particles times distinct expert rows that are evaluated at once
START_ROUNDS = 50  # times `particles` prior draws that are tried where a compact kernel makes the density zero
MOST_TEMPERATURES = 2000


class Mixing(NamedTuple):
    """When particles have moved enough, for every parameter: either test suffices.

    `correlation` with where they were before the moves; `growth` of the mean squared distance from there in the last
    sweep. The second is for several modes, between which particles cannot move, so that the first never falls.
    """

    correlation: float
    growth: float


ON_THE_WAY, AT_THE_END = Mixing(0.5, 0.2), Mixing(0.1, 0.05)


@dataclass(frozen=True)
class SMC:
    """Adaptive tempered SMC; each of `runs` independent runs gives one chain of `particles` draws.

    Moves come in sweeps of `moves` steps, up to `sweeps` of them at each temperature. `inner="hmc"` moves by gradients,
    which pays beyond some ten parameters; a `target_ess` of 0.5 to 0.7 takes half as many temperatures or fewer.
    Particles keep the order of their ancestors, so that what resampling has made dependent shows as autocorrelation.
    """

    particles: int = 2000
    runs: int = 4
    moves: int = 10
    target_ess: float = 0.9
    inner: str = "random-walk"
    sweeps: int = 30
    name: ClassVar[str] = "SMC"

    def __post_init__(self) -> None:
        require_counts(self.name, particles=self.particles, runs=self.runs, moves=self.moves, sweeps=self.sweeps)
        if not 0 < self.target_ess < 1:
            raise InputError(f"SMC(target_ess={self.target_ess}) must lie between 0 and 1: a share of the particles.")
        if self.inner not in ACCEPTANCE:
            raise InputError(f"SMC(inner={self.inner!r}) must be one of {', '.join(ACCEPTANCE)}.")

    @float64
    def sample(self, problem: Problem, seed: int, progress: Progress) -> Draws:
        """All runs, one after the other; they share their compiled programs."""
        if self.inner == "hmc" and not problem.differentiable:
            raise SamplingError('SMC(inner="hmc") needs a gradient, and the uniform kernel has none: use "random-walk"')
        batch = _batch(problem.target, self.particles)
        runs = [_Run(self, problem, seed, run, batch, progress).finished() for run in range(self.runs)]
        stats = {
            "acceptance_rate": np.stack([run.acceptance for run in runs]),
            "log_density": np.stack([run.log_prior + run.log_likelihood for run in runs]),
        }
        facts = {
            "log_evidence": [run.log_evidence for run in runs],
            "temperatures": [run.temperatures for run in runs],
            "acceptance": [float(run.acceptance.mean()) for run in runs],
        }
        slow = [str(number + 1) for number, run in enumerate(runs) if not run.mixed]
        note = f"the particles of run {', '.join(slow)} are still close to their ancestors after {self.sweeps} sweeps"
        draws = np.stack([np.asarray(_rewards(problem.target, run.particles)) for run in runs])
        return Draws(draws, stats, self.name, (f"{note}; raise moves or sweeps",) if slow else (), facts)


CHANGING = (  # of a run, from one temperature to the next
    *("temperature", "temperatures", "mixed", "acceptance", "log_evidence", "particles", "log_prior", "log_likelihood"),
    *("_calls", "_log_scale"),
)


class _Run:
    """One run: particles, their log densities, and the temperature they stand at."""

    def __init__(self, sampler: SMC, problem: Problem, seed: int, number: int, batch: int, progress: Progress) -> None:
        self._sampler, self._target, self._batch = sampler, problem.target, batch
        self._number, self._progress = number, progress
        self._rng = np.random.default_rng(stream(seed, "particles", number))
        self._key, self._calls = chain_keys(seed, [number]), 0
        self._log_scale = 0.0  # of the proposal, relative to its usual size
        self.temperature, self.temperatures, self.mixed = 0.0, 0, True
        self.acceptance = np.zeros(sampler.particles)
        rewards, share = self._inside(problem)
        self.log_evidence = float(np.log(share))
        self.particles = np.asarray(_positions(self._target, jnp.asarray(rewards)))
        self._evaluate()
        if len(np.unique(rewards, axis=0)) < 0.5 * sampler.particles:
            self._move(AT_THE_END)  # too few prior draws were inside, and were repeated
        self._checkpoint = checkpoint_of("SMC", sampler, seed, number, self._target, self.log_likelihood)

    def finished(self) -> "_Run":
        """Cool down to the posterior."""
        if held := self._checkpoint.held():
            self._rng.bit_generator.state = held.pop("rng")
            vars(self).update(held)
        while self.temperature < 1.0:
            step = _step(self.log_likelihood, 1.0 - self.temperature, self._sampler.target_ess)
            last = step == 1.0 - self.temperature
            self.temperature = 1.0 if last else self.temperature + step
            log_weights = step * self.log_likelihood
            self.log_evidence += float(logsumexp(log_weights) - np.log(len(log_weights)))
            self.temperatures += 1
            if self.temperatures > MOST_TEMPERATURES:
                raise SamplingError(
                    f"SMC stands at temperature {self.temperature:.2g} after {MOST_TEMPERATURES} steps."
                )
            self.particles = self.particles[_systematic(log_weights, self._rng)]
            self._move(AT_THE_END if last else ON_THE_WAY)
            now = {name: getattr(self, name) for name in CHANGING} | {"rng": self._rng.bit_generator.state}
            self._checkpoint.keep(now, last)
            done = 100 * self._number + round(100 * self.temperature)
            self._progress.update("SMC", done, 100 * self._sampler.runs, f"temperature {self.temperature:.2f}")
        return self

    def _inside(self, problem: Problem) -> tuple[np.ndarray, float]:
        """Prior draws of positive density, and their share: tempering itself cannot start from a density of zero."""
        wanted, tried = self._sampler.particles, 0
        found: list[np.ndarray] = []
        while sum(len(part) for part in found) < wanted and tried < START_ROUNDS * wanted:
            rewards = problem.prior.sample(self._rng, wanted)
            values = _evaluated(self._target, _positions(self._target, jnp.asarray(rewards)), self._batch)
            density = np.asarray(values[0]) + np.asarray(values[1])
            require_numbers(rewards, density)
            found.append(rewards[np.isfinite(density)])
            tried += wanted
        inside = np.concatenate(found)
        if not len(inside):
            raise density_problem("zero", tried)
        return inside[np.arange(wanted) % len(inside)], len(inside) / tried

    def _evaluate(self) -> None:
        values = _evaluated(self._target, jnp.asarray(self.particles), self._batch)
        self.log_prior, self.log_likelihood = (np.asarray(part) for part in values)

    def _move(self, enough: Mixing) -> None:
        """Sweeps of moves until the particles have moved enough."""
        sampler, origin, distance = self._sampler, self.particles, np.zeros(self.particles.shape[1])
        for _ in range(sampler.sweeps):
            covariance = _covariance(self.particles)
            moved, rates = _swept(
                self._key,
                self._calls,
                self._target,
                jnp.asarray(self.particles),
                self.temperature,
                covariance,
                np.exp(self._log_scale),
                sampler.inner,
                sampler.moves,
                self._batch,
            )
            self.particles, self.acceptance, self._calls = np.asarray(moved), np.asarray(rates), self._calls + 1
            self._log_scale += 2.0 * (float(self.acceptance.mean()) - ACCEPTANCE[sampler.inner])
            before, distance = distance, np.mean((self.particles - origin) ** 2, axis=0)
            settled = distance - before < enough.growth * distance
            self.mixed = bool(np.all(settled | (_correlation(origin, self.particles) <= enough.correlation)))
            if self.mixed:
                break
        self._evaluate()


def _batch(target: Target, particles: int) -> int:
    """How many particles to evaluate at once, so that memory is bounded."""
    rows = jax.eval_shape(target.likelihood.pointwise, target.low).shape[0]
    return min(particles, max(1, MOST_ENTRIES // max(rows, 1)))


def _step(log_likelihood: Float[np.ndarray, " p"], longest: float, target_ess: float) -> float:
    """The step in temperature after which the weights L^step have an ESS of `target_ess` times the particles."""

    def surplus(step: float) -> float:
        log_weights = step * log_likelihood
        log_ess = 2 * logsumexp(log_weights) - logsumexp(2 * log_weights)
        return float(log_ess - np.log(target_ess * len(log_weights)))

    if surplus(longest) >= 0:
        return longest
    return float(brentq(surplus, 0.0, longest, xtol=1e-300, rtol=1e-6, maxiter=2000))  # halves down to 1e-300: 1000


def _systematic(log_weights: Float[np.ndarray, " p"], rng: np.random.Generator) -> Int[np.ndarray, " p"]:
    """Systematic resampling: the ancestors of the next particles, in order."""
    edges = np.cumsum(np.exp(log_weights - log_weights.max()))
    return np.searchsorted(edges, (np.arange(len(edges)) + rng.random()) / len(edges) * edges[-1])


def _covariance(particles: Float[np.ndarray, "particles q"]) -> Float[np.ndarray, "q q"]:
    """The particles' covariance, kept positive definite where they have collapsed or are few."""
    spread = np.maximum(particles.var(axis=0), 1e-20)
    weight = len(particles) / (len(particles) + 5.0)
    return weight * np.atleast_2d(np.cov(particles, rowvar=False, ddof=0)) + (1 - weight) * np.diag(spread)


def _correlation(before: Float[np.ndarray, "p q"], after: Float[np.ndarray, "p q"]) -> Float[np.ndarray, " q"]:
    """The correlation of each parameter before and after the moves; 1 where it does not vary."""
    first, second = before - before.mean(axis=0), after - after.mean(axis=0)
    varies = (np.ptp(before, axis=0) > 0) & (np.ptp(after, axis=0) > 0)  # the mean of equal numbers may be another
    size = np.where(varies, np.sqrt(np.sum(first**2, axis=0) * np.sum(second**2, axis=0)), 0.0)
    return np.where(size > 0, np.sum(first * second, axis=0) / np.where(size > 0, size, 1.0), 1.0)


@jax.jit
def _positions(target: Target, rewards: Float[Array, "p q"]) -> Float[Array, "p q"]:
    return jax.vmap(target.unconstrain)(rewards)


@jax.jit
def _rewards(target: Target, positions: Float[Array, "p q"]) -> Float[Array, "p q"]:
    return jax.vmap(target.constrain)(positions)[0]


def _parts(target: Target, z: Float[Array, " q"]) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Log prior density of the unconstrained z, and the log likelihood times its power."""
    reward, log_slope = target.constrain(z)
    return target.log_prior(reward) + log_slope, target.power * target.likelihood(reward)


@partial(jax.jit, static_argnames="batch")
def _evaluated(target: Target, positions: Float[Array, "p q"], batch: int) -> tuple[Array, Array]:
    return jax.lax.map(partial(_parts, target), positions, batch_size=batch)


@partial(jax.jit, static_argnames=("inner", "moves", "batch"))
def _swept(
    key: Array,
    call: Int[Array, ""],
    target: Target,
    positions: Float[Array, "p q"],
    temperature: Float[Array, ""],
    covariance: Float[Array, "q q"],
    scale: Float[Array, ""],
    inner: str,
    moves: int,
    batch: int,
) -> tuple[Float[Array, "p q"], Float[Array, " p"]]:
    """`moves` steps of every particle, and the mean acceptance rate of each."""

    def log_density(z: Array) -> Array:
        log_prior, log_likelihood = _parts(target, z)
        inside = log_likelihood > -jnp.inf  # also where the temperature is 0, and 0 * inf would be NaN
        return jnp.where(inside, log_prior + temperature * jnp.where(inside, log_likelihood, 0.0), -jnp.inf)

    count, q = positions.shape
    start, step = _random_walk(covariance, scale, q) if inner == "random-walk" else _hamiltonian(covariance, scale, q)
    update, _ = update_and_take_last(start, log_density, step, moves, count, 0 if batch == count else batch)
    keys = jax.random.split(jax.random.fold_in(key[0], call), count)
    moved, info = update(keys, positions, {})
    return moved, jnp.mean(info.acceptance_rate, axis=1)


Kernel = tuple[Callable[..., Any], Callable[..., Any]]


def _random_walk(covariance: Float[Array, "q q"], scale: Array, q: int) -> Kernel:
    """Metropolis steps of the best size for a normal density: 2.38 / sqrt(q) of its covariance's root."""
    root = jnp.linalg.cholesky(covariance) * (scale * 2.38 / np.sqrt(q))
    kernel = random_walk.build_additive_step()

    def random_step(key: Array, position: Array) -> Array:
        return root @ jax.random.normal(key, position.shape, position.dtype)

    def step(key: Array, state: Any, log_density: Callable[[Array], Array]) -> Any:
        return kernel(key, state, log_density, random_step)

    return random_walk.init, step


def _hamiltonian(covariance: Float[Array, "q q"], scale: Array, q: int) -> Kernel:
    """Hamiltonian trajectories; the step starts at the stable size for a normal density of that covariance."""
    kernel = hmc.build_kernel()

    def step(key: Array, state: Any, log_density: Callable[[Array], Array]) -> Any:
        return kernel(key, state, log_density, scale * q**-0.25, covariance, LEAPFROG_STEPS)

    return hmc.init, step
