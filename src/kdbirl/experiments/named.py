"""The experiments that `kdbirl reproduce` knows by name, in the order in which `all` runs them."""

from collections.abc import Sequence
from dataclasses import asdict, replace

from kdbirl.envs import icu_sepsis
from kdbirl.errors import InputError, did_you_mean
from kdbirl.experiments import (
    bandwidth_claims,
    bandwidth_rules,
    contraction,
    fig1,
    fig2,
    fig3,
    fig4,
    fig5,
    limits,
    timing,
)
from kdbirl.experiments.cell_store import CellStore
from kdbirl.experiments.contraction_claims import claims
from kdbirl.experiments.experiment import Experiment, Part
from kdbirl.experiments.request import Request
from kdbirl.progress import Progress


def measure_contraction(request: Request, store: CellStore, progress: Progress) -> Part:
    """Lemma 4.1 and Theorem 4.2; both variants of the ledger come from one run."""
    from kdbirl.report.contraction_plots import (
        plot_ckde_convergence,
        plot_contraction_draws,
        plot_posterior_contraction,
    )

    spec = request.size(contraction.FULL, contraction.QUICK)
    spec = spec if request.seeds is None else replace(spec, seeds=request.seeds)
    numbers = contraction.run(spec, store, progress)
    figures = {
        "lemma-4.1": plot_ckde_convergence(numbers["lemma_4_1"]),
        "theorem-4.2": plot_posterior_contraction(numbers["theorem_4_2"]),
        "theorem-4.2-draws": plot_contraction_draws(numbers["theorem_4_2"], numbers["configuration"]["world"]),
    }
    return Part(contraction.NAME, numbers, spec.seeds, claims(numbers), figures)


def measure_bandwidths(request: Request, store: CellStore, progress: Progress) -> Part:
    """Every bandwidth rule on tasks with known rewards: coverage, log density at the truth, EVD."""
    from kdbirl.report.bandwidth_plots import plot_bandwidth_rules

    study = request.size(bandwidth_rules.FULL, bandwidth_rules.QUICK)
    study = study if request.seeds is None else replace(study, banks=request.seeds)
    rows = study.run(store, progress)
    table, name = bandwidth_claims.summary(rows), bandwidth_claims.NAME
    numbers = {"experiment": name, "configuration": asdict(study), "summary": table, "rows": rows}
    figures = {measure: plot_bandwidth_rules(table, measure) for measure in ("coverage", "bounded")}
    found = bandwidth_claims.claims(rows, request.quick)
    return Part(name, numbers, study.banks, found, figures, {name: table})


ALL = (
    fig1.EXPERIMENT,
    fig2.EXPERIMENT,
    fig3.EXPERIMENT,
    fig4.EXPERIMENT,
    fig5.EXPERIMENT,
    Experiment(contraction.NAME, "Lemma 4.1 and Theorem 4.2", {"": measure_contraction}),
    Experiment(
        bandwidth_claims.NAME,
        "Which bandwidth rule can be trusted",
        {"": measure_bandwidths},
        needs=(icu_sepsis.assets,),
    ),
    limits.EXPERIMENT,
    timing.EXPERIMENT,
)
EXPERIMENTS: dict[str, Experiment] = {experiment.name: experiment for experiment in ALL}


def chosen(names: Sequence[str]) -> list[Experiment]:
    """The experiments that were asked for, each once; `all` is every one."""
    for name in names:
        if name not in EXPERIMENTS and name != "all":
            raise InputError(f"There is no experiment called {name!r}.{did_you_mean(name, [*EXPERIMENTS, 'all'])}")
    return [EXPERIMENTS[name] for name in (EXPERIMENTS if "all" in names else dict.fromkeys(names))]
