"""The study of bandwidth rules: its numbers against posteriors of the library, its summary, its claims, its figure."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from paper.bandwidths import RuleStudy, _Trial, marginal_ranks, plot_bandwidth_rules, world_of
from scipy.stats import norm

import kdbirl as kb
from kdbirl.evaluation.cells import CellStore
from kdbirl.posterior.priors import prior_points
from paper import bandwidths as bandwidth_claims

STUDY = RuleStudy(worlds=("grid",), tasks=(8,), rows=(20,), banks=2, rules=("median", "paper"))


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    return STUDY.run(CellStore(tmp_path_factory.mktemp("cells")))


def test_a_row_is_what_the_library_says_of_the_same_task(rows):
    """Log density and mean of one test task, from a posterior drawn by `KDBIRL` with the same bandwidths."""
    row, trial = rows[0], _Trial.of("grid", 8, 0)
    fitted = trial.model.fitted
    play = trial.tests.of_task(0, 20, 1)[0]
    likelihood = fitted.ckde.likelihood(
        trial.tests.rows[play], np.array(row["h"]), row["h_reward"], fitted.prior.box, matrix_form=False
    )
    with jax.enable_x64(True):
        at_truth = float(likelihood(jnp.asarray(trial.truths[0])))
        points = prior_points(kb.Uniform(-1, 1).for_parameters(2), 900)
        logs = np.asarray(jax.vmap(likelihood)(jnp.asarray(points)))
    evidence = np.log(np.mean(np.exp(logs - logs.max()))) + logs.max()
    assert row["log_density"][0] == pytest.approx(at_truth - evidence, abs=0.05)  # another grid of points


def test_ranks_are_those_of_a_known_distribution():
    points = prior_points(kb.Uniform(-1, 1).for_parameters(2), 40_000)
    weights = np.exp(-0.5 * np.sum(((points - [0.1, -0.2]) / 0.1) ** 2, axis=1))[None]
    ranks = marginal_ranks(points, weights / weights.sum(), np.array([[0.15, -0.2]]))
    np.testing.assert_allclose(ranks, [[norm.cdf(0.5), 0.5]], atol=1e-3)


def test_a_second_run_reads_the_cells(rows, tmp_path):
    store = CellStore(tmp_path)
    assert STUDY.run(store) == STUDY.run(store) == rows


def test_the_mean_policy_loses_no_more_than_all_and_no_less_than_nothing(rows):
    for row in rows:
        assert min(*row["evd"], *row["evd_of_mean"]) > -1e-9
        assert max(row["coverage"]) <= 1


def test_the_summary_has_a_spread_over_banks_and_the_figure_a_panel_for_each_cell(rows):
    table = bandwidth_claims.summary(rows)
    assert [(row["rule"], row["banks"], row["test_tasks"]) for row in table] == [("median", 2, 24), ("paper", 2, 24)]
    own = [np.mean(row["coverage"]) for row in rows if row["rule"] == "median"]
    assert table[0]["coverage"] == pytest.approx(np.mean(own))
    figure = plot_bandwidth_rules(table)
    assert [axis.get_title() for axis in figure.axes] == ["10x10 grid, 8 tasks"]


def made_up(rule, *coverages):
    cells = {"world": "grid", "K": 8, "rule": rule, "h": [1.0], "h_reward": 1.0, "power": 1.0}
    zeros = {name: [0.0, 0.0] for name in bandwidth_claims.SUMMARISED}
    return [
        {**cells, **zeros, "n": 20 + i, "bank": bank, "coverage": [coverage, coverage]}
        for i, coverage in enumerate(coverages)
        for bank in range(10)
    ]


def test_one_cell_out_of_bounds_decides_against_a_rule():
    good, bad = bandwidth_claims.claims([*made_up("loto", 0.9, 0.95), *made_up("paper", 0.9, 0.4)], quick=False)
    assert (good.verdict, bad.verdict) == ("holds", "does not hold")
    assert "21 rows" in bad.statistic
    assert bad.number == pytest.approx(0.4)


def test_a_quick_run_decides_nothing():
    assert bandwidth_claims.claims(made_up("loto", 0.9), quick=True)[0].verdict == "not decided (quick)"


def test_a_world_is_planned_once():
    assert world_of("grid") is world_of("grid")
