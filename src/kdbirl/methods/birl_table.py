"""BIRL over a table of Q*: for worlds where planning at every step of a sampler would take hours (ICU-Sepsis).

Q*(c w) = c Q*(w) for c > 0, so only *directions* w need planning: the cells of a lattice on the surface of the cube
max_j |w_j| = 1, planned once for a world and shared by every expert, seed and inverse temperature. With shells of
c = max_j |R_j|, the reward R = c w has the likelihood of `BIRL` ("policy" form) from the table alone,

    log L(c w) = sum_i [ alpha c A(s_i, a_i; w) - log sum_b exp(alpha c A(s_i, b; w)) ],      A = Q* - max_b Q*

and the posterior on cells (w, c) is exact: prior density x likelihood at the cell's middle x its volume, c^(q-1) dc dw.
Draws are cells by their mass, spread evenly within; a cell that a bound of the prior cuts has the mass of the part
inside. What is finer than a cell is not seen; a note says when that bites.
"""

from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from kdbirl._jax import float64
from kdbirl.errors import InputError
from kdbirl.likelihood.sums import distinct_rows
from kdbirl.methods.arguments import (
    is_number,
    require_bank_of,
    state_action_pairs,
    visit_counts,
    whole_seed,
    world_reward_features,
)
from kdbirl.methods.fitted import drawn_prior
from kdbirl.posterior.convergence import FEW_CELLS
from kdbirl.posterior.priors import Prior
from kdbirl.posterior.result import Posterior
from kdbirl.progress import Progress
from kdbirl.random_streams import stream
from kdbirl.worlds.dynamics import dynamics_of
from kdbirl.worlds.planning import many_action_values
from kdbirl.worlds.rollouts import whole_number
from kdbirl.worlds.tabular import TabularMDP

PER_AXIS = {1: 2, 2: 256, 3: 14, 4: 12}  # cells along each edge of the cube, by the number of parameters
SHELLS = 16
PLANNED_AT_ONCE = 64  # directions: 9 MB of action values on ICU-Sepsis
NOTHING = -80.0  # e^-80 beside 1, the best action's term, is nothing; smaller numbers make processors slow
ATTEMPTS = 200  # batches of points in cells that the prior's bounds cut: enough where 0.5 % lie inside

Advantages = Float[np.ndarray, "D n A"]


@dataclass(frozen=True, eq=False)
class DirectionTable:
    """D directions `(D, q)` on the surface of the unit cube, cells of `width` there, and A(s, a; w) of live states."""

    directions: Float[np.ndarray, "D q"]
    advantages: Advantages
    width: float

    def log_likelihoods(
        self, visits: Float[np.ndarray, "n A"], scales: Float[np.ndarray, " C"]
    ) -> Float[np.ndarray, "D C"]:
        """log L of every direction at every scale alpha c, for an expert with these counts."""
        seen = np.flatnonzero(visits.sum(axis=1))
        shown, per_state = visits[seen], visits[seen].sum(axis=1)
        found = np.empty((len(self.directions), len(scales)))
        for d, table in enumerate(self.advantages):
            own = table[seen].astype(np.float64)
            chosen = float(np.sum(shown * own))
            for c, scale in enumerate(scales):
                found[d, c] = scale * chosen - per_state @ np.log(np.exp(np.maximum(scale * own, NOTHING)).sum(axis=1))
        return found

    def of_pairs(
        self, cells: Int[np.ndarray, " k"], scales: Float[np.ndarray, " k"], states: np.ndarray, actions: np.ndarray
    ) -> Float[np.ndarray, "k u"]:
        """log p(a | s, R) of u pairs for k rewards: the direction `cells` at `scales`."""
        found = np.empty((len(cells), len(states)))
        for k, (cell, scale) in enumerate(zip(cells, scales, strict=True)):
            own = scale * self.advantages[cell][states].astype(np.float64)
            chosen = own[np.arange(len(states)), actions]
            found[k] = chosen - np.log(np.exp(np.maximum(own, NOTHING)).sum(axis=1))
        return found


@lru_cache(maxsize=4)
def direction_table(mdp: TabularMDP, per_axis: int, signs: tuple[int, ...]) -> DirectionTable:
    """Plan for all directions; signs: 1 or -1 where the prior allows a parameter only that sign, else 0."""
    directions = _surface(len(signs), per_axis)
    allowed = np.array(signs)
    directions = directions[np.all((allowed == 0) | (np.sign(directions) == allowed), axis=1)]
    live = dynamics_of(mdp).live
    table = np.empty((len(directions), len(live), mdp.n_actions), dtype=np.float32)
    for first in range(0, len(directions), PLANNED_AT_ONCE):
        part = slice(first, first + PLANNED_AT_ONCE)
        q_values = many_action_values(mdp, directions[part])[:, live]
        table[part] = q_values - q_values.max(axis=2, keepdims=True)
    return DirectionTable(directions, table, 2.0 / per_axis)


def _surface(q: int, per_axis: int) -> Float[np.ndarray, "D q"]:
    """Middles of equal cells on the 2 q faces of the cube [-1, 1]^q."""
    middles = -1 + (2 * np.arange(per_axis) + 1) / per_axis
    face = np.stack(np.meshgrid(*[middles] * (q - 1), indexing="ij"), axis=-1).reshape(-1, q - 1) if q > 1 else None
    faces = []
    for axis in range(q):
        for side in (-1.0, 1.0):
            rest = np.zeros((1, 0)) if face is None else face
            faces.append(np.insert(rest, axis, side, axis=1))
    return np.concatenate(faces)


@dataclass
class BIRLTable:
    """BIRL's exact posterior on a lattice of rewards. `posterior(expert, seed=0)`; `fit(bank)` is accepted, and unused.

    mdp: a kb.TabularMDP without a horizon and with at most four reward parameters. prior: over the reward, required.
    alpha: the inverse temperature of the expert, required. per_axis: cells along an edge of the cube (even); None: 14
        for three parameters. shells: cells of the reward's size. draws: how many, independent.
    """

    mdp: Any
    prior: Any
    alpha: Any
    per_axis: Any = None
    shells: Any = SHELLS
    draws: Any = 4000
    table: DirectionTable | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.mdp, TabularMDP) or self.mdp.horizon is not None:
            raise InputError(f"mdp={self.mdp!r}: BIRLTable needs a kb.TabularMDP without a horizon.")
        if not isinstance(self.prior, Prior):
            raise InputError(f"prior={self.prior!r} is not a prior; give one such as kb.Uniform(0, 1).")
        if not (is_number(self.alpha) and 0 < self.alpha < np.inf):
            raise InputError(f"alpha={self.alpha!r} should be a positive number; the paper takes 1.")
        q = self.mdp.n_parameters
        if q not in PER_AXIS:
            raise InputError(f"The reward has {q} parameters; a table of directions serves at most {max(PER_AXIS)}.")
        self.per_axis = whole_number(PER_AXIS[q] if self.per_axis is None else self.per_axis, "per_axis", 2)
        if self.per_axis % 2:  # or the middle cells have both signs, and a prior of one sign loses its half of them
            raise InputError(f"per_axis={self.per_axis} should be even, so that no cell has rewards of both signs.")
        for name in ("shells", "draws"):
            whole_number(getattr(self, name), name, 1)
        self.prior = self.prior.for_parameters(q, self.mdp.feature_names)

    def fit(self, bank: Any, n: Any = None, seed: int = 0, progress: Progress | None = None) -> "BIRLTable":
        """Nothing is learnt from training tasks; a bank of another world's rewards is refused."""
        require_bank_of(self.mdp, bank)
        return self

    def posterior(self, expert: Any, seed: Any = 0, progress: Progress | None = None) -> Posterior:
        """The posterior over the reward of the task that `expert` demonstrates."""
        pairs = np.stack(state_action_pairs(self.mdp, expert), axis=1)
        seed, table = whole_seed(seed), self._table()
        log_masses = self._log_masses(table, visit_counts(self.mdp, pairs[:, 0], pairs[:, 1]))
        masses = np.exp(log_masses - log_masses.max())
        masses /= masses.sum()
        cells, rewards = self._drawn(table, masses.reshape(-1), np.random.default_rng(stream(seed, "draws of a table")))
        return self._result(expert, pairs, table, cells, rewards, log_masses, masses, seed)

    def _table(self) -> DirectionTable:
        if self.table is None:
            low, high = self.prior.box
            signs = np.where(low >= 0, 1, np.where(high <= 0, -1, 0))
            self.table = direction_table(self.mdp, int(self.per_axis), tuple(signs.tolist()))
        return self.table

    @property
    def _edges(self) -> Float[np.ndarray, " shells1"]:
        """Sizes c between which the shells lie, up to the corner of the prior's box."""
        return np.linspace(0.0, float(np.abs(self.prior.box).max()), int(self.shells) + 1)

    @property
    def _middles(self) -> Float[np.ndarray, " shells"]:
        return (self._edges[:-1] + self._edges[1:]) / 2

    def _log_masses(self, table: DirectionTable, visits: Float[np.ndarray, "n A"]) -> Float[np.ndarray, "D C"]:
        q, edges = self.mdp.n_parameters, self._edges
        points, reached = self._points(table)
        log_prior = _log_density(self.prior, points.reshape(-1, q)).reshape(points.shape[:2])
        volumes = np.log(edges[1:] ** q - edges[:-1] ** q)[None]
        return (
            np.where(reached, log_prior, -np.inf)
            + volumes
            + table.log_likelihoods(visits, float(self.alpha) * self._middles)
        )

    def _points(self, table: DirectionTable) -> tuple[Float[np.ndarray, "D C q"], Bool[np.ndarray, "D C"]]:
        """Where the prior's density is taken, and whether the cell reaches its support.

        The cell's middle; what of it lies outside the support is moved to the middle of the part inside.
        """
        surface, sizes = table.directions[:, None], self._edges
        half = np.where(np.abs(surface) == 1.0, 0.0, table.width / 2)
        sides = surface - half, surface + half
        corners = np.stack([side * c[None, :, None] for side in sides for c in (sizes[:-1], sizes[1:])])
        low, high = self.prior.support
        first, last = np.maximum(corners.min(axis=0), low), np.minimum(corners.max(axis=0), high)
        middles = surface * self._middles[None, :, None]
        outside = (middles < low) | (middles > high)
        return np.where(outside, (first + last) / 2, middles), (first < last).all(axis=2)

    def _drawn(
        self, table: DirectionTable, masses: Float[np.ndarray, " cells"], rng: np.random.Generator
    ) -> tuple[Int[np.ndarray, " draws"], Float[np.ndarray, "draws q"]]:
        """Cells by their mass and a point in each; a point outside the prior's support is drawn again, cell and all."""
        wanted, found = int(self.draws), 0
        cells: list[np.ndarray] = []
        rewards: list[np.ndarray] = []
        for _ in range(ATTEMPTS):
            some = rng.choice(len(masses), wanted, p=masses)
            points = self._spread(table, some, rng)
            inside = self.prior.contains(points)
            cells, rewards, found = [*cells, some[inside]], [*rewards, points[inside]], found + int(inside.sum())
            if found >= wanted:
                return np.concatenate(cells)[:wanted], np.concatenate(rewards)[:wanted]
        raise InputError(
            f"prior={self.prior.describe()} is much narrower than the table's cells; raise per_axis "
            f"({self.per_axis}) and shells ({self.shells}), or use kb.BIRL."
        )

    def _spread(
        self, table: DirectionTable, cells: Int[np.ndarray, " k"], rng: np.random.Generator
    ) -> Float[np.ndarray, "k q"]:
        """A point of each cell, by volume."""
        q, edges = self.mdp.n_parameters, self._edges
        direction, shell = np.divmod(cells, int(self.shells))
        surface = table.directions[direction]
        moved = surface + table.width * (rng.random(surface.shape) - 0.5)
        moved = np.where(np.abs(surface) == 1.0, surface, moved)  # the face itself stays
        u = rng.random(len(cells))
        size = (edges[shell] ** q + u * (edges[shell + 1] ** q - edges[shell] ** q)) ** (1 / q)
        return np.asarray(size[:, None] * moved)

    def _result(
        self,
        expert: Any,
        pairs: Int[np.ndarray, "rows 2"],
        table: DirectionTable,
        cells: Int[np.ndarray, " k"],
        rewards: Float[np.ndarray, "k q"],
        log_masses: Float[np.ndarray, "D C"],
        masses: Float[np.ndarray, "D C"],
        seed: int,
    ) -> Posterior:
        distinct, index, _ = distinct_rows(pairs.astype(np.float64))
        place = np.full(self.mdp.n_states, -1)
        place[dynamics_of(self.mdp).live] = np.arange(table.advantages.shape[1])
        used, which = np.unique(cells, return_inverse=True)
        direction, shell = np.divmod(used, int(self.shells))
        states, actions = place[distinct[:, 0].astype(int)], distinct[:, 1].astype(int)
        pointwise = table.of_pairs(direction, float(self.alpha) * self._middles[shell], states, actions)[which]
        effective = float(1.0 / np.sum(masses**2))
        volumes = np.log(np.diff(self._edges**self.mdp.n_parameters))[None]
        return Posterior(
            draws=rewards[None],
            names=self.mdp.feature_names,
            method="BIRL",
            sampler="Grid (table of Q*)",
            seed=seed,
            sample_stats={"lp": (log_masses - volumes).reshape(-1)[cells][None]},
            prior_draws=drawn_prior(self.prior, seed),
            log_likelihood=pointwise[None],
            expert_index=index,
            expert_features=pairs.astype(np.float64),
            feature_names=("state", "action"),
            expert_episodes=expert.episodes,
            settings=self._settings(expert, effective, len(table.directions)),
            reward_features=world_reward_features(self.mdp, expert),
        )

    def _settings(self, expert: Any, effective: float, directions: int) -> dict[str, Any]:
        """Everything else that a reader of the result may ask for."""
        from kdbirl.installation import package_versions

        coarse = f"The posterior fills about {effective:.2g} cells: it is narrower than the table can show."
        return {
            "prior": self.prior.describe(),
            "world": self.mdp.describe(),
            "alpha": float(self.alpha),
            "likelihood": "policy",
            "table": {"directions": directions, "shells": int(self.shells), "per_axis": int(self.per_axis)},
            "effective_cells": effective,
            "notes": [coarse] if effective < FEW_CELLS else [],
            "expert": expert.fingerprint(),
            "versions": package_versions(),
        }


@float64
def _log_density(prior: Prior, rewards: Float[np.ndarray, "r q"]) -> Float[np.ndarray, " r"]:
    density = partial(prior.log_density, jax.tree.map(jnp.asarray, prior.parameters))
    return np.asarray(jax.vmap(density)(jnp.asarray(rewards)))
