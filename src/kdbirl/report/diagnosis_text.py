"""A diagnosis as text for a terminal of 80 columns."""

import textwrap

from kdbirl.evaluation.diagnose import Diagnosis
from kdbirl.report.card_text import card_text
from kdbirl.report.terminal import WIDTH


def diagnosis_text(diagnosis: Diagnosis, colour: bool = False) -> str:
    """The report card, then what is behind each part of it."""
    posterior = diagnosis.posterior
    sections = {
        "What the training tasks can say": diagnosis.identifiability.describe_with(
            posterior.flat, posterior.prior_draws
        ),
        "Size and direction": [diagnosis.scale.sentence],
        "Where the expert goes": diagnosis.support.describe(),
        "What the posterior predicts": _sentences(diagnosis.predictive),
        "Leaving out single episodes": _sentences(diagnosis.left_out),
        "Tasks with known rewards": [] if diagnosis.calibration is None else diagnosis.calibration.describe(),
        "Other choices": [] if diagnosis.sensitivity is None else diagnosis.sensitivity.describe(),
        "Policies that the draws lead to": [] if diagnosis.policies is None else diagnosis.policies.describe(),
        "More tasks, or more rows?": [] if diagnosis.plan is None else diagnosis.plan.describe(),
    }
    parts = [card_text(posterior.report_card(), colour)]
    parts += [f"{title}\n{_wrapped(lines)}" for title, lines in sections.items() if lines]
    return "\n\n".join(parts)


def _sentences(finding: object) -> list[str]:
    return [] if finding is None else [str(getattr(finding, "sentence"))]  # noqa: B009  (any finding has one)


def _wrapped(lines: list[str]) -> str:
    """Sentences are wrapped; the rows of tables, which fit, stay as they are."""
    return "\n".join(
        line if len(line) <= WIDTH else textwrap.fill(line, WIDTH, subsequent_indent="  ") for line in lines
    )
