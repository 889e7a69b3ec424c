"""The claims about cost, on times whose answer is known, both ways."""

import numpy as np
import pytest
from paper.timing import claims, costs, slope

SEEDS = 12


def rows(cost):
    """cost(method, size) for both tables; a little different from seed to seed."""
    made = []
    for table, by, sizes in (("states", "states", (4, 16, 64)), ("rows", "m", (100, 1000))):
        for method in ("kdbirl", "birl" if table == "states" else "stan"):
            for seed in range(SEEDS):
                for size in sizes:
                    wobble = 1 + 0.02 * np.sin(7 * seed + size)
                    row = {"table": table, "method": method, "seed": seed, "states": 4, "m": 80, by: size}
                    made.append(row | {"cost": cost(method, size) * wobble})
    return made


def verdicts(made, quick=False):
    return {claim.name: claim.verdict for claim in claims(made, SEEDS, quick)}


def test_the_claims_hold_where_ours_is_cheaper_and_grows_less():
    found = verdicts(rows(lambda method, size: 1e-3 if method == "kdbirl" else 1e-2 * size))
    assert found == {"cheaper-than-birl": "holds", "birl-grows-faster": "holds", "cost-in-stan": "holds"}


def test_the_claims_fail_where_it_is_the_other_way_round():
    found = verdicts(rows(lambda method, size: 1e-1 * size if method == "kdbirl" else 1e-2))
    assert set(found.values()) == {"does not hold"}


def test_without_stan_nothing_is_said_about_it():
    made = [row for row in rows(lambda method, size: 1.0) if row["method"] != "stan"]
    claim = claims(made, SEEDS, quick=False)[-1]
    assert claim.verdict == "cannot be decided"
    assert "not measured" in claim.why
    assert set(verdicts(made, quick=True).values()) == {"not decided (quick)"}


def test_slopes_are_exponents():
    sizes, found = costs(rows(lambda method, size: size**1.5), "states", "birl", "states")
    assert sizes.tolist() == [4, 16, 64]
    assert slope(found, sizes) == pytest.approx(1.5, abs=0.02)
