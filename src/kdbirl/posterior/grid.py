"""Exact, independent draws where the data inform three reward directions or fewer.

An adaptively refined grid (`cells.py`) approximates the density closely; its draws are then accepted with probability
density / (bound * approximation), which removes the approximation's error: what remains is the mass where the bound
is exceeded, which is estimated and reported. Three cases:

- q <= 3: the grid covers the prior's box.
- more parameters, but the likelihood sees R only through z = U R with at most three rows, and the prior is normal: the
  grid covers z; the rest is normal given z.
- the same with any other prior: draws from the prior, accepted with L / max L, the maximum from a grid over z.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from kdbirl._jax import float64
from kdbirl.errors import SamplingError
from kdbirl.posterior.cells import CellTree
from kdbirl.posterior.target import Draws, Problem, Target, density_problem, require_counts
from kdbirl.progress import Progress
from kdbirl.random_streams import stream

MOST_DIMENSIONS = 3
BATCH = 512  # points evaluated in one compiled call
PROBES = 2048  # draws from the prior that look for what the grid has missed
ROUNDS = 20  # of looking for misfit and mending it
MISFIT = 0.7  # |log density - approximation| above which a probe's cell is split
GOOD_ACCEPTANCE = 0.5  # share of the grid's draws that are accepted, from which it is good enough
RELEVANT = 12.0  # probes this far below the highest log density cannot matter
LARGEST_ERROR = 1e-3  # total-variation error above which the grid does not count as exact
SMALLEST_ACCEPTANCE = 2e-3  # rejection from the prior gives up below this


class GridUnsuitable(SamplingError):
    """The grid cannot give exact draws here; the message says why."""


@dataclass(frozen=True)
class Grid:
    """Exact independent draws from an adaptively refined grid of at most `max_cells` cells."""

    draws: int = 1000
    chains: int = 4
    max_cells: int = 100_000
    name: ClassVar[str] = "Grid"

    def __post_init__(self) -> None:
        require_counts(self.name, draws=self.draws, chains=self.chains, max_cells=self.max_cells)

    @float64
    def sample(self, problem: Problem, seed: int, progress: Progress) -> Draws:
        """Independent draws, shaped as `chains` chains so that diagnostics read as usual."""
        q = problem.target.size
        rank = q if problem.informed is None else len(problem.informed)
        rng = np.random.default_rng(stream(seed, "grid"))
        if q <= MOST_DIMENSIONS:
            rewards, facts = _full_grid(self, problem, rng, progress)
        elif rank <= MOST_DIMENSIONS and problem.prior.normal is not None:
            rewards, facts = _normal_complement(self, problem, rng, progress)
        elif rank <= MOST_DIMENSIONS:
            rewards, facts = _prior_rejection(self, problem, rng, progress)
        else:
            raise GridUnsuitable(
                f"Grid needs a reward of at most {MOST_DIMENSIONS} parameters, or training tasks that inform at most "
                f"{MOST_DIMENSIONS} directions; here {rank} of {q} directions are informed. Use NUTS."
            )
        note = f"independent draws, total-variation error below {max(facts['grid_error'], 1e-4):.0e}"
        return Draws(rewards.reshape(self.chains, self.draws, q), {}, self.name, (note,), facts)


class _Coordinates(NamedTuple):
    """The grid's own coordinates: R = point @ basis. A normal prior's marginal there is N(mean, (W'W)^-1)."""

    basis: Float[np.ndarray, "d q"]
    mean: Float[np.ndarray, " d"]
    whitening: Float[np.ndarray, "d d"]


@partial(jax.jit, static_argnames="part")
def _batch(target: Target, coordinates: _Coordinates, points: Array, part: str) -> Array:
    """The log density at points of the grid's coordinates."""

    def density(point: Array) -> Array:
        reward = jnp.sum(point[:, None] * coordinates.basis, axis=0)
        if part == "posterior":
            return target.log_posterior(reward)
        log_likelihood = target.power * target.likelihood(reward)
        if part == "likelihood":
            return log_likelihood
        return log_likelihood - 0.5 * jnp.sum((coordinates.whitening @ (point - coordinates.mean)) ** 2)

    return jax.vmap(density)(points)


class _Density:
    """A density on the grid's coordinates, evaluated in batches of one size, so that one program is compiled."""

    def __init__(self, target: Target, coordinates: _Coordinates, part: str, progress: Progress) -> None:
        self._target, self._part, self._progress = target, part, progress
        self._coordinates = jax.tree.map(jnp.asarray, coordinates)
        self._done = 0

    def __call__(self, points: Float[np.ndarray, "p d"]) -> Float[np.ndarray, " p"]:
        """Log densities; -inf where the density is zero."""
        missing = -len(points) % BATCH
        padded = np.concatenate([points, np.repeat(points[-1:], missing, axis=0)]).reshape(-1, BATCH, points.shape[1])
        results = [_batch(self._target, self._coordinates, jnp.asarray(block), self._part) for block in padded]
        self._done += len(points)
        self._progress.update("grid", self._done, self._done, "points evaluated")
        values = np.concatenate([np.asarray(result) for result in results])[: len(points)]
        if np.isnan(values).any():
            raise SamplingError(
                "The posterior density is not a number somewhere: check the prior and your own kernels."
            )
        return values


def _all_parameters(problem: Problem) -> _Coordinates:
    q = problem.target.size
    return _Coordinates(np.eye(q), np.zeros(q), np.eye(q))


def _full_grid(
    grid: Grid, problem: Problem, rng: np.random.Generator, progress: Progress
) -> tuple[np.ndarray, dict[str, Any]]:
    low, high = problem.prior.box
    density = _Density(problem.target, _all_parameters(problem), "posterior", progress)
    return _corrected_draws(grid, low, high, density, problem.prior.sample(rng, PROBES), rng)


def _normal_complement(
    grid: Grid, problem: Problem, rng: np.random.Generator, progress: Progress
) -> tuple[np.ndarray, dict[str, Any]]:
    """A grid over z = U R, then R given z: R0 + D U' (U D U')^-1 (z - U R0) for R0 from the prior (Matheron's rule)."""
    assert problem.informed is not None
    assert problem.prior.normal is not None
    directions, (mean, sd) = problem.informed, problem.prior.normal
    prior = problem.prior.sample(rng, grid.draws * grid.chains)
    if len(directions) == 0:
        return prior, {"grid_error": 0.0, "acceptance": 1.0, "cells": 0}
    covariance = (directions * sd**2) @ directions.T
    coordinates = _Coordinates(directions, directions @ mean, np.linalg.inv(np.linalg.cholesky(covariance)))
    reach = 8.3 * np.sqrt(np.diag(covariance))  # all but 1e-16 of the prior
    density = _Density(problem.target, coordinates, "normal", progress)
    probes = problem.prior.sample(rng, PROBES) @ directions.T
    z, facts = _corrected_draws(grid, coordinates.mean - reach, coordinates.mean + reach, density, probes, rng)
    gain = np.linalg.solve(covariance, directions * sd**2)
    return prior + (z - prior @ directions.T) @ gain, facts


def _tree(grid: Grid, low: np.ndarray, high: np.ndarray, density: _Density, probes: np.ndarray) -> CellTree:
    """A tree refined by its own estimate of its error, then wherever draws from the prior find more than it says."""
    tree = CellTree(low, high, probes, density)
    tree.refine(grid.max_cells)
    values = density(probes)
    if not np.isfinite(max(values.max(), tree.values.max())):
        raise GridUnsuitable(str(density_problem("zero", len(probes))))
    for _ in range(ROUNDS):
        relevant = values > max(values.max(), tree.values.max()) - RELEVANT
        cells = tree.find(probes[relevant])
        missed = values[relevant] - tree.predict(cells, probes[relevant]) > MISFIT
        if not missed.any() or len(tree.leaves) > grid.max_cells:
            break
        tree.split(np.unique(cells[missed]))
        tree.refine(grid.max_cells)
    return tree


def _corrected_draws(
    grid: Grid, low: np.ndarray, high: np.ndarray, density: _Density, probes: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, dict[str, Any]]:
    """Draws from the grid, refined until most are accepted, and accepted so that they follow the density itself."""
    tree = _tree(grid, low, high, density, probes)
    count = grid.draws * grid.chains
    for _ in range(ROUNDS):
        points, cells = tree.draw(rng, count + count // 4)
        ratios = density(points) - tree.predict(cells, points)
        bound, share = _bound(ratios)
        if share > GOOD_ACCEPTANCE or len(tree.leaves) > grid.max_cells:
            break
        tree.split(np.unique(cells[np.abs(ratios) > MISFIT]))
    if share < 0.02:
        raise GridUnsuitable(f"The grid of {len(tree.leaves)} cells fits the density badly (acceptance {share:.1%}).")
    while len(points) * share < count * 1.05 + 50:
        more, cells = tree.draw(rng, max(int(count * 1.1 / share) - len(points), 0) + 100)
        points, ratios = (
            np.concatenate([points, more]),
            np.concatenate([ratios, density(more) - tree.predict(cells, more)]),
        )
        bound, share = _bound(ratios)
    accepted = np.flatnonzero(np.log(rng.random(len(points))) < ratios - bound)
    weights = np.exp(ratios - bound)
    error = float(np.maximum(weights - 1, 0).sum() / weights.sum())
    if len(accepted) < count or error > LARGEST_ERROR:
        raise GridUnsuitable(f"The grid's error is {error:.1e}, above {LARGEST_ERROR:.0e}.")
    facts = {"grid_error": error, "acceptance": len(accepted) / len(points), "cells": len(tree.leaves)}
    return points[accepted[:count]], facts


def _bound(ratios: np.ndarray) -> tuple[float, float]:
    """A bound of the log ratio that costs at most a tenth of the largest allowed error, and the share it accepts."""
    descending = np.sort(ratios[np.isfinite(ratios)])[::-1]
    if not len(descending):
        raise GridUnsuitable("The density is zero at every draw from the grid.")
    weights = np.exp(descending - descending[0])
    excess = np.concatenate([[0.0], np.cumsum(weights[:-1])]) - np.arange(len(weights)) * weights
    bound = float(descending[np.flatnonzero(excess <= 0.1 * LARGEST_ERROR * weights.sum())[-1]])
    return bound, float(np.minimum(np.exp(ratios - bound), 1.0).mean())


def _prior_rejection(
    grid: Grid, problem: Problem, rng: np.random.Generator, progress: Progress
) -> tuple[np.ndarray, dict[str, Any]]:
    """Prior draws accepted with L / max L."""
    count = grid.draws * grid.chains
    largest = _largest_likelihood(grid, problem, rng, progress)
    density = _Density(problem.target, _all_parameters(problem), "likelihood", progress)
    kept: list[np.ndarray] = []
    tried = accepted = 0
    while accepted < count:
        rewards = problem.prior.sample(rng, 8 * BATCH)
        values = density(rewards)
        if values.max() > largest + 1e-6:
            raise GridUnsuitable("A draw from the prior has a higher likelihood than the grid's maximum.")
        chosen = rewards[np.log(rng.random(len(rewards))) < values - largest]
        kept.append(chosen)
        tried, accepted = tried + len(rewards), accepted + len(chosen)
        if tried >= 16 * BATCH and accepted < SMALLEST_ACCEPTANCE * tried:
            raise GridUnsuitable(f"Only {accepted} of {tried} draws from the prior were accepted.")
    return np.concatenate(kept)[:count], {"grid_error": 0.0, "acceptance": accepted / tried, "cells": 0}


def _largest_likelihood(grid: Grid, problem: Problem, rng: np.random.Generator, progress: Progress) -> float:
    """An upper bound of the log likelihood over the box, from a grid over z = U R."""
    assert problem.informed is not None
    directions, (low, high) = problem.informed, problem.prior.box
    if not len(directions):
        return float(_Density(problem.target, _all_parameters(problem), "likelihood", progress)(low[None])[0])
    centre, half = directions @ (low + high) / 2, np.abs(directions) @ (high - low) / 2
    rank = len(directions)
    coordinates = _Coordinates(directions, np.zeros(rank), np.eye(rank))
    density = _Density(problem.target, coordinates, "likelihood", progress)
    probes = problem.prior.sample(rng, PROBES) @ directions.T
    return _tree(grid, centre - half, centre + half, density, probes).upper_bound(grid.max_cells)
