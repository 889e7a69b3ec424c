"""`ICUSepsis`: the dynamics of real patients, as the package `icu-sepsis` ships them (Choudhary et al. 2024)."""

from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float

from kdbirl.archive import read_arrays
from kdbirl.errors import FileProblem, InputError, MissingDependency, did_you_mean
from kdbirl.worlds.tabular import TabularMDP

# Features of `ICUSepsis` that a map learns from its states' cluster centres and the treatment.
#
# A penalty per step rewards dying early, and the mean of a learnt feature is arbitrary: whatever is paid for every step
# would decide when patients want their stay to end. So each feature is centred and scaled to mean 0 and standard
# deviation 1 over the steps of randomly treated patients, from admission to the end,
#
#     share(s, a)  ~  mu(s) / 25,        mu = start + P_random' mu   (expected visits),
#
# which makes the end of a stay, where nothing more is paid, as good as an average step.

# The AI Clinician's covariates in its order: four of two or three values, then measurements, then logarithms.
COVARIATES = (
    *("sex", "ventilation", "vasopressor before", "readmission", "age", "weight", "GCS", "heart rate", "SysBP"),
    *("MeanBP", "DiasBP", "RespRate", "temperature", "FiO2", "potassium", "sodium", "chloride", "glucose", "magnesium"),
    *("calcium", "hemoglobin", "WBC", "platelets", "PTT", "PT", "pH", "PaO2", "PaCO2", "base excess", "bicarbonate"),
    *("lactate", "SOFA", "SIRS", "shock index", "PaO2/FiO2", "balance", "SpO2", "BUN", "creatinine", "SGOT", "SGPT"),
    *("bilirubin", "INR", "fluid total", "fluid before", "urine total", "urine before"),
)
NO_SPREAD = 1e-9  # of a feature that is the same for all: it is left as it is


@runtime_checkable
class PairFeatures(Protocol):
    """What a feature map offers to a tabular world (`FeatureMap` does)."""

    def of_pairs(self, states: Any, n_actions: int, state_names: tuple[str, ...]) -> tuple[Any, Any]:
        """The fitted map, and phi of every state with every action, `(S, A, q)`."""


def learnt_features(
    feature_map: Any, centres: Float[np.ndarray, "n 47"], visits: Float[np.ndarray, " n"], n_actions: int
) -> tuple[Any, Float[np.ndarray, "n A q"]]:
    """The map, fitted on all pairs where it was not yet, and its standardised features."""
    if not isinstance(feature_map, PairFeatures):
        raise InputError(
            f"features={feature_map!r} should be a name or a feature map of the 47 covariates, such as kb.VAE()."
        )
    fitted, phi = feature_map.of_pairs(centres, n_actions, COVARIATES)
    share = (visits / visits.sum())[:, None, None] / n_actions
    mean = (share * phi).sum(axis=(0, 1))
    spread = np.sqrt((share * (phi - mean) ** 2).sum(axis=(0, 1)))
    return fitted, (phi - mean) / np.where(spread > NO_SPREAD, spread, 1.0)


def random_visits(transitions: Float[np.ndarray, "n A n"], start: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """Expected visits to each patient's state under random treatment; `transitions` between such states alone."""
    mean = transitions.mean(axis=1)
    return np.linalg.solve(np.eye(len(start)) - mean.T, start)


PATIENTS, DIED, SURVIVED = 713, 713, 714  # 713 states of patients, then death, survival, and what comes after both
LEVELS = 5  # of fluid and of vasopressor
MEAN_PRESSURE, LACTATE = 9, 30  # columns of the cluster centres, z-scores in the order of the AI Clinician's covariates
FEATURES = ("sofa-fluid-vasopressor", "sofa-lactate-map")
DISCOUNT = 0.95
TIE = 1e-12  # a gain in survival below this does not change an action: rounding of the linear solve


@dataclass(frozen=True, eq=False, init=False, repr=False)
class ICUSepsis(TabularMDP):
    """A tabular world estimated from the sepsis patients of MIMIC-III: 716 states, 25 treatments, exact evaluation.

    ## States
    0 to 712 are clusters of patients' four-hour windows; 713 is death, 714 survival, 715 what follows both. The last
    three are terminal. `sofa (716,)` and `centres (716, 47)` (z-scores) describe them.

    ## Actions
    a = 5 * fluid + vasopressor, each at a level from 0 to 4, named "fluid 0 vasopressor 0" and so on. Treatments that
    too few patients had in a state lead to the mean of the others' next states there, as the package does it.

    ## Rewards
    R(s, a) = w.phi(s, a) with `features`: "sofa-fluid-vasopressor" (SOFA points and the two levels) or
    "sofa-lactate-map" (SOFA points; lactate and mean arterial pressure as z-scores), or a feature map of the 47
    covariates and the treatment: `kb.ICUSepsis(kb.VAE())` learns it from all pairs of a patient's state and a
    treatment (a map that is fitted already is taken as it is), and centres and scales each feature over the steps of
    randomly treated patients, see `envs.icu_learnt_features`; `feature_map` is the fitted map. `outcome=True` adds
    survived and died: the probabilities that the episode ends so with this step. A penalty per step alone rewards dying
    early: give the outcome a weight. `env_reward` is the package's own reward, 1 for survival.

    ## Start and end
    The start is the patients' own distribution; every policy ends in 713 or 714 with certainty.

    ## Arguments
    discount: 0.95 unless given (the package's own reward is undiscounted: discount=1 is allowed, since every policy
    ends). horizon: steps after which an episode is over, for planning; None: never.

    Not for clinical use. The arrays are read from the installed package, which is not imported:
    `pip install 'kdbirl[icu-sepsis]'`.
    """

    sofa: Float[np.ndarray, " S"]
    centres: Float[np.ndarray, "S 47"]
    expert_policy: Float[np.ndarray, "S A"]
    feature_map: PairFeatures | None

    def __init__(
        self, features: Any = FEATURES[0], outcome: bool = False, discount: Any = DISCOUNT, horizon: Any = None
    ) -> None:
        arrays = _load(assets())
        phi, names, learnt = _features(features, outcome, arrays)
        TabularMDP.__init__(
            self,
            arrays["tx_mat"],
            arrays["d_0"],
            discount,
            phi,
            terminal=np.arange(len(arrays["d_0"])) >= PATIENTS,
            horizon=horizon,
            feature_names=names,
            action_names=[f"fluid {a // LEVELS} vasopressor {a % LEVELS}" for a in range(LEVELS**2)],
            env_reward=np.where(np.arange(len(phi))[:, None] < PATIENTS, arrays["tx_mat"][:, :, SURVIVED], 0.0),
        )
        policy = arrays["expert_policy"].copy()
        policy[PATIENTS:] = 1.0 / LEVELS**2  # nobody acts there; the package has zeros
        own = {"sofa": arrays["sofa_scores"], "centres": arrays["state_cluster_centers"], "expert_policy": policy}
        for name, value in own.items():
            copy = np.array(value)
            copy.setflags(write=False)
            object.__setattr__(self, name, copy)
        object.__setattr__(self, "feature_map", learnt)

    def baseline_returns(self) -> dict[str, float]:
        """Exact undiscounted returns of the package's own reward, the probability of survival, of three policies."""
        return {name: float(self.start[:PATIENTS] @ chances) for name, (chances, _) in self._baselines.items()}

    def baseline_lengths(self) -> dict[str, float]:
        """Exact mean lengths of an episode, in steps of four hours, of the same three policies."""
        return {name: float(self.start[:PATIENTS] @ steps) for name, (_, steps) in self._baselines.items()}

    @cached_property
    def _baselines(self) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Chance of survival and expected number of steps from each patient's state, by policy."""
        random = np.full((PATIENTS, LEVELS**2), 1.0 / LEVELS**2)
        policies = {"random": random, "expert": self.expert_policy[:PATIENTS], "optimal": _best_for_survival(self)}
        return {name: _survival_and_steps(self, policy) for name, policy in policies.items()}


def _survival_and_steps(world: ICUSepsis, policy: Float[np.ndarray, "n A"]) -> tuple[np.ndarray, np.ndarray]:
    """V = (I - P_pi)^-1 r_pi with r = P(survived) and r = 1."""
    mean = np.einsum("sa,sat->st", policy, world.transitions[:PATIENTS])
    rewards = np.stack([mean[:, SURVIVED], np.ones(PATIENTS)], axis=1)
    values = np.linalg.solve(np.eye(PATIENTS) - mean[:, :PATIENTS], rewards)
    return values[:, 0], values[:, 1]


def _best_for_survival(world: ICUSepsis) -> Float[np.ndarray, "n A"]:
    """Howard's policy iteration; `planners` has the general one, which may not be imported here (a test compares)."""
    rows = np.arange(PATIENTS)
    best = world.transitions[:PATIENTS, :, SURVIVED].argmax(axis=1)
    while True:
        policy = np.zeros((PATIENTS, LEVELS**2))
        policy[rows, best] = 1.0
        values, _ = _survival_and_steps(world, policy)
        chances = world.transitions[:PATIENTS, :, :PATIENTS] @ values + world.transitions[:PATIENTS, :, SURVIVED]
        better = chances.max(axis=1) > chances[rows, best] + TIE
        if not better.any():
            return policy
        best = np.where(better, chances.argmax(axis=1), best)


def _features(
    kind: Any, outcome: bool, arrays: dict[str, np.ndarray]
) -> tuple[Float[np.ndarray, "S A q"], list[str], PairFeatures | None]:
    """phi, its names, and the map that made it, if one did."""
    learnt, columns = (None, _named(kind, arrays)) if isinstance(kind, str) else _learnt(kind, arrays)
    if outcome:
        columns |= {"survived": arrays["tx_mat"][:, :, SURVIVED], "died": arrays["tx_mat"][:, :, DIED]}
    phi = np.stack(list(columns.values()), axis=2).astype(np.float64)
    phi[PATIENTS:] = 0.0
    return phi, list(columns), learnt


def _named(kind: str, arrays: dict[str, np.ndarray]) -> dict[str, Float[np.ndarray, "S A"]]:
    centres, sofa = arrays["state_cluster_centers"], arrays["sofa_scores"]
    levels = np.divmod(np.arange(LEVELS**2), LEVELS)
    shape = (len(sofa), LEVELS**2)
    columns = {"SOFA": np.broadcast_to(sofa[:, None], shape)}
    if kind == "sofa-fluid-vasopressor":
        columns |= {"fluid": np.broadcast_to(levels[0], shape), "vasopressor": np.broadcast_to(levels[1], shape)}
    elif kind == "sofa-lactate-map":
        columns["lactate"] = np.broadcast_to(centres[:, LACTATE, None], shape)
        columns["MAP"] = np.broadcast_to(centres[:, MEAN_PRESSURE, None], shape)
    else:
        raise InputError(f"features={kind!r} is unknown.{did_you_mean(str(kind), FEATURES)}")
    return columns


def _learnt(kind: Any, arrays: dict[str, np.ndarray]) -> tuple[Any, dict[str, Float[np.ndarray, "S A"]]]:
    patients = slice(PATIENTS)
    visits = random_visits(arrays["tx_mat"][patients, :, patients], arrays["d_0"][patients])
    fitted, values = learnt_features(kind, arrays["state_cluster_centers"][patients], visits, LEVELS**2)
    phi = np.zeros((len(arrays["d_0"]), *values.shape[1:]))
    phi[patients] = values
    return fitted, {name: phi[:, :, k] for k, name in enumerate(fitted.names)}


def assets() -> Path:
    """Where the installed package keeps its arrays; it is looked up, not imported (its import pulls legacy gym)."""
    found = find_spec("icu_sepsis")
    if found is None or not found.submodule_search_locations:
        raise MissingDependency("ICUSepsis needs the package icu-sepsis: pip install 'kdbirl[icu-sepsis]'.")
    path = Path(next(iter(found.submodule_search_locations))) / "envs" / "assets" / "dynamics.npz"
    if not path.is_file():
        raise FileProblem(f"{path}: the installed icu-sepsis has no such file; install icu-sepsis 2.0.1.")
    return path


@lru_cache(maxsize=1)
def _load(path: Path) -> dict[str, np.ndarray]:
    """The arrays of the npz file, once per process."""
    names = ("tx_mat", "d_0", "expert_policy", "state_cluster_centers", "sofa_scores")
    stored = read_arrays(path, "expected the arrays of icu-sepsis 2.0.1")
    try:
        arrays = {name: np.asarray(stored[name], dtype=np.float64) for name in names}
    except (KeyError, TypeError, ValueError) as error:
        raise FileProblem(f"{path}: it cannot be read as the arrays of icu-sepsis 2.0.1 ({error}).") from error
    if arrays["tx_mat"].shape != (PATIENTS + 3, LEVELS**2, PATIENTS + 3):
        raise FileProblem(f"{path}: transitions of shape {arrays['tx_mat'].shape}, expected (716, 25, 716).")
    return arrays
