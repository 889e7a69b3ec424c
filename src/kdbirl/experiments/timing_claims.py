"""The claims about cost, and what the times say about them. A ratio is of logarithms, so that a mean is a median."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from jaxtyping import Float

from kdbirl.experiments.ledger import Claim, withheld
from kdbirl.experiments.statement import Statement
from kdbirl.experiments.statistics import slopes

NAME = "timing"
CHEAPER = Statement(
    "cheaper-than-birl",
    "sampling from KD-BIRL's posterior is cheaper than from BIRL's, which plans for every reward",
    "Sections 1 and 3.2",
    "log10 of seconds per effective sample, KD-BIRL's minus BIRL's, mean over the grids",
    below=0.0,
)
GROWS = Statement(
    "birl-grows-faster",
    "BIRL's cost grows faster with the number of states than KD-BIRL's",
    "Sections 1 and 3.2",
    "slope of log seconds per effective sample in log states, KD-BIRL's minus BIRL's",
    below=0.0,
)
STAN = Statement(
    "cost-in-stan",
    "in Stan, as the paper ran it, the cost grows with the training rows; here it does not",
    "Appendix A (Code and Experiments); a check of ours",
    "slope of log seconds per effective sample in log m, KD-BIRL's here minus Stan's",
    below=0.0,
)
NOT_INSTALLED = "not measured: pystan is not installed (pip install 'kdbirl[stan]')"
NOT_IN_QUICK = "not measured: a quick run does not compile Stan's program"
Rows = Sequence[dict[str, Any]]


def claims(rows: Rows, seeds: int, quick: bool) -> list[Claim]:
    """Three rows of the ledger; all are about our own code, so the variant is `ours`."""
    sizes, ours = costs(rows, "states", "kdbirl", "states")
    _, birl = costs(rows, "states", "birl", "states")
    ratio = np.log10(ours) - np.log10(birl)
    means = ", ".join(
        f"{10**value:.3g} at {size:g} states" for size, value in zip(sizes, ratio.mean(axis=0), strict=True)
    )
    why = f"KD-BIRL's cost over BIRL's by NUTS: {means}; warm, on one machine"
    found = [
        CHEAPER.decide(NAME, "ours", ratio.mean(axis=1), why, quick),
        GROWS.decide(NAME, "ours", slope(ours, sizes) - slope(birl, sizes), why, quick),
    ]
    return [*found, _stan(rows, seeds, quick)]


def _stan(rows: Rows, seeds: int, quick: bool) -> Claim:
    if not any(row["method"] == "stan" for row in rows):
        nothing = (float("nan"),) * 3
        row = (NAME, STAN.name, "ours", STAN.claim, STAN.where, STAN.statistic, *nothing, seeds, "cannot be decided")
        return replace(withheld(Claim(*row, ""), quick), why=NOT_IN_QUICK if quick else NOT_INSTALLED)
    sizes, ours = costs(rows, "rows", "kdbirl", "m")
    _, stan = costs(rows, "rows", "stan", "m")
    ratio = np.median(stan / ours, axis=0)
    why = ", ".join(
        f"Stan costs {value:.3g} times as much at m = {size:g}" for size, value in zip(sizes, ratio, strict=True)
    )
    return STAN.decide(NAME, "ours", slope(ours, sizes) - slope(stan, sizes), why, quick)


def costs(
    rows: Rows, table: str, method: str, by: str
) -> tuple[Float[np.ndarray, " sizes"], Float[np.ndarray, "seeds sizes"]]:
    """The sizes, and the cost of each seed and size."""
    own = [row for row in rows if row["table"] == table and row["method"] == method]
    sizes, seeds = sorted({row[by] for row in own}), sorted({row["seed"] for row in own})
    found = np.empty((len(seeds), len(sizes)))
    for row in own:
        found[seeds.index(row["seed"]), sizes.index(row[by])] = row["cost"]
    return np.array(sizes, dtype=float), found


def slope(values: Float[np.ndarray, "seeds sizes"], sizes: Float[np.ndarray, " sizes"]) -> Float[np.ndarray, " seeds"]:
    """Of log value in log size, for each seed; 0 where there is one size, as in a quick run."""
    return slopes(values, sizes) if len(sizes) > 1 else np.zeros(len(values))
