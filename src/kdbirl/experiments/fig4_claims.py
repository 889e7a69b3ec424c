"""The claims of the paper about Figure 4, and ours about its prior; one row of the ledger for each world."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from kdbirl.experiments.ledger import Claim
from kdbirl.experiments.statement import Statement

NAME = "fig4"
WHERE = "Section 6.4 (Feature-based reward function), Figure 4 and its text"
LOW_DATA = 1000  # the claim is about fewer rows
COMPARABLE = 0.05  # of (best - random): an EVD this little above another's is comparable
QUARTER_AT = 100  # rows at which KD-BIRL's EVD is compared with a quarter of its prior's
LABELS = {"avril": "AVRIL", "avril-prior": "AVRIL with prior"}
Rows = Sequence[dict[str, Any]]
PerSeed = Float[np.ndarray, " seeds"]


def statements(world: str) -> dict[str, Statement]:
    """All claims, for one world, by name."""
    found = [
        *(
            Statement(
                f"{world}-evd-against-{other}",
                f"in sepsis KD-BIRL's EVD is lower than or comparable to that of {label} for n < 1000, for all four w*",
                WHERE,
                f"EVD / (best - random), KD-BIRL's minus that of {label}: mean over n < 1000, the worst w*",
                below=COMPARABLE,
            )
            for other, label in LABELS.items()
        ),
        Statement(
            f"{world}-less-spread",
            "in sepsis the standard error of KD-BIRL's EVD is lower than that of AVRIL with prior",
            WHERE,
            "mean over w* and n < 1000 of |EVD - its mean over seeds|: KD-BIRL's minus that of AVRIL with prior",
            below=0.0,
        ),
        Statement(
            f"{world}-prior-causes-spread",
            "the informative prior's variance causes the variance of AVRIL's EVD",
            WHERE,
            "mean over w* and n < 1000 of |EVD - its mean over seeds|: AVRIL's with prior minus AVRIL's without",
            above=0.0,
        ),
        Statement(
            f"{world}-contracts",
            "KD-BIRL's EVD falls with the number of expert rows",
            WHERE,
            "EVD at the largest n minus EVD at the smallest, mean over w*",
            below=0.0,
        ),
        Statement(
            f"{world}-quarter-of-prior",
            f"at n = {QUARTER_AT} the EVD of KD-BIRL's posterior is below a quarter of its prior's (not of the paper)",
            "none: a check of ours",
            f"EVD of the posterior minus a quarter of the prior's at n = {QUARTER_AT}, mean over w*",
            below=0.0,
        ),
    ]
    return {statement.name.removeprefix(f"{world}-"): statement for statement in found}


def claims(variant: str, rows: Rows, quick: bool) -> list[Claim]:
    """One ledger row for each claim and world."""
    return [
        claim
        for world in dict.fromkeys(row["world"] for row in rows)
        for claim in _of_world(world, variant, rows, quick)
    ]


def _of_world(world: str, variant: str, rows: Rows, quick: bool) -> list[Claim]:
    evd = {method: array(rows, world, method, "evd") for method in ("kdbirl", *LABELS)}
    prior, sizes = array(rows, world, "kdbirl", "prior_evd"), row_counts(rows)
    shared = min(len(values) for values in evd.values())  # methods are compared over the seeds that all of them have
    few = {method: values[:shared][:, :, sizes < LOW_DATA] for method, values in evd.items()}
    nearest = int(np.argmin(np.abs(sizes - QUARTER_AT)))
    found: dict[str, PerSeed] = {f"evd-against-{other}": worst_star(few["kdbirl"] - few[other]) for other in LABELS}
    found["less-spread"] = spread(few["kdbirl"]) - spread(few["avril-prior"])
    found["prior-causes-spread"] = spread(few["avril-prior"]) - spread(few["avril"])
    found["contracts"] = (evd["kdbirl"][:, :, -1] - evd["kdbirl"][:, :, 0]).mean(axis=1)
    found["quarter-of-prior"] = (evd["kdbirl"] - 0.25 * prior)[:, :, nearest].mean(axis=1)
    why = _why(few, evd["kdbirl"], prior, nearest)
    return [s.decide(NAME, variant, found[name], why(name), quick) for name, s in statements(world).items()]


def array(rows: Rows, world: str, method: str, measure: str) -> Float[np.ndarray, "seeds stars sizes"]:
    """One measure of one method in one world."""
    own = [row for row in rows if row["world"] == world and row["method"] == method]
    axes = [sorted({row[name] for row in own}) for name in ("seed", "star", "n")]
    found = np.full([len(axis) for axis in axes], np.nan)
    for row in own:
        found[tuple(axis.index(row[name]) for axis, name in zip(axes, ("seed", "star", "n"), strict=True))] = row[
            measure
        ]
    return found


def row_counts(rows: Rows) -> Float[np.ndarray, " sizes"]:
    return np.array(sorted({row["n"] for row in rows}), dtype=float)


def worst_star(difference: Float[np.ndarray, "seeds stars sizes"]) -> PerSeed:
    """The mean over n of the w* whose mean over seeds is highest: where it holds, it holds in all settings."""
    by_star = difference.mean(axis=2)
    return np.asarray(by_star[:, int(np.argmax(by_star.mean(axis=0)))])


def spread(values: Float[np.ndarray, "seeds stars sizes"]) -> PerSeed:
    """How far each seed is from the mean of all, in the mean over w* and n."""
    return np.asarray(np.abs(values - values.mean(axis=0)).mean(axis=(1, 2)))


def _why(few: dict[str, np.ndarray], evd: np.ndarray, prior: np.ndarray, nearest: int) -> Callable[[str], str]:
    means = {method: f"{values.mean():.3f}" for method, values in few.items()}
    spreads = {method: f"{values.std(axis=0, ddof=1).mean():.3f}" for method, values in few.items()}

    def why(name: str) -> str:
        if name.startswith("evd-against"):
            return "mean EVD " + ", ".join(f"{method} {value}" for method, value in means.items())
        if "spread" in name:
            return "sd of the EVD over seeds " + ", ".join(f"{method} {value}" for method, value in spreads.items())
        if name == "contracts":
            return f"mean EVD {evd[:, :, 0].mean():.3f} at the fewest rows, {evd[:, :, -1].mean():.3f} at the most"
        return f"mean EVD {evd[:, :, nearest].mean():.3f} against the prior's {prior[:, :, nearest].mean():.3f}"

    return why
