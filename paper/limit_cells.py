"""Cells of the `limits` experiment: KD-BIRL with worse demonstrations, poorer features, other kernels, more states."""

import warnings
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import lru_cache, partial
from typing import Any, Literal

import numpy as np

from kdbirl.errors import KDBIRLError, KDBIRLWarning
from kdbirl.evaluation.cells import Cell, CellStore
from kdbirl.features import Function
from kdbirl.posterior.mcmc import NUTS
from paper.grid_data import GridData
from paper.grid_posteriors import Effort, kdbirl_model
from paper.grid_settings import FIG1, GridSetting, corner, distance

data_of = lru_cache(maxsize=8)(GridData)  # the cells of one seed share their rows
LEAPFROG = 2  # a step is one density with its gradient, which costs about as much again


def quality_cell(store: CellStore, setting: GridSetting, seed: int, effort: Effort, noise: float) -> Cell:
    """The likelihood and the posterior with a share of random actions in the training demonstrations.

    The bandwidths are those of the optimal demonstrations, so that only the demonstrations differ, and densities of
    the same expert rows can be compared.
    """
    return _cell(store, "quality", setting, seed, effort, partial(_quality, setting, seed, effort, noise), noise=noise)


def _quality(setting: GridSetting, seed: int, effort: Effort, noise: float) -> Cell:
    widths = _chosen(setting, seed, effort)
    data = data_of(replace(setting, noise=noise), seed, effort.discounts)
    model = kdbirl_model(setting, effort, {"bandwidth": widths[:2], "power": widths[2]}).fit(data.bank)
    truth = np.asarray(setting.truth)
    density = float(model.log_likelihood(data.expert, truth)) / data.expert.n_rows
    return {"log_likelihood": density, "distance": distance(model.posterior(data.expert, seed=seed).flat, truth)}


@lru_cache(maxsize=4)
def _chosen(setting: GridSetting, seed: int, effort: Effort) -> tuple[float, float, float]:
    """h, h' and the power for the bank as it is."""
    data = data_of(setting, seed, effort.discounts)
    posterior = kdbirl_model(setting, effort, {}).fit(data.bank).posterior(data.expert, seed=seed)
    return float(np.max(np.asarray(posterior.h, dtype=float))), float(posterior.h_reward or 0.0), float(posterior.power)


def feature_cell(store: CellStore, setting: GridSetting, seed: int, effort: Effort, name: str) -> Cell:
    """The posterior with features of the density that keep less of (s, a)."""
    job = partial(_distance, setting, seed, effort, {"features": poorer(name, setting.size)})
    return _cell(store, "features", setting, seed, effort, job, features=name)


def poorer(name: str, size: int) -> Function:
    """phi = [x, y] as in the paper, in which half of the grid each is, or x alone."""

    def phi(states: np.ndarray, actions: np.ndarray) -> np.ndarray:
        cells = np.asarray(states).reshape(-1).astype(int)
        both = np.stack([cells % size, cells // size], axis=1).astype(float)
        return {"x, y": both, "halves": np.floor(both / (size / 2)), "x only": both[:, :1]}[name]

    return Function(phi)


def choice_cell(store: CellStore, setting: GridSetting, seed: int, effort: Effort, kernel: str, measure: str) -> Cell:
    """The posterior with another kernel or distance, on features and on rewards alike."""
    sides = {"kernel": kernel, "reward_kernel": kernel, "distance": measure, "reward_distance": measure}
    job = partial(_distance, setting, seed, effort, sides)
    return _cell(store, "choices", setting, seed, effort, job, **sides)


def _distance(setting: GridSetting, seed: int, effort: Effort, choices: dict[str, Any]) -> Cell:
    """E|w - w*|; where the choice cannot be used on these rows, no number and the reason."""
    data = data_of(setting, seed, effort.discounts)
    try:
        posterior = kdbirl_model(setting, effort, choices).fit(data.bank).posterior(data.expert, seed=seed)
    except KDBIRLError as problem:
        return {"distance": None, "problem": str(problem)}
    return {"distance": distance(posterior.flat, np.asarray(setting.truth)), "problem": ""}


def cost_cell(store: CellStore, variant: str, side: int, rows: int, seed: int, effort: Effort) -> Cell:
    """What an effective draw costs with side^2 state rewards and n = m = rows: one task per cell, U(0, 1)."""
    experts: Literal["optimal", "walkers"] = "walkers" if variant == "released" else "optimal"
    widths = FIG1["released"].bandwidth
    setting = GridSetting(
        "released", side, corner(side), "state", "every cell", rows, rows, experts, widths, "uniform:0,1"
    )
    found = _cell(store, "cost", setting, seed, effort, partial(_cost, setting, seed, effort))
    return found | {"operations": found["compressed" if variant == "ours" else "literal"]}


def _cost(setting: GridSetting, seed: int, effort: Effort) -> Cell:
    """Multiplications and additions of one effective draw, by Eq. 6 as it is written and by the compressed form.

    Eq. 6 adds n m products of kernels and needs m distances of q-vectors; the compressed form n_distinct K and K.
    """
    data, q = data_of(setting, seed, effort.discounts), setting.size**2
    sampler = effort.sampler if effort.simple else NUTS(effort.chains, effort.warmup, effort.draws)
    model = kdbirl_model(setting, effort, {"sampler": sampler}).fit(data.bank)
    posterior = model.posterior(data.expert, seed=seed)
    effective = float(np.min(posterior.convergence.ess_bulk))
    evaluations = posterior.sample_stats.get("n_steps", np.ones(posterior.draws.shape[:2]))
    steps = LEAPFROG * float(np.sum(evaluations)) / effective
    m, tasks, n = data.bank.n_rows, data.bank.n_tasks, data.expert.n_rows
    distinct = len(np.unique(posterior.expert_features, axis=0))
    return {
        "steps": steps,
        "literal": steps * (2 * n * m + 3 * m * q),
        "compressed": steps * (2 * distinct * tasks + 3 * tasks * q),
        "effective_draws": effective,
    }


def _cell(
    store: CellStore, study: str, setting: GridSetting, seed: int, effort: Effort, job: Callable[[], Cell], **more: Any
) -> Cell:
    key = {"study": study, "setting": asdict(setting), "seed": seed, "effort": asdict(effort), **more}
    return store.get(key, partial(_without_warnings, job))


def _without_warnings(job: Callable[[], Cell]) -> Cell:
    """Banks of two tasks warn that they inform little; the ledger says it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", KDBIRLWarning)
        return job()
