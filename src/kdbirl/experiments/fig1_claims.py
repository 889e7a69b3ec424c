"""The claims of the paper about Figure 1, and what the measured rows say about them."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from kdbirl.experiments.grid_measures import CONCENTRATED, NEAR
from kdbirl.experiments.ledger import Claim
from kdbirl.experiments.statement import Statement

NAME = "fig1"
WHERE = "Section 6.3 (Original reward function parameterization), Figure 1 and the paragraph after it"
LABELS = {"kdbirl": "KD-BIRL", "birl": "BIRL", "avril": "AVRIL", "avril-prior": "AVRIL with prior"}
DISTANCE = "mean over states of E|R_s - R*_s|"
WORST = f"posterior mass within {NEAR:g} of R*_s in the worst state"
NAMED_STATES = (1, 2)  # the text's state [0, 1] may be either of the two cells beside the start's corner
CONTRASTS = {
    other: Statement(
        f"concentrated-against-{other}",
        f"KD-BIRL's marginals in the 2x2 grid are more concentrated at R* than those of {LABELS[other]}",
        WHERE,
        f"{DISTANCE}: KD-BIRL's minus that of {LABELS[other]}, paired over seeds",
        below=0.0,
    )
    for other in ("birl", "avril", "avril-prior")
}
NOT_ALL = {
    method: Statement(
        f"{method}-not-in-all-states",
        f"{LABELS[method]} is not concentrated in all states",
        WHERE,
        WORST,
        below=CONCENTRATED,
    )
    for method in ("avril", "avril-prior")
}
STATE_01 = {
    method: Statement(
        f"{method}-state-01",
        f"in state [0, 1] the posterior of {LABELS[method]} is not concentrated at zero (mostly uniform)",
        WHERE,
        f"posterior mass within {NEAR:g} of 0, mean of the two cells that may be meant",
        below=CONCENTRATED,
    )
    for method in ("avril", "avril-prior")
}
PRIOR = Statement(
    "informative-prior-not-enough",
    "an informative prior from the training tasks is not enough to use their information; the CKDE uses it",
    WHERE,
    f"{WORST}: KD-BIRL's minus that of AVRIL with prior, paired over seeds",
    above=0.0,
)
CLOSE = Statement("birl-close", "BIRL is close to the true reward", WHERE, f"{DISTANCE} of BIRL", below=NEAR)
WIDER = Statement(
    "birl-wider",
    "BIRL's marginals are wider than KD-BIRL's",
    WHERE,
    "mean over states of the posterior sd: BIRL's minus KD-BIRL's, paired over seeds",
    above=0.0,
)
STATEMENTS = (*CONTRASTS.values(), *NOT_ALL.values(), *STATE_01.values(), PRIOR, CLOSE, WIDER)


def claims(variant: str, rows: Sequence[dict[str, Any]], identifiability: str, quick: bool) -> list[Claim]:
    """One ledger row for each claim, from the tidy rows of one variant."""
    tables = {name: {m: _by_seed(rows, m, name) for m in LABELS} for name in ("distance", "mass_near", "sd")}
    distance = {method: values.mean(axis=1) for method, values in tables["distance"].items()}
    worst = {method: values.min(axis=1) for method, values in tables["mass_near"].items()}
    named = {m: values[:, list(NAMED_STATES)].mean(axis=1) for m, values in tables["mass_near"].items()}
    width = {method: values.mean(axis=1) for method, values in tables["sd"].items()}
    noted = _notes(rows, identifiability)

    def decided(
        statement: Statement, values: Float[np.ndarray, " seeds"], means: dict[str, Any], of: Sequence[str]
    ) -> Claim:
        why = ", ".join(f"{LABELS[m]} {np.mean(means[m]):.3f}" for m in of) + " in the mean over seeds" + noted(of)
        return statement.decide(NAME, variant, values, why, quick)

    return [
        *(decided(s, distance["kdbirl"] - distance[m], distance, ("kdbirl", m)) for m, s in CONTRASTS.items()),
        *(decided(s, worst[m], worst, (m,)) for m, s in NOT_ALL.items()),
        *(decided(s, named[m], named, (m,)) for m, s in STATE_01.items()),
        decided(PRIOR, worst["kdbirl"] - worst["avril-prior"], worst, ("kdbirl", "avril-prior")),
        decided(CLOSE, distance["birl"], distance, ("birl",)),
        decided(WIDER, width["birl"] - width["kdbirl"], width, ("birl", "kdbirl")),
    ]


def _by_seed(rows: Sequence[dict[str, Any]], method: str, name: str) -> Float[np.ndarray, "seeds states"]:
    """One measure of one method, seeds by states."""
    own = [row for row in rows if row["method"] == method]
    shape = len({row["seed"] for row in own}), len({row["state"] for row in own})
    found = np.empty(shape)
    for row in own:
        found[row["seed"], row["state"]] = row[name]
    return found


def _notes(rows: Sequence[dict[str, Any]], identifiability: str) -> Any:
    """What a reader must know besides: what the training tasks cannot inform, and what did not converge."""

    def noted(methods: Sequence[str]) -> str:
        found = ""
        if "kdbirl" in methods and "keep" in identifiability:
            found += f"; this setting cannot support the claim in all states: {identifiability.rstrip('.')}"
        worst = max((row["r_hat"] or np.inf for row in rows if row["method"] in methods), default=1.0)
        return found + (f"; largest R-hat {worst:.2f}" if worst > 1.05 else "")

    return noted
