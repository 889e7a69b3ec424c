"""The measures of a comparison, its tables, and the study that fills them."""

import csv
import io
from dataclasses import replace

import gymnasium
import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import sem, truncnorm

import kdbirl as kb
from kdbirl.errors import InputError
from kdbirl.evaluation import contenders
from kdbirl.evaluation.cells import CellStore
from kdbirl.evaluation.comparison import (
    Comparison,
    _Trial,
    covered,
    first_rows,
    judge_policy,
    judge_posterior,
    log_density_at,
    log_prior,
)
from kdbirl.evaluation.comparison_table import COLUMNS, csv_text, summary, summary_text
from kdbirl.evaluation.contenders import CONTENDERS, Budget, Contender, Setting, chosen_contenders
from kdbirl.posterior.result import Posterior
from kdbirl.report.comparison_page import MEASURES, plot_comparison

BOX = kb.Uniform(-1, 1).for_parameters(2)
TRUTH = np.array([0.9, -0.4])
CHEAP = ("prior", "cloning", "maxent")


def grid():
    return kb.Gridworld(3, features="xy", scaled=True)


def posterior(draws):
    return Posterior(draws[None], ("x", "y"), method="made up", sampler="Exact", seed=0)


def test_the_loss_of_a_posterior_is_the_mean_loss_of_its_draws():
    world, draws = grid(), np.random.default_rng(0).uniform(-1, 1, (120, 2))
    judged = judge_posterior(posterior(draws), world, TRUTH, BOX, planned=120)
    best = kb.value(world, kb.plan(world, TRUTH), TRUTH)
    random = kb.value(world, kb.Policy.uniform(9, 5), TRUTH)
    lost = best - np.mean([kb.value(world, kb.plan(world, draw), TRUTH) for draw in draws])
    assert judged.evd == pytest.approx(lost, rel=1e-9)
    assert judged.regret == pytest.approx(lost / (best - random), rel=1e-9)
    of_mean = best - kb.value(world, kb.plan(world, draws.mean(axis=0)), TRUTH)
    assert judged.regret_of_mean == pytest.approx(of_mean / (best - random), abs=1e-9)
    assert judged.log_density == pytest.approx(log_density_at(draws, TRUTH, BOX) + np.log(4), rel=1e-9)


def test_the_best_policy_loses_nothing_and_chance_loses_all():
    world = grid()
    assert judge_policy(kb.plan(world, TRUTH), world, TRUTH).regret == pytest.approx(0, abs=1e-9)
    chance = judge_policy(kb.Policy.uniform(9, 5), world, TRUTH)
    assert chance.regret == pytest.approx(1)
    assert (chance.log_density, chance.coverage) == (None, None)


def test_a_point_has_neither_density_nor_coverage():
    judged = judge_posterior(posterior(TRUTH[None] * 5), grid(), TRUTH, BOX, planned=10)
    assert judged.regret == pytest.approx(0, abs=1e-9)
    assert (judged.log_density, judged.bounded, judged.coverage) == (None, None, None)


def test_the_density_integrates_to_one_over_the_priors_box():
    """Also where the draws crowd at its edge: a kernel that leaked over it would lose half."""
    draws = np.clip(np.random.default_rng(1).normal([0.95, 0.0], 0.1, (40, 2)), -1, 1)
    middles = -1 + (2 * np.arange(50) + 1) / 50  # narrower than the kernels, so the midpoint rule is all but exact
    total = sum(np.exp(log_density_at(draws, np.array([x, y]), BOX)) for x in middles for y in middles) / 25**2
    assert total == pytest.approx(1, abs=0.01)


def test_the_prior_itself_scores_zero_and_a_far_miss_is_bounded():
    """The estimate's noise with 20,000 draws is a few per cent."""
    many = BOX.sample(np.random.default_rng(2), 20_000)
    assert log_density_at(many, np.zeros(2), BOX) - log_prior(BOX, np.zeros(2)) == pytest.approx(0, abs=0.1)
    narrow = np.random.default_rng(3).normal(-0.5, 1e-3, (200, 2))
    judged = judge_posterior(posterior(narrow), grid(), TRUTH, BOX, planned=4)
    assert judged.log_density < -1000
    assert judged.bounded == pytest.approx(np.log(0.001), abs=1e-6)
    assert judged.coverage == 0


def test_coverage_counts_parameters():
    draws = np.stack([np.linspace(-1, 1, 101), np.linspace(0, 0.2, 101)], axis=1)
    assert covered(draws, np.array([0.5, 0.5]), 0.9) == 0.5
    assert covered(draws, np.array([0.95, 0.1]), 0.9) == 0.5
    assert covered(draws, np.array([0.0, 0.1]), 0.9) == 1.0


def rows_of(method, n, numbers):
    """One row for each (seed, task, regret)."""
    keys = {"world": "w", "method": method, "n": n, "evd": 1.0, "fit_seconds": 0.0, "problem": None}
    return [{**keys, "seed": s, "task": t, "regret": value, "seconds": 1.0 + t} for s, t, value in numbers]


def test_the_summary_averages_tasks_within_seeds_first():
    rows = rows_of("kdbirl", 10, [(0, 0, 0.0), (0, 1, 0.0), (0, 2, 0.3), (1, 0, 0.5)])
    (found,) = summary(rows)
    assert found["regret"] == pytest.approx((0.1 + 0.5) / 2)
    assert found["regret_error"] == pytest.approx(np.std([0.1, 0.5], ddof=1) / np.sqrt(2))
    assert (found["seeds"], found["answers"], found["failed"], found["seconds"]) == (2, 4, 0, 1.5)
    assert (found["coverage"], found["coverage_error"]) == (None, None)


def test_the_tables_read_as_they_should():
    rows = rows_of("kdbirl", 10, [(0, 0, 0.25)]) + rows_of("npe", 10, [(0, 0, 0.5)])
    rows[1] |= {"regret": None, "problem": "No, not here."}
    read = list(csv.DictReader(io.StringIO(csv_text(rows))))
    assert tuple(read[0]) == COLUMNS
    assert [row["regret"] for row in read] == ["0.25", ""]
    assert [row["problem"] for row in read] == ["", "No, not here."]
    text = summary_text(summary(rows), {"kdbirl": "KD-BIRL"}, "title")
    assert "KD-BIRL  10    0.25" in text
    assert "1 answer failed" in text


def test_the_summary_fits_a_terminal():
    rows = rows_of("birl-tuned", 1000, [(0, 0, 1234.5), (1, 0, -12345.6)])
    rows = [row | {"regret_of_mean": row["regret"], "bounded": row["regret"], "seconds": 1234.5} for row in rows]
    text = summary_text(summary(rows), {"birl-tuned": "A method with a very long name"}, "title")
    assert max(map(len, text.splitlines())) <= 80
    assert "\nA metho " in text


def test_every_measure_has_a_panel_with_the_methods_that_have_it():
    rows = rows_of("kdbirl", 10, [(0, 0, 0.2), (1, 0, 0.4)]) + rows_of("cloning", 100, [(0, 0, 0.1), (1, 0, 0.2)])
    figure = plot_comparison(summary(rows), title="w")
    assert len(figure.axes) == len(MEASURES)
    labels = [panel.get_legend_handles_labels()[1] for panel in figure.axes]
    assert labels == [["KD-BIRL", "Behaviour cloning"], [], [], ["KD-BIRL", "Behaviour cloning"]]


def test_methods_are_chosen_by_name():
    assert chosen_contenders(["birl", "kdbirl", "birl"]) == ("birl", "kdbirl")
    assert chosen_contenders(["all"]) == tuple(CONTENDERS)
    with pytest.raises(InputError, match=r"no method called 'brl'. Did you mean 'birl'"):
        chosen_contenders(["brl"])
    with pytest.raises(InputError, match="at least one method"):
        chosen_contenders([])


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"tasks": 0}, "tasks=0"),
        ({"seeds": 0}, "seeds=0"),
        ({"rows": ()}, "at least one number"),
        ({"rows": (10, 0)}, "rows=0"),
        ({"training_tasks": 1}, "training-tasks=1"),
        ({"methods": ("x",)}, "no method called 'x'"),
    ],
)
def test_a_comparison_refuses_what_cannot_be_run(change, sentence):
    with pytest.raises(InputError, match=sentence):
        Comparison("gridworld:2", **change)


def test_a_budget_has_whole_numbers():
    with pytest.raises(InputError, match="draws=2"):
        Budget(draws=2)


def test_the_first_rows_are_whole_episodes_and_the_last_is_marked_as_cut():
    world = kb.Gridworld(2)
    shown = kb.rollout(world, "random", episodes=4, horizon=3, seed=0)
    rows = first_rows(shown, 5)
    assert rows.episodes.tolist() == [0, 0, 0, 1, 1]
    assert rows.truncated.tolist() == [False, False, True, False, True]
    assert np.array_equal(rows.states[:3], shown.states[shown.episodes == 0])


def small(**changes):
    study = Comparison("gridworld:2", CHEAP, tasks=2, rows=(5, 20), seeds=2, training_tasks=4, episodes=3, horizon=5)
    return replace(study, **changes)


def test_a_study_goes_on_where_it_was_and_larger_ones_add_to_it(tmp_path):
    store = CellStore(tmp_path)
    first = small().run(store)
    assert len(first) == 2 * 3 * 2 * 2
    assert [row["problem"] for row in first] == [None] * len(first)
    written = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    assert small().run(store) == first
    more = small(seeds=3, rows=(5, 20, 30), methods=(*CHEAP, "birl-tuned")).run(store)
    assert all(row in more for row in first)
    assert {path: path.stat().st_mtime_ns for path in written} == written
    assert small(training_tasks=5)._key("prior", 5, 0, 0) != small()._key("prior", 5, 0, 0)


class Corridor(gymnasium.Env):
    """Two cells with a table of transitions, which a user may edit and register again under the same name."""

    observation_space, action_space = gymnasium.spaces.Discrete(2), gymnasium.spaces.Discrete(2)

    def __init__(self, slip):
        moves = {a: [(1 - slip, a, 0.0, False), (slip, 1 - a, 0.0, False)] for a in range(2)}
        self.P, self.initial_state_distrib = dict.fromkeys(range(2), moves), np.array([0.5, 0.5])


def test_a_world_that_changed_under_its_name_is_not_answered_from_the_store(tmp_path):
    found = []
    for slip in (0.0, 0.4):
        gymnasium.register("Corridor-v0", lambda slip=slip: Corridor(slip), disable_env_checker=True)
        study = small(env="Corridor-v0", discount=0.9, methods=("prior",), seeds=1, rows=(5,), tasks=1)
        found.append(study.run(CellStore(tmp_path))[0]["evd"])
        del gymnasium.registry["Corridor-v0"]
    assert found[0] != found[1]


def test_all_methods_get_the_same_rows_and_none_the_truth():
    """The expert depends on seed and task; rewards of test tasks are none of the bank's."""
    one, two = _Trial(small(), 1), _Trial(small(methods=("kdbirl",)), 1)
    assert one.expert(20, 1).fingerprint() == two.expert(20, 1).fingerprint()
    assert one.expert(20, 1).n_rows == 20
    assert one.bank.fingerprint() == two.bank.fingerprint()
    assert one.bank.fingerprint() != _Trial(small(), 0).bank.fingerprint()
    assert not any(np.allclose(one.truth(task), reward) for task in range(2) for reward in one.bank.rewards)
    assert "truth" not in Setting.__dataclass_fields__


def test_a_refusal_is_a_row_with_its_sentence(tmp_path, monkeypatch):
    def refuse(setting):
        raise InputError("Not in this world.")

    refusing = Contender("prior", "", "posterior", (), "refuses", refuse)
    monkeypatch.setitem(contenders.CONTENDERS, "prior", refusing)
    rows = small(methods=("prior", "cloning"), seeds=1).run(CellStore(tmp_path))
    assert [row["problem"] for row in rows[:4]] == ["Not in this world."] * 4
    assert all(row["problem"] is None for row in rows[4:])
    table = summary(rows)
    assert (table[0]["failed"], table[0]["seconds"], table[0]["regret"]) == (2, None, None)
    assert "4 answers failed" in summary_text(table, {}, "")


def values_of(world, reward, chances):
    """V of a policy from the start distribution, by one linear solve over the arrays of the world."""
    table = np.einsum(
        "saq,q->sa", np.broadcast_to(phi_of(world), (world.n_states, world.n_actions, len(reward))), reward
    )
    chances = chances * ~world.terminal[:, None]
    moves = np.einsum("sa,sat->st", chances, world.transitions)
    return world.start @ np.linalg.solve(np.eye(world.n_states) - world.discount * moves, (chances * table).sum(axis=1))


def phi_of(world):
    phi = np.eye(world.n_states) if world.features is None else world.features
    return phi[:, None] if phi.ndim == 2 else phi


def optimal(world, reward):
    """Evenly over the best actions, by 600 sweeps: 0.95^600 is 4e-14."""
    values = np.zeros(world.n_states)
    for _ in range(600):
        q_values = phi_of(world) @ reward + world.discount * world.transitions @ values
        values = np.where(world.terminal, 0.0, q_values.max(axis=1))
    best = q_values > q_values.max(axis=1, keepdims=True) - 1e-9 * (1 + np.abs(q_values).max())
    return best / best.sum(axis=1, keepdims=True)


def judged_by_hand(world, truth, answer, planned):
    """EVD, regrets, log density, bounded and coverage of a policy's table, or of draws in the unit cube."""
    best = values_of(world, truth, optimal(world, truth))
    gap = best - values_of(world, truth, np.full((world.n_states, world.n_actions), 1 / world.n_actions))
    if isinstance(answer, kb.Policy):
        lost = best - values_of(world, truth, answer.probabilities)
        return [lost, lost / gap, lost / gap, None, None, None]
    draws = answer.draws.reshape(-1, len(truth))
    some = draws[np.unique(np.round(np.linspace(0, len(draws) - 1, min(planned, len(draws)))).astype(int))]
    lost, of_mean = (
        np.mean([best - values_of(world, truth, optimal(world, draw)) for draw in of])
        for of in (some, draws.mean(axis=0)[None])
    )
    if len(draws) < 100:
        return [lost, lost / gap, of_mean / gap, None, None, None]
    width = draws.std(axis=0, ddof=1) * len(draws) ** (-1 / (len(truth) + 4))
    kernels = truncnorm.logpdf(truth, -draws / width, (1 - draws) / width, loc=draws, scale=width)
    score = logsumexp(kernels.sum(axis=1)) - np.log(len(draws))  # the prior's own log density is 0
    inside = (np.quantile(draws, 0.05, axis=0) <= truth) & (truth <= np.quantile(draws, 0.95, axis=0))
    return [lost, lost / gap, of_mean / gap, score, np.log(0.999 * np.exp(score) + 0.001), inside.mean()]


def test_a_study_against_a_judge_of_loops(tmp_path, monkeypatch):
    """Every number of the table but the times, from the answers; and all methods were shown the same rows."""
    given = []

    class Recorded:
        def __init__(self, model):
            self.model = model

        def posterior(self, expert, seed):
            given.append((expert.fingerprint(), self.model.posterior(expert, seed=seed)))
            return given[-1][1]

        def policy(self, expert, seed):
            given.append((expert.fingerprint(), self.model.policy(expert, seed=seed)))
            return given[-1][1]

    for name in CHEAP:
        made = contenders.CONTENDERS[name].make
        recorded = replace(contenders.CONTENDERS[name], make=lambda setting, made=made: Recorded(made(setting)))
        monkeypatch.setitem(contenders.CONTENDERS, name, recorded)
    study = small(budget=Budget(draws=120, planned=10))
    rows = study.run(CellStore(tmp_path))
    shown = {}
    for row, (expert, answer) in zip(rows, given, strict=True):
        truth = _Trial(study, row["seed"]).truth(row["task"])
        measures = ("evd", "regret", "regret_of_mean", "log_density", "bounded", "coverage")
        for name, wanted in zip(measures, judged_by_hand(study.world, truth, answer, planned=10), strict=True):
            assert row[name] == (wanted if wanted is None else pytest.approx(wanted, rel=1e-9, abs=1e-9)), name
        shown.setdefault((row["seed"], row["task"], row["n"]), set()).add(expert)
    assert [len(found) for found in shown.values()] == [1] * 8
    assert len(set.union(*shown.values())) == 8
    for line in summary(rows):
        own = [row for row in rows if (row["method"], row["n"]) == (line["method"], line["n"])]
        means = [np.mean([row["regret"] for row in own if row["seed"] == seed]) for seed in range(2)]
        assert line["regret"] == pytest.approx(np.mean(means))
        assert line["regret_error"] == pytest.approx(sem(means))
