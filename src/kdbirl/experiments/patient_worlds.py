"""The two worlds of the paper's sepsis experiments: phi, policies for any w, and what they collect.

    sepsis        `SepsisSim`, 18 steps without an end (a penalty per step would otherwise pay for dying early);
                  policies by deep Q(s, a, w)
    icu-sepsis    `ICUSepsis`, dynamics of real patients; policies planned exactly

phi is one of two: "vae", three latents of the covariates and the treatment, as in the paper; "named", SOFA and the
levels of fluid and vasopressor, each with mean 0 and standard deviation 1 over randomly treated patients. Rewards are
w.phi(s, a), so the feature expectations mu of a policy say what it is worth under any of them.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from kdbirl.demos.data import Demonstrations, TaskBank
from kdbirl.demos.rollouts import make_bank, rollout
from kdbirl.errors import InputError
from kdbirl.features import FeatureMap, Function
from kdbirl.planners.policy import Policy
from kdbirl.progress import Progress, Silent

WORLDS = ("sepsis", "icu-sepsis")
HORIZON = 18  # steps of an episode, the simulator's own
LEARNT_FROM = 1500  # random patients from whom phi is learnt
PHI_SEED, POLICY_SEED, VALUE_SEED = 11, 0, 29
LATENTS = 3
PHIS = ("vae", "named")
NAMES = ("SOFA", "fluid", "vasopressor")
LEVELS = 5  # of fluid and of vasopressor: action = 5 * fluid + vasopressor


@dataclass(frozen=True)
class Scale:
    """How much is computed: updates of deep Q, patients over whom values are averaged, steps of the VAE."""

    updates: int = 40_000
    patients: int = 512
    vae_steps: int = 20_000


FULL = Scale()
QUICK = Scale(updates=1000, patients=32, vae_steps=250)


@dataclass(frozen=True, eq=False)
class PatientWorld:
    """A world by what the experiments ask of it.

    phi: of rows, the same for all. policies: rewards `(r, q)` -> feature expectations `(r, q)` of their optimal
    policies. demonstrated: rewards, episodes, seed -> a bank of optimal demonstrations. agent: feature expectations
    `(q,)` of a function of covariates that acts, such as AVRIL's agent. seen: a bank's or an expert's rows as such an
    agent sees them. random: feature expectations of random treatment.
    """

    name: str
    phi: FeatureMap
    policies: Callable[[Any], Float[np.ndarray, "r q"]]
    demonstrated: Callable[[Any, int, int], TaskBank]
    agent: Callable[[Any], Float[np.ndarray, " q"]]
    seen: Callable[[Demonstrations], Demonstrations]
    random: Float[np.ndarray, " q"]


_WORLDS: dict[tuple[str, str, Scale], PatientWorld] = {}  # made once in a process


def patient_world(name: str, phi: str, scale: Scale, folder: Path, progress: Progress | None = None) -> PatientWorld:
    """One of `WORLDS` with one of `PHIS`. A trained policy is kept in `folder`, under everything that decides it."""
    if name not in WORLDS or phi not in PHIS:
        raise InputError(f"There is no world {name!r} with phi {phi!r}: {', '.join(WORLDS)}; {', '.join(PHIS)}.")
    made = _WORLDS.get((name, phi, scale))
    if made is None:
        made = _simulated(phi, scale, folder, progress or Silent()) if name == "sepsis" else _tabular(phi, scale)
        _WORLDS[name, phi, scale] = made
    return made


def severity_and_treatment(sofa: int) -> Callable[[Any, Any], Any]:
    """SOFA, which is column `sofa` of the covariates, and the two levels of the treatment; in NumPy or in JAX."""

    def phi(covariates: Any, actions: Any) -> Any:
        columns = [covariates[:, sofa], actions // LEVELS, actions % LEVELS]
        return jnp.stack([jnp.asarray(column, covariates.dtype) for column in columns], axis=1)

    return phi


def _vae(scale: Scale) -> Any:
    from kdbirl.features.vae import VAE

    return VAE(latents=LATENTS, steps=scale.vae_steps, seed=0)


def _tabular(phi: str, scale: Scale) -> PatientWorld:
    from kdbirl.envs.icu_learnt_features import COVARIATES
    from kdbirl.envs.icu_sepsis import ICUSepsis
    from kdbirl.planners.evaluation import feature_expectations
    from kdbirl.planners.plan import optimal_feature_expectations

    named = severity_and_treatment(COVARIATES.index("SOFA"))
    mdp = ICUSepsis(_vae(scale) if phi == "vae" else Function(named, names=NAMES))

    def act(agent: Any) -> Float[np.ndarray, " q"]:
        return feature_expectations(mdp, Policy(np.eye(mdp.n_actions)[agent.actions(mdp.centres)]))

    def seen(rows: Demonstrations) -> Demonstrations:
        states = mdp.centres[np.asarray(rows.states).reshape(-1).astype(int)]
        return Demonstrations(states, rows.actions, rows.episodes, rows.terminated, rows.truncated, n_actions=25)

    return PatientWorld(
        name="icu-sepsis",
        phi=Function(mdp.features_of, names=mdp.feature_names),
        policies=lambda rewards: optimal_feature_expectations(mdp, rewards),
        demonstrated=lambda rewards, episodes, seed: make_bank(mdp, rewards, episodes, HORIZON, seed),
        agent=act,
        seen=seen,
        random=feature_expectations(mdp, Policy.uniform(mdp.n_states, mdp.n_actions)),
    )


def _simulated(phi: str, scale: Scale, folder: Path, progress: Progress) -> PatientWorld:
    from kdbirl.envs.sepsis import SepsisSim
    from kdbirl.evaluation.paired_rollouts import collected_features
    from kdbirl.evaluation.simulated_features import policy_features

    plain = SepsisSim(memory=False, ending="never", horizon=HORIZON)
    rows = rollout(plain, "random", episodes=LEARNT_FROM, horizon=HORIZON, seed=PHI_SEED)
    feature_map, features = _learnt(rows, plain.n_actions, scale, progress) if phi == "vae" else _named(rows)
    simulator = plain.with_features(features, names=feature_map.names)
    planner = _planner(simulator, phi, scale, folder, progress)

    def collected(policy: Any) -> Float[np.ndarray, " q"]:
        return collected_features(simulator, policy, scale.patients, HORIZON, VALUE_SEED).mean(axis=0)

    return PatientWorld(
        name="sepsis",
        phi=feature_map,
        policies=lambda rewards: policy_features(simulator, planner, rewards, scale.patients, HORIZON, VALUE_SEED),
        demonstrated=lambda rewards, episodes, seed: make_bank(
            simulator, rewards, episodes, HORIZON, seed, planner=planner
        ),
        agent=collected,
        seen=lambda rows: rows,
        random=collected("random"),
    )


def _learnt(
    rows: Demonstrations, n_actions: int, scale: Scale, progress: Progress
) -> tuple[FeatureMap, Callable[..., Any]]:
    """The VAE as a map of rows, and as a function in JAX."""
    from kdbirl.features.fixed import Fixed
    from kdbirl.features.in_jax import in_jax

    vae = _vae(scale).fit(rows, progress)
    return Fixed(vae), in_jax(vae, n_actions)


def _named(rows: Demonstrations) -> tuple[FeatureMap, Callable[..., Any]]:
    from kdbirl.envs.sepsis_covariates import COLUMN

    plain = severity_and_treatment(COLUMN["SOFA"])
    values = np.asarray(plain(rows.states, rows.actions))
    mean, spread = values.mean(axis=0), values.std(axis=0)

    def standardised(covariates: Any, actions: Any) -> Any:
        return (plain(covariates, actions) - mean[None]) / spread[None]

    return Function(standardised, names=NAMES).fit(rows), standardised


def _planner(simulator: Any, phi: str, scale: Scale, folder: Path, progress: Progress) -> Any:
    """Q(s, a, w) for all w of the widest prior, trained once and then read."""
    from kdbirl.experiments.cell_store import fingerprint
    from kdbirl.experiments.request import checkout
    from kdbirl.planners.deep_q import DeepQ
    from kdbirl.planners.q_policy import load_conditioned
    from kdbirl.posterior.priors import Uniform

    key = {"phi": phi, "scale": asdict(scale), "seed": POLICY_SEED}
    path = folder / f"policy-{fingerprint(key, checkout())}.npz"
    if not path.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        learner = DeepQ(updates=scale.updates)
        learner.plan_conditioned(simulator, Uniform(-1, 1), seed=POLICY_SEED, progress=progress).save(path)
    return load_conditioned(path)
