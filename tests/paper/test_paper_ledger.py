"""What the ledger promises: no claim is decided by few seeds, no setting was chosen with knowledge of the test task."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from paper.grid_data import GridData
from paper.grid_posteriors import FULL, kdbirl_model
from paper.grid_settings import FIG1, FIG2, FIG3
from paper.ledger import FEWEST_SEEDS, FILE, read_ledger
from paper.patient_worlds import EVERY_SECOND_CORNER, SETTINGS

from paper import bandwidths as bandwidth_rules
from paper import fig1, fig2, fig3, fig4, limits, timing
from paper import theory as contraction

LEDGER = read_ledger(Path(__file__).resolve().parents[2] / "docs" / FILE)
OURS = {"fig1": FIG1["ours"], "fig2": FIG2[-1.0, 1.0]["ours"], "fig3": FIG3["ours"]}


def test_every_full_run_has_the_seeds_that_a_verdict_needs():
    counts = [fig1.SEEDS, fig2.SEEDS, fig3.SEEDS, *fig4.SEEDS.values(), fig4.AVRIL_SEEDS, limits.SEEDS]
    counts += [contraction.FULL.seeds, bandwidth_rules.FULL.banks, timing.FULL.seeds]
    assert min(counts) >= FEWEST_SEEDS == 10
    assert fig4.SEEDS["ours"] >= 20


def test_no_claim_of_the_published_ledger_is_decided_by_fewer():
    assert LEDGER
    decided = [claim for claim in LEDGER if claim.verdict in ("holds", "does not hold")]
    assert decided
    assert min(claim.seeds for claim in decided) >= FEWEST_SEEDS
    assert not [claim for claim in LEDGER if claim.verdict == "not decided (quick)"]
    rows = [(claim.experiment, claim.name, claim.variant) for claim in LEDGER]
    assert len(set(rows)) == len(rows)  # one row for each claim and variant


@pytest.mark.parametrize("name", OURS)
def test_our_training_tasks_and_bandwidths_do_not_know_the_test_task(name):
    """With another truth, everything that is made before the expert is seen is the same."""
    setting = OURS[name]
    other = replace(setting, truth=tuple(-value for value in setting.truth))
    one, two = (GridData(each, 3).bank for each in (setting, other))
    np.testing.assert_array_equal(one.rewards, two.rewards)
    np.testing.assert_array_equal(one.demonstrations.states, two.demonstrations.states)
    chosen = [kdbirl_model(each, FULL, {}) for each in (setting, other)]
    assert chosen[0].bandwidth == chosen[1].bandwidth == "loto"  # by leaving out training tasks
    assert chosen[0].power is chosen[1].power is None


def test_our_sepsis_tasks_are_corners_of_the_prior_whatever_the_test_weights_are():
    ours = SETTINGS["ours"]
    np.testing.assert_array_equal(ours.weights(0), EVERY_SECOND_CORNER)
    assert ours.bandwidth == "paper"  # a rule of the bank alone
    nearest = np.abs(ours.weights(0)[:, None] - ours.stars()[None]).max(axis=2).min()
    assert nearest > 0.1  # no test weight is a training weight


@pytest.mark.parametrize("variant", ["printed", "released"])
def test_the_papers_sepsis_weights_are_drawn_apart_from_the_test_weights(variant):
    setting = SETTINGS[variant]
    for seed in range(3):
        assert np.abs(setting.weights(seed)[:, None] - setting.stars()[None]).max(axis=2).min() > 1e-3
