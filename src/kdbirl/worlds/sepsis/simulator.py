"""`SepsisSim`: a synthetic septic patient, or a hundred thousand, as a differentiable simulator in JAX."""

from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.special import ndtr
from jaxtyping import Array, Bool, Float, Int

from kdbirl.errors import InputError, did_you_mean
from kdbirl.worlds.sepsis.covariates import (
    COLUMN,
    COVARIATES,
    FLUID_CUTS,
    FULL_FLUID,
    FULL_VASOPRESSOR,
    LEVELS,
    MEMORY_COLUMNS,
    MEMORY_ROWS,
    VASOPRESSOR_CUTS,
    FeatureFunction,
    named_columns,
    names_of,
    treatment_doses,
    treatment_names,
)
from kdbirl.worlds.sepsis.observation import (
    CHANNELS,
    Seen,
    admitted,
    carried_noise,
    followed,
    fresh_noise,
    goals,
    observe,
    straight_through,
)
from kdbirl.worlds.sepsis.physiology import Body, Patient, four_hours
from kdbirl.worlds.simulator import Outcome

# How a stay ends: competing hazards of death and release, and the outcome of those still there at the horizon.

DEATH = (-7.6, 0.36, 0.9, 0.35)  # log hazard in four hours: constant, SOFA, log lactate, frailty
RELEASE = (-1.2, -0.26, -0.8, -0.15)
LATER_DEATH = (-3.6, 0.30, 0.9, 0.35)  # log odds of dying after the horizon


def chances(
    sofa: Float[Array, " n"], lactate: Float[Array, " n"], frailty: Float[Array, " n"]
) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
    """P(death), P(release) in the next four hours: with rates d and r, (1 - exp(-d - r)) is shared as d : r.

    SOFA is the soft one without the points for the drug: counting them would make the treatment itself deadly.
    """
    death, release = (jnp.exp(_linear(weights, sofa, lactate, frailty)) for weights in (DEATH, RELEASE))
    gone = -jnp.expm1(-death - release) / (death + release)
    return gone * death, gone * release


def later_death(sofa: Float[Array, " n"], lactate: Float[Array, " n"], frailty: Float[Array, " n"]) -> Array:
    """P(death) of a patient who is still there at the horizon: logistic."""
    return jax.nn.sigmoid(_linear(LATER_DEATH, sofa, lactate, frailty))


def _linear(weights: tuple[float, float, float, float], sofa: Array, lactate: Array, frailty: Array) -> Array:
    constant, by_sofa, by_lactate, by_frailty = weights
    return constant + by_sofa * sofa + by_lactate * jnp.log(lactate) + by_frailty * frailty


DISCOUNT, HORIZON = 0.95, 18
ENDINGS = ("sampled", "expected", "never")


class SepsisState(NamedTuple):
    """A patient's whole state; of the last two, `there` is the probability that the stay has not ended (for
    `ending="expected"`), and `memory` has the last ten (covariates, action, step), newest last, zeros before."""

    patient: Patient
    body: Body
    readings: Float[Array, "n channels"]
    noise: Float[Array, "n channels"]
    observation: Float[Array, "n 46"]
    sofa_without_drug: Float[Array, " n"]
    step: Int[Array, " n"]
    there: Float[Array, " n"]
    memory: Float[Array, "n rows 48"]


class SepsisOutcome(Outcome):
    """An `Outcome` that has the two hazards at hand."""

    __slots__ = ()

    @property
    def p_death(self) -> Float[Array, " n"]:
        """P(death) in this step, given that the stay had not ended before."""
        return self.info["p_death"]

    @property
    def p_release(self) -> Float[Array, " n"]:
        """P(release) in this step."""
        return self.info["p_release"]


@dataclass(frozen=True)
class SepsisSim:
    """Treatment of sepsis in steps of four hours. Synthetic, not for clinical use.

    The structure is that of published physiology, the constants are calibrated by hand to published medians of vital
    signs, mortality and length of stay; nothing is fitted to patients, and nothing here says how to treat one.

    ## States
    The 46 covariates of gym-sepsis in their units and order (`observation_names`): laboratory values, vital signs, the
    person, the ventilator, and the scores SOFA, LODS, SIRS and qSOFA, which are computed from the rest. Behind them
    are an infection, inflammation, fluids, five organs and a patient's own parameters, which stay hidden.

    ## Actions
    a = 5 * fluid + vasopressor, each at a level from 0 to 4; 24 codes as in the original, or all 25. Doses in mL per 4
    hours and ug/kg/min are in `treatment_doses`; `step_continuous` takes any.

    ## Rewards
    R(s, a) = w.phi(s, a) with `features`: "sofa-fluid-vasopressor" (SOFA in tens of points, doses as shares of the
    highest cut), "sofa-lactate-map" (SOFA in tens; lactate above 2 mmol/L, in units of 2; mean pressure above 65 mmHg,
    in tens), "outcome" (the probabilities that the stay ends with this step in survival or in death: with w = (15, -15)
    the original's reward), or a function of observations `(n, 46)` and actions `(n,)` in jax.numpy. `outcome=True`
    adds survived and died. SOFA in phi is without the points for the drug itself unless `drug_in_sofa`. A penalty per
    step alone rewards dying early: give the outcome a weight, or `ending="never"`.

    ## Start and end
    Patients are drawn from priors. Death and release compete, by SOFA, lactate and frailty; truncated after `horizon`
    steps, where a logistic chance decides how it would have ended. ending: "sampled" (the stay ends by chance),
    "expected" (nobody leaves before the horizon, but features are weighed with the probability of being there, so that
    their sum is the expected return over endings, and smooth), "never" (all stay until the horizon, unweighed).

    ## Arguments
    discount: 0.95 unless given. n_actions: 24 or 25. names: of a function's features. memory: whether the state keeps
    the original's memory `(n, 10, 48)`; without it steps are faster. `info` of a step has p_death, p_release, died,
    released, the hidden P/F, GCS, urine and dose, and the integer and the soft scores.
    """

    features: str | FeatureFunction = "sofa-fluid-vasopressor"
    outcome: bool = False
    discount: float | int = DISCOUNT
    horizon: int | None = HORIZON
    ending: str = "sampled"
    n_actions: int = LEVELS**2 - 1
    drug_in_sofa: bool = False
    memory: bool = True
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", tuple(self.names))
        if not 0 <= self.discount <= 1:
            raise InputError(f"discount={self.discount!r} should be a number from 0 to 1.")
        if self.horizon is not None and self.horizon < 1:
            raise InputError(f"horizon={self.horizon!r} should be a whole number of steps, at least 1, or None.")
        if self.ending not in ENDINGS:
            raise InputError(f"ending={self.ending!r} is unknown.{did_you_mean(str(self.ending), ENDINGS)}")
        if self.n_actions not in (LEVELS**2 - 1, LEVELS**2):
            raise InputError(f"n_actions={self.n_actions!r} should be 24, as in gym-sepsis, or 25.")
        if {"survived", "died"} & set(self.feature_names) and self.ending == "never":
            raise InputError('ending="never": a stay that does not end has no outcome; use "sampled" or "expected".')

    @property
    def observation_names(self) -> tuple[str, ...]:
        return COVARIATES

    @property
    def action_names(self) -> tuple[str, ...]:
        return treatment_names(self.n_actions)

    @cached_property
    def feature_names(self) -> tuple[str, ...]:
        return names_of(self.features, self.outcome, self.names)

    def with_features(self, features: str | FeatureFunction, names: tuple[str, ...] = ()) -> "SepsisSim":
        """The same world with another phi: a name, or a function as `kb.in_jax(vae, sim.n_actions)` makes one of a map.

        Learnt features are centred (their mean over random patients is about 0) and of arbitrary sign, so that a reward
        w.phi may pay for leaving early, even by dying: use `ending="never"`, where every episode has `horizon` steps
        and policies differ by what they do to the patient alone, or `outcome=True` with weights for the outcome.
        """
        return replace(self, features=features, names=tuple(names))

    def describe(self) -> dict[str, Any]:
        """What defines the world, as JSON, for a run's record."""
        features = self.features if isinstance(self.features, str) else "a function"
        return {
            "world": type(self).__name__,
            "observations": list(self.observation_names),
            "actions": list(self.action_names),
            "features": features,
            "reward_parameters": list(self.feature_names),
            "discount": self.discount,
            "horizon": self.horizon,
            "ending": self.ending,
            "drug_in_sofa": self.drug_in_sofa,
        }

    def reset(self, key: Array, n: int) -> tuple[SepsisState, Float[Array, "n 46"]]:
        """n patients as they are admitted."""
        patient, body, readings, noise, seen = _admission(key, n)
        memory = jnp.zeros((n, MEMORY_ROWS if self.memory else 0, MEMORY_COLUMNS))
        start = jnp.zeros(n, jnp.int32), jnp.ones(n), memory
        return SepsisState(patient, body, readings, noise, seen.observation, _severity(seen), *start), seen.observation

    def step(self, state: SepsisState, action: Int[Array, " n"], key: Array) -> SepsisOutcome:
        """Four hours of every patient under a treatment each."""
        fluid, vasopressor = (jnp.asarray(d, state.noise.dtype)[action] for d in treatment_doses(self.n_actions))
        return self._advance(state, fluid, vasopressor, action, key)

    def step_continuous(
        self, state: SepsisState, fluid_ml: Float[Array, " n"], vasopressor: Float[Array, " n"], key: Array
    ) -> SepsisOutcome:
        """Four hours with any doses, differentiable in them; the memory has the code of the bins they are in."""
        levels = (_level(fluid_ml, FLUID_CUTS), _level(vasopressor, VASOPRESSOR_CUTS))
        return self._advance(state, fluid_ml, vasopressor, LEVELS * levels[0] + levels[1], key)

    def _advance(self, state: SepsisState, fluid: Array, dose: Array, action: Array, key: Array) -> SepsisOutcome:
        body, readings, noise, seen, hazards, chance = _course(*state[:4], fluid, dose, key)
        p_death, p_release, later = hazards
        step = state.step + 1
        late = jnp.zeros(step.shape, bool) if self.horizon is None else step >= self.horizon
        survived, died = _ends(p_death, p_release, later, late)
        features = self._features(state, fluid, dose, action, survived, died)
        flags, info = self._ended(p_death, p_release, died, late, chance)
        there = state.there * (1 - p_death - p_release) if self.ending == "expected" else state.there
        after = SepsisState(
            *(state.patient, body, readings, noise, seen.observation, _severity(seen), step, there),
            memory=remember(state.memory, state.observation, action, state.step),
        )
        info |= {"p_death": p_death, "p_release": p_release} | seen.hidden
        info |= {"scores": seen.integer, "soft_scores": seen.soft}
        return SepsisOutcome(after, seen.observation, features, *flags, info)

    def _features(self, state: SepsisState, fluid: Array, dose: Array, action: Array, *ends: Array) -> Array:
        """phi of the state before the action; in expectation where the ending is."""
        seen = state.observation
        columns = {
            "SOFA": (seen[:, COLUMN["SOFA"]] if self.drug_in_sofa else state.sofa_without_drug) / 10,
            "fluid": fluid / FULL_FLUID,
            "vasopressor": dose / FULL_VASOPRESSOR,
            "lactate": seen[:, COLUMN["lactate"]] / 2 - 1,
            "MAP": seen[:, COLUMN["MeanBP"]] / 10 - 6.5,
            "survived": ends[0],
            "died": ends[1],
        }
        if isinstance(self.features, str):
            phi = named_columns(self.feature_names, columns)
        else:
            own = jnp.asarray(self.features(seen, action))
            extra = [columns[name][:, None] for name in self.feature_names[own.shape[1] :]]
            phi = jnp.concatenate([own, *extra], axis=1)
        return phi * state.there[:, None] if self.ending == "expected" else phi

    def _ended(
        self, p_death: Array, p_release: Array, died: Array, late: Array, chance: Array
    ) -> tuple[tuple[Bool[Array, " n"], Bool[Array, " n"]], dict[str, Any]]:
        """terminated, truncated, and who died or was released (of the late: who would have)."""
        if self.ending != "sampled":
            none = jnp.zeros(late.shape, bool)
            return (none, late), {"died": none, "released": none}
        terminated = chance < p_death + p_release
        dead = jnp.where(late & ~terminated, chance > 1 - (died - p_death), chance < p_death)
        return (terminated, late & ~terminated), {"died": dead, "released": (terminated | late) & ~dead}


@partial(jax.jit, static_argnums=1)
def _admission(key: Array, n: int) -> tuple[Patient, Body, Array, Array, Seen]:
    """Compiled by itself, as is `_course`: one program for simulators of all features and endings."""
    patient, body, normal = admitted(key, n)
    readings, noise = goals(patient, body), fresh_noise(normal)
    return patient, body, readings, noise, observe(patient, body, readings, noise, jnp.zeros(n))


@jax.jit
def _course(
    patient: Patient, body: Body, readings: Array, noise: Array, fluid_ml: Array, dose: Array, key: Array
) -> tuple[Body, Array, Array, Seen, tuple[Array, Array, Array], Float[Array, " n"]]:
    """Four hours: body, readings, noise, what is seen; P(death), P(release), P(later death); a uniform number."""
    normal = jax.random.normal(key, (len(dose), len(CHANNELS) + 1), readings.dtype)
    body = four_hours(patient, body, fluid_ml / 1000, dose)
    readings = followed(readings, goals(patient, body))
    noise = carried_noise(noise, normal[:, 1:])
    seen = observe(patient, body, readings, noise, dose)
    condition = seen.soft.sofa_without_drug, body.lactate, patient.frailty
    return body, readings, noise, seen, (*chances(*condition), later_death(*condition)), ndtr(normal[:, 0])


def remember(
    memory: Float[Array, "n rows 48"], observation: Float[Array, "n 46"], action: Int[Array, " n"], step: Array
) -> Float[Array, "n rows 48"]:
    """The oldest row out, (observation, action, step) in at the end; of a memory without rows nothing."""
    extra = jnp.stack([action.astype(observation.dtype), step.astype(observation.dtype)], axis=1)
    row = jnp.concatenate([observation, extra], axis=1)
    return jnp.concatenate([memory[:, 1:], row[:, None]], axis=1) if memory.shape[1] else memory


def _severity(seen: Seen) -> Float[Array, " n"]:
    return straight_through(seen.integer.sofa_without_drug, seen.soft.sofa_without_drug)


def _ends(p_death: Array, p_release: Array, later: Array, late: Array) -> tuple[Array, Array]:
    """P(survived), P(died) with this step; at the horizon everybody's stay ends one way or the other."""
    rest = jnp.where(late, 1 - p_death - p_release, 0.0)
    return p_release + rest * (1 - later), p_death + rest * later


def _level(dose: Float[Array, " n"], cuts: tuple[float, ...]) -> Int[Array, " n"]:
    """How many cuts the dose exceeds."""
    return (dose[:, None] > jnp.asarray(cuts, dose.dtype)[None]).sum(axis=1, dtype=jnp.int32)


# A guideline-like clinician for the sepsis simulators: a plain rule on what a chart says, not advice.

PRESSURES = (71.0, 65.0, 58.0)  # mmHg: below each, one level of vasopressor more (the dose lifts it back to above 65)
FILL, FILL_FAST = 74.0, 66.0  # mmHg: below, fluid of level 2 or 3
HIGH_LACTATE = 3.0  # mmol/L: one level of fluid more
WET = 94.0  # % SpO2: below, one level less


def clinician(observation: Float[Array, "n 46"]) -> Int[Array, " n"]:
    """Treatment by mean pressure, lactate and oxygen saturation: fluid first, vasopressor to keep MAP above 65."""
    pressure, lactate, oxygen = (observation[:, COLUMN[name]] for name in ("MeanBP", "lactate", "SpO2"))
    vasopressor = sum((pressure < cut).astype(jnp.int32) for cut in PRESSURES)
    fluid = 1 + (pressure < FILL).astype(jnp.int32) + (pressure < FILL_FAST) + (lactate > HIGH_LACTATE)
    fluid = jnp.clip(fluid - (oxygen < WET), 0, 3)
    return LEVELS * fluid + vasopressor
