"""Severity scores of intensive care: SOFA, LODS, SIRS and qSOFA, as integers or softened for gradients.

Every score is a sum of points over organs; an organ reaches a level of points when any of some conditions holds. A
condition compares one sign with one cut: exactly, which gives the integers, or by a sigmoid at the same cut. "Any" is
1 - prod(1 - p), which for exact conditions is the logical or. SOFA: Vincent et al. 1996; LODS: Le Gall et al. 1996;
qSOFA: Singer et al. 2016, with GCS <= 13 as in MIMIC's own code; SIRS: Bone et al. 1992.
"""

from functools import reduce
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


class Signs(NamedTuple):
    """What the scores are computed from, `(n,)` each. GCS is a whole number for the exact scores."""

    pao2_fio2: Float[Array, " n"]  # mmHg
    vent: Float[Array, " n"]  # 1 on the ventilator, else 0
    platelets: Float[Array, " n"]  # 1000/uL
    bilirubin: Float[Array, " n"]  # mg/dL
    mean_pressure: Float[Array, " n"]  # mmHg
    dose: Float[Array, " n"]  # of norepinephrine or its equivalent, ug/kg/min
    gcs: Float[Array, " n"]  # Glasgow coma scale, 3 to 15
    creatinine: Float[Array, " n"]  # mg/dL
    urine: Float[Array, " n"]  # mL/day
    systolic: Float[Array, " n"]  # mmHg
    heart_rate: Float[Array, " n"]  # per minute
    resp_rate: Float[Array, " n"]  # per minute
    temperature: Float[Array, " n"]  # degrees Celsius
    paco2: Float[Array, " n"]  # mmHg
    wbc: Float[Array, " n"]  # 1000/uL
    bands: Float[Array, " n"]  # %
    bun: Float[Array, " n"]  # mg/dL
    prothrombin: Float[Array, " n"]  # time, s


class Scores(NamedTuple):
    """`(n,)` each; sofa_without_drug leaves out the points for the vasopressor itself, not those for a low pressure."""

    sofa: Float[Array, " n"]
    sofa_without_drug: Float[Array, " n"]
    lods: Float[Array, " n"]
    sirs: Float[Array, " n"]
    qsofa_systolic: Float[Array, " n"]
    qsofa_gcs: Float[Array, " n"]
    qsofa_resp_rate: Float[Array, " n"]

    @property
    def qsofa(self) -> Float[Array, " n"]:
        """The sum of its three parts."""
        return self.qsofa_systolic + self.qsofa_gcs + self.qsofa_resp_rate


WIDTHS = {  # of the sigmoids: about the change of a sign that nobody would call one
    "pao2_fio2": 12.0,
    "vent": 0.1,
    "platelets": 4.0,
    "bilirubin": 0.1,
    "mean_pressure": 1.5,
    "dose": 0.006,
    "gcs": 0.25,
    "creatinine": 0.08,
    "urine": 30.0,
    "systolic": 2.0,
    "heart_rate": 2.0,
    "resp_rate": 0.6,
    "temperature": 0.1,
    "paco2": 1.0,
    "wbc": 0.25,
    "bands": 0.6,
    "bun": 1.0,
    "prothrombin": 0.4,
}
LEAST_DOSE = 0.02  # where the soft scores begin to see a dose: at 0 a sigmoid would count half of none


class Compare(NamedTuple):
    """Conditions on signs, exact or soft; a soft GCS is cut halfway between two whole numbers."""

    signs: Signs
    soft: bool

    def below(self, sign: str, cut: float) -> Float[Array, " n"]:
        return self._sigmoid(sign, cut, -1.0) if self.soft else self._exact(self._value(sign) < cut)

    def at_least(self, sign: str, cut: float) -> Float[Array, " n"]:
        return self._sigmoid(sign, cut, 1.0) if self.soft else self._exact(self._value(sign) >= cut)

    def at_most(self, sign: str, cut: float) -> Float[Array, " n"]:
        shifted = cut + 0.5 if sign == "gcs" else cut
        return self._sigmoid(sign, shifted, -1.0) if self.soft else self._exact(self._value(sign) <= cut)

    def above(self, sign: str, cut: float) -> Float[Array, " n"]:
        shifted = LEAST_DOSE if sign == "dose" and cut == 0 else cut
        return self._sigmoid(sign, shifted, 1.0) if self.soft else self._exact(self._value(sign) > cut)

    def _value(self, sign: str) -> Array:
        return getattr(self.signs, sign)

    def _exact(self, holds: Array) -> Array:
        return holds.astype(self.signs.mean_pressure.dtype)

    def _sigmoid(self, sign: str, cut: float, direction: float) -> Array:
        return jax.nn.sigmoid(direction * (self._value(sign) - cut) / WIDTHS[sign])


def scores(signs: Signs, soft: bool = False) -> Scores:
    """All scores of n patients; `soft` for differentiable ones."""
    compare = Compare(signs, soft)
    others = _total(*(organ(compare) for organ in (_lungs, _platelets, _liver, _brain, _kidneys)))
    parts = compare.at_most("systolic", 100.0), compare.at_most("gcs", 13.0), compare.at_least("resp_rate", 22.0)
    without = others + compare.below("mean_pressure", 70.0)
    return Scores(others + _circulation(compare), without, _lods(compare), _sirs(compare), *parts)


def any_of(*conditions: Array) -> Array:
    """1 - prod(1 - p)."""
    return 1 - reduce(jnp.multiply, [1 - condition for condition in conditions])


def _total(*points: Array) -> Array:
    return reduce(jnp.add, points)


def _lungs(c: Compare) -> Array:
    ventilated = c.at_least("vent", 0.5)
    poor = c.below("pao2_fio2", 400.0) + c.below("pao2_fio2", 300.0)
    return poor + ventilated * (c.below("pao2_fio2", 200.0) + c.below("pao2_fio2", 100.0))


def _platelets(c: Compare) -> Array:
    return _total(*(c.below("platelets", cut) for cut in (150.0, 100.0, 50.0, 20.0)))


def _liver(c: Compare) -> Array:
    return _total(*(c.at_least("bilirubin", cut) for cut in (1.2, 2.0, 6.0, 12.0)))


def _circulation(c: Compare) -> Array:
    """1 for a low pressure, 3 for any drug, 4 for much."""
    drug = c.above("dose", 0.0)
    return any_of(c.below("mean_pressure", 70.0), drug) + 2 * drug + c.above("dose", 0.1)


def _brain(c: Compare) -> Array:
    return _total(*(c.at_most("gcs", cut) for cut in (14.0, 12.0, 9.0, 5.0)))


def _kidneys(c: Compare) -> Array:
    little, none = c.below("urine", 500.0), c.below("urine", 200.0)
    creatinine = [c.at_least("creatinine", cut) for cut in (1.2, 2.0, 3.5, 5.0)]
    urine = little, little, little, none
    return _total(*(any_of(level, low) for level, low in zip(creatinine, urine, strict=True)))


def _sirs(c: Compare) -> Array:
    return (
        any_of(c.below("temperature", 36.0), c.above("temperature", 38.0))
        + c.above("heart_rate", 90.0)
        + any_of(c.above("resp_rate", 20.0), c.below("paco2", 32.0))
        + any_of(c.below("wbc", 4.0), c.above("wbc", 12.0), c.above("bands", 10.0))
    )


def _lods(c: Compare) -> Array:
    """Levels of 1, 3 and 5 points: the second and the third add two each."""
    slow = c.below("heart_rate", 30.0)
    pressure = [c.below("systolic", cut) for cut in (90.0, 70.0, 40.0)]
    fast = any_of(c.at_least("heart_rate", 140.0), c.at_least("systolic", 240.0), slow)
    heart = any_of(pressure[0], fast) + 2 * any_of(pressure[1], c.at_least("systolic", 270.0), slow)
    heart = heart + 2 * any_of(pressure[2], slow)
    brain = c.at_most("gcs", 13.0) + 2 * c.at_most("gcs", 8.0) + 2 * c.at_most("gcs", 5.0)
    bun = [c.at_least("bun", cut) for cut in (17.0, 28.0, 56.0)]
    urine = [c.below("urine", cut) for cut in (750.0, 500.0)]
    moderate = urine[0], c.at_least("urine", 10_000.0)  # too little, or 10 L and more
    kidneys = any_of(c.at_least("creatinine", 1.2), bun[0], *moderate)
    kidneys = kidneys + 2 * any_of(c.at_least("creatinine", 1.6), bun[1], *moderate) + 2 * any_of(bun[2], urine[1])
    lungs = c.at_least("vent", 0.5) * (1 + 2 * c.below("pao2_fio2", 150.0))
    few = c.below("wbc", 2.5), c.below("platelets", 50.0), c.at_least("wbc", 50.0)
    blood = any_of(*few) + 2 * c.below("wbc", 1.0)
    liver = any_of(c.at_least("bilirubin", 2.0), c.above("prothrombin", 15.0))
    return heart + brain + kidneys + lungs + blood + liver
