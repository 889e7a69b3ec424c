"""KD-BIRL's posteriors of the grid figures, as cells, and how long everything on the grids is run."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np

from kdbirl.errors import KDBIRLWarning
from kdbirl.evaluation.cells import Cell, CellStore, get_all
from kdbirl.features import FeatureMap, GridCoordinates, OneHot
from kdbirl.methods.avril import AVRIL
from kdbirl.methods.avril_draws import RewardPrior, informative_prior
from kdbirl.methods.birl import BIRL
from kdbirl.methods.kdbirl import KDBIRL
from kdbirl.posterior.auto import Auto
from kdbirl.posterior.mcmc import Metropolis
from kdbirl.posterior.priors import parse_prior
from kdbirl.posterior.result import Posterior
from kdbirl.posterior.target import Sampler
from paper.grid_data import GridData
from paper.grid_settings import DISCOUNTS, GridSetting

KEPT = 1000  # draws of a cell that are stored
DIGITS = 5  # of a stored draw


@dataclass(frozen=True)
class Effort:
    """How long samplers run and AVRIL trains, and how many discounts there are (BIRL compiles anew for each).

    simple: random-walk Metropolis instead, which compiles in a fraction of the time: for runs that decide nothing.
    """

    chains: int = 4
    warmup: int = 1000
    draws: int = 1000
    avril_steps: int = 5000
    discounts: tuple[float, ...] = DISCOUNTS
    simple: bool = False

    @property
    def sampler(self) -> Sampler:
        """Exact where it can be, else NUTS."""
        kind = Metropolis if self.simple else Auto
        return kind(chains=self.chains, warmup=self.warmup, draws=self.draws)


FULL = Effort()
QUICK = Effort(chains=2, warmup=100, draws=100, avril_steps=250, discounts=DISCOUNTS[1:2], simple=True)


def kdbirl_cell(store: CellStore, setting: GridSetting, seed: int, effort: Effort, **choices: str) -> Cell:
    """KD-BIRL's posterior. choices: kernel, distance and so on, instead of the paper's."""
    key = {"method": "kdbirl", "setting": asdict(setting), "seed": seed, "effort": asdict(effort), **choices}
    return store.get(key, partial(_kdbirl, GridData(setting, seed, effort.discounts), effort, choices))


def features_of(setting: GridSetting) -> FeatureMap:
    """One-hot states and actions, as the appendix has them; or phi = [x, y], raw."""
    return OneHot() if setting.parameters == "state" else GridCoordinates(setting.size)


def kdbirl_model(setting: GridSetting, effort: Effort, choices: Mapping[str, Any]) -> KDBIRL:
    """KD-BIRL as the setting says; the paper has no power, `loto` chooses one."""
    usual = {"features": features_of(setting), "bandwidth": setting.bandwidth, "sampler": effort.sampler}
    options: dict[str, Any] = {**usual, **choices}
    return KDBIRL(prior=parse_prior(setting.prior), **options)


def _kdbirl(data: GridData, effort: Effort, choices: Mapping[str, str]) -> Cell:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", KDBIRLWarning)  # what they say is in the cell
        model = kdbirl_model(data.setting, effort, choices).fit(data.bank)
        posterior = model.posterior(data.expert, seed=data.seed)
    return stored(posterior) | {
        "h": np.ravel(np.asarray(posterior.h, dtype=float)).tolist(),
        "h_reward": posterior.h_reward,
        "power": posterior.power,
        "tasks": data.bank.n_tasks,
        "m": data.bank.n_rows,
        "identifiability": model.identifiability().sentence,
        "rank": model.identifiability().rank,
    }


def stored(posterior: Posterior) -> Cell:
    """What is kept of a posterior: mean, sd, evenly spaced draws, and whether it converged."""
    flat = posterior.flat
    index = np.linspace(0, len(flat) - 1, min(KEPT, len(flat))).astype(int)
    r_hat = np.asarray(posterior.convergence.r_hat, dtype=float)
    return {
        "mean": flat.mean(axis=0).round(DIGITS).tolist(),
        "sd": flat.std(axis=0).round(DIGITS).tolist(),
        "draws": flat[index].round(DIGITS).tolist(),
        "sampler": posterior.sampler,
        "r_hat": round(float(r_hat.max()), 4) if np.isfinite(r_hat).all() else None,
    }


# The baselines of Figure 1, as cells: BIRL, AVRIL and AVRIL with the informative prior.
#
# Each cell is keyed by what decides it. The baselines never see a training task (the informative prior is two numbers),
# so that variants which share the expert share their cells too.

TOGETHER = 12  # seeds whose AVRIL is trained side by side


def birl_cell(store: CellStore, setting: GridSetting, seed: int, effort: Effort) -> Cell:
    """BIRL's posterior."""
    job = partial(_birl, GridData(setting, seed, effort.discounts), effort)
    return store.get({"method": "birl", "prior": setting.prior, **_key(setting, seed, effort)}, job)


def avril_cells(store: CellStore, setting: GridSetting, seeds: int, effort: Effort, informative: bool) -> list[Cell]:
    """AVRIL's posterior for each seed, with N(0, 1) or with the informative prior of the setting's bank."""
    data = [GridData(setting, seed, effort.discounts) for seed in range(seeds)]
    learnt = [informative_prior(own.bank) for own in data] if informative else []
    priors = [RewardPrior(own.mean, own.sd) for own in learnt] or [RewardPrior()] * seeds
    keys = [
        {"method": "avril", "prior": asdict(prior), **_key(setting, seed, effort)} for seed, prior in enumerate(priors)
    ]
    return get_all(store, keys, lambda group: _avril([(data[s], priors[s]) for s in group], effort), TOGETHER)


def _key(setting: GridSetting, seed: int, effort: Effort) -> dict[str, Any]:
    own = {"size": setting.size, "truth": setting.truth, "n": setting.expert_rows, "experts": setting.experts}
    return {**own, "seed": seed, "effort": asdict(effort)}


def _birl(data: GridData, effort: Effort) -> Cell:
    """alpha = 1 and Eq. 2 of the paper: p(s, a | R) ~ exp(alpha Q*), over states and actions."""
    model = BIRL(data.world, parse_prior(data.setting.prior), alpha=1.0, likelihood="joint", sampler=effort.sampler)
    return stored(model.posterior(data.expert, seed=data.seed))


def _avril(cases: Sequence[tuple[GridData, RewardPrior]], effort: Effort) -> list[Cell]:
    """alpha = gamma = delta = 1: inverse temperature, discount and weight of the TD term; the scripts' own quirks
    with the scripts' experts. All cases are trained side by side."""
    make = AVRIL.released if cases[0][0].setting.experts == "walkers" else AVRIL
    options: dict[str, Any] = {"discount": 1.0, "beta": 1.0, "td_weight": 1.0, "steps": effort.avril_steps}
    models = [make(**options, prior=prior).fit(data.bank) for data, prior in cases]
    AVRIL.train_together(models, [data.episodes for data, _ in cases], [data.seed for data, _ in cases], TOGETHER)
    return [
        _stored(model.posterior(data.episodes, seed=data.seed), prior)
        for model, (data, prior) in zip(models, cases, strict=True)
    ]


def _stored(posterior: Posterior, prior: RewardPrior) -> Cell:
    outcome = posterior.settings["training"]["outcome"]
    return stored(posterior) | {"outcome": outcome, "prior": [prior.mean, prior.sd]}
