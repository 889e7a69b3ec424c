"""An evaluation as text for a terminal of 80 columns."""

import textwrap

import numpy as np

from kdbirl.evaluation.evd import ExpectedValueDifference
from kdbirl.evaluation.judgement import Judgement
from kdbirl.report.terminal import WIDTH

WORDS = 36  # columns for what a row is
CELL = 21


def evaluation_text(judgement: Judgement, env: str, discount: float) -> str:
    """What an agent loses under the true reward, posterior beside prior, and the bound that needs no truth."""
    found = judgement.posterior
    heading = (
        f"Expected value difference in {env} (discount {discount:g}): what an agent loses under the true reward by "
        f"acting on a draw. The optimal agent earns {_number(found.best)}, a random one {_number(found.random)}."
    )
    parts = [heading, _table(found, judgement.prior), _risk(judgement), *judgement.notes]
    return "\n\n".join(part if "\n" in part else textwrap.fill(part, WIDTH) for part in parts)


def _table(posterior: ExpectedValueDifference, prior: ExpectedValueDifference | None) -> str:
    columns = [_cells(posterior)] + ([] if prior is None else [_cells(prior)])
    heads = ["posterior", "prior"][: len(columns)]
    lines = [f"{'':{WORDS}}" + "".join(f"{head:>{CELL}}" for head in heads)]
    for name in columns[0]:
        lines.append(f"{name:{WORDS}}" + "".join(f"{column[name]:>{CELL}}" for column in columns))
    return "\n".join(lines)


def _cells(found: ExpectedValueDifference) -> dict[str, str]:
    quantiles = found.quantile([0.05, 0.5, 0.95])
    return {
        "mean EVD": _number(found.mean),
        "  its standard error": _number(found.standard_error),
        "  its 95 % interval": _range(*found.interval),
        "  as a share of (optimal - random)": _percent(found.regret),
        "draws: median": _number(quantiles[1]),
        "draws: 5 % to 95 %": _range(quantiles[0], quantiles[2]),
        "EVD of the mean reward": _number(found.of_mean),
        "EVD of the most probable draw": "-" if found.of_map is None else _number(found.of_map),
        "number of draws": f"{len(found.per_draw)}",
        "  that count as independent": f"{found.effective_size:.0f}",
    }


def _risk(judgement: Judgement) -> str:
    risk, relative = judgement.risk, judgement.relative_risk
    confidence, share = 100 * (1 - risk.delta), 100 * risk.alpha
    if not np.isfinite(risk.bound):
        return (
            f"Value at risk cannot be bounded: {confidence:g} % confidence in what is lost with posterior probability "
            f"{share:g} % needs at least {risk.needed} independent draws, and these count as {risk.effective_size:.0f}."
        )
    return (
        f"Value at risk, which needs no true reward: with {confidence:g} % confidence, the policy of the posterior "
        f"mean loses less than {_number(risk.bound)} with posterior probability {share:g} % "
        f"({_percent(relative.bound)} of what lies between the optimal and the random agent)."
    )


def _number(value: float) -> str:
    return "0" if abs(value) < 1e-12 else f"{value:.4g}"


def _range(low: float, high: float) -> str:
    return f"{_number(low)} to {_number(high)}"


def _percent(share: float) -> str:
    return "-" if not np.isfinite(share) else f"{100 * share:.3g} %"
