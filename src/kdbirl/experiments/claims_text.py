"""Claims and their verdicts as text for a terminal of 80 columns."""

import math
import textwrap
from collections.abc import Sequence

from kdbirl.experiments.ledger import Claim
from kdbirl.report.terminal import WIDTH


def claims_text(claims: Sequence[Claim]) -> str:
    """A paragraph for each claim: the verdict, the claim, the number that decides it and why."""
    return "\n\n".join(_paragraph(claim) for claim in claims)


def _paragraph(claim: Claim) -> str:
    interval = "" if math.isnan(claim.low) else f" [{claim.low:.3f}, {claim.high:.3f}]"
    body = [
        f"Claim: {claim.claim}.",
        f"Measured: {claim.number:.3f}{interval} over {claim.seeds} seeds: {claim.statistic}.",
        f"Why: {claim.why}.",
    ]
    wrapped = [textwrap.fill(line, WIDTH, initial_indent="  ", subsequent_indent="    ") for line in body]
    return "\n".join([f"{claim.name} ({claim.variant}): {claim.verdict.upper()}", *wrapped])
