"""The 10x10 task with one reward for each of its 100 states, from the same rows: what featurising is compared with.

The training rewards are the same functions, R_k(s) = w_k . phi(s), written out state by state; states and actions are
one-hot; the prior is uniform over the range of all rewards that weights in [-1, 1] allow. The bandwidths are those of
the paper's rule in every variant: no script has such an experiment, and `loto` cannot leave out one of few tasks in 100
dimensions.
"""

import warnings
from dataclasses import asdict, replace
from functools import partial

import numpy as np
from jaxtyping import Float

from kdbirl.demos.data import TaskBank
from kdbirl.envs.gridworld import Gridworld
from kdbirl.errors import KDBIRLWarning
from kdbirl.experiments.cell_store import Cell, CellStore
from kdbirl.experiments.grid_data import GridData
from kdbirl.experiments.grid_posteriors import Effort
from kdbirl.experiments.grid_settings import GridSetting
from kdbirl.features import OneHot
from kdbirl.methods.kdbirl import KDBIRL
from kdbirl.planners.evaluation import feature_expectations
from kdbirl.planners.plan import optimal_feature_expectations
from kdbirl.planners.policy import Policy
from kdbirl.posterior.priors import Uniform

PLANNED = 200  # draws whose policies are planned
FEW = 500  # iterations of each of two chains are enough for them


def state_cell(store: CellStore, setting: GridSetting, seed: int, effort: Effort) -> Cell:
    """The regret of KD-BIRL's draws with 100 state rewards."""
    key = {"method": "kdbirl by state", "setting": asdict(setting), "seed": seed, "effort": asdict(effort)}
    return store.get(key, partial(_measure, GridData(setting, seed, effort.discounts), effort))


def _measure(data: GridData, effort: Effort) -> Cell:
    world = Gridworld(data.setting.size, discount=data.world.discount)
    phi = np.asarray(data.world.features)
    bank, largest = data.bank, float(np.abs(phi).sum(axis=1).max())
    written_out = TaskBank(bank.demonstrations, bank.tasks, bank.rewards @ phi.T, bank.names, world.feature_names)
    prior = Uniform(-max(largest, float(np.abs(written_out.rewards).max())), largest)
    sampler = replace(effort, chains=2, warmup=min(effort.warmup, FEW), draws=min(effort.draws, FEW)).sampler
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", KDBIRLWarning)
        model = KDBIRL(prior=prior, features=OneHot(), bandwidth="paper", sampler=sampler).fit(written_out)
        posterior = model.posterior(data.expert, seed=data.seed)
    regret = regret_of(posterior.flat, world, phi @ np.asarray(data.setting.truth))
    return {"regret": regret, "rank": model.identifiability().rank, "sampler": posterior.sampler}


def regret_of(draws: Float[np.ndarray, "n q"], world: Gridworld, truth: Float[np.ndarray, " q"]) -> float:
    """Mean EVD of the draws as a share of (best - random): 0 is optimal, 1 no better than chance."""
    some = draws[np.linspace(0, len(draws) - 1, min(PLANNED, len(draws))).astype(int)]
    collected = optimal_feature_expectations(world, np.concatenate([truth[None], some]))
    random = feature_expectations(world, Policy.uniform(world.n_states, world.n_actions))
    best = collected[0] @ truth
    return float((best - collected[1:].mean(axis=0) @ truth) / (best - random @ truth))
