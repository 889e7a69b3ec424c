"""The baselines of Figure 1, as cells: BIRL, AVRIL and AVRIL with the informative prior.

Each cell is keyed by what decides it. The baselines never see a training task (the informative prior is two numbers),
so that variants which share the expert share their cells too.
"""

from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from kdbirl.experiments.cell_store import Cell, CellStore, get_all
from kdbirl.experiments.grid_data import GridData
from kdbirl.experiments.grid_posteriors import Effort, stored
from kdbirl.experiments.grid_settings import GridSetting
from kdbirl.methods.avril import AVRIL
from kdbirl.methods.birl import BIRL
from kdbirl.methods.informative_prior import RewardPrior, informative_prior
from kdbirl.posterior.priors import parse_prior
from kdbirl.posterior.result import Posterior

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
