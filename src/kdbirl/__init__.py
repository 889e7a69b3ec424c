"""Bayesian inverse reinforcement learning from labelled training tasks.

Public names are loaded when they are first used, so `import kdbirl` is quick, imports neither JAX nor the table and
plot libraries, and changes nothing in the user's process (docs/decisions/0002-lazy-imports.md).
"""

from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:  # for type checkers and editors; the table below is for Python, and a test keeps the two equal
    from kdbirl.data.demonstrations import Demonstrations as Demonstrations
    from kdbirl.data.demonstrations import TaskBank as TaskBank
    from kdbirl.data.large import StreamedBank as StreamedBank
    from kdbirl.data.large_reader import stream_task_bank as stream_task_bank
    from kdbirl.data.minari import read_minari as read_minari
    from kdbirl.data.readers import read_demonstrations as read_demonstrations
    from kdbirl.data.readers import read_task_bank as read_task_bank
    from kdbirl.data.readers import read_test_tasks as read_test_tasks
    from kdbirl.data.writers import write_demonstrations as write_demonstrations
    from kdbirl.data.writers import write_task_bank as write_task_bank
    from kdbirl.errors import KDBIRLError as KDBIRLError
    from kdbirl.errors import KDBIRLWarning as KDBIRLWarning
    from kdbirl.evaluation.diagnose import diagnose as diagnose
    from kdbirl.evaluation.evd import evd as evd
    from kdbirl.evaluation.evd import evd_objective as evd_objective
    from kdbirl.evaluation.paired_rollouts import policy_features as policy_features
    from kdbirl.evaluation.policy_classes import policy_classes as policy_classes
    from kdbirl.evaluation.risk import value_at_risk as value_at_risk
    from kdbirl.features import PCA as PCA
    from kdbirl.features import VAE as VAE
    from kdbirl.features import Columns as Columns
    from kdbirl.features import Fixed as Fixed
    from kdbirl.features import Function as Function
    from kdbirl.features import GridCoordinates as GridCoordinates
    from kdbirl.features import Identity as Identity
    from kdbirl.features import OneHot as OneHot
    from kdbirl.features import OneHotActions as OneHotActions
    from kdbirl.features import OneHotStates as OneHotStates
    from kdbirl.features import Standardize as Standardize
    from kdbirl.features import Transformer as Transformer
    from kdbirl.features import diagnose_latents as diagnose_latents
    from kdbirl.features.in_jax import in_jax as in_jax
    from kdbirl.likelihood.kernels import Categorical as Categorical
    from kdbirl.likelihood.kernels import ProductKernel as ProductKernel
    from kdbirl.likelihood.kernels import RadialKernel as RadialKernel
    from kdbirl.likelihood.kernels import UserKernel as UserKernel
    from kdbirl.likelihood.kernels import sigma_from_paper as sigma_from_paper
    from kdbirl.methods.avril import AVRIL as AVRIL
    from kdbirl.methods.avril import AVRILAgent as AVRILAgent
    from kdbirl.methods.avril_draws import RewardPrior as RewardPrior
    from kdbirl.methods.avril_draws import informative_prior as informative_prior
    from kdbirl.methods.birl import BIRL as BIRL
    from kdbirl.methods.birl import likeliest_alpha as likeliest_alpha
    from kdbirl.methods.birl_table import BIRLTable as BIRLTable
    from kdbirl.methods.cloning import BehaviourCloning as BehaviourCloning
    from kdbirl.methods.cloning import CloningAgent as CloningAgent
    from kdbirl.methods.kdbirl import KDBIRL as KDBIRL
    from kdbirl.methods.kdbirl import load_model as load_model
    from kdbirl.methods.max_entropy import MaxCausalEntropy as MaxCausalEntropy
    from kdbirl.methods.neural_posterior import NeuralPosterior as NeuralPosterior
    from kdbirl.methods.policy_walk import PolicyWalk as PolicyWalk
    from kdbirl.methods.posteriors import Posteriors as Posteriors
    from kdbirl.methods.posteriors import load_posteriors as load_posteriors
    from kdbirl.posterior.grid import Grid as Grid
    from kdbirl.posterior.independence import Independence as Independence
    from kdbirl.posterior.mcmc import HMC as HMC
    from kdbirl.posterior.mcmc import NUTS as NUTS
    from kdbirl.posterior.mcmc import Metropolis as Metropolis
    from kdbirl.posterior.priors import Beta as Beta
    from kdbirl.posterior.priors import Laplace as Laplace
    from kdbirl.posterior.priors import Normal as Normal
    from kdbirl.posterior.priors import TruncatedNormal as TruncatedNormal
    from kdbirl.posterior.priors import Uniform as Uniform
    from kdbirl.posterior.product_prior import CustomPrior as CustomPrior
    from kdbirl.posterior.product_prior import Product as Product
    from kdbirl.posterior.result import Posterior as Posterior
    from kdbirl.posterior.result import load_posterior as load_posterior
    from kdbirl.posterior.smc import SMC as SMC
    from kdbirl.posterior.vi import VI as VI
    from kdbirl.report.plots import plot_intervals as plot_intervals
    from kdbirl.report.plots import plot_marginals as plot_marginals
    from kdbirl.report.plots import plot_pairs as plot_pairs
    from kdbirl.report.plots import plot_trace as plot_trace
    from kdbirl.report.trust_plots import plot_calibration as plot_calibration
    from kdbirl.report.trust_plots import plot_identifiability as plot_identifiability
    from kdbirl.report.trust_plots import plot_policy_classes as plot_policy_classes
    from kdbirl.report.trust_plots import plot_predictive as plot_predictive
    from kdbirl.report.trust_plots import plot_sensitivity as plot_sensitivity
    from kdbirl.report.trust_plots import plot_support as plot_support
    from kdbirl.report.vae_plots import plot_latents as plot_latents
    from kdbirl.report.world_plots import plot_occupancy as plot_occupancy
    from kdbirl.report.world_plots import plot_patient as plot_patient
    from kdbirl.report.world_plots import plot_policy as plot_policy
    from kdbirl.report.world_plots import plot_reward_maps as plot_reward_maps
    from kdbirl.store import keep_checkpoints as keep_checkpoints
    from kdbirl.trust.calibration import calibrate as calibrate
    from kdbirl.trust.leave_one_out import compare_leave_one_out as compare_leave_one_out
    from kdbirl.trust.leave_one_out import leave_one_out as leave_one_out
    from kdbirl.trust.loto import LotoSettings as LotoSettings
    from kdbirl.worlds.gridworld import Gridworld as Gridworld
    from kdbirl.worlds.gymnasium import as_gymnasium as as_gymnasium
    from kdbirl.worlds.icu_sepsis import ICUSepsis as ICUSepsis
    from kdbirl.worlds.planning import action_values as action_values
    from kdbirl.worlds.planning import plan as plan
    from kdbirl.worlds.planning import plan_many as plan_many
    from kdbirl.worlds.policy import Policy as Policy
    from kdbirl.worlds.policy_value import feature_expectations as feature_expectations
    from kdbirl.worlds.policy_value import occupancy as occupancy
    from kdbirl.worlds.policy_value import value as value
    from kdbirl.worlds.rollouts import make_bank as make_bank
    from kdbirl.worlds.rollouts import rollout as rollout
    from kdbirl.worlds.sepsis.deep_q import DeepQ as DeepQ
    from kdbirl.worlds.sepsis.gym_sepsis import GymSepsis as GymSepsis
    from kdbirl.worlds.sepsis.q_policy import ConditionedQ as ConditionedQ
    from kdbirl.worlds.sepsis.q_policy import QPolicy as QPolicy
    from kdbirl.worlds.sepsis.q_policy import load_conditioned as load_conditioned
    from kdbirl.worlds.sepsis.simulator import SepsisSim as SepsisSim
    from kdbirl.worlds.simulator import Simulator as Simulator
    from kdbirl.worlds.simulator import TabularSimulator as TabularSimulator
    from kdbirl.worlds.tabular import TabularMDP as TabularMDP
    from kdbirl.worlds.value_iteration import soft_value_iteration as soft_value_iteration
    from kdbirl.worlds.value_iteration import value_iteration as value_iteration

_MODULE_OF = {
    "keep_checkpoints": "kdbirl.store",
    "Demonstrations": "kdbirl.data.demonstrations",
    "TaskBank": "kdbirl.data.demonstrations",
    "read_minari": "kdbirl.data.minari",
    "read_demonstrations": "kdbirl.data.readers",
    "read_task_bank": "kdbirl.data.readers",
    "read_test_tasks": "kdbirl.data.readers",
    "make_bank": "kdbirl.worlds.rollouts",
    "rollout": "kdbirl.worlds.rollouts",
    "stream_task_bank": "kdbirl.data.large_reader",
    "StreamedBank": "kdbirl.data.large",
    "write_demonstrations": "kdbirl.data.writers",
    "write_task_bank": "kdbirl.data.writers",
    "calibrate": "kdbirl.trust.calibration",
    "compare_leave_one_out": "kdbirl.trust.leave_one_out",
    "leave_one_out": "kdbirl.trust.leave_one_out",
    "LotoSettings": "kdbirl.trust.loto",
    "TabularMDP": "kdbirl.worlds.tabular",
    "Gridworld": "kdbirl.worlds.gridworld",
    "GymSepsis": "kdbirl.worlds.sepsis.gym_sepsis",
    "as_gymnasium": "kdbirl.worlds.gymnasium",
    "ICUSepsis": "kdbirl.worlds.icu_sepsis",
    "SepsisSim": "kdbirl.worlds.sepsis.simulator",
    "Simulator": "kdbirl.worlds.simulator",
    "TabularSimulator": "kdbirl.worlds.simulator",
    "KDBIRLError": "kdbirl.errors",
    "KDBIRLWarning": "kdbirl.errors",
    "diagnose": "kdbirl.evaluation.diagnose",
    "evd": "kdbirl.evaluation.evd",
    "evd_objective": "kdbirl.evaluation.evd",
    "policy_classes": "kdbirl.evaluation.policy_classes",
    "value_at_risk": "kdbirl.evaluation.risk",
    "policy_features": "kdbirl.evaluation.paired_rollouts",
    "Columns": "kdbirl.features",
    "Fixed": "kdbirl.features",
    "Function": "kdbirl.features",
    "GridCoordinates": "kdbirl.features",
    "Identity": "kdbirl.features",
    "OneHot": "kdbirl.features",
    "OneHotActions": "kdbirl.features",
    "OneHotStates": "kdbirl.features",
    "PCA": "kdbirl.features",
    "Standardize": "kdbirl.features",
    "Transformer": "kdbirl.features",
    "VAE": "kdbirl.features",
    "diagnose_latents": "kdbirl.features",
    "in_jax": "kdbirl.features.in_jax",
    "Categorical": "kdbirl.likelihood.kernels",
    "ProductKernel": "kdbirl.likelihood.kernels",
    "RadialKernel": "kdbirl.likelihood.kernels",
    "UserKernel": "kdbirl.likelihood.kernels",
    "sigma_from_paper": "kdbirl.likelihood.kernels",
    "AVRIL": "kdbirl.methods.avril",
    "AVRILAgent": "kdbirl.methods.avril",
    "BehaviourCloning": "kdbirl.methods.cloning",
    "CloningAgent": "kdbirl.methods.cloning",
    "BIRL": "kdbirl.methods.birl",
    "BIRLTable": "kdbirl.methods.birl_table",
    "likeliest_alpha": "kdbirl.methods.birl",
    "RewardPrior": "kdbirl.methods.avril_draws",
    "informative_prior": "kdbirl.methods.avril_draws",
    "KDBIRL": "kdbirl.methods.kdbirl",
    "MaxCausalEntropy": "kdbirl.methods.max_entropy",
    "load_model": "kdbirl.methods.kdbirl",
    "Posteriors": "kdbirl.methods.posteriors",
    "load_posteriors": "kdbirl.methods.posteriors",
    "NeuralPosterior": "kdbirl.methods.neural_posterior",
    "PolicyWalk": "kdbirl.methods.policy_walk",
    "DeepQ": "kdbirl.worlds.sepsis.deep_q",
    "feature_expectations": "kdbirl.worlds.policy_value",
    "occupancy": "kdbirl.worlds.policy_value",
    "value": "kdbirl.worlds.policy_value",
    "action_values": "kdbirl.worlds.planning",
    "plan": "kdbirl.worlds.planning",
    "plan_many": "kdbirl.worlds.planning",
    "Policy": "kdbirl.worlds.policy",
    "load_conditioned": "kdbirl.worlds.sepsis.q_policy",
    "ConditionedQ": "kdbirl.worlds.sepsis.q_policy",
    "QPolicy": "kdbirl.worlds.sepsis.q_policy",
    "soft_value_iteration": "kdbirl.worlds.value_iteration",
    "value_iteration": "kdbirl.worlds.value_iteration",
    "Grid": "kdbirl.posterior.grid",
    "Independence": "kdbirl.posterior.independence",
    "HMC": "kdbirl.posterior.mcmc",
    "Metropolis": "kdbirl.posterior.mcmc",
    "NUTS": "kdbirl.posterior.mcmc",
    "Beta": "kdbirl.posterior.priors",
    "Laplace": "kdbirl.posterior.priors",
    "Normal": "kdbirl.posterior.priors",
    "TruncatedNormal": "kdbirl.posterior.priors",
    "Uniform": "kdbirl.posterior.priors",
    "CustomPrior": "kdbirl.posterior.product_prior",
    "Product": "kdbirl.posterior.product_prior",
    "Posterior": "kdbirl.posterior.result",
    "SMC": "kdbirl.posterior.smc",
    "load_posterior": "kdbirl.posterior.result",
    "VI": "kdbirl.posterior.vi",
    "plot_calibration": "kdbirl.report.trust_plots",
    "plot_predictive": "kdbirl.report.trust_plots",
    "plot_sensitivity": "kdbirl.report.trust_plots",
    "plot_identifiability": "kdbirl.report.trust_plots",
    "plot_policy_classes": "kdbirl.report.trust_plots",
    "plot_support": "kdbirl.report.trust_plots",
    "plot_occupancy": "kdbirl.report.world_plots",
    "plot_policy": "kdbirl.report.world_plots",
    "plot_reward_maps": "kdbirl.report.world_plots",
    "plot_patient": "kdbirl.report.world_plots",
    "plot_intervals": "kdbirl.report.plots",
    "plot_marginals": "kdbirl.report.plots",
    "plot_pairs": "kdbirl.report.plots",
    "plot_trace": "kdbirl.report.plots",
    "plot_latents": "kdbirl.report.vae_plots",
}


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULE_OF})


if not TYPE_CHECKING:  # a type checker that saw this would believe in every name there is

    def __getattr__(name: str) -> object:
        """Import the module that owns `name` when it is first asked for (PEP 562)."""
        if name not in _MODULE_OF:
            from kdbirl.errors import did_you_mean

            raise AttributeError(f"module 'kdbirl' has no attribute {name!r}.{did_you_mean(name, _MODULE_OF)}")
        from importlib import import_module

        value = getattr(import_module(_MODULE_OF[name]), name)
        globals()[name] = value
        return value
