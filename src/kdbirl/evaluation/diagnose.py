"""Everything that can be said about how far a posterior can be trusted, in one call."""

from dataclasses import dataclass
from typing import Any

from kdbirl.errors import InputError
from kdbirl.evaluation.policy_classes import PolicyClasses, policy_classes
from kdbirl.methods.diagnosed import with_findings
from kdbirl.methods.fitted import Choice, Fitted
from kdbirl.methods.kdbirl import KDBIRL
from kdbirl.posterior.result import Posterior
from kdbirl.progress import Progress
from kdbirl.trust.calibration import Calibration
from kdbirl.trust.directions import ScaleAndDirection, scale_and_direction
from kdbirl.trust.identifiability import Identifiability
from kdbirl.trust.leave_one_out import LeaveOneOut, leave_one_out
from kdbirl.trust.loto import why_not
from kdbirl.trust.predictive import Predictive, predict_occupancy
from kdbirl.trust.sensitivity import Sensitivity
from kdbirl.trust.study_plan import StudyPlan, plan_study
from kdbirl.trust.support import Support, assess_support
from kdbirl.worlds.tabular import TabularMDP


@dataclass(frozen=True, eq=False)
class Diagnosis:
    """Findings about one posterior; those that were not asked for, or make no sense here, are None.

    posterior: the same draws, with a report card that knows the findings.
    """

    posterior: Posterior
    identifiability: Identifiability
    support: Support
    scale: ScaleAndDirection
    predictive: Predictive | None = None
    left_out: LeaveOneOut | None = None
    calibration: Calibration | None = None
    sensitivity: Sensitivity | None = None
    policies: PolicyClasses | None = None
    plan: StudyPlan | None = None

    def __repr__(self) -> str:
        """The report card, a line each; `kb.plot_calibration(d.calibration)` and the like show what is behind it."""
        lines = [f"  {name} ({colour}): {text}" for name, (colour, text) in self.posterior.report_card().items()]
        return "\n".join(["Diagnosis", *lines])

    def to_dict(self) -> dict[str, Any]:
        """For JSON: the report card, and every finding."""
        parts = {name: part for name, part in vars(self).items() if name != "posterior" and part is not None}
        found = {name: part.to_dict() for name, part in parts.items()}
        return {"report_card": self.posterior.report_card(), **found}


def diagnose(
    model: Any,
    posterior: Any,
    calibrate: bool = False,
    sensitivity: bool = False,
    plan: bool = False,
    mdp: TabularMDP | None = None,
    progress: Progress | None = None,
) -> Diagnosis:
    """Judge a posterior that this model gave.

    calibrate: leave out each training task in turn. sensitivity: other bandwidths, powers and priors. plan: what more
    tasks or rows would give. mdp: the world, for the policies that the draws lead to. Each costs up to a minute.
    """
    if not isinstance(model, KDBIRL) or not isinstance(posterior, Posterior):
        given = f"{type(model).__name__} and {type(posterior).__name__}"
        raise InputError(f"diagnose takes a fitted KDBIRL and a posterior of it, in this order, not {given}.")
    fitted = model.fitted
    if fitted is None:
        raise InputError("This KDBIRL has not been fitted: call fit(bank) first.")
    if posterior.settings.get("bank") != fitted.bank_fingerprint:
        raise InputError("This posterior was made from another bank than this model's: diagnose them as they belong.")
    rows, n = posterior.expert_features, len(posterior.expert_features)
    choice = fitted.choices.for_rows(n, progress)
    widths = choice.bandwidths
    identifiability = model.identifiability(n)
    support = assess_support(
        fitted.ckde, rows, widths.h, posterior.feature_names, fitted.task_names, posterior.seed, progress
    )
    kept = choice.loto.calibration if choice.loto is not None else None
    calibration = model.calibration(n, progress) if calibrate else kept
    moved = model.sensitivity(posterior, progress=progress) if sensitivity else None
    possible, predictive = why_not(fitted.ckde, fitted.prior) is None, _predictive(fitted, choice, posterior)
    judged = with_findings(posterior, identifiability, support, calibration, choice, moved, possible, predictive)
    study = (
        plan_study(fitted.ckde, fitted.choices.plays, fitted.prior, widths, n, posterior.names, 0, progress)
        if plan
        else None
    )
    return Diagnosis(
        judged,
        identifiability,
        support,
        scale_and_direction(posterior.flat, posterior.names, posterior.prior_draws),
        predictive,
        _left_out(posterior),
        calibration,
        moved,
        None if mdp is None else policy_classes(posterior, mdp),
        study,
    )


def _predictive(fitted: Fitted, choice: Choice, posterior: Posterior) -> Predictive | None:
    """None for p(a | s, R), which predicts no states."""
    if fitted.ckde.conditional != "state-action":
        return None
    return predict_occupancy(
        fitted.ckde,
        choice.bandwidths.h,
        choice.bandwidths.h_reward,
        fitted.choices.plays,
        posterior.flat,
        posterior.expert_features,
        posterior.feature_names,
        posterior.expert_episodes,
        posterior.seed,
    )


def _left_out(posterior: Posterior) -> LeaveOneOut | None:
    """None with a single episode: nothing would remain."""
    if len(set(posterior.expert_episodes.tolist())) < 2:
        return None
    return leave_one_out(posterior, posterior.expert_episodes)
