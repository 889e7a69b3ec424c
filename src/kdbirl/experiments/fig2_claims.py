"""The claims of the paper about Figure 2, for each w*, and whether featurising helps."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from kdbirl.experiments.ledger import Claim
from kdbirl.experiments.statement import Statement

NAME = "fig2"
WHERE = "Section 6.4 (Feature-based reward function), Figure 2 and the paragraph before the sepsis environment"
MOST_DEGREES = 15.0  # relative sizes within a factor of 1.73 of each other where both are 1
SETTINGS = {(-1.0, 1.0): "a", (1.0, 1.0): "b"}  # the two w* of the figure


def statements(truth: tuple[float, float]) -> dict[str, Statement]:
    """What is claimed of one w*, by the measure that decides it."""
    letter, words = SETTINGS[truth], f"w* = [{truth[0]:g}, {truth[1]:g}]"
    return {
        "signs_right": Statement(
            f"signs-{letter}",
            f"in the 10x10 grid the signs of both weights are inferred, {words}",
            WHERE,
            "posterior mass of draws with both signs right",
            above=0.9,
        ),
        "angle": Statement(
            f"relative-size-{letter}",
            f"so is the relative size of the weights, {words}",
            WHERE,
            "angle between the posterior mean and w*, in degrees",
            below=MOST_DEGREES,
        ),
        "map_error": Statement(
            f"map-{letter}",
            f"the posterior mean projected on the grid is nearly identical to the truth's map, {words}",
            WHERE,
            "|R_mean - R*| / |R*| over the cells",
            below=0.25,
        ),
        "distance": Statement(
            f"concentrated-{letter}",
            f"the posterior is concentrated close to w*, {words}",
            WHERE,
            "E|w - w*| as a share of the prior's",
            below=0.5,
        ),
    }


FEATURISING = Statement(
    "featurising-helps",
    "features help: two weights of known features are inferred better than 100 state rewards from the same rows",
    "Section 4.2 (Feature-based reward function) and Section 6.4",
    "expected regret, a share of (best - random): 100 state rewards minus 2 weights, mean of both w*, paired by seed",
    above=0.0,
)


def claims(variant: str, rows: Sequence[dict[str, Any]], quick: bool) -> list[Claim]:
    """One ledger row for each claim and w*."""
    found = [claim for truth in SETTINGS for claim in _of(truth, variant, rows, quick)]
    apart = {name: _paired(rows, name) for name in ("regret", "regret_by_state")}
    why = f"regret {apart['regret'].mean():.3f} with 2 weights, {apart['regret_by_state'].mean():.3f} with 100 states"
    return [*found, FEATURISING.decide(NAME, variant, apart["regret_by_state"] - apart["regret"], why, quick)]


def _of(truth: tuple[float, float], variant: str, rows: Sequence[dict[str, Any]], quick: bool) -> list[Claim]:
    own = [row for row in rows if (row["w1"], row["w2"]) == truth]
    columns = {name: np.array([row[name] for row in own], dtype=float) for name in statements(truth)}
    columns["distance"] = columns["distance"] / np.array([row["prior_distance"] for row in own])
    mean = np.array([[row["mean_w1"], row["mean_w2"]] for row in own]).mean(axis=0)
    sd = np.array([[row["sd_w1"], row["sd_w2"]] for row in own]).mean(axis=0)
    why = f"posterior mean [{mean[0]:.2f}, {mean[1]:.2f}], sd [{sd[0]:.2f}, {sd[1]:.2f}], averaged over seeds"
    if any(row["rank"] < 2 for row in own):
        why += f"; this setting informs one direction of w only (seed 0: {own[0]['identifiability'].rstrip('.')})"
    return [made.decide(NAME, variant, columns[name], why, quick) for name, made in statements(truth).items()]


def _paired(rows: Sequence[dict[str, Any]], name: str) -> np.ndarray:
    """One number a seed: the mean of both w*."""
    seeds = sorted({row["seed"] for row in rows})
    return np.array([np.mean([row[name] for row in rows if row["seed"] == seed]) for seed in seeds])
