"""The statistics of the claims about Figures 4 and 5, on rows whose answer is known, both ways."""

import numpy as np
import pytest
from paper.patient_worlds import SETTINGS

from paper import fig4 as fig4_claims
from paper import fig5

SIZES, STARS, SEEDS = (10, 100, 1000), 4, 12


def rows(levels, spreads, prior=1.0, world="sepsis"):
    """EVD of each method: levels[method][star][size] plus noise of this spread."""
    random, made = np.random.default_rng(0), []
    for method, level in levels.items():
        for seed in range(SEEDS):
            for star in range(STARS):
                for k, n in enumerate(SIZES):
                    value = np.broadcast_to(level, (STARS, len(SIZES)))[star, k] + spreads[method] * random.normal()
                    row = {"world": world, "method": method, "seed": seed, "star": star, "n": n, "evd": float(value)}
                    made.append(row | ({"prior_evd": prior} if method == "kdbirl" else {}))
    return made


def verdicts(made, quick=False):
    found = fig4_claims.claims("ours", made, quick)
    assert len({claim.name for claim in found}) == len(found) == 6
    return {claim.name.removeprefix("sepsis-"): claim.verdict for claim in found}


GOOD = {"kdbirl": [0.6, 0.1, 0.05], "avril": 0.7, "avril-prior": 0.8}
CALM = {"kdbirl": 0.02, "avril": 0.05, "avril-prior": 0.2}


def test_all_hold_where_they_should():
    assert set(verdicts(rows(GOOD, CALM)).values()) == {"holds"}


def test_all_fail_where_they_should():
    bad = {"kdbirl": [0.6, 0.9, 0.95], "avril": 0.2, "avril-prior": 0.2}
    found = verdicts(rows(bad, {"kdbirl": 0.2, "avril": 0.2, "avril-prior": 0.02}))
    assert set(found.values()) == {"does not hold"}


def test_one_star_where_it_is_worse_is_enough():
    level = np.tile(GOOD["kdbirl"], (STARS, 1))
    level[2] = 1.5
    found = verdicts(rows({**GOOD, "kdbirl": level}, CALM))
    assert found["evd-against-avril"] == found["evd-against-avril-prior"] == "does not hold"


def test_a_little_above_is_comparable():
    made = rows({**GOOD, "avril": 0.33}, dict.fromkeys(GOOD, 0.01))  # KD-BIRL: 0.35 in the mean of n < 1000
    assert verdicts(made)["evd-against-avril"] == "holds"


def test_rows_from_1000_on_do_not_count_in_the_comparison():
    late = {**GOOD, "kdbirl": [0.6, 0.1, 0.59]}
    assert verdicts(rows(late, CALM))["evd-against-avril"] == "holds"


def test_the_quarter_is_of_the_priors_evd_at_100_rows():
    assert verdicts(rows(GOOD, CALM, prior=0.3))["quarter-of-prior"] == "does not hold"


def test_a_quick_run_decides_nothing():
    assert set(verdicts(rows(GOOD, CALM), quick=True).values()) == {"not decided (quick)"}


def test_worlds_are_judged_apart():
    both = rows(GOOD, CALM) + rows({**GOOD, "kdbirl": 2.0}, CALM, world="icu-sepsis")
    found = {claim.name: claim.verdict for claim in fig4_claims.claims("printed", both, quick=False)}
    assert found["sepsis-evd-against-avril"] == "holds"
    assert found["icu-sepsis-evd-against-avril"] == "does not hold"


def fifth(mass, distance):
    shifts = 0.01 * np.arange(SEEDS)
    same = {"world": "sepsis", "prior_distance": 0.5, "mean": [0.0, 0.0, 0.0]}
    return [{**same, "mass_near": [mass + s, 0.9, mass + s], "distance": distance + s} for s in shifts]


@pytest.mark.parametrize(("mass", "distance", "verdict"), [(0.7, 0.1, "holds"), (0.1, 0.7, "does not hold")])
def test_figure_5_both_ways(mass, distance, verdict):
    found = fig5.claims("ours", fifth(mass, distance), quick=False)
    assert [claim.verdict for claim in found] == [verdict, verdict]


def test_settings_are_what_they_say():
    printed, released, ours = (SETTINGS[name] for name in ("printed", "released", "ours"))
    assert printed.weights(3).shape == (4, 3)
    assert released.weights(0).shape == (120, 3)
    assert not np.array_equal(printed.weights(0), printed.weights(1))
    assert np.array_equal(ours.weights(0), ours.weights(1))
    corners = ours.weights(0)
    distances = [np.linalg.norm(a - b) for i, a in enumerate(corners) for b in corners[:i]]
    assert np.allclose(distances, np.sqrt(8))  # every second corner of the cube: all equally far apart
    assert np.allclose(released.bandwidth, np.sqrt([0.4, 0.5]))
    for setting in SETTINGS.values():
        stars = setting.stars()
        assert stars.min() >= setting.low
        assert stars.max() <= 1
