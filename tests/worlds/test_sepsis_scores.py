"""Integer scores at every cut, from both sides, against points written down by hand; soft ones close to them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kdbirl.worlds.sepsis.scores import Scores, Signs, scores

# A healthy person, who has no points in any score.
HEALTHY = {
    **{"pao2_fio2": 450.0, "vent": 0.0, "platelets": 250.0, "bilirubin": 0.5, "mean_pressure": 85.0, "dose": 0.0},
    **{"gcs": 15.0, "creatinine": 0.8, "urine": 1500.0, "systolic": 120.0, "heart_rate": 70.0, "resp_rate": 14.0},
    **{"temperature": 37.0, "paco2": 40.0, "wbc": 8.0, "bands": 2.0, "bun": 12.0, "prothrombin": 12.0},
}
# The signs that differ, and the points that a textbook gives for them: SOFA, LODS, SIRS, qSOFA.
CASES = [
    ({}, (0, 0, 0, 0)),
    # lungs
    ({"pao2_fio2": 400.0}, (0, 0, 0, 0)),
    ({"pao2_fio2": 399.0}, (1, 0, 0, 0)),
    ({"pao2_fio2": 300.0}, (1, 0, 0, 0)),
    ({"pao2_fio2": 299.0}, (2, 0, 0, 0)),
    ({"pao2_fio2": 199.0}, (2, 0, 0, 0)),
    ({"pao2_fio2": 50.0}, (2, 0, 0, 0)),
    ({"pao2_fio2": 450.0, "vent": 1.0}, (0, 1, 0, 0)),
    ({"pao2_fio2": 200.0, "vent": 1.0}, (2, 1, 0, 0)),
    ({"pao2_fio2": 199.0, "vent": 1.0}, (3, 1, 0, 0)),
    ({"pao2_fio2": 150.0, "vent": 1.0}, (3, 1, 0, 0)),
    ({"pao2_fio2": 149.0, "vent": 1.0}, (3, 3, 0, 0)),
    ({"pao2_fio2": 100.0, "vent": 1.0}, (3, 3, 0, 0)),
    ({"pao2_fio2": 99.0, "vent": 1.0}, (4, 3, 0, 0)),
    # platelets
    ({"platelets": 150.0}, (0, 0, 0, 0)),
    ({"platelets": 149.0}, (1, 0, 0, 0)),
    ({"platelets": 100.0}, (1, 0, 0, 0)),
    ({"platelets": 99.0}, (2, 0, 0, 0)),
    ({"platelets": 50.0}, (2, 0, 0, 0)),
    ({"platelets": 49.0}, (3, 1, 0, 0)),
    ({"platelets": 20.0}, (3, 1, 0, 0)),
    ({"platelets": 19.0}, (4, 1, 0, 0)),
    # liver
    ({"bilirubin": 1.1}, (0, 0, 0, 0)),
    ({"bilirubin": 1.2}, (1, 0, 0, 0)),
    ({"bilirubin": 1.9}, (1, 0, 0, 0)),
    ({"bilirubin": 2.0}, (2, 1, 0, 0)),
    ({"bilirubin": 5.9}, (2, 1, 0, 0)),
    ({"bilirubin": 6.0}, (3, 1, 0, 0)),
    ({"bilirubin": 11.9}, (3, 1, 0, 0)),
    ({"bilirubin": 12.0}, (4, 1, 0, 0)),
    ({"prothrombin": 15.0}, (0, 0, 0, 0)),
    ({"prothrombin": 15.1}, (0, 1, 0, 0)),
    ({"prothrombin": 16.0, "bilirubin": 3.0}, (2, 1, 0, 0)),
    # circulation
    ({"mean_pressure": 70.0}, (0, 0, 0, 0)),
    ({"mean_pressure": 69.0}, (1, 0, 0, 0)),
    ({"dose": 0.01}, (3, 0, 0, 0)),
    ({"dose": 0.1}, (3, 0, 0, 0)),
    ({"dose": 0.11}, (4, 0, 0, 0)),
    ({"dose": 0.1, "mean_pressure": 60.0}, (3, 0, 0, 0)),
    ({"dose": 0.5, "mean_pressure": 60.0}, (4, 0, 0, 0)),
    ({"systolic": 101.0}, (0, 0, 0, 0)),
    ({"systolic": 100.0}, (0, 0, 0, 1)),
    ({"systolic": 90.0}, (0, 0, 0, 1)),
    ({"systolic": 89.0}, (0, 1, 0, 1)),
    ({"systolic": 70.0}, (0, 1, 0, 1)),
    ({"systolic": 69.0}, (0, 3, 0, 1)),
    ({"systolic": 40.0}, (0, 3, 0, 1)),
    ({"systolic": 39.0}, (0, 5, 0, 1)),
    ({"systolic": 239.0}, (0, 0, 0, 0)),
    ({"systolic": 240.0}, (0, 1, 0, 0)),
    ({"systolic": 269.0}, (0, 1, 0, 0)),
    ({"systolic": 270.0}, (0, 3, 0, 0)),
    ({"heart_rate": 30.0}, (0, 0, 0, 0)),
    ({"heart_rate": 29.0}, (0, 5, 0, 0)),
    ({"heart_rate": 90.0}, (0, 0, 0, 0)),
    ({"heart_rate": 91.0}, (0, 0, 1, 0)),
    ({"heart_rate": 139.0}, (0, 0, 1, 0)),
    ({"heart_rate": 140.0}, (0, 1, 1, 0)),
    ({"heart_rate": 150.0, "systolic": 65.0}, (0, 3, 1, 1)),
    # brain
    ({"gcs": 14.0}, (1, 0, 0, 0)),
    ({"gcs": 13.0}, (1, 1, 0, 1)),
    ({"gcs": 12.0}, (2, 1, 0, 1)),
    ({"gcs": 10.0}, (2, 1, 0, 1)),
    ({"gcs": 9.0}, (3, 1, 0, 1)),
    ({"gcs": 8.0}, (3, 3, 0, 1)),
    ({"gcs": 6.0}, (3, 3, 0, 1)),
    ({"gcs": 5.0}, (4, 5, 0, 1)),
    ({"gcs": 3.0}, (4, 5, 0, 1)),
    # kidneys
    ({"creatinine": 1.19}, (0, 0, 0, 0)),
    ({"creatinine": 1.2}, (1, 1, 0, 0)),
    ({"creatinine": 1.59}, (1, 1, 0, 0)),
    ({"creatinine": 1.6}, (1, 3, 0, 0)),
    ({"creatinine": 2.0}, (2, 3, 0, 0)),
    ({"creatinine": 3.4}, (2, 3, 0, 0)),
    ({"creatinine": 3.5}, (3, 3, 0, 0)),
    ({"creatinine": 4.9}, (3, 3, 0, 0)),
    ({"creatinine": 5.0}, (4, 3, 0, 0)),
    ({"urine": 750.0}, (0, 0, 0, 0)),
    ({"urine": 749.0}, (0, 3, 0, 0)),
    ({"urine": 500.0}, (0, 3, 0, 0)),
    ({"urine": 499.0}, (3, 5, 0, 0)),
    ({"urine": 200.0}, (3, 5, 0, 0)),
    ({"urine": 199.0}, (4, 5, 0, 0)),
    ({"urine": 9999.0}, (0, 0, 0, 0)),
    ({"urine": 10_000.0}, (0, 3, 0, 0)),
    ({"urine": 12_000.0, "creatinine": 1.3}, (1, 3, 0, 0)),
    ({"urine": 12_000.0, "bun": 56.0}, (0, 5, 0, 0)),
    ({"urine": 300.0, "creatinine": 5.5}, (4, 5, 0, 0)),
    ({"urine": 300.0, "creatinine": 1.3}, (3, 5, 0, 0)),
    ({"bun": 16.9}, (0, 0, 0, 0)),
    ({"bun": 17.0}, (0, 1, 0, 0)),
    ({"bun": 27.9}, (0, 1, 0, 0)),
    ({"bun": 28.0}, (0, 3, 0, 0)),
    ({"bun": 55.9}, (0, 3, 0, 0)),
    ({"bun": 56.0}, (0, 5, 0, 0)),
    # inflammation and breathing
    ({"temperature": 36.0}, (0, 0, 0, 0)),
    ({"temperature": 35.9}, (0, 0, 1, 0)),
    ({"temperature": 38.0}, (0, 0, 0, 0)),
    ({"temperature": 38.1}, (0, 0, 1, 0)),
    ({"resp_rate": 20.0}, (0, 0, 0, 0)),
    ({"resp_rate": 20.5}, (0, 0, 1, 0)),
    ({"resp_rate": 21.9}, (0, 0, 1, 0)),
    ({"resp_rate": 22.0}, (0, 0, 1, 1)),
    ({"paco2": 32.0}, (0, 0, 0, 0)),
    ({"paco2": 31.9}, (0, 0, 1, 0)),
    ({"paco2": 30.0, "resp_rate": 25.0}, (0, 0, 1, 1)),
    ({"wbc": 4.0}, (0, 0, 0, 0)),
    ({"wbc": 3.9}, (0, 0, 1, 0)),
    ({"wbc": 12.0}, (0, 0, 0, 0)),
    ({"wbc": 12.1}, (0, 0, 1, 0)),
    ({"wbc": 2.5}, (0, 0, 1, 0)),
    ({"wbc": 2.4}, (0, 1, 1, 0)),
    ({"wbc": 1.0}, (0, 1, 1, 0)),
    ({"wbc": 0.9}, (0, 3, 1, 0)),
    ({"wbc": 49.9}, (0, 0, 1, 0)),
    ({"wbc": 50.0}, (0, 1, 1, 0)),
    ({"wbc": 50.0, "platelets": 40.0}, (3, 1, 1, 0)),
    ({"bands": 10.0}, (0, 0, 0, 0)),
    ({"bands": 10.1}, (0, 0, 1, 0)),
]
WORST = {
    **{"pao2_fio2": 50.0, "vent": 1.0, "platelets": 10.0, "bilirubin": 15.0, "mean_pressure": 40.0, "dose": 1.0},
    **{"gcs": 3.0, "creatinine": 8.0, "urine": 50.0, "systolic": 35.0, "heart_rate": 150.0, "resp_rate": 40.0},
    **{"temperature": 40.0, "paco2": 25.0, "wbc": 0.5, "bands": 30.0, "bun": 100.0, "prothrombin": 60.0},
}


def signs(cases):
    return Signs(
        **{name: jnp.asarray([HEALTHY[name] if name not in c else c[name] for c in cases]) for name in HEALTHY}
    )


def points(found: Scores):
    return np.stack([found.sofa, found.lods, found.sirs, found.qsofa], axis=1)


def test_points_at_every_cut_are_those_of_the_tables():
    """In single precision too: no cut is a number that rounding moves to its other side."""
    cases = [case for case, _ in CASES]
    expected = np.array([points for _, points in CASES])
    for precision in (False, True):
        with jax.enable_x64(precision):
            found = points(scores(signs(cases)))
        wrong = [
            (case, had.tolist(), want.tolist())
            for case, had, want in zip(cases, found, expected, strict=True)
            if (had != want).any()
        ]
        assert wrong == []


def test_the_worst_patient_has_the_most_points():
    found = scores(signs([WORST]))
    np.testing.assert_array_equal(points(found)[0], [24, 22, 4, 3])
    assert float(found.sofa_without_drug[0]) == 21


def test_sofa_without_the_drug_leaves_out_only_the_drug():
    found = scores(signs([{"dose": 0.5}, {"dose": 0.5, "mean_pressure": 65.0}, {"dose": 0.05, "gcs": 9.0}]))
    np.testing.assert_array_equal(found.sofa_without_drug, [0, 1, 3])
    np.testing.assert_array_equal(found.sofa, [4, 4, 6])


def test_parts_of_qsofa():
    found = scores(signs([{"systolic": 95.0}, {"gcs": 12.0}, {"resp_rate": 24.0}]))
    np.testing.assert_array_equal(found.qsofa_systolic, [1, 0, 0])
    np.testing.assert_array_equal(found.qsofa_gcs, [0, 1, 0])
    np.testing.assert_array_equal(found.qsofa_resp_rate, [0, 0, 1])


def test_far_from_every_cut_soft_scores_are_the_integers():
    cases = [
        {},
        WORST | {"wbc": 0.1, "systolic": 25.0},
        {"dose": 0.3},
        {"gcs": 7.0},
        {"urine": 350.0},
        {"urine": 10_300.0},
        {"pao2_fio2": 170.0, "vent": 1.0},
    ]
    exact, soft = points(scores(signs(cases))), points(scores(signs(cases), soft=True))
    np.testing.assert_allclose(soft, exact, atol=0.35)


def test_soft_points_for_too_much_urine_rise_at_its_cut():
    """None and three at ten widths of the sigmoid (30 mL) from the cut, half of them at it.

    Tolerance: the healthy kidney has .05 soft points already, which "any of" does not count twice.
    """
    found = scores(signs([{"urine": urine} for urine in (9700.0, 10_000.0, 10_300.0)]), soft=True).lods
    none, half, three = np.asarray(found - scores(signs([{}]), soft=True).lods[0])
    np.testing.assert_allclose([none, three], [0, 3], atol=0.15)
    assert 0.4 < half / three < 0.6


@pytest.mark.parametrize("sign", list(HEALTHY))
def test_soft_scores_have_a_gradient_in_every_sign(sign):
    near = {"pao2_fio2": 195.0, "vent": 0.6, "platelets": 48.0, "bilirubin": 2.1, "mean_pressure": 69.0, "dose": 0.1}
    near |= {"gcs": 13.4, "creatinine": 1.7, "urine": 740.0, "systolic": 88.0, "heart_rate": 92.0, "resp_rate": 21.0}
    near |= {"temperature": 38.1, "paco2": 31.5, "wbc": 12.2, "bands": 10.3, "bun": 29.0, "prothrombin": 15.2}

    def total(value):
        found = scores(signs([near])._replace(**{sign: value}), soft=True)
        return (found.sofa + found.lods + found.sirs + found.qsofa).sum()

    slope = jax.grad(total)(jnp.asarray([near[sign]]))
    assert np.isfinite(slope).all()
    assert (slope != 0).all()
