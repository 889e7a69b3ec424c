"""The directory that `kdbirl demos` leaves behind: the three tables of a fit, and the world they came from."""

import hashlib
import shlex
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kdbirl.archive import directory_whole_or_not_at_all, read_json, write_figure, write_text
from kdbirl.data.demonstrations import Demonstrations, TaskBank
from kdbirl.data.writers import write_demonstrations, write_task_bank
from kdbirl.errors import FileProblem
from kdbirl.evaluation.cells import CellStore
from kdbirl.evaluation.comparison import NAME, Comparison
from kdbirl.evaluation.comparison_table import csv_text
from kdbirl.evaluation.contenders import CONTENDERS
from kdbirl.evaluation.diagnose import Diagnosis
from kdbirl.installation import is_writable, package_versions
from kdbirl.report.run import as_json, refuse_existing
from kdbirl.report.run_files import recorded, require_run
from kdbirl.report.terminal import WIDTH, files_text
from kdbirl.report.trust_plots import (
    plot_calibration,
    plot_identifiability,
    plot_policy_classes,
    plot_predictive,
    plot_sensitivity,
    plot_support,
)
from kdbirl.worlds.gridworld import Gridworld
from kdbirl.worlds.named import WorldFile
from kdbirl.worlds.tabular import TabularMDP, World

if TYPE_CHECKING:
    from kdbirl.worlds.sepsis.q_policy import ConditionedQ

FILES = {
    "training.parquet": "demonstrations of the training tasks, a row per step",
    "rewards.csv": "the training tasks' rewards",
    "expert.csv": "demonstrations of the expert, whose reward a fit looks for",
    "world.json": "the world and the expert's reward, for kdbirl evaluate",
}
POLICY = {"policy.npz": "the learnt policies of all rewards, for kdbirl evaluate and the next kdbirl demos (--policy)"}


def write_demos(
    directory: Path, bank: TaskBank, expert: Demonstrations, world: WorldFile, policies: "ConditionedQ | None" = None
) -> None:
    """Write all files under a temporary name, then give the directory its own."""
    refuse_existing(directory)
    with directory_whole_or_not_at_all(directory) as unfinished:
        write_task_bank(bank, unfinished / "training.parquet", unfinished / "rewards.csv")
        write_demonstrations(expert, unfinished / "expert.csv")
        write_text(unfinished / "world.json", world.to_json())
        if policies is not None:
            policies.save(unfinished / "policy.npz")


def fit_command(directory: Path, world: World, priors: Sequence[str]) -> list[str]:
    """A `kdbirl fit` that takes these tables; its features and its prior are a beginning, for the user to change.

    State codes are names, not quantities, so the features are one-hot; a grid that pays by coordinates has those. A
    simulator's columns are quantities, which a fit standardises by itself.
    """
    tables = {"training": "training.parquet", "rewards": "rewards.csv", "expert": "expert.csv"}
    words = ["kdbirl", "fit"]
    for option, name in tables.items():
        words += [f"--{option}", str(directory / name)]
    words += _columns(world)
    for prior in priors:
        words += ["--prior", prior]
    return [*words, "--out", "run"]


def _columns(world: World) -> list[str]:
    """How the tables' columns are told to a fit."""
    if isinstance(world, TabularMDP):
        words = ["--state", "state", "--action", "action", "--n-states", str(world.recorded_states)]
        if isinstance(world, Gridworld) and world.feature_names == ("x", "y"):
            return [*words, "--features", f"grid:{world.size}+onehot-actions"]
        return [*words, "--features", "onehot"]
    names = ",".join(world.describe()["observations"])
    return ["--state", names, "--action", "action", "--n-actions", str(world.n_actions)]


def demos_text(directory: Path, bank: TaskBank, expert: Demonstrations, world: WorldFile, mdp: World) -> str:
    """What was made, the files, and the command that comes next."""
    if isinstance(mdp, TabularMDP):
        states, files = f"{mdp.recorded_states} states", FILES
    else:
        states, files = f"{len(mdp.describe()['observations'])} state columns", FILES | POLICY
    horizon = f"{world.planning_horizon} steps" if world.planning_horizon else "none"
    made = (
        f"{world.env}: {states}, {mdp.n_actions} actions, {len(mdp.feature_names)} reward parameters; "
        f"discount {world.discount:g}, planning horizon {horizon}. {bank.n_rows} rows of {bank.n_tasks} training "
        f"tasks, {expert.n_rows} rows of the expert. Demonstrators: {world.made['demonstrators']}. Rewards: "
        f"{world.made['rewards']}. Seed {world.made['seed']}."
    )
    command = _wrapped(world.made["fit"])
    return f"{textwrap.fill(made, WIDTH)}\n\n{files_text(directory, files)}\n\nNext, with a prior of yours:\n{command}"


def _wrapped(words: list[str]) -> str:
    """A command for a shell over several lines; an option stays with its value."""
    pieces: list[str] = []
    for word in map(shlex.quote, words):
        if pieces and (pieces[-1].startswith("--") and " " not in pieces[-1]):
            pieces[-1] += f" {word}"
        else:
            pieces.append(word)
    lines = [f"  {pieces[0]}"]
    for piece in pieces[1:]:
        if len(lines[-1]) + len(piece) + 3 <= WIDTH:
            lines[-1] += f" {piece}"
        else:
            lines[-1] += " \\"
            lines.append(f"    {piece}")
    return "\n".join(lines)


# What `kdbirl diagnose` leaves in a run directory: `diagnosis/` with the findings and a figure for each.

DIAGNOSIS = "diagnosis"


def free_place(run: Path) -> Path:
    """The first of diagnosis, diagnosis-2, ... that is not there yet; said before the work, not after it."""
    require_run(run)
    if not (run / "model.npz").is_file():
        raise FileProblem(f"{run} has no model.npz; give the run directory that kdbirl fit made.")
    places = [run / DIAGNOSIS, *(run / f"{DIAGNOSIS}-{number}" for number in range(2, 1000))]
    free = [place for place in places if not place.exists()]
    if not free:
        raise FileProblem(f"{run} holds {len(places)} diagnoses; remove some of {DIAGNOSIS}*.")
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


# The directory of a comparison.
#
# DIR/comparison.csv                  a row for each method, n, seed and test task
# DIR/comparison.json                 the summary: means and standard errors over seeds
# DIR/comparison.png .svg .pdf        the figure
# DIR/comparison.html                 the page to look at: figure, summary, configuration
# DIR/manifest.json                   the world, the budget, what each method may see, versions, seeds, timings, hashes
# DIR/cells/                          single answers: an interrupted run goes on from them, a larger one adds to them


@dataclass(frozen=True)
class ComparisonDirectory:
    """A directory to make, or one of an earlier comparison in the same world, to go on with."""

    path: Path
    env: str

    def __post_init__(self) -> None:
        """Say what is wrong with the place before the work, not after it."""
        if self.path.exists() and not self.path.is_dir():
            raise FileProblem(f"{self.path} already exists and is a file; choose another directory.")
        if self.path.is_dir() and any(self.path.iterdir()):
            self._refuse_others()
        parent = self.path if self.path.is_dir() else self.path.absolute().parent
        if not parent.is_dir():
            raise FileProblem(f"{self.path} cannot be made: there is no directory {parent}; make it first.")
        if not is_writable(parent):
            raise FileProblem(f"{self.path} cannot be written: you cannot write to {parent}; choose another place.")

    def _refuse_others(self) -> None:
        if not (self.path / "cells").is_dir():
            raise FileProblem(f"{self.path} is not empty and holds no comparison to go on with; choose another.")
        try:
            known = read_json(self.path / "manifest.json", "a manifest")["configuration"]["env"]
        except (FileProblem, KeyError, TypeError):  # interrupted before its end: the cells know their world
            return
        if known != self.env:
            raise FileProblem(f"{self.path} holds a comparison in {known}; choose another directory for {self.env}.")

    @property
    def cells(self) -> CellStore:
        """Where single answers are kept."""
        return CellStore(self.path / "cells")

    def write(
        self,
        study: Comparison,
        rows: Sequence[Mapping[str, Any]],
        table: Sequence[Mapping[str, Any]],
        seconds: float,
    ) -> list[Path]:
        """Write all files, each whole or not at all, the manifest last."""
        from kdbirl.report.comparison_page import comparison_page, plot_comparison

        written = [self.path / f"{NAME}.csv", self.path / f"{NAME}.json"]
        write_text(written[0], csv_text(rows))
        write_text(written[1], as_json({"configuration": study.configuration(), "summary": list(table)}))
        figure = plot_comparison(table, title=study.env)
        written += write_figure(figure, self.path / NAME)
        labels = {name: one.label for name, one in CONTENDERS.items()}
        written.append(self.path / f"{NAME}.html")
        write_text(written[-1], comparison_page(figure, table, labels, study.configuration(), study.seeds))
        manifest = {
            "written": datetime.now(UTC).isoformat(timespec="seconds"),
            "configuration": study.configuration(),
            "seeds": list(range(study.seeds)),
            "versions": package_versions(),
            "outputs": {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in written},
            "timings": {"answers": round(seconds, 3)},
        }
        write_text(self.path / "manifest.json", as_json(manifest))
        return [*written, self.path / "manifest.json"]
