"""Each claim's statistic on constructed data where the answer is known, both ways."""

from dataclasses import replace

import numpy as np
import pytest
from paper.claims import Statement

from kdbirl.errors import InputError
from paper import fig1 as fig1_claims
from paper import fig2 as fig2_claims
from paper import fig3
from paper import limits as limits_claims

SEEDS = 12
JITTER = np.linspace(-0.01, 0.01, SEEDS)
BELOW = Statement("x", "it is small", "Section 6", "its size", below=0.5)
ABOVE = Statement("x", "it is large", "Section 6", "its size", above=0.5)


@pytest.mark.parametrize(
    ("statement", "level", "verdict"),
    [
        (BELOW, 0.3, "holds"),
        (BELOW, 0.7, "does not hold"),
        (BELOW, 0.5, "cannot be decided"),
        (ABOVE, 0.7, "holds"),
        (ABOVE, 0.3, "does not hold"),
        (ABOVE, 0.5, "cannot be decided"),
    ],
)
def test_a_statement_is_decided_by_the_whole_interval(statement, level, verdict):
    claim = statement.decide("fig1", "ours", level + JITTER, "so", quick=False)
    assert claim.verdict == verdict
    assert claim.number == pytest.approx(level)
    assert claim.low < claim.number < claim.high
    assert claim.seeds == SEEDS
    assert claim.statistic.endswith("for the claim")


def test_no_verdict_without_seeds_or_numbers():
    assert BELOW.decide("fig1", "ours", (0.3 + JITTER)[:9], "so", quick=False).verdict == "cannot be decided"
    assert BELOW.decide("fig1", "ours", 0.3 + JITTER, "so", quick=True).verdict == "not decided (quick)"
    missing = BELOW.decide("fig1", "ours", np.append(JITTER, np.nan), "so", quick=False)
    assert missing.verdict == "cannot be decided"
    assert missing.why.startswith("not measured for every seed")


def test_a_statement_has_one_line():
    with pytest.raises(InputError, match="give one line"):
        replace(BELOW, above=1.0)


def verdicts(claims):
    return {claim.name: claim.verdict for claim in claims}


def marginals(distance, mass, sd):
    """Rows of Figure 1 in which method m has these measures in all states."""
    return [
        {
            "seed": seed,
            "method": method,
            "state": state,
            "distance": distance[method] + jitter,
            "mass_near": mass[method] + jitter,
            "sd": sd[method] + jitter * (method == "birl"),
            "r_hat": 1.0,
        }
        for seed, jitter in enumerate(JITTER)
        for method in fig1_claims.LABELS
        for state in range(4)
    ]


def of_methods(kdbirl, birl, avril, avril_prior):
    return dict(zip(fig1_claims.LABELS, (kdbirl, birl, avril, avril_prior), strict=True))


def test_figure_1_as_the_paper_has_it_and_the_contrary():
    paper = marginals(of_methods(0.05, 0.1, 0.6, 0.5), of_methods(0.95, 0.9, 0.2, 0.3), of_methods(0.05, 0.1, 0.5, 0.4))
    contrary = marginals(
        of_methods(0.5, 0.4, 0.05, 0.1), of_methods(0.2, 0.3, 0.95, 0.9), of_methods(0.4, 0.1, 0.05, 0.1)
    )
    # the differences between methods are the same for every seed here, so intervals of them have no width
    found = verdicts(fig1_claims.claims("ours", paper, "The 9 training tasks inform all 4 reward directions.", False))
    assert set(found) == {statement.name for statement in fig1_claims.STATEMENTS}
    assert set(found.values()) == {"holds"}
    found = verdicts(fig1_claims.claims("ours", contrary, "all 4", False))
    assert set(found.values()) == {"does not hold"}


def test_figure_1_says_what_the_setting_cannot_support():
    rows = marginals(of_methods(0.5, 0.1, 0.6, 0.5), of_methods(0.2, 0.9, 0.2, 0.3), of_methods(0.3, 0.1, 0.5, 0.4))
    sentence = "The 2 training tasks inform 1 of 4 reward directions; cell 2 and cell 3 keep their prior."
    claims = {claim.name: claim for claim in fig1_claims.claims("printed", rows, sentence, False)}
    assert "cell 2 and cell 3 keep their prior" in claims["concentrated-against-birl"].why
    assert "keep their prior" not in claims["avril-not-in-all-states"].why


def weights(**measures):
    row = {"mean_w1": 1.0, "mean_w2": 1.0, "sd_w1": 0.1, "sd_w2": 0.1, "prior_distance": 1.0, "rank": 2}
    return [
        {"w1": w1, "w2": w2, "seed": seed, **row, **{name: value + jitter for name, value in measures.items()}}
        for w1, w2 in fig2_claims.SETTINGS
        for seed, jitter in enumerate(JITTER)
    ]


def test_figure_2_both_ways():
    good = weights(signs_right=0.95, angle=5.0, map_error=0.1, distance=0.2, regret=0.1)
    good = [row | {"regret_by_state": 0.8 + 2 * row["regret"]} for row in good]
    assert set(verdicts(fig2_claims.claims("ours", good, False)).values()) == {"holds"}
    bad = weights(signs_right=0.3, angle=60.0, map_error=0.9, distance=0.9, regret=0.8)
    bad = [row | {"regret_by_state": 0.01 * row["regret"]} for row in bad]
    found = verdicts(fig2_claims.claims("ours", bad, False))
    assert set(found.values()) == {"does not hold"}
    assert len(found) == 9


def grids(arrival, wrong, training, expert):
    return [
        {
            "variant": "ours",
            "seed": seed,
            "arrival": arrival + jitter,
            "wrong_states": wrong + seed % 2,
            "goal_is_highest": True,
            "distance": 0.1,
            "training_states": training + jitter,
            "expert_states": expert,
            "training_visited": 20,
            "expert_visited": 9,
            "rank": 24,
            "r_hat": 1.0,
        }
        for seed, jitter in enumerate(JITTER)
    ]


def test_figure_3_both_ways():
    good = verdicts(fig3.claims("ours", grids(0.98, 2, 20.0, 8.0), "all 25", False))
    assert good == dict.fromkeys(("equivalence-class", "single-states-wrong", "training-covers-more"), "holds")
    bad = verdicts(fig3.claims("ours", grids(0.2, 0, 6.0, 8.0), "all 25", False))
    assert set(bad.values()) == {"does not hold"}


def limits(direction, compact=0.3):
    """Tables in which noise, poorer features, the choice of kernel and size matter (direction 1) or not at all (-1)."""
    tables = {"quality": [], "features": [], "choices": [], "cost": []}
    for seed, jitter in enumerate(JITTER):
        for noise in (0.0, 0.5):
            found = {
                "log_likelihood": -direction * noise + jitter * noise,
                "distance": 0.5 + (direction + jitter) * noise,
            }
            tables["quality"].append({"seed": seed, "noise": noise, **found})
        for name, distance in (("x, y", 0.3), ("x only", 0.3 + 0.2 * direction + jitter)):
            tables["features"].append({"seed": seed, "features": name, "distance": distance})
        for kernel, distance in (
            ("gaussian", 0.3),
            ("laplace", 0.3 + 0.1 * (direction + 1) + jitter),
            ("uniform", None),
        ):
            tables["choices"].append(
                {"seed": seed, "kernel": kernel, "distance_measure": "euclidean", "distance": distance}
            )
        for q, n in ((4, 100), (16, 100), (16, 400), (16, 1600), (64, 100)):
            operations = (q * n) ** (direction + jitter)
            tables["cost"].append({"seed": seed, "parameters": q, "n": n, "operations": operations})
    return tables


def test_limits_both_ways():
    assert set(verdicts(limits_claims.claims("ours", limits(1), False)).values()) == {"holds"}
    found = limits_claims.claims("ours", limits(-1), False)
    assert set(verdicts(found).values()) == {"does not hold"}
    assert "uniform euclidean refused for 12 of 12" in {claim.name: claim.why for claim in found}["kernel-and-distance"]
