"""The claims that the paper makes about its limitations and cost, and what the measured tables say about them."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from kdbirl.experiments.ledger import Claim
from kdbirl.experiments.statement import Statement

NAME = "limits"
LIMITATIONS = "Section 7 (Discussion), Limitations"
COST = "Section 4.2 (Feature-based reward function), first paragraph"
QUALITY = Statement(
    "suboptimal-training",
    "training demonstrations that are not optimal for their reward make the likelihood less accurate",
    LIMITATIONS,
    "slope of the mean log density of an expert row at w*, in nats per unit of random actions",
    below=0.0,
)
QUALITY_POSTERIOR = Statement(
    "suboptimal-training-posterior",
    "and so they make the posterior less accurate",
    LIMITATIONS,
    "slope of E|w - w*| in the share of random actions",
    above=0.0,
)
FEATURES = Statement(
    "poorer-features",
    "features that do not capture the information in (s, a) make the posterior less accurate",
    LIMITATIONS,
    "E|w - w*| with phi = x alone minus phi = [x, y], paired over seeds",
    above=0.0,
)
CHOICE = Statement(
    "kernel-and-distance",
    "the choice of kernel and distance matters for the quality of the posterior",
    "Section 7 (Discussion), Future Work; Section 4.1",
    "largest minus smallest E|w - w*| over the choices, as a share of that with the Gaussian kernel and Euclidean d",
    above=0.25,
)
PARAMETERS = Statement(
    "cost-parameters",
    "the cost of the CKDE grows with the number of reward parameters",
    COST,
    "slope of log operations per effective draw in log q, at a fixed number of rows",
    above=0.0,
)
SAMPLES = Statement(
    "cost-samples",
    "the cost of the CKDE grows with the number of behaviour samples",
    COST,
    "slope of log operations per effective draw in log n, n = m, at a fixed number of parameters",
    above=0.1,
)
STATEMENTS = (QUALITY, QUALITY_POSTERIOR, FEATURES, CHOICE, PARAMETERS, SAMPLES)
Rows = Sequence[dict[str, Any]]


def claims(variant: str, tables: dict[str, Any], quick: bool) -> list[Claim]:
    """One ledger row for each claim."""
    made = [
        (QUALITY, *_slope(tables["quality"], "noise", "log_likelihood")),
        (QUALITY_POSTERIOR, *_slope(tables["quality"], "noise", "distance")),
        (FEATURES, *_features(tables["features"])),
        (CHOICE, *_choices(tables["choices"])),
        (PARAMETERS, *_growth(tables["cost"], "parameters", "n")),
        (SAMPLES, *_growth(tables["cost"], "n", "parameters")),
    ]
    return [statement.decide(NAME, variant, values, why, quick) for statement, values, why in made]


def by_seed(rows: Rows, label: Any, name: str) -> tuple[list[Any], Float[np.ndarray, "seeds levels"]]:
    """Levels of a label, and a measure for each seed and level; NaN where there is none."""
    levels, seeds = list(dict.fromkeys(label(row) for row in rows)), sorted({row["seed"] for row in rows})
    found = np.empty((len(seeds), len(levels)))
    for i, seed in enumerate(seeds):
        for j, level in enumerate(levels):
            own = [row[name] for row in rows if row["seed"] == seed and label(row) == level]
            found[i, j] = np.mean([np.nan if value is None else value for value in own])
    return levels, found


def _slope(rows: Rows, label: str, name: str) -> tuple[Float[np.ndarray, " seeds"], str]:
    levels, found = by_seed(rows, lambda row: row[label], name)
    x = np.asarray(levels) - np.mean(levels)
    means = ", ".join(f"{value:.3f} at {level:g}" for level, value in zip(levels, found.mean(axis=0), strict=True))
    return found @ x / (x @ x), f"{name.replace('_', ' ')} {means} of random actions"


def _features(rows: Rows) -> tuple[Float[np.ndarray, " seeds"], str]:
    levels, found = by_seed(rows, lambda row: row["features"], "distance")
    means = ", ".join(f"{value:.3f} with {level}" for level, value in zip(levels, found.mean(axis=0), strict=True))
    return found[:, levels.index("x only")] - found[:, levels.index("x, y")], f"E|w - w*| is {means}"


def _choices(rows: Rows) -> tuple[Float[np.ndarray, " seeds"], str]:
    """Choices that cannot be used on some rows are told, and left out."""
    levels, found = by_seed(rows, lambda row: (row["kernel"], row["distance_measure"]), "distance")
    usable = np.isfinite(found).all(axis=0)
    means = [
        f"{' '.join(level)} "
        + (f"{value:.3f}" if ok else f"refused for {int(np.isnan(column).sum())} of {len(column)}")
        for level, value, ok, column in zip(levels, found.mean(axis=0), usable, found.T, strict=True)
    ]
    kept = found[:, usable]
    reference = found[:, levels.index(("gaussian", "euclidean"))]
    worst, best = int(np.argmax(kept.mean(axis=0))), int(np.argmin(kept.mean(axis=0)))
    return (kept[:, worst] - kept[:, best]) / reference, f"E|w - w*|: {', '.join(means)}"


def _growth(rows: Rows, along: str, fixed: str) -> tuple[Float[np.ndarray, " seeds"], str]:
    """The slope along one size, the other at its middle: the value that has most rows."""
    values = [row[fixed] for row in rows]
    middle = max(dict.fromkeys(values), key=lambda value: len({row[along] for row in rows if row[fixed] == value}))
    own = [row for row in rows if row[fixed] == middle]
    levels, found = by_seed(own, lambda row: row[along], "operations")
    x = np.log(levels) - np.log(levels).mean()
    means = ", ".join(f"{value:.3g} at {level}" for level, value in zip(levels, found.mean(axis=0), strict=True))
    return np.log(found) @ x / (x @ x), f"operations an effective draw: {means} {along} ({fixed} = {middle})"
