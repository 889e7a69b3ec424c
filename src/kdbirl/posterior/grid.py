"""Exact, independent draws where the data inform three reward directions or fewer.

An adaptively refined grid (`cells.py`) approximates the density closely; its draws are then accepted with probability
density / (bound * approximation), which removes the approximation's error: what remains is the mass where the bound
is exceeded, which is estimated and reported. Three cases:

- q <= 3: the grid covers the prior's box.
- more parameters, but the likelihood sees R only through z = U R with at most three rows, and the prior is normal: the
  grid covers z; the rest is normal given z.
- the same with any other prior: draws from the prior, accepted with L / max L, the maximum from a grid over z.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from kdbirl.errors import SamplingError
from kdbirl.posterior.cells import Box, Cells, refined
from kdbirl.posterior.sampler import Draws, Problem, require_counts
from kdbirl.posterior.target import Target
from kdbirl.precision import float64
from kdbirl.progress import Progress

MOST_DIMENSIONS = 3
BATCH = 2048  # points evaluated in one compiled call
PROBES = 2048  # prior draws that look for mass which the grid has missed
PROBE_ROUNDS = 6
NOTICEABLE = 12.0  # a probe this far below the highest log density cannot matter
EXCESS = 1.5  # log ratio of density to approximation above which a probe's cell is refined
LARGEST_ERROR = 1e-3  # total-variation error above which the grid does not count as exact
SMALLEST_ACCEPTANCE = 2e-3  # rejection from the prior gives up below this


class GridUnsuitable(SamplingError):
    """The grid cannot give exact draws here; the message says why."""


@dataclass(frozen=True)
class Grid:
    """Exact independent draws from an adaptively refined grid of at most `max_cells` cells."""

    draws: int = 1000
    chains: int = 4
    max_cells: int = 200_000
    name: ClassVar[str] = "Grid"

    def __post_init__(self) -> None:
        require_counts(self.name, draws=self.draws, chains=self.chains, max_cells=self.max_cells)

    @float64
    def sample(self, problem: Problem, seed: int, progress: Progress) -> Draws:
        """Independent draws, shaped as `chains` chains so that diagnostics read as usual."""
        q = problem.target.size
        rank = q if problem.informed is None else len(problem.informed)
        rng = np.random.default_rng(seed)
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


@partial(jax.jit, static_argnames="part")
def _batch(target: Target, basis: Array, moments: Any, points: Array, part: str) -> tuple[Array, Array]:
    """Log density and gradient at points of the grid's coordinates, R = points @ basis."""

    def density(point: Array) -> Array:
        reward = jnp.sum(point[:, None] * basis, axis=0)
        if part == "posterior":
            return target.log_posterior(reward)
        log_likelihood = target.power * target.likelihood(reward)
        if part == "likelihood":
            return log_likelihood
        mean, whitening = moments  # a normal prior's marginal of the informed directions
        return log_likelihood - 0.5 * jnp.sum((whitening @ (point - mean)) ** 2)

    return jax.vmap(jax.value_and_grad(density))(points)


def _evaluator(
    target: Target, basis: np.ndarray, moments: Any, part: str, progress: Progress
) -> Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """Evaluate any number of points in batches of one size, so that one program is compiled."""
    done = 0
    fixed = (jnp.asarray(basis), jax.tree.map(jnp.asarray, moments))

    def evaluate(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        nonlocal done
        values, gradients = [], []
        for start in range(0, len(points), BATCH):
            block = points[start : start + BATCH]
            padded = np.concatenate([block, np.repeat(block[-1:], BATCH - len(block), axis=0)])
            value, gradient = _batch(target, *fixed, jnp.asarray(padded), part)
            values.append(np.asarray(value)[: len(block)])
            gradients.append(np.asarray(gradient)[: len(block)])
            done += len(block)
            progress.update("grid", done, done, "points evaluated")
        return np.concatenate(values), np.concatenate(gradients)

    return evaluate


def _full_grid(grid: Grid, problem: Problem, rng: np.random.Generator, progress: Progress) -> tuple[np.ndarray, dict[str, Any]]:
    low, high = problem.prior.box
    evaluate = _evaluator(problem.target, np.eye(len(low)), (), "posterior", progress)
    probes = problem.prior.sample(rng, PROBES)
    return _corrected_draws(grid, low, high, evaluate, probes, rng)


def _normal_complement(
    grid: Grid, problem: Problem, rng: np.random.Generator, progress: Progress
) -> tuple[np.ndarray, dict[str, Any]]:
    """A grid over z = U R, then R given z: R0 + D U' (U D U')^-1 (z - U R0) for R0 from the prior (Matheron's rule)."""
    assert problem.informed is not None and problem.prior.normal is not None
    directions, (mean, sd) = problem.informed, problem.prior.normal
    count = grid.draws * grid.chains
    prior = problem.prior.sample(rng, count)
    if len(directions) == 0:
        return prior, {"grid_error": 0.0, "acceptance": 1.0, "cells": 0}
    covariance = (directions * sd**2) @ directions.T
    moments = (directions @ mean, np.linalg.inv(np.linalg.cholesky(covariance)))
    reach = 8.3 * np.sqrt(np.diag(covariance))  # all but 1e-16 of the prior
    evaluate = _evaluator(problem.target, directions, moments, "normal", progress)
    probes = problem.prior.sample(rng, PROBES) @ directions.T
    z, facts = _corrected_draws(grid, moments[0] - reach, moments[0] + reach, evaluate, probes, rng)
    gain = np.linalg.solve(covariance, directions * sd**2)
    return prior + (z - prior @ directions.T) @ gain, facts


def _corrected_draws(
    grid: Grid, low: np.ndarray, high: np.ndarray, evaluate: Any, probes: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, dict[str, Any]]:
    """Draws from the grid, accepted so that they follow the density itself."""
    box = Box.between(low, high, probes)
    cells = refined(box.first_cells(evaluate), evaluate, grid.max_cells)
    cells = _probed(cells, box, evaluate, probes, grid.max_cells)
    count = grid.draws * grid.chains
    points, ratios = _proposals(cells, evaluate, rng, count + count // 2)
    while True:
        bound = _bound(ratios)
        share = np.minimum(np.exp(ratios - bound), 1.0).mean()
        if share < 0.01:
            raise GridUnsuitable(f"The grid of {len(cells.values)} cells fits the density badly (acceptance {share:.1%}).")
        if len(points) * share > count * 1.05 + 10:
            break
        more = _proposals(cells, evaluate, rng, int(count * 1.1 / share) - len(points) + 256)
        points, ratios = np.concatenate([points, more[0]]), np.concatenate([ratios, more[1]])
    accepted = np.log(rng.random(len(points))) < ratios - bound
    error = float(np.maximum(np.exp(ratios - bound) - 1, 0).mean() / np.exp(ratios - bound).mean())
    if accepted.sum() < count or error > LARGEST_ERROR:
        raise GridUnsuitable(f"The grid's error is {error:.1e}, above {LARGEST_ERROR:.0e}.")
    facts = {"grid_error": error, "acceptance": float(accepted.mean()), "cells": len(cells.values)}
    return points[accepted][:count], facts


def _bound(ratios: np.ndarray) -> float:
    """A bound of the log ratio that leaves a total-variation error of at most a tenth of the largest allowed."""
    descending = np.sort(ratios[np.isfinite(ratios)])[::-1]
    if not len(descending):
        raise GridUnsuitable("The density is zero at every draw from the grid.")
    weights = np.exp(descending - descending[0])
    excess = np.concatenate([[0.0], np.cumsum(weights[:-1])]) - np.arange(len(weights)) * weights
    allowed = excess <= 0.1 * LARGEST_ERROR * weights.sum()
    return float(descending[np.flatnonzero(allowed)[-1]])


def _proposals(cells: Cells, evaluate: Any, rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Points from the grid and their log ratios, density over approximation."""
    points, predicted = cells.draw(rng, n)
    values = evaluate(points)[0]
    return points, np.where(np.isfinite(values), values - predicted, -np.inf)


def _probed(cells: Cells, box: Box, evaluate: Any, probes: np.ndarray, limit: int) -> Cells:
    """Refine wherever prior draws find more density than the grid says, until they find none."""
    values = evaluate(probes)[0]
    relevant = np.flatnonzero(values > values.max() - NOTICEABLE)
    probes, values = probes[relevant], values[relevant]
    for _ in range(PROBE_ROUNDS):
        found = box.find(cells, probes)
        inside = found >= 0
        excess = values[inside] - cells.predict(found[inside], probes[inside])
        relevant_here = values[inside] > cells.values.max() - NOTICEABLE
        missed = np.unique(found[inside][(excess > EXCESS) & relevant_here])
        if not len(missed):
            return cells
        active = np.zeros(len(cells.values), dtype=bool)
        active[missed] = True
        cells = refined(cells, evaluate, limit + len(cells.values), active)
    raise GridUnsuitable("Draws from the prior keep finding density that the grid misses; the density is too rough for it.")


def _prior_rejection(
    grid: Grid, problem: Problem, rng: np.random.Generator, progress: Progress
) -> tuple[np.ndarray, dict[str, Any]]:
    """Prior draws accepted with L / max L."""
    assert problem.informed is not None
    q, count = problem.target.size, grid.draws * grid.chains
    largest = _largest_likelihood(problem, problem.informed, grid.max_cells, progress)
    evaluate = _evaluator(problem.target, np.eye(q), (), "likelihood", progress)
    kept: list[np.ndarray] = []
    tried = accepted = 0
    while accepted < count:
        rewards = problem.prior.sample(rng, 8 * BATCH)
        values = evaluate(rewards)[0]
        if values.max() > largest + 1e-6:
            raise GridUnsuitable("A draw from the prior has a higher likelihood than the grid's maximum.")
        chosen = rewards[np.log(rng.random(len(rewards))) < values - largest]
        kept.append(chosen)
        tried, accepted = tried + len(rewards), accepted + len(chosen)
        if tried >= 16 * BATCH and accepted < SMALLEST_ACCEPTANCE * tried:
            raise GridUnsuitable(f"Only {accepted} of {tried} draws from the prior were accepted.")
    facts = {"grid_error": 0.0, "acceptance": accepted / tried, "cells": 0}
    return np.concatenate(kept)[:count], facts


def _largest_likelihood(problem: Problem, directions: Float[np.ndarray, "rank q"], limit: int, progress: Progress) -> float:
    """The maximum of the log likelihood over the box, from a grid over z = U R."""
    low, high = problem.prior.box
    centre, half = directions @ (low + high) / 2, np.abs(directions) @ (high - low) / 2
    if not len(directions):
        return float(_evaluator(problem.target, np.eye(len(low)), (), "likelihood", progress)((low[None] + high[None]) / 2)[0][0])
    evaluate = _evaluator(problem.target, directions, (), "likelihood", progress)
    box = Box.between(centre - half, centre + half, problem.prior.sample(np.random.default_rng(0), PROBES) @ directions.T)
    cells = refined(box.first_cells(evaluate), evaluate, limit)
    return float((cells.values + np.sum(np.abs(cells.gradients * cells.halves), axis=1)).max())  # a bound, cell by cell
