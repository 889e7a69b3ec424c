"""The methods that `kdbirl compare` knows by name, each with one written-down budget and what it is allowed to see.

All get the same expert rows, prior, number of draws and steps of training, with their own default settings otherwise.
None sees a test task's reward. They differ in what else they use: training tasks (rows and rewards of other tasks), or
the world's transition probabilities, or neither. That difference is theirs, and is part of the table's reading.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np

from kdbirl.data.demonstrations import Demonstrations, TaskBank
from kdbirl.errors import InputError, did_you_mean
from kdbirl.features import FeatureMap, Function, Standardize
from kdbirl.posterior.priors import Prior
from kdbirl.posterior.result import Posterior
from kdbirl.random_streams import stream
from kdbirl.worlds.policy import Policy
from kdbirl.worlds.tabular import TabularMDP

CHAINS = 4  # of samplers that have chains; they share the budget's draws
FEW_STATES = 200  # in worlds with more, BIRL reads Q* from a shared table instead of planning for every reward
ALPHA = 1.0  # the paper's inverse temperature of BIRL
TASKS, WORLD, PRIOR = "training tasks", "transition probabilities", "prior"


@dataclass(frozen=True)
class Budget:
    """What every method may spend on one posterior.

    draws: of the posterior. warmup: steps of each chain before its draws. steps: of training, for methods with a
    network. planned: draws that are planned for in an EVD.
    """

    draws: int = 1000
    warmup: int = 500
    steps: int = 2000
    planned: int = 100

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if isinstance(value, bool) or not isinstance(value, int) or value < CHAINS:
                raise InputError(f"budget: {name}={value!r} should be a whole number, at least {CHAINS}.")


@dataclass(frozen=True, eq=False)
class Setting:
    """What a method is made from: the world, the prior of its reward, the training tasks, the budget, a seed."""

    mdp: TabularMDP
    prior: Prior
    bank: TaskBank
    budget: Budget
    seed: int = 0

    @property
    def phi(self) -> FeatureMap:
        """phi of R(s, a) = phi(s, a) . w."""
        return Function(self.mdp.features_of, names=self.mdp.feature_names)

    @property
    def density_features(self) -> FeatureMap | None:
        """What densities are estimated on: phi, standardised, as in the paper; the method's default on plain grids."""
        return None if is_by_state(self.mdp) else Standardize(self.phi)

    @property
    def state_only(self) -> bool:
        """The reward does not depend on the action."""
        return self.mdp.features is None or self.mdp.features.ndim == 2


def is_by_state(mdp: TabularMDP) -> bool:
    """Whether a reward has one parameter for each state."""
    return mdp.features is None or np.array_equal(mdp.features, np.eye(mdp.n_states))


@dataclass(frozen=True)
class Contender:
    """A method by name. make: its fitted form; sees: what it uses besides the expert's rows; settings: for the record.

    kind: "posterior", "point" (an estimate without uncertainty) or "policy" (no reward at all).
    """

    name: str
    label: str
    kind: str
    sees: tuple[str, ...]
    settings: str
    make: Callable[[Setting], Any]


@dataclass(frozen=True)
class PriorAlone:
    """No learning: draws from the prior. What every method should beat."""

    setting: Setting

    def posterior(self, expert: Demonstrations, seed: int = 0) -> Posterior:
        """The prior's draws, whatever the expert does."""
        mdp, prior = self.setting.mdp, self.setting.prior
        draws = prior.sample(np.random.default_rng(stream(seed, "draws of the prior alone")), self.setting.budget.draws)
        return Posterior(draws[None], mdp.feature_names, method="Prior", sampler="Exact", seed=seed)


def _sampler(budget: Budget) -> Any:
    from kdbirl.posterior.auto import Auto

    return Auto(chains=CHAINS, warmup=budget.warmup, draws=budget.draws // CHAINS)


def _kdbirl(setting: Setting) -> Any:
    from kdbirl.methods.kdbirl import KDBIRL

    model = KDBIRL(setting.prior, features=setting.density_features, sampler=_sampler(setting.budget))
    return model.fit(setting.bank, seed=setting.seed)


def _birl(setting: Setting, tuned: bool = False) -> Any:
    from kdbirl.methods.birl import BIRL, likeliest_alpha
    from kdbirl.methods.birl_table import PER_AXIS, BIRLTable

    mdp, draws = setting.mdp, setting.budget.draws
    alpha = likeliest_alpha(mdp, setting.bank) if tuned else ALPHA
    if mdp.n_states > FEW_STATES or (tuned and mdp.n_parameters in PER_AXIS):
        return BIRLTable(mdp, setting.prior, alpha, draws=draws).fit(setting.bank)
    return BIRL(mdp, setting.prior, alpha, sampler=_sampler(setting.budget)).fit(setting.bank)


def _avril(setting: Setting, informative: bool = False) -> Any:
    from kdbirl.methods.avril import AVRIL

    return AVRIL(
        discount=setting.mdp.discount,
        state_only=setting.state_only,
        prior="informative" if informative else None,
        steps=setting.budget.steps,
        draws=setting.budget.draws,
        reward_features=setting.phi,
    ).fit(setting.bank)


@dataclass(frozen=True)
class GreedyAVRIL:
    """AVRIL by its other output: the best actions of its Q network, without its reward."""

    setting: Setting

    def policy(self, expert: Demonstrations, seed: int = 0) -> Policy:
        """One action in each discrete state."""
        mdp = self.setting.mdp
        actions = _avril(self.setting).policy(expert, seed=seed).actions(np.arange(mdp.n_states))
        return Policy(np.eye(mdp.n_actions)[actions])


def _max_entropy(setting: Setting) -> Any:
    from kdbirl.methods.max_entropy import MaxCausalEntropy

    return MaxCausalEntropy(setting.mdp).fit(setting.bank)


def _cloning(setting: Setting) -> Any:
    from kdbirl.methods.cloning import BehaviourCloning

    return BehaviourCloning(setting.mdp).fit(setting.bank)


def _neural(setting: Setting) -> Any:
    from kdbirl.methods.neural_posterior import NeuralPosterior

    budget, features = setting.budget, setting.density_features
    model = NeuralPosterior(setting.prior, features=features, steps=budget.steps, draws=budget.draws)
    return model.fit(setting.bank, seed=setting.seed)


_ALL = (
    Contender("kdbirl", "KD-BIRL", "posterior", (PRIOR, TASKS), "loto bandwidths and power, auto sampler", _kdbirl),
    Contender("birl", "BIRL", "posterior", (PRIOR, WORLD), f"policy form, alpha = {ALPHA:g} (the paper)", _birl),
    Contender(
        "birl-tuned",
        "BIRL, tuned",
        "posterior",
        (PRIOR, WORLD, TASKS),
        "policy form, alpha the likeliest on the training tasks (at most 1000), table of Q*",
        partial(_birl, tuned=True),
    ),
    Contender("avril", "AVRIL", "posterior", (), "every R(s, a) ~ N(0, 1), the world's discount", _avril),
    Contender(
        "avril-prior",
        "AVRIL, informative",
        "posterior",
        (TASKS,),
        "R(s, a) ~ N(mu_0, sigma_0^2) of the training tasks, the world's discount",
        partial(_avril, informative=True),
    ),
    Contender("avril-q", "AVRIL's Q network", "policy", (), "as avril; its greedy policy", GreedyAVRIL),
    Contender("npe", "Neural posterior", "posterior", (PRIOR, TASKS), "defaults but for the steps", _neural),
    Contender("maxent", "Max. causal entropy", "point", (WORLD,), "defaults: l2 = 0.001, episodes", _max_entropy),
    Contender("cloning", "Behaviour cloning", "policy", (), "counts; evenly where the expert was not seen", _cloning),
    Contender("prior", "Prior alone", "posterior", (PRIOR,), "no learning", PriorAlone),
)
CONTENDERS: dict[str, Contender] = {contender.name: contender for contender in _ALL}


def chosen_contenders(names: Any) -> tuple[str, ...]:
    """The names, each once and in the order given; `all` is every method."""
    found: dict[str, None] = {}
    for name in names:
        if name != "all" and name not in CONTENDERS:
            raise InputError(f"There is no method called {name!r}.{did_you_mean(name, [*CONTENDERS, 'all'])}")
        found |= dict.fromkeys(CONTENDERS if name == "all" else [name])
    if not found:
        raise InputError(f"Give at least one method: {', '.join(CONTENDERS)}, or all.")
    return tuple(found)


def described(names: Any) -> dict[str, dict[str, Any]]:
    """What a manifest says of the methods."""
    return {
        name: {"label": one.label, "kind": one.kind, "sees": ["the expert's rows", *one.sees], "settings": one.settings}
        for name, one in CONTENDERS.items()
        if name in names
    }
