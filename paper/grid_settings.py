"""The grid experiments of the paper's Section 5, as frozen settings: `printed` (the text), `released` (the authors'
scripts) and `ours`. Bandwidths that the scripts set by hand are variances there, and sigmas here.

What the text does not name is drawn per seed by a stated rule, in `grid_data`: the discount, the horizon, and the
training rewards of the 5x5 and the 10x10 grid. The text names no m and n for the grids either; the scripts' are taken.
"""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from jaxtyping import Float, Int

from kdbirl.errors import InputError
from kdbirl.likelihood.kernels import sigma_from_paper
from kdbirl.worlds.gridworld import Gridworld
from kdbirl.worlds.planning import plan

Training = Literal["text", "every cell", "three other cells", "two weights", "weights 11x11", "prior draws"]
Widths = tuple[float, float]
DISCOUNTS = (0.9, 0.95, 0.99)  # one is drawn per seed
HORIZONS = (2, 3, 4)  # in sides of the grid; one is drawn per seed
TASKS = {"text": 2, "three other cells": 3, "two weights": 2}  # the others follow from the grid, or are given


@dataclass(frozen=True)
class GridSetting:
    """A test task on a grid, its training tasks, and how KD-BIRL is run on them.

    truth: R* or w*. parameters: "state", one reward a cell, or "xy", w.[x, y] with raw coordinates.
    training: the rule for the training rewards. tasks: how many, where the rule is to draw them from the prior.
    rows, expert_rows: m and n. experts: "optimal", whole episodes in order; "walkers", one-step greedy, unfinished
    rollouts dropped, rows sampled one by one from 1,000 rollouts a task (at least one of each task).
    bandwidth: a rule, or (h, h') as sigmas. prior: of the reward. noise: the share of random actions in the *training*
    demonstrations.
    """

    variant: str
    size: int
    truth: tuple[float, ...]
    parameters: Literal["state", "xy"]
    training: Training
    rows: int
    expert_rows: int
    experts: Literal["optimal", "walkers"]
    bandwidth: str | Widths
    prior: str
    tasks: int = 0
    noise: float = 0.0

    def __post_init__(self) -> None:
        if len(self.truth) != (self.size**2 if self.parameters == "state" else 2):
            raise InputError(
                f"truth={self.truth} has {len(self.truth)} numbers; {self.parameters} rewards need others."
            )
        if min(self.rows, self.expert_rows) < 1 or not 0 <= self.noise < 1:
            raise InputError(
                f"rows={self.rows}, expert_rows={self.expert_rows}, noise={self.noise} make no experiment."
            )


def corner(size: int) -> tuple[float, ...]:
    """Reward 1 in the upper right cell, 0 elsewhere."""
    return (0.0,) * (size**2 - 1) + (1.0,)


def _variants(printed: GridSetting, released: Widths, training: Training, tasks: int) -> dict[str, GridSetting]:
    """The scripts' setting and ours, beside the text's: ours has more tasks, of rewards drawn from the prior."""
    widths = (sigma_from_paper(released[0]), sigma_from_paper(released[1]))
    return {
        "printed": printed,
        "released": replace(printed, variant="released", training=training, experts="walkers", bandwidth=widths),
        "ours": replace(
            printed, variant="ours", training="prior draws", tasks=tasks, rows=50 * tasks, bandwidth="loto"
        ),
    }


FIG1 = _variants(
    GridSetting("printed", 2, corner(2), "state", "text", 200, 200, "optimal", "paper", "uniform:0,1"),
    released=(0.5, 0.4),
    training="every cell",
    tasks=60,
)
FIG3 = _variants(
    GridSetting("printed", 5, corner(5), "state", "three other cells", 300, 300, "optimal", "paper", "uniform:0,1"),
    released=(0.1, 0.4),
    training="every cell",
    tasks=120,
)
BOX = "truncated-normal:{},-1,1"
PRINTED_PRIORS = {(-1.0, 1.0): BOX.format("0,1"), (1.0, 1.0): BOX.format(f"0.5,{0.5**0.5!r}")}  # variances 1 and 0.5


def _weights(truth: tuple[float, float], prior: str) -> dict[str, GridSetting]:
    printed = GridSetting("printed", 10, truth, "xy", "two weights", 500, 500, "optimal", "paper", prior)
    made = _variants(printed, (0.1, 0.4), "weights 11x11", 60)
    return made | {"released": replace(made["released"], prior=BOX.format("0,1"))}


FIG2 = {truth: _weights(truth, prior) for truth, prior in PRINTED_PRIORS.items()}  # by w*, then by variant


# What is measured on a posterior over a grid's reward whose truth is known: pure functions of draws, one number each.
#
# "Concentrated at R*" has one meaning here: the expected absolute distance E|R_s - R*_s| of a draw from the truth in
# state s is small; equivalently that much posterior mass lies within `NEAR` of R*_s in every state.

NEAR = 0.25  # of the unit interval: a reward within this distance of the truth is near it
CONCENTRATED = 0.5  # of the mass near the truth, in the worst state


def expected_distance(draws: Float[np.ndarray, "n q"], truth: Float[np.ndarray, " q"]) -> Float[np.ndarray, " q"]:
    """E|R_s - R*_s| of each parameter."""
    return np.asarray(np.abs(draws - truth).mean(axis=0))


def mass_near(
    draws: Float[np.ndarray, "n q"], truth: Float[np.ndarray, " q"], radius: float = NEAR
) -> Float[np.ndarray, " q"]:
    """P(|R_s - R*_s| <= radius) of each parameter."""
    return np.asarray((np.abs(draws - truth) <= radius).mean(axis=0))


def effective_states(states: Int[np.ndarray, " rows"]) -> float:
    """exp(entropy) of the occupancy: as many states as, visited equally often, would be as varied."""
    share = np.bincount(states) / len(states)
    share = share[share > 0]
    return float(np.exp(-np.sum(share * np.log(share))))


def arrival(world: Gridworld, reward: Float[np.ndarray, " q"], goal: int) -> float:
    """The chance that the policy optimal for `reward`, started anywhere, stands at the goal after 4 sides' steps."""
    policy = plan(world, reward).at(0)
    step = np.einsum("sa,sat->st", policy, world.transitions)
    return float((world.start @ np.linalg.matrix_power(step, 4 * world.size))[goal])


def wrong_states(mean: Float[np.ndarray, " q"], truth: Float[np.ndarray, " q"]) -> int:
    """How many states have a posterior mean that is not near the truth."""
    return int(np.sum(np.abs(mean - truth) > NEAR))


def angle(weights: Float[np.ndarray, " q"], truth: Float[np.ndarray, " q"]) -> float:
    """Degrees between two weight vectors: 0 where signs and relative sizes agree, whatever the scale."""
    norm = float(np.linalg.norm(weights) * np.linalg.norm(truth))
    return float(np.degrees(np.arccos(np.clip(weights @ truth / norm, -1.0, 1.0)))) if norm > 0 else 180.0


def signs_right(draws: Float[np.ndarray, "n q"], truth: Float[np.ndarray, " q"]) -> float:
    """The mass of draws all of whose signs are the truth's."""
    return float((np.sign(draws) == np.sign(truth)).all(axis=1).mean())


def map_error(world: Gridworld, weights: Float[np.ndarray, " q"], truth: Float[np.ndarray, " q"]) -> float:
    """|R_w - R_w*| / |R_w*| over the cells of the grid: how far the projected map is from the truth's."""
    found, true = (np.asarray(world.reward_table(reward))[:, 0] for reward in (weights, truth))
    return float(np.linalg.norm(found - true) / np.linalg.norm(true))


def distance(draws: Float[np.ndarray, "n q"], truth: Float[np.ndarray, " q"]) -> float:
    """E|w - w*|, Euclidean."""
    return float(np.linalg.norm(draws - truth, axis=1).mean())
