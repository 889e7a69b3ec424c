"""What `kdbirl diagnose` leaves in a run directory: `diagnosis/` with the findings and a figure for each."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kdbirl.errors import FileProblem
from kdbirl.evaluation.diagnose import Diagnosis
from kdbirl.files import directory_whole_or_not_at_all, write_text
from kdbirl.installation import package_versions
from kdbirl.report.calibration_plots import plot_calibration, plot_predictive, plot_sensitivity
from kdbirl.report.diagnosis_plots import plot_identifiability, plot_policy_classes, plot_support
from kdbirl.report.run_directory import as_json
from kdbirl.report.run_files import require_run
from kdbirl.report.run_manifest import recorded

NAME = "diagnosis"


def free_place(run: Path) -> Path:
    """The first of diagnosis, diagnosis-2, ... that is not there yet; said before the work, not after it."""
    require_run(run)
    if not (run / "model.npz").is_file():
        raise FileProblem(f"{run} has no model.npz; give the run directory that kdbirl fit made.")
    places = [run / NAME, *(run / f"{NAME}-{number}" for number in range(2, 1000))]
    free = [place for place in places if not place.exists()]
    if not free:
        raise FileProblem(f"{run} holds {len(places)} diagnoses; remove some of {NAME}*.")
    return free[0]


def diagnosis_json(diagnosis: Diagnosis, run: Path) -> str:
    """Every finding, with what made it."""
    return as_json({"run": str(run), **diagnosis.to_dict(), "versions": package_versions()})


def write_diagnosis(diagnosis: Diagnosis, run: Path, place: Path) -> None:
    """Write the findings and their figures, whole or not at all."""
    with directory_whole_or_not_at_all(place) as unfinished:
        write_text(unfinished / "findings.json", diagnosis_json(diagnosis, run))
        for name, figure in _figures(diagnosis):
            figure.savefig(unfinished / f"{name}.png", dpi=130, bbox_inches="tight", metadata={"Software": None})
    with recorded(run, sorted(place.iterdir())):
        pass


def _figures(diagnosis: Diagnosis) -> Iterator[tuple[str, Any]]:
    yield "identifiability", plot_identifiability(diagnosis.identifiability, diagnosis.posterior)
    yield "support", plot_support(diagnosis.support)
    if diagnosis.predictive is not None:
        yield "predictive", plot_predictive(diagnosis.predictive)
    if diagnosis.calibration is not None:
        yield "calibration", plot_calibration(diagnosis.calibration)
    if diagnosis.sensitivity is not None:
        yield "sensitivity", plot_sensitivity(diagnosis.sensitivity)
    if diagnosis.policies is not None:
        yield "policies", plot_policy_classes(diagnosis.policies)
